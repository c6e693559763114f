"""Attempts of one job: ended by Slurm, requeued, resumed. The launch log is of a real job at its time limit."""

import shutil
from pathlib import Path

from bringup.kernel import judge
from bringup.kernel.records import Continued, Run, Verdict, read_record
from bringup.run import open as opening
from loops import case_for_each
from runs_for_tests import FAIL, FIXTURES, OPEN, PASS, opened
from trained_runs import change, rank_said, run_of


def attempt(results, monkeypatch, job, restart, *, name, phase="run_1gpu") -> Path:
    monkeypatch.setenv("SLURM_JOB_ID", job)
    monkeypatch.setenv("SLURM_RESTART_COUNT", str(restart))
    return opened(phase, results, nodes=["n0"], ranks=1, name=name)


def verdict(folder: Path, gate: str, subject: str) -> Verdict:
    return next(v for v in judge.judge_folder(folder).verdicts.verdicts if (v.gate, v.subject) == (gate, subject))


def require_that_n1_fails(folder: Path, says: str) -> None:
    for rank in (2, 3):
        seen = verdict(folder, "train.rank.finished", f"n1/rank{rank}")
        assert (seen.outcome, seen.evidence, says in str(seen.cause)) == (FAIL, "raw/launch.log:1", True)


def test_a_requeued_job_names_its_attempt_before_and_is_named_there(tmp_path, monkeypatch):
    monkeypatch.delenv("BRINGUP_RUN_NAME", raising=False)
    attempt(tmp_path, monkeypatch, "6", 0, name="another-job")
    first = attempt(tmp_path, monkeypatch, "7", 0, name="a")
    attempt(tmp_path, monkeypatch, "7", 0, name="b", phase="run_ddp_1node")
    second = attempt(tmp_path, monkeypatch, "7", 1, name="c")
    third = attempt(tmp_path, monkeypatch, "7", 2, name="d")
    assert read_record(first / "run.json", Run).continues is None
    assert read_record(second / "run.json", Run).continues == first.name
    assert read_record(third / "run.json", Run).continues == second.name
    assert read_record(first / "continued.json", Continued).run == second.name
    assert not (third / "continued.json").exists()
    of_first, of_second = (judge.judge_folder(folder).verdicts.notes for folder in (first, second))
    assert f"continued.json: Slurm requeued the job; it went on in {second.name}" in of_first
    assert f"run.json:continues: Slurm requeued the job; its previous attempt is {first.name}" in of_second


def test_an_attempt_that_opened_no_run_is_not_replaced_by_a_stranger(tmp_path, monkeypatch):
    monkeypatch.setenv("BRINGUP_RUN_NAME", "mine")  # as bringup run sets it; the same job number on another cluster
    attempt(tmp_path, monkeypatch, "7", 0, name="theirs")
    assert read_record(attempt(tmp_path, monkeypatch, "7", 1, name="mine-r1") / "run.json", Run).continues is None


def test_a_time_limit_is_named_and_is_nobodys_fault(tmp_path):
    folder = run_of("run_1gpu", tmp_path)
    for name in ("closed.json", "metrics.json", "raw/rank0.jsonl"):
        (folder / name).unlink()
    shutil.copyfile(FIXTURES / "training/time-limit.log", folder / "raw/launch.log")
    seen = verdict(folder, "train.rank.finished", "n0/rank0")
    assert (seen.outcome, seen.cause) == (OPEN, "not found out: Slurm ended the step: time limit")
    assert seen.evidence == "raw/launch.log:5"


def test_what_kill_on_bad_exit_cancels_was_not_ended_by_slurm(tmp_path):
    folder = run_of("run_1gpu", tmp_path)
    (folder / "raw/rank0.jsonl").unlink()
    cancelled = "*** STEP 1.0 ON n0 CANCELLED AT 2026-11-20T09:52:38 ***"
    (folder / "raw/launch.log").write_text(f"0: slurmstepd-n0: error: {cancelled}\n")
    assert verdict(folder, "train.rank.finished", "n0/rank0").cause == "no evidence arrived"


@case_for_each(
    "1: train_ddp_multi_node.py: --run-dir /x/run: no such run folder (it must have raw/), seen from n1; "
    "`bringup open` makes one",
    "1: /x/run: run folder cannot be written, seen from n1; is it on a filesystem that all nodes share?",
    "1: train_ddp_multi_node.py: /x/run/raw/rank2.jsonl cannot be written: Read-only file system; "
    "--run-dir must be a folder made "
    "by `bringup open`, shared by all nodes (seen from n1)",
)
def test_a_node_that_cannot_write_results_fails_with_all_its_ranks(tmp_path, line):
    folder = run_of("run_ddp_2node", tmp_path)
    for rank in (2, 3):
        (folder / f"raw/rank{rank}.jsonl").unlink()
    (folder / "raw/launch.log").write_text(f"{line}\n")
    require_that_n1_fails(folder, "seen from n1")
    assert verdict(folder, "train.rank.finished", "n0/rank1").outcome is PASS


