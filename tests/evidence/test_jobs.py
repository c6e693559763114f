"""What jobs of the smoke phase left behind: whole, cut off, and nothing."""

import pytest
from bringup.evidence import slurm
from runs_for_tests import FIXTURES, values

ENDED = (FIXTURES / "slurm/job-exit-code.txt").read_text()
BEGAN = "0: n0 began\n1: n0 began\n2: n1 began\n3: n1 began\n"


@pytest.mark.parametrize("text", ["", "slurm_load_jobs error: Invalid job id specified\n", ENDED[:20]])
def test_what_is_no_job_is_a_problem_and_no_observation(text):
    parsed = slurm.ended_job(text, "f", name="exit_code")
    assert parsed.problems
    assert values(parsed, "smoke.exit_code.ExitCode") == {}


@pytest.mark.parametrize(
    ("text", "survivors"),
    [
        (BEGAN, {"n0": 0, "n1": 0}),
        (BEGAN + "3: n1 survived\n", {"n0": 0, "n1": 1}),
        ("0: n0 began\n1: n0 began\n2: n1 began\n", {"n0": 0, "n1": None}),
    ],
)
def test_tasks_that_outlive_a_failed_one_are_counted_per_node(text, survivors):
    assert values(slurm.bad_exit(text, "f"), "smoke.bad_exit") == survivors


@pytest.mark.parametrize(
    ("text", "restarts"),
    [
        ("n0 restarts 0\nslurmstepd-n0: error: *** JOB 47 ON n0 CANCELLED DUE TO JOB REQUEUE ***\nn1 restarts 1\n", 1),
        ("n0 restarts 0\n", 0),
    ],
)
def test_a_requeued_job_says_how_often_it_began_again(text, restarts):
    assert values(slurm.requeue(text, "f"), "smoke.requeue") == {"job": restarts}


@pytest.mark.parametrize(
    ("state", "is_known"), [("FAILED", True), ("TIMEOUT", True), ("PREEMPTED", False), ("NODE_FAIL", False)]
)
def test_of_a_job_that_slurm_took_away_no_end_is_known(state, is_known):
    text = f"JobId=7 JobState={state} Reason=None ExitCode=0:15 SubmitTime=2026-11-28T13:00:00 \n"
    parsed = slurm.ended_job(text, "f", name="exit_code")
    code = values(parsed, "smoke.exit_code.ExitCode")
    assert code == {"job": "0:15" if is_known else None}
    assert is_known or {seen.why for seen in parsed.observations} == {f"Slurm ended the job: {state}"}


@pytest.mark.parametrize("parser", [slurm.bad_exit, slurm.requeue])
@pytest.mark.parametrize("text", ["", "bash: python3: command not found\n"])
def test_a_job_that_said_nothing_is_a_problem(parser, text):
    parsed = parser(text, "f")
    assert parsed.observations == []
    assert parsed.problems


def test_a_number_of_five_thousand_digits_is_a_problem_and_not_an_error():
    parsed = slurm.requeue(f"n0 restarts {'9' * 5000}\n", "f")
    assert parsed.observations == []
    assert parsed.problems
