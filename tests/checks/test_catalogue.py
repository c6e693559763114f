"""Files of checks: strict, and an error names file, line, check and field."""

import re
from string import Formatter

import pytest
from bringup.drill import catalogue as drills
from bringup.kernel.errors import FileError
from bringup.kernel.plan import catalogue
from bringup.kernel.plan.claims import CLAIMS
from bringup.kernel.plan.gate import Fixed, Gate, Requested
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.variants import VARIANTS
from bringup.kernel.records import Action
from bringup.readers.node_states import USABLE_STATES
from loops import for_each

MOST_CHARACTERS = 100
TEXT = """\
page: 01-environment
defaults: {phases: [discovery], per: node}
sections:
- title: Counters
  action: watch
  checks:
    a.count:
      proves: it is small
      unit: count
      at_most: profile
---
defaults: {shape: {nodes: 3}, subject: n1}
drills:
  a.count:
    large:
      fault: it is large
      inject: [port n1 mlx5_1 flap 23]
      value: 23
"""


UNIT, PORT, MOST = "unit: count", "[port n1 mlx5_1 flap 23]", "at_most: profile"
NO_KEY = "there is no such key; did you mean"


@for_each(
    ("proves:", "prove:", 8, f"a.count: prove: {NO_KEY} proves?"),
    (UNIT, "fails: '{value} of {most}'\n      unit: count", 9, "a.count: fails: {most} is not known here; "),
    (UNIT, "fails: '{value:d} errors'\n      unit: count", 9, "a.count: fails: {value} is not known here; "),
    (UNIT, "fails: 'errors {'\n      unit: count", 9, "a.count: fails: "),
    (UNIT, "unit: 3", 9, "a.count: unit: YAML reads it as 3; put it in quotes"),
    (MOST, "at_mst: profile", 7, "a.count: needs one of equals, at_least, "),
    (MOST, "at_most: profile\n      equals: 0", 7, "a.count: needs one of equals, at_least, "),
    (MOST, "at_most: {requested: gpus}", 7, "a.count: expect"),
    (UNIT, "unit: count\n      unit: s", 10, "unit is given twice, first in line 9; keep one"),
    ("value: 23", "valu: 23", 18, f"large: valu: {NO_KEY} value?"),
    (PORT, "[port 'n1]", 17, "large: inject.0: No closing quotation"),
    (PORT, "[[port, n1]]", 17, "large: inject.0: "),
    ("nodes: 3", "node: 3", 15, "large: shape.node: "),
    ("subject: n1", "subjekt: n1", 15, f"large: subjekt: {NO_KEY} subject?"),
    ("  a.count:\n    large", "  a.cont:\n    large", 14, "drills: the first part of the file has no 'a.cont'"),
    ("drills:", "sections: {Countrs: {}}\ndrills:", 13, "sections: the first part of the file has no 'Countrs'"),
    ("phases: [discovery]", "phases: 3", 7, "a.count: phases: Input should be a valid array"),
    (UNIT, "unit: count\n      drills: {}", 10, "a.count: drills stand at the end of the file, behind a line `---`"),
    ("page: 01", "pages: 01", 1, f"pages: {NO_KEY} page?"),
    ("action: watch", "action: repair", 5, "sections.0.action: Input should be 'watch', 'configure', "),
    *(
        (UNIT, f"unit: count\n      from: {fold}", 10, f"a.count: from: {says}")
        for fold, says in (
            ("worse x.y", "'worse' is no fold; there are as-is, each, "),
            ("worst", "worst is followed by a fact"),
            ("worst x.y of gpus", "of gpus: needs a fact, a number, "),
            ("worst x.y of", "'worst x.y of' is not the name"),
            ("worst x.y of max(z)", "'max(z)' is not the name"),
            ("computed gpu", "computed is followed by nothing"),
            ("setting x.y z.w", "setting is followed by one fact"),
            ("share x", "share is followed by counters, and behind"),
            ("3", ""),
        )
    ),
    ("[discovery]", "[discovery", 2, "not valid YAML: "),
)
def test_an_error_names_file_line_check_and_field(tmp_path, old, new, line, says):
    path = tmp_path / "x.yaml"
    path.write_text(TEXT, encoding="utf-8")
    assert [gate.id for gate in catalogue.read(path)] == ["a.count"]
    assert [drill.id for drill in drills.read(path, catalogue.read(path))] == ["large"]
    path.write_text(TEXT.replace(old, new), encoding="utf-8")
    with pytest.raises(FileError, match=re.escape(f"{path}:{line}: {says}")):
        drills.read(path, catalogue.read(path))
    with pytest.raises(FileError, match="cannot be read"):
        catalogue.read(tmp_path / "fabric.yaml")