@case_for_each(
    ("torchrun: line 2: exec: torchrun: not found", ""),
    ("no Python environment at /x/.venv", ", seen from n1; is it on a filesystem that all nodes share?"),
)
def test_a_node_whose_launcher_could_not_start_is_the_first_cause(tmp_path, says, more):
    """Its ranks fail and it is named beside the job's exit code, which is that of a cancelled step."""
    folder = run_of("run_ddp_2node", tmp_path)
    for path in (*folder.glob("raw/rank*.jsonl"), folder / "metrics.json"):
        path.unlink()
    (folder / "closed.json").unlink()
    (folder / "raw/launch.log").write_text(
        "srun: error: n1: task 1: Exited with exit code 127\n"
        "srun: launch/slurm: _step_signal: Terminating StepId=3.0\n"
        f"1: {says}{more}\n"
        "0: slurmstepd-n0: error: *** STEP 3.0 ON n0 CANCELLED AT 2026-11-22T09:24:16 ***\n"
        "srun: error: n0: task 0: Terminated\n"
    )
    opening.close_run(folder, 143)
    require_that_n1_fails(folder, says)
    assert verdict(folder, "train.rank.finished", "n0/rank0").outcome is OPEN
    job = verdict(folder, "train.exit_code", "job")
    assert job.outcome is FAIL
    assert f"n1/rank2 could not begin ({says}); and 1 more rank" in f"{job.observed} {job.cause}"
    notes = judge.judge_folder(folder).verdicts.notes
    assert f"raw/launch.log:1: n1, task 1: Exited with exit code 127; could not start: {says}" in notes


def test_without_a_word_of_any_rank_the_task_that_srun_named_first_stands_beside_the_exit_code(tmp_path):
    """A traceback can be cut off when srun ends the step: the node is known all the same."""
    folder = run_of("run_ddp_2node", tmp_path)
    for path in (*folder.glob("raw/rank*.jsonl"), folder / "metrics.json", folder / "closed.json"):
        path.unlink()
    raised = "1: Traceback (most recent call last):\nsrun: error: n1: task 1: Exited with exit code 1\n"
    (folder / "raw/launch.log").write_text(f"{raised}srun: error: n0: task 0: Terminated\n")
    opening.close_run(folder, 143)
    assert verdict(folder, "train.exit_code", "job").cause == "first n1: task 1: Exited with exit code 1"


def resumed(folder: Path, step: int, *passed_over: str) -> None:
    record = {"run": "earlier", "step": step, "world_size": 2, "passed_over": list(passed_over)}
    change(folder, "metrics.json", resumed=record)


def test_a_resumed_run_says_where_it_began_and_what_it_passed_over(tmp_path):
    folder = run_of("run_ddp_1node", tmp_path)
    damaged = "step-8/__0_0.distcp: 10 bytes, 20 were written"
    resumed(folder, 6, damaged)
    notes = judge.judge_folder(folder).verdicts.notes
    assert "metrics.json:resumed: it began after step 6, with a checkpoint of earlier" in notes
    assert f"metrics.json:resumed: passed over a damaged checkpoint: {damaged}" in notes


def test_without_a_step_after_the_warm_up_a_resumed_run_has_no_speed(tmp_path):
    folder = run_of("run_ddp_1node", tmp_path)
    resumed(folder, 11)
    speeds = [each for each in judge.judge_folder(folder).observations if each.quantity == "train.tokens_per_s"]
    assert [observation.value for observation in speeds] == [None]
    assert "no step is left after the warm-up" in str(speeds[0].why)


@case_for_each((1, 0, "train.checkpoint.intact"), (0, 2, "train.checkpoint.resumable"))
def test_the_checkpoint_gates_fail_on_the_rank(tmp_path, damaged, differing, gate):
    folder = run_of("run_ddp_1node", tmp_path)
    rank_said(folder, "n0", 1, checkpoint=(damaged, differing), state="finished")
    assert verdict(folder, gate, "n0/rank1").outcome is FAIL
    assert verdict(folder, gate, "n0/rank0").outcome is PASS


def test_without_a_rehearsal_nothing_is_said_of_checkpoints(tmp_path):
    folder = run_of("run_1gpu", tmp_path)
    rank_said(folder, "n0", 0, state="finished")
    change(folder, "metrics.json", steps_done=12)
    for gate in ("train.checkpoint.intact", "train.checkpoint.resumable"):
        assert verdict(folder, gate, "n0/rank0").outcome is OPEN
