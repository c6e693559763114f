"""What follows from what collectives measured, and that every gate on it can fail."""

import pytest
from bringup import judge
from bringup.derive.observed import derive
from bringup.evidence import slurm
from bringup.evidence.parsed import Parsed, Seen
from bringup.plan import profile, subjects
from bringup.plan.catalogue import GATES
from bringup.plan.subjects import scale_nodes, scale_ranks
from bringup.records import Kind, Observation, Outcome, Value
from factory import a_run
from loops import for_each
from runs_for_tests import as_read
from showing import shows_failing

RUN = a_run("nccl_scaling")


def derived(parsed: Parsed, quantity: str) -> list[Observation]:
    seen = derive(Seen(as_read(parsed).observations), RUN).observations
    return [observation for observation in seen if observation.quantity == quantity]


# ---- the step


def step(code: int, *errors: tuple[str, str, str, str | None]) -> Observation:
    parsed = Parsed()
    parsed.saw("nccl.step.exit_code", "2-nodes", code, "count", "raw/collectives-2.rc")
    for file, subject, message, why in errors:
        parsed.saw("slurm.launch.error", subject, message, "text", f"raw/{file}:7", why)
    (observation,) = derived(parsed, "nccl.step")
    assert len(parsed.observations) == 1 + len(errors)  # what was read stays as it was
    assert parsed.observations[0].why is None
    return observation


def test_the_task_that_srun_named_first_stands_beside_the_exit_code():
    culprit = step(
        3,
        ("collectives-2.err", "n1", "Exited with exit code 3", "task 3"),
        ("collectives-2.err", "n0", "Killed", "task 0"),
    )
    assert (culprit.value, culprit.why) == (3, "first n1: task 3: Exited with exit code 3")
    assert culprit.evidence == "raw/collectives-2.rc"


STEP_ENDED = """\
0: slurmstepd-n0: error: *** STEP 878006.0 ON n0 CANCELLED AT 2026-11-28T13:04:42 DUE TO {why} ***
srun: Job step aborted: Waiting up to 7 seconds for job step to finish.
srun: error: n0: tasks 0-1: Terminated
srun: launch/slurm: _step_signal: Terminating StepId=878006.0
"""  # of Slurm 22.05.8, with --label


@for_each(
    ("why", "value", "says"),
    [
        (
            "PREEMPTION",
            None,
            "Slurm ended the step: preemption (raw/collectives-2.err:1); run it again, in a partition",
        ),
        ("TIME LIMIT", None, "Slurm ended the step: time limit (raw/collectives-2.err:1); run it again, with a longer"),
        ("NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", 143, "first n0: tasks 0-1: Terminated"),
    ],
)
def test_a_step_that_slurm_ended_is_no_fault_of_its_program(why, value, says):
    """A job of a higher partition failed nccl.step with exit code 143, and the cluster with it."""
    parsed = slurm.launch_errors(STEP_ENDED.format(why=why), "raw/collectives-2.err")
    parsed.saw("nccl.step.exit_code", "2-nodes", 143, "count", "raw/collectives-2.rc")
    (observation,) = derived(parsed, "nccl.step")
    assert observation.value == value
    assert str(observation.why).startswith(says)


def test_ranks_that_did_not_come_are_the_cause_and_not_the_rank_that_waited_for_them():
    words = "1 of 4 ranks did not arrive within 8 s: rank 3 (n1); BRINGUP_START_S sets how long to wait"
    parsed = Parsed()
    for file in ("1", "2"):
        parsed.saw("nccl.step.exit_code", f"{file}-nodes", 1, "count", f"raw/collectives-{file}.rc")
        parsed.saw(
            "slurm.launch.error", "n0", "Exited with exit code 1", "text", f"raw/collectives-{file}.err:7", "task 0"
        )
    parsed.saw("nccl.rank.late", "n1/rank3", 8, "s", "raw/collectives-2.jsonl:1", words)
    observation, two = derived(parsed, "nccl.step")
    assert (two.value, two.why) == (1, words)
    assert observation.why == "first n0: task 0: Exited with exit code 1"


def test_errors_of_another_step_are_not_taken_for_those_of_this_one():
    assert (
        step(3, ("collectives-1.err", "n1", "Killed", None), ("collectives-21.err", "n1", "Killed", None)).why is None
    )


def test_a_step_that_ended_well_has_no_culprit():
    culprit = step(0, ("collectives-2.err", "n1", "Killed", None))
    assert (culprit.value, culprit.why) == (0, None)


# ---- latency


