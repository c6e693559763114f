"""The health check on a real Slurm: a fault is said on its node alone, and no node changes its state for it. The lines
that `bringup report` prints do what they say."""

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import CHECKOUT, Cluster, running_cluster, wait_until
from loops import case_for_each
from playbook import playbook

pytestmark = pytest.mark.cluster
BRINGUP = CHECKOUT / ".venv/bin/bringup"
XID = "4,7,99000000000000,-;NVRM: Xid (PCI:0000:c1:00): 79, pid=0, GPU has fallen off the bus."
LIMITS = "s/budget: .* s/budget: 20 s/; s/^WHOLE_S = 3.5/WHOLE_S = 20/; s/seconds=9/seconds=29/"
MORE_TIME = (
    LIMITS + "; s/^HealthCheckInterval=.*/HealthCheckInterval=30/"
)  # a busy machine; limits have tests elsewhere
REMOUNT = ("mount", "-o")
REMOVE, BACK = ("rm", "/dev/nvidia1"), ("mknod", "-m", "666", "/dev/nvidia1", "c", "195", "1")


@contextlib.contextmanager
def with_health_check(*shape: str) -> Iterator[Cluster]:
    """2 nodes with the health check installed, with the baseline of a run that passed there."""
    with running_cluster("--nodes", "2", "--gpus", "2", *shape) as cluster, playbook(cluster) as book:
        done = book.run("discovery")
        assert done.returncode == 0, done.stdout
        baseline = cluster.shared / "baseline.json"
        assert cluster.sh(BRINGUP, "site-baseline", book.folder("discovery"), "-o", baseline).returncode == 0
        assert cluster.run("health-check", baseline).returncode == 0
        programs = cluster.state / "health"
        limits = (programs / "checks.py", programs / "health-check", *(programs / "checks.d").iterdir())
        cluster.sh("sed", "-i", MORE_TIME, cluster.state / "slurm.conf", *limits)
        cluster.sh("scontrol", "reconfigure")
        gauges = cluster.state / "health-state/bringup-health.n1.prom"
        wait_until(gauges.exists, "Slurm has started the health check of n1", timeout=120)
        yield cluster


@pytest.fixture(scope="module")
def looked_after() -> Iterator[Cluster]:
    with with_health_check() as cluster:
        yield cluster


def log_of(cluster: Cluster, node: str) -> str:
    path = cluster.state / f"health-state/{node}.log"
    return path.read_text() if path.exists() else ""


def by_hand(cluster: Cluster, node: str) -> int:
    return cluster.on(node, cluster.state / "health/health-check", "--exit-code").returncode


@case_for_each(
    (REMOVE, BACK, "discovery.gpu.count"),
    (
        ("bash", "-c", f"cp /dev/kmsg /dev/kmsg.before && echo '{XID}' >>/dev/kmsg"),
        ("mv", "/dev/kmsg.before", "/dev/kmsg"),
        "discovery.kernel_log.xid",
    ),
    ((*REMOUNT, "remount,size=64k", "/tmp"), (*REMOUNT, "remount,size=1g", "/tmp"), "discovery.tmp.space"),
    (("mount", "-t", "tmpfs", "lost", str(CHECKOUT)), ("umount", "--lazy", str(CHECKOUT)), "discovery.mount"),
    ids=["a GPU is lost", "an Xid", "a full /tmp", "a missing mount"],
)
def test_a_fault_is_said_on_its_node_and_no_node_changes_its_state(looked_after, make, repair, gate):
    assert looked_after.on("n1", *make).returncode == 0
    try:
        wait_until(lambda: by_hand(looked_after, "n1") == 1, "it ends with 1", timeout=180)
        assert f"fault: {gate}: " in log_of(looked_after, "n1")
        assert "fault: " not in log_of(looked_after, "n0")
        assert {looked_after.node_state(node) for node in ("n0", "n1")} == {"idle"}
    finally:
        looked_after.on("n1", *repair)
    looked_after.on("n1", looked_after.state / "health/health-check", "--repaired")
    wait_until(lambda: by_hand(looked_after, "n1") == 0, "it ends with 0", timeout=180)
    assert f"passes again: {gate}" in log_of(looked_after, "n1")


def test_the_lines_of_a_report_drain_and_resume_their_node_when_somebody_pastes_them(looked_after: Cluster, tmp_path):
    cluster, page = looked_after, tmp_path / "report.html"

    def line(folder: Path, state: str) -> str:
        shown = cluster.sh(BRINGUP, "report", folder, "-o", page, "--force").stdout
        return re.findall(rf"^scontrol update NodeName=n1 State={state}.*", shown, re.MULTILINE)[0]

    with playbook(cluster) as book, playbook(cluster) as again:
        cluster.on("n1", *REMOVE)
        try:
            assert book.run("discovery").returncode == 1
        finally:
            cluster.on("n1", *BACK)
        drain = line(book.folder("discovery"), "DRAIN")
        assert cluster.node_state("n1") == "idle"  # it printed
        assert again.run("discovery").returncode == 0
        earlier = re.sub(r"\(\d{4}-", "(2025-", drain)  # the date of a reason has minutes, and this test takes less
        assert cluster.sh(*shlex.split(earlier)).returncode == 0  # somebody pastes it late
        assert cluster.node_state("n1") == "drained"
        assert (
            "Slurm has it as IDLE+DRAIN already"
            in cluster.sh(BRINGUP, "report", book.folder("discovery"), "-o", page, "--force").stdout
        )
        assert cluster.sh(*shlex.split(line(again.folder("discovery"), "RESUME"))).returncode == 0
    cluster.wait_idle()


def test_faults_of_gpus_and_ports_are_said_and_a_gpu_that_hangs_is_unknown():
    """On simulated GPUs: nobody can tell what a driver that gives no answer hides."""
    with with_health_check("--simulate", "h100") as cluster:
        faults = {"gpu.ecc": "gpu n1 1 ecc 2", "gpu.answering": "gpu n1 1 lost", "rdma.active": "port n1 mlx5_0 down"}
        for gate, fault in ((f"discovery.{name}", fault) for name, fault in faults.items()):
            assert cluster.run(*fault.split()).returncode == 0
            wait_until(lambda: by_hand(cluster, "n1") == 1, f"it finds {gate}", timeout=180)
            assert f"fault: {gate}: " in log_of(cluster, "n1")
            assert cluster.run("gpu", "n1", "repair").returncode == 0
            wait_until(lambda: by_hand(cluster, "n1") == 0, "it ends with 0", timeout=180)
        before = log_of(cluster, "n1").count("fault: ")
        assert cluster.run("gpu", "n1", "1", "hang").returncode == 0
        assert [by_hand(cluster, "n1") for _ in range(3)] == [2, 2, 2]
        assert "could not tell 3 times in a row: discovery.gpu.count: no answer within 20 s" in log_of(cluster, "n1")
        assert log_of(cluster, "n1").count("fault: ") == before
        assert {cluster.node_state(node) for node in ("n0", "n1")} == {"idle"}
        cluster.run("gpu", "n1", "repair")
