"""What the smoke phase's files say when they are good, bad, cut off, and not there."""

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
    ],
)
def test_gates_without_a_drill_fail_on_bad_evidence(tmp_path, gate, value):
    run = run_of(tmp_path, "n0", "n1")
    declared = profile.load("h100-8x400g")
    parsed = Parsed()
    for subject in run.planned.get(gate) or ["n0", "n1"]:
        parsed.saw(GATES[gate].quantity, subject, value, GATES[gate].unit, "f")
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
