"""What follows from what collectives measured."""

from bringup.kernel import judge
from bringup.kernel.facts.observations import derive
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.plan import profile
from bringup.kernel.records import Observation, Value
from bringup.readers import srun
from factory import a_run
from loops import for_each
from runs_for_tests import FAIL, H100, OPEN, PASS, Fact, as_read, parsed_of


def derived(facts: Parsed | list[Fact], quantity: str, phase: str = "nccl_scaling") -> list[Observation]:
    parsed = facts if isinstance(facts, Parsed) else parsed_of(facts)
    seen = derive(Seen(as_read(parsed).observations), a_run(phase)).observations
    return [observation for observation in seen if observation.quantity == quantity]


# ---- the step


def step(code: int, *errors: tuple[str, str, str, str | None]) -> tuple[Value | None, str | None]:
    errors_read = [("slurm.launch.error", subject, says, why, f"raw/{file}:7") for file, subject, says, why in errors]
    parsed = parsed_of([("nccl.step.exit_code", "2-nodes", code, None, "raw/collectives-2.rc"), *errors_read])
    (observation,) = derived(parsed, "nccl.step")
    assert observation.evidence == "raw/collectives-2.rc"
    assert len(parsed.observations) == 1 + len(errors)  # what was read stays as it was
    assert parsed.observations[0].why is None
    return observation.value, observation.why


def test_the_task_that_srun_named_first_stands_beside_the_exit_code_of_its_own_step():
    exited = ("collectives-2.err", "n1", "Exited with exit code 3", "task 3")
    killed = ("collectives-2.err", "n0", "Killed", "task 0")
    assert step(3, exited, killed) == (3, "first n1: task 3: Exited with exit code 3")
    assert step(3, *[(f"collectives-{number}.err", "n1", "Killed", None) for number in (1, 21)]) == (3, None)
    assert step(0, killed) == (0, None)


STEP_ENDED = """\
0: slurmstepd-n0: error: *** STEP 878006.0 ON n0 CANCELLED AT 2026-11-28T13:04:42 DUE TO {why} ***
srun: Job step aborted: Waiting up to 7 seconds for job step to finish.
srun: error: n0: tasks 0-1: Terminated
srun: launch/slurm: _step_signal: Terminating StepId=878006.0
"""  # of Slurm 22.05.8, with --label
BY_SLURM = "Slurm ended the step: {} (raw/collectives-2.err:1); run it again, "


@for_each(
    ("PREEMPTION", None, BY_SLURM.format("preemption") + "in a partition"),
    ("TIME LIMIT", None, BY_SLURM.format("time limit") + "with a longer"),
    ("NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", 143, "first n0: tasks 0-1: Terminated"),
)
def test_a_step_that_slurm_ended_is_no_fault_of_its_program(why, value, says):
    """A job of a higher partition failed nccl.step with exit code 143, and the cluster with it."""
    parsed = srun.launch_errors(STEP_ENDED.format(why=why), "raw/collectives-2.err")
    parsed.saw("nccl.step.exit_code", "2-nodes", 143, "count", "raw/collectives-2.rc")
    (observation,) = derived(parsed, "nccl.step")
    assert observation.value == value
    assert str(observation.why).startswith(says)


@for_each(
    ("smoke", "binding", ("smoke.binding.gpu", "n0/task0", "GPU-0"), "smoke.node.ran_tasks", 1),
    ("node_sweep", "sweep", ("sweep.gpu.device", "n0/task0", "cuda"), "sweep.ranks", 0),
)
@for_each("PREEMPTION", "TIME LIMIT", "NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS")
def test_ranks_that_slurm_ended_are_not_missing(phase, step, fact, quantity, few, why):
    """A preempted sweep failed every node: of its ranks none had come to the end."""
    parsed = parsed_of([(*fact, None, f"raw/{step}.jsonl:1")])
    parsed.add(srun.launch_errors(STEP_ENDED.format(why=why), f"raw/{step}.err"))
    (observation,) = derived(parsed, quantity, phase)
    is_fault = why.startswith("NODE")
    assert observation.value == (few if is_fault else None)
    assert is_fault or str(observation.why).startswith(f"Slurm ended the step: {why.lower()} (raw/{step}.err:1)")


def test_ranks_that_did_not_come_are_the_cause_and_not_the_rank_that_waited_for_them():
    words = "1 of 4 ranks did not arrive within 8 s: rank 3 (n1); BRINGUP_START_S sets how long to wait"
    facts: list[Fact] = [("nccl.rank.late", "n1/rank3", 8, words, "raw/collectives-2.jsonl:1")]
    for number in ("1", "2"):
        where = f"raw/collectives-{number}"
        facts.append(("nccl.step.exit_code", f"{number}-nodes", 1, None, f"{where}.rc"))
        facts.append(("slurm.launch.error", "n0", "Exited with exit code 1", "task 0", f"{where}.err:7"))
    why = {seen.subject: seen.why for seen in derived(facts, "nccl.step")}
    assert why == {"1-nodes": "first n0: task 0: Exited with exit code 1", "2-nodes": words}


