"""A cluster with the settings of a kind of site: what stopped a healthy one is met here."""

from collections.abc import Callable

import pytest
from bringup.kernel.records import Outcome
from harness import CHECKOUT, Cluster
from playbook import playbook

pytestmark = pytest.mark.cluster


def test_a_mixed_partition_that_refuses_jobs_without_gpus_and_a_fifth_job_passes(start_cluster):
    """n0 has no GPU, n3 another number. The job without a GPU was refused, and so were most of the small jobs."""
    cluster = start_cluster("--like", "university")
    refused = cluster.sh("srun", "-N1", "true")
    assert refused.returncode != 0
    assert "only jobs that ask for a GPU" in refused.stderr
    with playbook(cluster) as run:
        done = run.run("smoke", env={"BRINGUP_SMOKE_PARTS": "binding jobs"})
        assert "on 2 nodes: n1, n2" in done.stdout
        assert "left aside: n0 (no GPU); n3 (gpu:placeholder:1)" in " ".join(done.stdout.split())
        asked = tuple(f"smoke.{part}" for part in ("gpu.", "cpu.", "jobs.", "exit_code", "memory", "array", "dep"))
        verdicts = [verdict for verdict in run.verdicts("smoke").verdicts if verdict.gate.startswith(asked)]
        assert {(v.gate, v.cause) for v in verdicts if v.outcome is not Outcome.PASS} == set()
        assert {"smoke.gpu.isolated", "smoke.array", "smoke.dependency.never"} <= {v.gate for v in verdicts}


def test_a_node_of_divided_gpus_is_left_aside_and_who_names_it_reads_what_that_means(start_cluster):
    cluster = start_cluster("--like", "mig", "--simulate", "h100")
    with playbook(cluster) as run:
        done = run.run("discovery")
        assert "on 2 nodes: n0, n1" in done.stdout
        assert "left aside: n2 (gpu:1g.10gb:4)" in " ".join(done.stdout.split())
        assert done.returncode == 0, done.stdout
    with playbook(cluster) as run:
        done = run.run("discovery", "--nodelist", "n2")
        assert "GPUs are divided (MIG), and Slurm counts the parts: n2 (gpu:1g.10gb:4)" in " ".join(done.stdout.split())
        assert done.returncode == 1, done.stdout
        failed = {v.gate: v.cause for v in run.verdicts("discovery").verdicts if v.outcome is Outcome.FAIL}
    why = "its GPUs are divided: discovery.gpu.mig"
    assert failed == {
        "discovery.gpu.mig": "Slurm counts 4 parts as GPUs; ranks on them have neither NVLink nor NCCL between them",
        "discovery.gpu.count": why,
        "discovery.gpu.answering": why,
        "discovery.slurm.gres": why,
    }


def test_nodes_that_see_the_checkout_read_only_write_results_and_logs(start_cluster: Callable[..., Cluster]) -> None:
    """Slurm opens a batch job's log on the node: in the checkout itself it cannot, and the job ended without a word."""
    cluster = start_cluster("--like", "read-only")
    assert "Read-only file system" in cluster.on("n1", "touch", str(CHECKOUT / "written-by-n1")).stderr
    with playbook(cluster) as run:
        done = run.run("discovery")
        assert done.returncode == 0, done.stdout
