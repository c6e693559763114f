"""What nodes say of shared files, put together per pair and judged."""

from collections import Counter

import pytest
from bringup.derive.observed import derive
from bringup.evidence.parsed import Parsed, Seen
from bringup.plan import rounds
from bringup.plan.catalogue import GATES
from bringup.records import Outcome, Run, Value
from factory import a_run
from loops import for_each
from runs_for_tests import about, values
from showing import shows_failing

THREE = a_run("smoke", ("n0", "n1", "n2"))


def derived(run: Run, quantity: str, *facts: tuple[str, Value | None]) -> Parsed:
    parsed = Parsed()
    for index, (subject, value) in enumerate(facts):
        parsed.saw(quantity, subject, value, "flag", f"f:{index}", "it said" if value is None else None)
    return derive(Seen(parsed.observations), run)


@for_each(
    ("answers", "winners"),
    [((True, False), 1), ((True, True), 2), ((False, False), 0), ((True, None), None), ((True,), None)],
)
def test_both_nodes_of_a_pair_must_say_who_made_the_file(answers, winners):
    parsed = derived(THREE, "smoke.fs.pair.created", *(("n0->n1", answer) for answer in answers))
    assert values(parsed, "smoke.fs.pair.exclusive") == {"n0->n1": winners}


def test_why_a_pair_is_unknown_is_told():
    answers = derived(THREE, "smoke.fs.pair.created", ("n0->n1", True), ("n1->n2", True), ("n1->n2", None))
    assert {observation.subject: observation.why for observation in answers.observations} == {
        "n0->n1": "1 of 2 nodes answered",
        "n1->n2": "it said",
    }


def test_nodes_are_compared_in_pairs_by_type_of_filesystem():
    parsed = derived(THREE, "smoke.fs.type", ("n0", "nfs4"), ("n1", "nfs4"), ("n2", "tmpfs"))
    assert values(parsed, "smoke.fs.pair.same_type") == {
        "n0->n1": True,
        "n1->n0": True,
        "n1->n2": False,
        "n2->n1": False,
        "n2->n0": False,
        "n0->n2": False,
    }


def test_a_node_that_says_no_type_leaves_its_pairs_without_evidence():
    parsed = derived(THREE, "smoke.fs.type", ("n0", "nfs4"), ("n1", "nfs4"))
    assert values(parsed, "smoke.fs.pair.same_type") == {"n0->n1": True, "n1->n0": True}


def test_two_unknown_filesystem_types_are_not_one_type():
    parsed = derived(a_run("smoke"), "smoke.fs.type", ("n0", None), ("n1", None))
    assert values(parsed, "smoke.fs.pair.same_type") == {"n0->n1": None, "n1->n0": None}


@for_each(("nodes", "pairs"), [(1, 0), (2, 2), (4, 12), (16, 240), (50, 250), (1000, 1000)])
def test_every_ordered_pair_of_a_small_fleet_is_planned_and_a_bounded_number_of_a_large_one(nodes, pairs):
    names = [f"n{index}" for index in range(nodes)]
    pairs_planned = rounds.ordered_pairs(names)
    assert len(pairs_planned) == len(set(pairs_planned)) == pairs
    assert not any(writer == reader for writer, reader in pairs_planned)
    if nodes > 1:  # each node writes as often as it reads
        assert len({Counter(side)[name] for side in zip(*pairs_planned, strict=True) for name in names}) == 1


BAD: dict[str, Value] = {
    "smoke.fs.reads_submit_host": False,
    "smoke.fs.seen_by_submit_host": False,
    "smoke.fs.looked": False,
    "smoke.fs.late_lookup": 65.1,
    "smoke.fs.writes": "Read-only file system",
    "smoke.fs.pair.same_type": False,
    "smoke.fs.pair.write": False,
    "smoke.fs.pair.attributes": False,
    "smoke.fs.pair.append": False,
    "smoke.fs.pair.rename": False,
    "smoke.fs.pair.unlink": False,
    "smoke.fs.pair.lock_refused": False,
    "smoke.fs.pair.exclusive": 2,
    "smoke.fs.pair.late_lookup": 65.1,
    "smoke.storage.write": 0.001,
    "smoke.storage.read": 0.001,
    "smoke.storage.write_together": 0.001,
    "smoke.storage.files": 1.0,
}


def test_every_gate_of_the_room_is_among_those_that_are_shown_failing():
    assert set(BAD) == {gate for gate in GATES if gate.startswith(("smoke.fs.", "smoke.storage."))}


@pytest.mark.parametrize("gate", [pytest.param(gate, marks=shows_failing(gate), id=gate) for gate in BAD])
def test_a_bad_value_fails_its_subject_alone(gate):
    """A gate that may only warn, warns."""
    run, bad, unit = a_run("smoke"), BAD[gate], GATES[gate].unit
    subject, *others = run.planned[gate]
    parsed = Parsed()
    for need in GATES[gate].needs:
        for each in run.planned[need]:
            parsed.saw(need, each, True, "flag", "e")
    parsed.saw(gate, subject, bad, unit, "e")
    for other in others:
        parsed.saw(gate, other, good(bad), unit, "e")
    outcomes = {subject: verdict.outcome for subject, verdict in about(gate, parsed, run).items()}
    assert outcomes == {subject: GATES[gate].severity, **dict.fromkeys(others, Outcome.PASS)}


def good(bad: Value) -> Value:
    if isinstance(bad, bool):
        return not bad
    if isinstance(bad, str):
        return "none"
    return {2: 1, 65.1: 30.2}.get(bad, 1e6) if isinstance(bad, int | float) else bad
