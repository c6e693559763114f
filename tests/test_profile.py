"""Profiles: expected numbers with unit and source."""

import pytest
from bringup import judge
from bringup.checks import catalogue as gates
from bringup.checks import planned as plan
from bringup.errors import ProfileError
from bringup.evidence.parsed import Parsed
from bringup.plan import profile
from bringup.plan.gate import FromProfile
from bringup.plan.profile import PROFILES, load, parse
from bringup.records import Outcome, Run

GOOD = """
schema_version: 1
name: here
description: a test
expect:
  nccl.transport: {one_of: [IB], unit: text, source: "a test"}
"""


def test_every_shipped_profile_loads_and_names_only_gates_that_exist():
    names = [path.stem for path in PROFILES.glob("*.yaml")]
    assert len(names) >= 4
    for name in names:
        loaded = load(name)
        assert loaded.name == name
        assert {*loaded.expect, *(entry.gate for entry in loaded.not_applicable)} <= set(gates.GATES)


def test_every_shipped_number_is_in_the_unit_of_its_gate():
    checked = 0
    for path in PROFILES.glob("*.yaml"):
        for gate, expectation in load(path.stem).expect.items():
            assert isinstance(gates.GATES[gate].expect, FromProfile)
            assert expectation.unit == gates.GATES[gate].unit, gate
            checked += 1
    assert checked > 10


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: [", "not valid YAML"),
        ("just text", "the file is a str"),
        ("", "the file is empty"),
        ("# a comment alone", "the file is empty"),
        ("[1, 2]", "the file is a list"),
        (GOOD + "name: again", r"here.yaml:7: name is given twice, first in line 3"),
        (GOOD + '  nccl.transport: {one_of: [NET], unit: text, source: "a test"}', "transport is given twice"),
        (GOOD.replace("one_of: [IB]", "one_of: [IB], one_of: [NET]"), r"here.yaml:6: one_of is given twice"),
        (
            GOOD.replace("one_of: [IB]", "at_lest: 3"),
            r"transport\.at_lest: there is no such key; did you mean at_least\?",
        ),
        (GOOD.replace("one_of: [IB]", "at_least: 1e5"), r"at_least: YAML reads 1e5 as a text; write 100000"),
        (GOOD.replace("one_of: [IB]", "at_least: many"), r"at_least: Input should be a valid number"),
        (GOOD + "machine: {mfu: {valu: 1, source: abc}}", r"machine\.mfu\.value: is missing|did you mean value"),
        (GOOD + "machine: {gpu_memory: 80}", "did you mean gpu_memory_gib"),
        (GOOD + "expects: {}", "did you mean expect"),
        (GOOD.replace("name: here\n", ""), "name: is missing"),
        (GOOD + "x: " + "[" * 5000, "not valid YAML"),
        (GOOD.replace('source: "a test"', ""), "source"),
        (GOOD.replace("unit: text, ", ""), "unit"),
        (GOOD.replace("one_of: [IB]", "one_of: [IB], at_least: 3"), "exactly one"),
        (GOOD.replace("one_of: [IB], ", ""), "exactly one"),
        (GOOD.replace("one_of: [IB]", "one_off: [IB]"), "one_off"),
        (
            GOOD.replace("schema_version: 1", "schema_version: 9"),
            "schema_version: 9 is unknown to this version of bringup, which knows 1",
        ),
        (GOOD + "not_applicable: [{gate: ib.rate}]", "reason"),
    ],
)
def test_a_profile_that_cannot_be_used_is_refused_with_the_key(text, says):
    with pytest.raises(ProfileError, match=says) as error:
        parse(text, "here.yaml")
    assert "\n" not in str(error.value)
    assert "here.yaml" in str(error.value)


def test_a_gate_that_is_misspelled_is_told_from_its_neighbours():
    with pytest.raises(ProfileError, match=r"did you mean nccl\.transport\?"):
        gates.check(parse(GOOD.replace("nccl.transport", "nccl.trasport"), "here.yaml"))


def test_yaml_that_would_run_code_is_refused():
    with pytest.raises(ProfileError):
        parse("!!python/object/apply:os.system ['true']", "here.yaml")


def test_an_unknown_profile_is_refused_with_the_names_there_are():
    with pytest.raises(ProfileError, match="local-cpu"):
        load("nowhere")
    with pytest.raises(ProfileError, match="no such file"):
        load("/tmp/not there.yaml")


def test_extends_adds_and_replaces(tmp_path):
    path = tmp_path / "site one.yaml"
    path.write_text(GOOD.replace("name: here", "name: here\nextends: local-cpu"))
    loaded = load(str(path))
    assert loaded.expect["nccl.transport"].expected == ["IB"]
    assert "nccl.all_reduce.busbw" in loaded.expect
    assert profile.parse(profile.dump(loaded), "dumped") == loaded


def test_what_a_profile_expects_again_is_applicable_again(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text(
        GOOD.replace("name: here", "name: here\nextends: local-cpu").replace(
            "expect:", 'expect:\n  train.scaling: {at_least: 0.9, unit: share, source: "a test"}'
        )
    )
    assert load(str(path)).reason_not_applicable("train.scaling") is None
    assert load("local-cpu").reason_not_applicable("train.scaling") is not None


def test_a_number_in_the_wrong_unit_is_refused_before_anything_runs(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text(GOOD.replace("unit: text", "unit: Gb/s"))
    with pytest.raises(ProfileError, match=r"nccl.transport.*Gb/s.*text"):
        gates.check(load(str(path)))


def test_a_floor_that_a_profile_turns_into_a_ceiling_is_refused_when_it_is_loaded(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text(
        GOOD.replace(
            "expect:", 'expect:\n  nccl.all_reduce.busbw: {at_most: 380, at: 8GiB, unit: GB/s, source: "a test"}'
        )
    )
    with pytest.raises(ProfileError, match=r"all_reduce.busbw is declared as at_most, the gate is at_least"):
        gates.check(load(str(path)))


@pytest.mark.parametrize("name", ["generic", "local-cpu", "local-cpu-unconfined", "h100-8x400g"])
def test_every_profile_that_is_shipped_keeps_to_the_gates_and_is_the_same_in_a_runs_folder(name):
    gates.check(load(name))
    assert profile.parse(profile.dump(load(name)), "profile.yaml") == load(name)


@pytest.mark.parametrize(("nodes", "floor"), [(2, 380), (8, 380), (16, 345), (31, 345), (32, 336), (512, 326)])
def test_a_floor_depends_on_the_number_of_nodes(nodes, floor):
    assert load("h100-8x400g").expect["nccl.all_reduce.busbw"].limit(nodes) == floor


def test_a_wrong_unit_in_an_old_run_is_incomplete_and_never_compared():
    run = Run(
        phase="nccl_scaling",
        name="x",
        profile_sha256="",
        nodes=["n0", "n1"],
        gpus_per_node=2,
        ranks_per_node=2,
        profile="here",
        planned=plan.plan("nccl_scaling", ["n0", "n1"], 2, set()),
        not_applicable=[],
        argv=[],
        git_commit=None,
        git_dirty=None,
        slurm_job_id=None,
        slurm_restart_count=0,
        opened_at="now",
    )
    parsed = Parsed()
    parsed.saw("nccl.transport", "2-nodes", "IB", "text", "f:1")
    parsed.saw("nccl.ranks", "2-nodes", 4, "count", "f:2")
    verdicts = judge.judge(run, parse(GOOD.replace("unit: text", "unit: Gb/s"), "here"), parsed)
    assert next(v for v in verdicts.verdicts if v.gate == "nccl.transport").outcome is Outcome.INCOMPLETE