def test_the_time_of_an_all_reduce_is_its_latency_at_every_size_and_not_that_of_a_pair():
    parsed = Parsed()
    parsed.saw("nccl.all_reduce.time@8KiB", "2-nodes", 30.0, "us", "e:1", "nccl-tests")
    parsed.saw("nccl.all_reduce.time@1MiB", "1-node", 90.0, "us", "e:2")
    parsed.saw("nccl.all_gather.time@8KiB", "2-nodes", 30.0, "us", "e:4")
    parsed.saw("nccl.all_reduce.time_spread@8KiB", "2-nodes", 0.1, "share", "e:5")
    latency = {
        phase: [
            (observation.quantity, observation.subject, observation.value, observation.why)
            for observation in derive(Seen(as_read(parsed).observations), a_run(phase)).observations
            if ".latency@" in observation.quantity
        ]
        for phase in ("nccl_scaling", "nccl_pairwise")
    }
    assert latency == {
        "nccl_scaling": [
            ("nccl.all_reduce.latency@8KiB", "2-nodes", 30.0, "nccl-tests"),
            ("nccl.all_reduce.latency@1MiB", "1-node", 90.0, None),
        ],
        "nccl_pairwise": [],
    }


# ---- bypassed


@for_each(
    ("transport", "active", "expected"),
    [
        ("sockets", ["n0: mlx5_0"], True),
        ("rdma-verbs+sockets", ["n0: mlx5_0"], True),
        ("tcp:eth0", ["n0: mlx5_0"], True),
        ("rdma-verbs", ["n0: mlx5_0"], False),
        ("nvlink", ["n0: mlx5_0"], False),
        ("sockets", [], False),
        (None, ["n0: mlx5_0"], None),
        ("unknown:Mesh", ["n0: mlx5_0"], None),
        ("unknown:Mesh+sockets", ["n0: mlx5_0"], True),
        ("unknown:Mesh", [], False),
    ],
)
def test_a_socket_beside_an_rdma_device_is_a_bypass(transport, active, expected):
    parsed = Parsed()
    parsed.saw("nccl.transport", "2-nodes", transport, "text", "e", None if transport else "unknown")
    parsed.saw("nccl.rdma.active", "2-nodes", active, "text", "e")
    assert [observation.value for observation in derived(parsed, "nccl.rdma.bypassed")] == [expected]


def test_without_any_word_about_the_network_a_bypass_is_unknown():
    parsed = Parsed()
    parsed.saw("nccl.rdma.active", "2-nodes", ["n0: mlx5_0"], "text", "e")
    assert [observation.value for observation in derived(parsed, "nccl.rdma.bypassed")] == [None]


# ---- shapes


def shape(speeds: dict[str, float], quantity: str) -> object:
    parsed = Parsed()
    for size, speed in speeds.items():
        parsed.saw(f"nccl.all_reduce.busbw@{size}", "2-nodes", speed, "GB/s", "e")
    (observation,) = derived(parsed, quantity)
    return observation.value


def test_a_dip_and_a_fall_are_seen_in_the_order_of_sizes():
    healthy = {"1GiB": 430.0, "8KiB": 0.5, "64MiB": 300.0, "1MiB": 30.0}
    assert shape(healthy, "nccl.curve.dip") == 1.0
    assert shape(healthy, "nccl.curve.plateau") == 1.0
    assert shape(healthy | {"64MiB": 3.0}, "nccl.curve.dip") == 0.1
    assert shape(healthy | {"1GiB": 150.0}, "nccl.curve.plateau") == 0.5
    assert shape({"8KiB": 0.5}, "nccl.curve.dip") is None
    assert shape({"8KiB": 0.5}, "nccl.curve.plateau") is None


def test_the_worst_of_all_collectives_is_named():
    parsed = Parsed()
    for name, largest in (("all_reduce", 400.0), ("broadcast", 100.0), ("all_gather", 200.0)):
        for size, speed in (("8KiB", 1.0), ("64MiB", 400.0), ("1GiB", largest)):
            parsed.saw(f"nccl.{name}.busbw@{size}", "2-nodes", speed, "GB/s", f"e:{name}")
    (observation,) = derived(parsed, "nccl.curve.plateau")
    assert (observation.value, observation.why, observation.evidence) == (
        0.25,
        "broadcast at 1GiB: 100 GB/s",
        "e:broadcast",
    )


# ---- every gate fails on a bad value

