"""A training job that Slurm warns before its time limit resumes by itself, with the losses of an unstopped one."""

import re
from pathlib import Path

import pytest
from bringup import judge
from bringup.records import Outcome, Run, TrainMetrics, read_record
from harness import CHECKOUT, Cluster, wait_until
from playbook import playbook

pytestmark = pytest.mark.cluster
SCRIPT = "training/slurm/run_fsdp_1node.sbatch"
# long enough that the signal arrives before the last step, on a busy machine too
STEPS, GLOBAL_BATCH = 40, 8
OPTIONS = (
    "--steps",
    str(STEPS),
    "--global-batch",
    str(GLOBAL_BATCH),
    "--sequence-length",
    "64",
    "--no-rehearse-resume",
)
STOP_AFTER = 1  # steps


def submit(cluster: Cluster, name: str) -> str:
    done = cluster.sh("sbatch", "--parsable", SCRIPT, *OPTIONS, env={"BRINGUP_RUN_NAME": name})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def folder(name: str) -> Path:
    return CHECKOUT / f"training/results/run_fsdp_1node-{name}"


def steps_done(run: Path) -> int:
    log = run / "raw/launch.log"
    return max((int(step) for step in re.findall(r"step (\d+)/", log.read_text())), default=0) if log.exists() else 0


def test_a_job_that_slurm_warns_is_requeued_and_goes_on_where_it_was(cluster: Cluster):
    with playbook(cluster) as book:
        whole, cut = f"{book.name}-whole", f"{book.name}-cut"
        submit(cluster, whole)
        job = submit(cluster, cut)
        first, second = folder(cut), folder(f"{cut}-r1")
        wait_until(lambda: steps_done(first) >= STOP_AFTER, "some steps", timeout=120)
        assert cluster.sh("scancel", "--batch", "--signal=USR1", job).returncode == 0
        wait_until((second / "closed.json").exists, "the second attempt is closed", timeout=150)
        wait_until((folder(whole) / "closed.json").exists, "the uninterrupted run is closed", timeout=60)
        cluster.wait_idle()  # a job judges its run after it has closed it

        expected = read_record(folder(whole) / "metrics.json", TrainMetrics)
        metrics = read_record(second / "metrics.json", TrainMetrics)
        assert metrics.resumed is not None
        assert metrics.resumed.run == first.name
        assert STOP_AFTER <= metrics.resumed.step < STEPS
        assert (metrics.loss, metrics.grad_norm) == (expected.loss, expected.grad_norm)
        assert metrics.parameter_checksums == expected.parameter_checksums
        assert metrics.sample_distinct == metrics.sample_count == STEPS * GLOBAL_BATCH

        assert not (first / "metrics.json").exists()
        assert read_record(second / "run.json", Run).continues == first.name
        stopped = judge.judge_folder(first).verdicts
        assert stopped.outcome is Outcome.INCOMPLETE
        assert any(f"it went on in {second.name}" in note for note in stopped.notes)
        message = f"stopped on request after step {metrics.resumed.step} of {STEPS}"
        assert any(message in str(verdict.cause) for verdict in stopped.verdicts)
        bad = {
            v.gate
            for v in judge.judge_folder(second).verdicts.verdicts
            if v.outcome in (Outcome.INCOMPLETE, Outcome.FAIL)
        }
        assert bad <= {"train.loss.agrees", "train.grad_norm.agrees"}  # no one-GPU run of this recipe was made here
        for log in CHECKOUT.glob(f"slurm-logs/run_fsdp_1node-{job}*.out"):
            log.unlink()
