"""Collectives and shared files: a bad value of a gate fails its subject and no other one."""

import pytest
from bringup.kernel import judge
from bringup.kernel.plan import profile, subjects
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.subjects import scale_nodes, scale_ranks
from bringup.kernel.records import Kind, Value
from factory import a_run
from runs_for_tests import H100, PASS, Fact, parsed_of
from showing import shows_failing

AT_LIMIT = None
SPEED, SLOW, RATIO, COUNT, YES = (AT_LIMIT, 0.001), (1.0, 1e9), (1.0, 0.001), (0, 4), (True, False)
COLLECTIVES: dict[str, tuple[Value | None, Value]] = {  # gate: (good, bad) on eight H100 in a node
    "nccl.step": (0, 1),
    "nccl.rank.finished": ("finished", "hung"),
    "nccl.wrong_values": COUNT,
    "nccl.rank.wrong_values": COUNT,
    "nccl.groups.wrong_values": COUNT,
    "nccl.rank.local_time": (1.0, 1e4),
    "nccl.stall": (0.0, 20.0),
    "nccl.rank.stall": (0.0, 20.0),
    "nccl.rdma.bypassed": (False, True),
    "nccl.transport": ("rdma-verbs", "sockets"),
    "nccl.gdr": (1.0, 0.5),
    "nccl.nics": (8, 7),
    "nccl.p2p": (1.0, 0.875),
    "nccl.launch": (0.3, 15.2),
    "nccl.nvls": (True, False),
    **{f"nccl.{name}.busbw": SPEED for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "groups")},
    "nccl.pair.slowest": (AT_LIMIT, 0.0001),
    "nccl.pair.slowest.between": (AT_LIMIT, 0.0001),
    **dict.fromkeys(("nccl.all_reduce.latency", "nccl.pair.link.latency", "nccl.pair.node.latency"), SLOW),
    **{f"nccl.{name}": RATIO for name in ("curve.dip", "curve.plateau", "pair.link", "pair.link.steady", "pair.node")},
    "nccl.pair.topology": RATIO,
    "nccl.pair.node.lost": (0.0, 0.02),
    "nccl.monitor.overhead": (0.1, 99.0),
    "nccl.monitor.coverage": (1.0, 0.5),
    "nccl.monitor.clock": (0.001, 0.6),
    "nccl.monitor.slowdown": ("none", "hardware thermal"),
}
SEEN = ("write", "attributes", "append", "rename", "unlink", "lock_refused", "same_type")
FILES: dict[str, tuple[Value | None, Value]] = {
    **dict.fromkeys((f"smoke.fs.{name}" for name in ("reads_submit_host", "seen_by_submit_host", "looked")), YES),
    **dict.fromkeys((f"smoke.fs.pair.{name}" for name in SEEN), YES),
    "smoke.fs.writes": ("none", "Read-only file system"),
    "smoke.fs.pair.exclusive": (1, 2),
    **dict.fromkeys(("smoke.fs.late_lookup", "smoke.fs.pair.late_lookup"), (30.2, 65.1)),
    **dict.fromkeys((f"smoke.storage.{name}" for name in ("write", "read", "write_together", "files")), SPEED),
}
COUNTED = ("nccl.ranks", "nccl.hosts", "nccl.devices")  # as many as the scale has
VALUES = COLLECTIVES | FILES


def test_every_gate_of_both_rooms_is_among_those_that_are_shown_failing():
    elsewhere = ("nccl.device.", "nccl.variant.")  # test_devices.py, test_variants.py
    rooms = {gate for gate in GATES if gate.startswith(("nccl.", "smoke.fs.", "smoke.storage."))}
    assert {*VALUES, *COUNTED, "nccl.device"} == {gate for gate in rooms if not gate.startswith(elsewhere)}


@pytest.mark.parametrize(
    "gate", [pytest.param(gate, marks=shows_failing(gate), id=gate) for gate in (*VALUES, *COUNTED)]
)
def test_a_bad_value_fails_its_subject_alone(gate):
    """A gate that may only warn, warns. Where the profile of H100 nodes gives no number, that of the local cluster
    does."""
    h100, local = profile.load(H100), profile.load("local-cpu")
    expected = h100 if GATES[gate].expect != "profile" or gate in h100.expect else local
    run = a_run(GATES[gate].phases[0], ("n0", "n1", "n2"), gpus=8)
    subject, *others = run.planned[gate]
    size = f"@{expected.expect[gate].at}" if gate in expected.expect and expected.expect[gate].at else ""
    facts: list[Fact] = [(need, each, good(need, each)) for need in GATES[gate].needs for each in run.planned[need]]
    for each in (subject, *others):
        value = good(gate, each)
        if value is AT_LIMIT:  # above the ceiling of the machine no number is believed
            value = expected.limit(gate, subjects.nodes_of_scale(each) or len(run.nodes), 8).value
        bad = VALUES[gate][1] if gate in VALUES else good(gate, each) + 1
        facts.append((gate + size, each, bad if each == subject else value))
    verdicts = [v for v in judge.judge(run, expected, parsed_of(facts)).verdicts if v.gate == gate]
    assert {verdict.kind for verdict in verdicts} == {Kind.JUDGED}
    outcomes = {verdict.subject: verdict.outcome for verdict in verdicts}
    assert outcomes == {subject: GATES[gate].severity, **dict.fromkeys(others, PASS)}


def good(gate: str, scale: str) -> Value | None:
    if gate in COUNTED:
        return scale_nodes(scale) if gate == "nccl.hosts" else scale_ranks(scale, 8)
    return VALUES[gate][0]
