"""What the smoke phase's files say when they are good, bad, cut off, and not there."""

import json
from pathlib import Path

import pytest
from bringup import results as runs
from bringup.checks.catalogue import GATES, of_phase
from bringup.evidence import jobs as jobs_left
from bringup.evidence.parsed import Parsed
from bringup.judge import judge
from bringup.plan import profile
from bringup.plan.phases import PHASES
from bringup.records import Outcome, Run
from bringup.run import open as opening
from runs_for_tests import FIXTURES, add_derived

ENDED = (FIXTURES / "slurm/job-exit-code.txt").read_text()


def run_of(tmp_path: Path, *nodes: str, gpus: int = 2) -> Run:
    folder = opening.open_run(
        PHASES["smoke"],
        nodes=list(nodes),
        gpus_per_node=gpus,
        ranks_per_node=gpus,
        profile=profile.load("local-cpu"),
        argv=["test"],
        results=tmp_path,
    )
    return runs.load(folder)


def derived(run: Run, *facts: tuple) -> Parsed:
    parsed = Parsed()
    for index, (quantity, subject, value) in enumerate(facts):
        parsed.saw(quantity, subject, value, "count", f"f:{index}", "said" if value is None else None)
    add_derived(parsed, run)
    return parsed


def values(parsed: Parsed, quantity: str) -> dict[str, object]:
    return {one.subject: one.value for one in parsed.observations if one.quantity == quantity}


@pytest.fixture
def run(tmp_path) -> Run:
    return run_of(tmp_path, "n0", "n1", "n2")


def jobs(
    first_gpu,
    second_gpu,
    *,
    outlasted=True,
    first_denied=("b",),
    second_denied=("a",),
    first_open=("a",),
    second_open=("b",),
):
    facts = [
        ("smoke.first_job.gpu", "n0", first_gpu),
        ("smoke.first_job.openable", "n0", list(first_open)),
        ("smoke.first_job.denied", "n0", list(first_denied)),
        ("smoke.second_job.gpu", "n0", second_gpu),
        ("smoke.second_job.openable", "n0", list(second_open)),
        ("smoke.second_job.denied", "n0", list(second_denied)),
    ]
    return [*facts, ("smoke.first_job.outlasted", "n0", True)] if outlasted else facts


@pytest.mark.parametrize(
    ("facts", "distinct", "refused"),
    [
        (jobs("a", "b"), 2, 2),
        (jobs("a", "a"), 1, 2),
        # a device that is not there at all is no refusal
        (jobs("a", "b", first_denied=(), second_denied=()), 2, 0),
        (jobs("a", "b", first_open=("a", "b"), second_open=("a", "b"), first_denied=(), second_denied=()), 2, 0),
        (jobs("a", None), 1, 2),
        (jobs("a", "b", outlasted=False), None, None),
    ],
)
def test_two_jobs_at_once(run, facts, distinct, refused):
    parsed = derived(run, *facts)
    assert values(parsed, "smoke.jobs.distinct_gpus").get("n0") == distinct
    assert values(parsed, "smoke.jobs.refused_gpus").get("n0") == refused


def test_one_job_alone_is_no_evidence_about_two(run):
    parsed = derived(run, *[fact for fact in jobs("a", "b") if "second" not in fact[0]])
    assert values(parsed, "smoke.jobs.distinct_gpus") == {}


def test_a_lost_task_of_an_array_is_missing_in_the_list(run):
    facts = [("smoke.array.index", "job", str(index)) for index in (3, 0, 1)]
    assert values(derived(run, *facts), "smoke.array.indices") == {"job": "0 1 3"}


@pytest.mark.parametrize(
    ("end", "start", "waited"),
    [
        ("2026-01-01T00:00:05", "2026-01-01T00:00:06", 1.0),
        ("2026-01-01T00:00:05", "2026-01-01T00:00:03", -2.0),
        ("2026-01-01T00:00:05", "Unknown", None),
    ],
)
def test_a_dependent_job_waits_for_the_end_of_the_other(run, end, start, waited):
    parsed = derived(run, ("smoke.before.EndTime", "job", end), ("smoke.after.StartTime", "job", start))
    assert values(parsed, "smoke.dependency.waited_s") == {"job": waited}