AT_LIMIT = None
GOOD: dict[str, tuple[Value | None, Value]] = {  # gate: (good, bad) on eight H100 in a node
    "nccl.step": (0, 1),
    "nccl.rank.finished": ("finished", "hung"),
    "nccl.wrong_values": (0, 4),
    "nccl.rank.wrong_values": (0, 4),
    "nccl.rank.local_time": (1.0, 1e4),
    "nccl.stall": (0.0, 20.0),
    "nccl.rank.stall": (0.0, 20.0),
    "nccl.rdma.bypassed": (False, True),
    "nccl.transport": ("rdma-verbs", "sockets"),
    "nccl.gdr": (1.0, 0.5),
    "nccl.nics": (8, 7),
    "nccl.nvls": (True, False),
    "nccl.all_reduce.busbw": (AT_LIMIT, 0.001),
    "nccl.all_gather.busbw": (AT_LIMIT, 0.001),
    "nccl.reduce_scatter.busbw": (AT_LIMIT, 0.001),
    "nccl.all_to_all.busbw": (AT_LIMIT, 0.001),
    "nccl.all_reduce.latency": (1.0, 1e9),
    "nccl.curve.dip": (1.0, 0.001),
    "nccl.curve.plateau": (1.0, 0.001),
    "nccl.monitor.overhead": (0.1, 99.0),
    "nccl.monitor.coverage": (1.0, 0.5),
    "nccl.monitor.clock": (0.001, 0.6),
    "nccl.monitor.slowdown": ("none", "hardware thermal"),
    "nccl.pair.link": (1.0, 0.001),
    "nccl.pair.link.steady": (1.0, 0.001),
    "nccl.pair.link.latency": (1.0, 1e9),
    "nccl.pair.node": (1.0, 0.001),
    "nccl.pair.node.latency": (1.0, 1e9),
    "nccl.pair.node.lost": (0.0, 0.02),
    "nccl.pair.slowest": (AT_LIMIT, 0.0001),
    "nccl.groups.wrong_values": (0, 4),
    "nccl.groups.busbw": (AT_LIMIT, 0.001),
    "nccl.pair.topology": (1.0, 0.001),
}
COUNTED = ("nccl.ranks", "nccl.hosts", "nccl.devices")  # as many as the scale has


def test_every_gate_of_the_room_is_among_those_that_are_shown_failing():
    elsewhere = ("nccl.device.", "nccl.variant.")  # test_devices.py, test_variants.py
    here = {gate for gate in GATES if gate.startswith("nccl.") and not gate.startswith(elsewhere)}
    assert {*GOOD, *COUNTED} == here - {"nccl.device"}


@pytest.mark.parametrize("gate", [pytest.param(gate, marks=shows_failing(gate), id=gate) for gate in (*GOOD, *COUNTED)])
def test_a_bad_value_fails_its_subject_alone(gate):
    """A gate that may only warn, warns. Where the profile of H100 nodes gives no number, that of the local cluster
    does."""
    h100, local = profile.load("h100-8x400g"), profile.load("local-cpu")
    expected = h100 if GATES[gate].expect != "profile" or gate in h100.expect else local
    run = a_run(GATES[gate].phases[0], ("n0", "n1", "n2"), gpus=8)
    subject, *others = run.planned[gate]
    size = expected.expect[gate].at if gate in expected.expect else None
    parsed = Parsed()
    for each in (subject, *others):
        for need in GATES[gate].needs:
            met(parsed, need, each)
        good, bad = GOOD[gate] if gate in GOOD else (counted(gate, each), counted(gate, each) + 1)
        if good is AT_LIMIT:  # above the ceiling of the machine no number is believed
            nodes = subjects.nodes_of_scale(each) or len(run.nodes)
            good = expected.limit(gate, nodes, 8).value
        value = bad if each == subject else good
        parsed.saw(gate if size is None else f"{gate}@{size}", each, value, GATES[gate].unit, "e")
    verdicts = [verdict for verdict in judge.judge(run, expected, parsed).verdicts if verdict.gate == gate]
    assert {verdict.kind for verdict in verdicts} == {Kind.JUDGED}
    assert {verdict.subject: verdict.outcome for verdict in verdicts} == {
        subject: GATES[gate].severity,
        **dict.fromkeys(others, Outcome.PASS),
    }


def counted(gate: str, scale: str) -> int:
    return scale_nodes(scale) if gate == "nccl.hosts" else scale_ranks(scale, 8)


def met(parsed: Parsed, need: str, scale: str) -> None:
    parsed.saw(need, scale, counted(need, scale) if need in COUNTED else 0, "count", "e")


# ---- a network plugin that is not known


@pytest.mark.parametrize(
    ("transport", "named", "outcome"),
    [
        ("unknown:Mesh", [], Outcome.INCOMPLETE),
        ("unknown:Mesh", ["unknown:Mesh"], Outcome.PASS),
        ("rdma-verbs+unknown:Mesh", [], Outcome.INCOMPLETE),
        ("sockets+unknown:Mesh", [], Outcome.FAIL),
    ],
)
def test_a_plugin_that_is_not_known_is_no_pass_and_no_fault(transport, named, outcome):
    expected = profile.load("h100-8x400g")
    entry = expected.expect["nccl.transport"].model_copy(update={"one_of": ["rdma-verbs", *named]})
    expected = expected.model_copy(update={"expect": expected.expect | {"nccl.transport": entry}})
    run = a_run("nccl_scaling", gpus=8)
    parsed = Parsed()
    met(parsed, "nccl.ranks", "2-nodes")
    parsed.saw("nccl.transport", "2-nodes", transport, "text", "e")
    verdict = next(v for v in judge.judge(run, expected, parsed).verdicts if v.gate == "nccl.transport")
    assert verdict.outcome is outcome
    if outcome is Outcome.INCOMPLETE:
        assert (verdict.value, verdict.cause) == (
            transport,
            "Mesh is not known to this version, which cannot say whether it is expected here; "
            "a profile that names unknown:Mesh accepts it",
        )
