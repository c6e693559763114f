"""A training job that Slurm warns before its time limit resumes by itself, with the losses of an unstopped one."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from bringup.kernel import judge
from bringup.kernel.records import Outcome, Run, read_record
from bringup.training.records import TrainMetrics
from harness import CHECKOUT, Cluster, wait_until
from playbook import Playbook, playbook

pytestmark = pytest.mark.cluster
# long enough that the signal arrives before the last step, on a busy machine too
STEPS, GLOBAL_BATCH = 40, 8
PHASE = "run_fsdp_1node"
OPTIONS = (
    *("--steps", str(STEPS), "--global-batch", str(GLOBAL_BATCH), "--sequence-length", "64"),
    "--no-rehearse-resume",
)
STOP_AFTER = 1  # steps
UNKNOWN = {"train.loss.agrees", "train.grad_norm.agrees"}  # no one-GPU run of this recipe was made


def submit(cluster: Cluster, name: str) -> str:
    done = cluster.sh(
        "sbatch", "--parsable", "--nodes=1", f"training/slurm/{PHASE}.sbatch", *OPTIONS, env={"BRINGUP_RUN_NAME": name}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def book(cluster: Cluster) -> Iterator[Playbook]:
    with playbook(cluster) as made:
        yield made


def steps_done(run: Path) -> int:
    log = run / "raw/launch.log"
    return max((int(step) for step in re.findall(r"step (\d+)/", log.read_text())), default=0) if log.exists() else 0


def test_a_job_that_slurm_warns_is_requeued_and_goes_on_where_it_was(cluster: Cluster, book: Playbook):
    """Afterwards it has the losses of the one that went through, bit for bit."""
    whole, first = (CHECKOUT / f"training/results/{PHASE}-{book.name}-{name}" for name in ("whole", "cut"))
    second = first.with_name(f"{first.name}-r1")
    jobs = [submit(cluster, f"{book.name}-{name}") for name in ("whole", "cut")]
    wait_until(lambda: steps_done(first) >= STOP_AFTER, "some steps", timeout=150)
    assert cluster.sh("scancel", "--batch", "--signal=USR1", jobs[1]).returncode == 0
    wait_until((second / "closed.json").exists, "the second attempt is closed", timeout=150)
    wait_until((whole / "closed.json").exists, "the uninterrupted run is closed", timeout=150)
    cluster.wait_idle()  # a job judges its run after it has closed it

    expected = read_record(whole / "metrics.json", TrainMetrics)
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
    verdicts = judge.judge_folder(second).verdicts.verdicts
    assert {v.gate for v in verdicts if v.outcome in (Outcome.INCOMPLETE, Outcome.FAIL)} <= UNKNOWN
    for job in jobs:
        for log in CHECKOUT.glob(f"slurm-logs/{PHASE}-{job}*.out"):
            log.unlink()
