"""What nodes say of shared files, put together per pair and judged."""

from collections import Counter

import pytest
from bringup.derive.observed import derive
from bringup.evidence.parsed import Parsed, Seen
from bringup.plan import rounds
from bringup.plan.catalogue import GATES
from bringup.records import Value
from factory import a_run
from loops import for_each
from runs_for_tests import PASS, about, parsed_of, values
from showing import shows_failing

THREE = ("n0", "n1", "n2")


def derived(quantity: str, facts: list[tuple[str, Value | None]], nodes: tuple[str, ...] = THREE) -> Parsed:
    seen = parsed_of((f"smoke.fs.{quantity}", subject, value) for subject, value in facts).observations
    return derive(Seen(seen), a_run("smoke", nodes))


@for_each(
    ("answers", "winners"),
    [((True, False), 1), ((True, True), 2), ((False, False), 0), ((True, None), None), ((True,), None)],
)
def test_both_nodes_of_a_pair_must_say_who_made_the_file(answers, winners):
    parsed = derived("pair.created", [("n0->n1", answer) for answer in answers])
    assert values(parsed, "smoke.fs.pair.exclusive") == {"n0->n1": winners}


def test_why_a_pair_is_unknown_is_told():
    answers = derived("pair.created", [("n0->n1", True), ("n1->n2", True), ("n1->n2", None)]).observations
    assert {seen.subject: seen.why for seen in answers} == {"n0->n1": "1 of 2 nodes answered", "n1->n2": "not read"}


BOTH = ("n0->n1", "n1->n0")


@for_each(
    ("types", "alike", "differ"),
    [
        ({"n0": "nfs4", "n1": "nfs4", "n2": "tmpfs"}, BOTH, ("n1->n2", "n2->n1", "n2->n0", "n0->n2")),
        ({"n0": "nfs4", "n1": "nfs4"}, BOTH, ()),  # n2 said no type: its pairs are without evidence
        ({"n0": None, "n1": None}, (), ()),  # two unknown types are not one type
    ],
)
def test_nodes_are_compared_in_pairs_by_type_of_filesystem(types, alike, differ):
    known = values(derived("type", list(types.items())), "smoke.fs.pair.same_type")
    expected = dict.fromkeys(alike, True) | dict.fromkeys(differ, False)
    assert {pair: same for pair, same in known.items() if same is not None} == expected
    assert alike or known == dict.fromkeys(BOTH, None)


@for_each(("nodes", "pairs"), [(1, 0), (2, 2), (4, 12), (16, 240), (50, 250), (1000, 1000)])
def test_every_ordered_pair_of_a_small_fleet_is_planned_and_a_bounded_number_of_a_large_one(nodes, pairs):
    names = [f"n{index}" for index in range(nodes)]
    pairs_planned = rounds.ordered_pairs(names)
    assert len(pairs_planned) == len(set(pairs_planned)) == pairs
    assert not any(writer == reader for writer, reader in pairs_planned)
    if nodes > 1:  # each node writes as often as it reads
        assert len({Counter(side)[name] for side in zip(*pairs_planned, strict=True) for name in names}) == 1


SEEN = ("write", "attributes", "append", "rename", "unlink", "lock_refused", "same_type")
BAD: dict[str, Value] = {
    **dict.fromkeys((f"smoke.fs.{name}" for name in ("reads_submit_host", "seen_by_submit_host", "looked")), False),
    **dict.fromkeys((f"smoke.fs.pair.{name}" for name in SEEN), False),
    "smoke.fs.writes": "Read-only file system",
    "smoke.fs.pair.exclusive": 2,
    "smoke.fs.late_lookup": 65.1,
    "smoke.fs.pair.late_lookup": 65.1,
    **dict.fromkeys((f"smoke.storage.{name}" for name in ("write", "read", "write_together")), 0.001),
    "smoke.storage.files": 1.0,
}


def test_every_gate_of_the_room_is_among_those_that_are_shown_failing():
    assert set(BAD) == {gate for gate in GATES if gate.startswith(("smoke.fs.", "smoke.storage."))}


@pytest.mark.parametrize("gate", [pytest.param(gate, marks=shows_failing(gate), id=gate) for gate in BAD])
def test_a_bad_value_fails_its_subject_alone(gate):
    """A gate that may only warn, warns."""
    run, bad = a_run("smoke"), BAD[gate]
    subject, *others = run.planned[gate]
    facts = [(need, each, True) for need in GATES[gate].needs for each in run.planned[need]]
    facts += [(gate, subject, bad), *((gate, other, good(bad)) for other in others)]
    outcomes = {subject: verdict.outcome for subject, verdict in about(gate, parsed_of(facts), run).items()}
    assert outcomes == {subject: GATES[gate].severity, **dict.fromkeys(others, PASS)}


def good(bad: Value) -> Value:
    if isinstance(bad, bool):
        return not bad
    return "none" if isinstance(bad, str) else {2: 1, 65.1: 30.2}.get(bad, 1e6)