def test_a_job_that_has_ended_gives_state_code_and_times():
    parsed = jobs_left.ended_job(ENDED, "f", name="exit_code")
    assert values(parsed, "smoke.exit_code.ExitCode") == {"job": "7:0"}
    assert values(parsed, "smoke.exit_code.state") == {"job": "FAILED"}
    assert "T" in str(values(parsed, "smoke.exit_code.StartTime")["job"])


@pytest.mark.parametrize("text", ["", "slurm_load_jobs error: Invalid job id specified\n", ENDED[:20]])
def test_what_is_no_job_is_a_problem_and_no_observation(text):
    parsed = jobs_left.ended_job(text, "f", name="exit_code")
    assert parsed.problems
    assert values(parsed, "smoke.exit_code.ExitCode") == {}


BEGAN = "0: n0 began\n1: n0 began\n2: n1 began\n3: n1 began\n"


@pytest.mark.parametrize(
    ("text", "survivors"),
    [
        (BEGAN, {"n0": 0, "n1": 0}),
        (BEGAN + "3: n1 survived\n", {"n0": 0, "n1": 1}),
        ("0: n0 began\n1: n0 began\n2: n1 began\n", {"n0": 0, "n1": None}),
    ],
)
def test_tasks_that_outlive_a_failed_one_are_counted_per_node(text, survivors):
    assert values(jobs_left.bad_exit(text, "f"), "smoke.bad_exit.survivors") == survivors


@pytest.mark.parametrize(
    ("text", "restarts"),
    [
        ("n0 restarts 0\nslurmstepd-n0: error: *** JOB 47 ON n0 CANCELLED DUE TO JOB REQUEUE ***\nn1 restarts 1\n", 1),
        ("n0 restarts 0\n", 0),
    ],
)
def test_a_requeued_job_says_how_often_it_began_again(text, restarts):
    assert values(jobs_left.requeue(text, "f"), "smoke.requeue.restarts") == {"job": restarts}


@pytest.mark.parametrize("parser", [jobs_left.bad_exit, jobs_left.requeue])
@pytest.mark.parametrize("text", ["", "bash: python3: command not found\n"])
def test_a_job_that_said_nothing_is_a_problem(parser, text):
    parsed = parser(text, "f")
    assert parsed.observations == []
    assert parsed.problems


# gates that have no drill on the local cluster: shown here to fail
@pytest.mark.parametrize(
    ("gate", "value"),
    [
        ("smoke.controller", "DOWN"),
        ("smoke.compute.host_to_device", 1.0),
        ("smoke.compute.device_to_device", 30.0),
    ],
)
def test_gates_without_a_drill_fail_on_bad_evidence(tmp_path, gate, value):
    run = run_of(tmp_path, "n0", "n1")
    declared = profile.load("h100-8x400g")
    parsed = Parsed()
    for subject in run.planned.get(gate) or ["n0", "n1"]:
        parsed.saw(GATES[gate].quantity, subject, value, GATES[gate].unit, "f")
        parsed.saw("smoke.compute.wrong_values", subject, 0, "count", "f")
    outcomes = {verdict.outcome for verdict in judge(run, declared, parsed).verdicts if verdict.gate == gate}
    assert outcomes == {GATES[gate].severity}


def test_without_evidence_nothing_of_the_phase_passes(tmp_path):
    run = run_of(tmp_path, "n0", "n1", "n2", gpus=3)
    verdicts = judge(run, profile.load("generic"), Parsed()).verdicts
    assert {verdict.gate for verdict in verdicts} == {gate.id for gate in of_phase("smoke")}
    assert {verdict.outcome for verdict in verdicts} == {Outcome.INCOMPLETE}