def test_the_time_of_an_all_reduce_is_its_latency_at_every_size_and_not_that_of_a_pair():
    facts: list[Fact] = [
        ("nccl.all_reduce.time@8KiB", "2-nodes", 30.0, "nccl-tests"),
        ("nccl.all_reduce.time@1MiB", "1-node", 90.0),
        ("nccl.all_gather.time@8KiB", "2-nodes", 30.0),
        ("nccl.all_reduce.time_spread@8KiB", "2-nodes", 0.1),
    ]
    for phase, expected in (("nccl_scaling", [30.0, 90.0]), ("nccl_pairwise", [])):
        seen = derive(Seen(as_read(parsed_of(facts)).observations), a_run(phase)).observations
        assert [latency.value for latency in seen if ".latency@" in latency.quantity] == expected
    (small,) = derived(facts, "nccl.all_reduce.latency@8KiB")
    assert (small.subject, small.value, small.why) == ("2-nodes", 30.0, "nccl-tests")


ACTIVE = ["n0: mlx5_0"]


@for_each(
    ("sockets", ACTIVE, True),
    ("rdma-verbs+sockets", ACTIVE, True),
    ("tcp:eth0", ACTIVE, True),
    ("rdma-verbs", ACTIVE, False),
    ("nvlink", ACTIVE, False),
    ("sockets", [], False),
    (None, ACTIVE, None),
    ("", ACTIVE, None),  # nobody said a word about the network
    ("unknown:Mesh", ACTIVE, None),
    ("unknown:Mesh+sockets", ACTIVE, True),
    ("unknown:Mesh", [], False),
)
def test_a_socket_beside_an_rdma_device_is_a_bypass(transport, active, expected):
    facts = [("nccl.rdma.active", "2-nodes", active)]
    facts += [("nccl.transport", "2-nodes", transport)] if transport != "" else []
    assert [observation.value for observation in derived(facts, "nccl.rdma.bypassed")] == [expected]


HEALTHY_CURVE = {"1GiB": 430.0, "8KiB": 0.5, "64MiB": 300.0, "1MiB": 30.0}


@for_each(
    (HEALTHY_CURVE, 1.0, 1.0),
    (HEALTHY_CURVE | {"64MiB": 3.0}, 0.1, 1.0),
    (HEALTHY_CURVE | {"1GiB": 150.0}, 1.0, 0.5),
    ({"8KiB": 0.5}, None, None),
)
def test_a_dip_and_a_fall_are_seen_in_the_order_of_sizes(speeds, dip, plateau):
    facts = [(f"nccl.all_reduce.busbw@{size}", "2-nodes", speed) for size, speed in speeds.items()]
    shape = {what: [seen.value for seen in derived(facts, f"nccl.curve.{what}")] for what in ("dip", "plateau")}
    assert shape["plateau"] == [plateau]
    assert shape["dip"] == [dip]


def test_the_worst_of_all_collectives_is_named():
    facts = []
    for name, largest in (("all_reduce", 400.0), ("broadcast", 100.0), ("all_gather", 200.0)):
        for size, speed in (("8KiB", 1.0), ("64MiB", 400.0), ("1GiB", largest)):
            facts.append((f"nccl.{name}.busbw@{size}", "2-nodes", speed, None, f"e:{name}"))
    (worst,) = derived(facts, "nccl.curve.plateau")
    assert (worst.value, worst.why, worst.evidence) == (0.25, "broadcast at 1GiB: 100 GB/s", "e:broadcast")


# ---- a network plugin that is not known


@for_each(
    ("unknown:Mesh", [], OPEN),
    ("unknown:Mesh", ["unknown:Mesh"], PASS),
    ("rdma-verbs+unknown:Mesh", [], OPEN),
    ("sockets+unknown:Mesh", [], FAIL),
)
def test_a_plugin_that_is_not_known_is_no_pass_and_no_fault(transport, named, outcome):
    expected = profile.load(H100)
    entry = expected.expect["nccl.transport"].model_copy(update={"one_of": ["rdma-verbs", *named]})
    expected = expected.model_copy(update={"expect": expected.expect | {"nccl.transport": entry}})
    parsed = parsed_of([("nccl.ranks", "2-nodes", 16), ("nccl.transport", "2-nodes", transport)])
    verdicts = judge.judge(a_run("nccl_scaling", gpus=8), expected, parsed).verdicts
    verdict = next(v for v in verdicts if v.gate == "nccl.transport")
    assert verdict.outcome is outcome
    if outcome is OPEN:
        assert verdict.value == transport
        assert str(verdict.cause).startswith("Mesh is not known to this version, which cannot say whether it is")
        assert str(verdict.cause).endswith("a profile that names unknown:Mesh accepts it")