def test_every_file_of_checks_is_read_and_every_id_stands_there_once_as_it_is():
    files = {path.stem: path.read_text(encoding="utf-8") for path in catalogue.CHECKS.glob("*.yaml")}
    assert sorted(files) == sorted(catalogue.FILES)
    text = "\n".join(files.values())
    for id in (*catalogue.GATES, *drills.DECLARED):
        assert len(re.findall(rf"^    {re.escape(id)}:$", text, re.MULTILINE)) == 1, id
    assert len(catalogue.GATES) >= 230


def test_checks_name_phases_and_claims_that_exist():
    claims = {claim.id for claim in CLAIMS}
    for gate in catalogue.GATES.values():
        assert gate.phases and set(gate.phases) <= set(PHASES), gate.id
        assert (gate.claims or gate.bears_on) and {*gate.claims, *gate.bears_on} <= claims, gate.id
        assert (gate.expect == "fleet") is (gate.rule in ("all_equal", "all_distinct")), gate.id
        assert {*gate.needs, *gate.explained_by, *gate.decided_by} <= set(catalogue.GATES), gate.id


def test_a_drill_has_the_phase_and_the_outcome_of_its_check_unless_it_gives_its_own():
    flaps = catalogue.GATES["discovery.rdma.flaps"]
    drill = drills.DECLARED["rdma-flaps"]
    assert (drill.phase, drill.outcome, drill.gate) == ("discovery", flaps.severity, flaps.id)
    assert drill.inject == (("port", "n1", "mlx5_1", "flap", "23"),)
    assert drill.undo == (("gpu", "n1", "repair"),)
    assert drills.DECLARED["node-drained"].inject == (
        ("sh", "bash", "-euc", "scontrol update NodeName=n1 State=DRAIN Reason=drill"),
    )


def test_checks_of_kinds_of_phases_are_in_every_phase_of_the_kind():
    kinds = {
        "run.closed": lambda phase: True,
        "load.kernel_log": lambda phase: phase.stem not in ("discovery", "smoke"),
        "load.tcp_sent_again": lambda phase: phase.stem not in ("discovery", "smoke", "node_sweep"),
        "train.exit_code": lambda phase: phase.is_training,
        "train.transport": lambda phase: phase.is_training and phase.min_nodes > 1,
        "train.loss.agrees": lambda phase: phase.is_training and phase.strategy != "single",
        "train.shard.size": lambda phase: phase.strategy in ("fsdp", "hsdp"),
        "train.replicas.difference": lambda phase: phase.strategy in ("ddp", "hsdp"),
    }
    for gate, belongs in kinds.items():
        assert catalogue.GATES[gate].phases == tuple(stem for stem, phase in PHASES.items() if belongs(phase)), gate


def test_checks_say_what_the_code_says():
    assert catalogue.GATES["discovery.node.state"].expect == Fixed(USABLE_STATES)
    for variant in VARIANTS:
        for kind in ("effect", "busbw"):
            gate = catalogue.GATES[f"nccl.variant.{variant.name}.{kind}"]
            assert variant.says in gate.proves and gate.max_nodes == variant.most_nodes, gate.id


def test_each_check_says_in_a_short_sentence_what_is_wrong():
    """Where the limit is not the same everywhere, it is in the sentence, and what was observed as well."""
    for gate in catalogue.GATES.values():
        assert gate.fails != Gate.model_fields["fails"].default, f"{gate.id}: has no `fails` of its own"
        assert len(gate.fails) <= MOST_CHARACTERS, f"{gate.id}: {len(gate.fails)} characters: {gate.fails}"
        assert not gate.fails.endswith((".", " ")), f"{gate.id}: ends with a full stop or a space"
        places = {name for _, name, _, _ in Formatter().parse(gate.fails) if name is not None}
        varies = gate.expect == "profile" or isinstance(gate.expect, Requested)
        if varies and gate.unit != "flag":
            assert places == {"value", "limit"}, f"{gate.id}: does not name both numbers: {gate.fails}"
        if gate.unit == "count":
            assert "value" in places or gate.id == "smoke.requeue", f"{gate.id}: gives no number: {gate.fails}"


def test_only_a_device_that_calls_itself_beyond_repair_is_replaced_at_once():
    """All else is reset, rebooted, reseated or set first."""
    replaced = [gate.id for gate in catalogue.GATES.values() if gate.helps is Action.REPLACE]
    assert replaced == ["discovery.gpu.remap_failed"]