@pytest.mark.parametrize(
    ("code", "told", "warned"), [("0:10", (), [True]), ("0:0", (), []), ("0:10", (False,), [False])]
)
def test_a_signal_that_ended_a_script_before_it_began_had_come(run, code, told, warned):
    parsed = derived(
        run, ("smoke.warning.ExitCode", "job", code), *(("smoke.time_limit.warned", "job", value) for value in told)
    )
    assert [one.value for one in parsed.observations if one.quantity == "smoke.time_limit.warned"] == warned


def test_two_jobs_are_not_planned_where_a_node_has_one_gpu(tmp_path):
    assert "smoke.jobs.distinct_gpus" not in run_of(tmp_path, "n0", "n1", gpus=1).planned


@pytest.mark.parametrize("name", ["local-cpu", "generic"])
def test_the_number_of_every_gate_is_declared_or_excluded(name):
    here = profile.load(name)
    open_ones = {
        gate.id
        for gate in of_phase("smoke")
        if type(gate.expect).__name__ == "FromProfile"
        and gate.id not in here.expect
        and here.reason_not_applicable(gate.id) is None
    }
    # no number holds for GPUs that nobody has named
    assert open_ones == (
        {"smoke.compute.tflops", "smoke.compute.device_to_device", "smoke.compute.device"}
        if name == "generic"
        else set()
    )


def speeds(tmp_path, **tflops: float) -> dict[str, Outcome]:
    run = run_of(tmp_path, *tflops)
    parsed = Parsed()
    for node, value in tflops.items():
        parsed.saw("smoke.compute.tflops", node, value, "TFLOP/s", "f")
    return {
        verdict.subject: verdict.outcome
        for verdict in judge(run, profile.load("generic"), parsed).verdicts
        if verdict.gate == "smoke.compute.peers"
    }


def test_a_node_far_below_its_peers_is_named_and_the_others_are_not(tmp_path):
    assert speeds(tmp_path, n0=700.0, n1=500.0, n2=705.0, n3=690.0) == {
        "n0": Outcome.PASS,
        "n1": Outcome.FAIL,
        "n2": Outcome.PASS,
        "n3": Outcome.PASS,
    }


def test_two_nodes_are_not_peers_enough(tmp_path):
    assert speeds(tmp_path, n0=700.0, n1=100.0) == {}


def test_the_spread_of_all_gpus_names_the_slowest_and_the_fastest():
    parsed = Parsed()
    for subject, speed in (("n0/GPU-a", 700.0), ("n0/GPU-b", 690.0), ("n1/GPU-c", 500.0), ("n1/GPU-d", 710.0)):
        parsed.saw("smoke.compute.gpu.tflops", subject, speed, "TFLOP/s", "f")
    add_derived(parsed)
    spread = next(one for one in parsed.observations if one.quantity == "smoke.compute.spread")
    assert (spread.quantity, spread.subject, spread.value) == ("smoke.compute.spread", "job", 0.3022)
    assert spread.why == "4 devices: n1/GPU-c 500, median 695, n1/GPU-d 710 TFLOP/s"


def gpus(tmp_path, gpus_per_node: int = 4, **nodes: list[float | None]) -> dict[str, tuple[Outcome, str]]:
    """What is judged of nodes whose GPUs multiply at these speeds."""
    run = run_of(tmp_path, *nodes, gpus=gpus_per_node)
    parsed = Parsed()
    for node, several in nodes.items():
        for index, speed in enumerate(several):
            parsed.saw(
                "smoke.compute.gpu.tflops",
                f"{node}/GPU-{index}",
                speed,
                "TFLOP/s",
                "f",
                "why" if speed is None else None,
            )
    add_derived(parsed, run)
    return {
        v.subject: (v.outcome, f"{v.observed} {v.cause}")
        for v in judge(run, profile.load("generic"), parsed).verdicts
        if v.gate == "smoke.compute.gpu_peers"
    }


def test_one_gpu_of_eight_that_is_a_third_slower_fails_on_a_single_node_and_is_named(tmp_path):
    healthy = [700.0, 705.0, 690.0, 710.0, 695.0, 700.0, 702.0]
    found = gpus(tmp_path, gpus_per_node=8, n0=[*healthy[:3], 490.0, *healthy[3:]])
    assert found["n0"][0] is Outcome.FAIL
    assert "0.7 (GPU-3 490, the median of 8 GPUs is 700 TFLOP/s)" in found["n0"][1]
    assert gpus(tmp_path / "healthy", gpus_per_node=8, n0=[*healthy, 680.0])["n0"][0] is Outcome.PASS


def test_of_two_nodes_the_one_with_the_slow_gpu_is_named_and_so_is_one_that_is_slow_as_a_whole(tmp_path):
    fast = [700.0, 705.0, 690.0, 710.0]
    found = gpus(tmp_path, n0=fast, n1=[700.0, 690.0, 490.0, 710.0])
    assert {node: outcome for node, (outcome, _) in found.items()} == {"n0": Outcome.PASS, "n1": Outcome.FAIL}
    found = gpus(tmp_path / "whole", n0=fast, n1=[490.0] * 4)
    assert {node: outcome for node, (outcome, _) in found.items()} == {"n0": Outcome.PASS, "n1": Outcome.FAIL}


@pytest.mark.parametrize("silent", [[700.0, 690.0, 705.0], [700.0, 690.0, 705.0, None]])
def test_a_node_of_which_a_gpu_says_nothing_is_incomplete_and_not_as_fast_as_the_rest(tmp_path, silent):
    found = gpus(tmp_path, n0=[700.0] * 4, n1=silent)
    assert (found["n0"][0], found["n1"][0]) == (Outcome.PASS, Outcome.INCOMPLETE)
    assert "3 of 4 GPUs told their speed" in found["n1"][1]


def test_a_node_that_computed_on_its_cpu_has_no_slowest_gpu(tmp_path):
    parsed = Parsed()
    parsed.saw("smoke.compute.gpu.tflops", "n0/cpu", 0.2, "TFLOP/s", "f")
    add_derived(parsed, run_of(tmp_path, "n0", gpus=4))
    assert [(one.value, one.why) for one in parsed.observations if one.quantity == "smoke.compute.gpu_of_median"] == [
        (None, "0 of 4 GPUs told their speed")
    ]


def test_gpus_are_compared_where_a_node_has_peers_enough_and_not_where_there_is_no_gpu(tmp_path):
    assert gpus(tmp_path, gpus_per_node=2, n0=[700.0, 490.0]) == {}
    assert profile.load("local-cpu").reason_not_applicable("smoke.compute.gpu_peers") is not None


def test_facts_of_compute_are_bounded_lines():
    text = json.dumps({"devices": [f"NVIDIA H100 80GB HBM3 GPU-{index:032x}" for index in range(8)]})
    assert len(text) < 1000 - 200


@pytest.fixture
def compute(monkeypatch):
    monkeypatch.syspath_prepend(FIXTURES.parents[1] / "infrastructure-validation/probes")
    import compute

    return compute


@pytest.mark.parametrize("size", [7, 14, 35])
def test_the_product_that_compute_expects_is_the_product(compute, size):
    left, right, table = compute.factors(size)
    for row in range(size):
        for column in range(size):
            product = sum(left[(row + k) % 7] * right[(k + column) % 7] for k in range(size))
            assert product == table[row % 7][column % 7]


def test_sums_stay_exact_in_float32_and_every_position_matters(compute):
    for size in compute.SIZE.values():
        assert size % 112 == 0
        assert size * 9 < 2**24
    assert len({value for row in compute.factors(7)[2] for value in row}) > 3


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_wrong_element_of_a_drill_is_seen_in_every_dtype(compute, dtype):
    """One more was lost in bf16, whose neighbours are 64 apart where the sums of a GPU's product lie."""
    import torch

    table = torch.tensor(compute.factors(compute.SIZE["cuda"])[2], dtype=torch.float64).to(getattr(torch, dtype))
    product = table.clone()
    compute.spoil(product)
    assert int((product != table).sum()) == 1
