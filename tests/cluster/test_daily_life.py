"""After bring-up, on a real Slurm: faults drain their node with their reason, what passes again is resumed, and what
somebody else drained is left alone."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from bringup.report import reason
from harness import CHECKOUT, Cluster, ClusterError, running_cluster, wait_until
from playbook import playbook

pytestmark = pytest.mark.cluster
BRINGUP = CHECKOUT / ".venv/bin/bringup"
XID = "4,7,61000000,-;NVRM: Xid (PCI:0000:c1:00): 79, pid=0, GPU has fallen off the bus."
XID_SAID = ("bash", "-c", f"cp /dev/kmsg /dev/kmsg.before && echo '{XID}' >>/dev/kmsg")
XID_GONE = ("mv", "/dev/kmsg.before", "/dev/kmsg")
REMOVE, BACK = ("rm", "/dev/nvidia1"), ("mknod", "-m", "666", "/dev/nvidia1", "c", "195", "1")


@contextlib.contextmanager
def with_health_check(*shape: str) -> Iterator[Cluster]:
    """2 nodes with the health check installed, in drain mode, with the baseline of a run that passed there."""
    with running_cluster("--nodes", "2", "--gpus", "2", *shape) as cluster, playbook(cluster) as book:
        done = book.run("discovery")
        assert done.returncode == 0, done.stdout
        baseline = cluster.shared / "baseline.json"
        made = cluster.sh(BRINGUP, "site-baseline", book.folder("discovery"), "-o", baseline)
        assert made.returncode == 0, made.stderr
        installed = cluster.run("health-check", baseline, "--drain")
        assert installed.returncode == 0, installed.stderr
        answers = cluster.state / "health-state/n1.health-check.json"
        wait_until(answers.exists, "the first health check of n1")
        yield cluster


@pytest.fixture(scope="module")
def looked_after() -> Iterator[Cluster]:
    with with_health_check() as cluster:
        yield cluster


def given(cluster: Cluster, node: str) -> str:
    return cluster.sh("sinfo", "-h", "-N", "-n", node, "-o", "%E").stdout.strip()


def wait_for_reason(cluster: Cluster, node: str, *, passes: bool) -> reason.Reason:
    def is_told() -> bool:
        forget_the_brake(cluster, node)
        reason_given = reason.read(given(cluster, node))
        return reason_given is not None and (reason_given.passes_since is not None) is passes

    news = "passes again" if passes else "has a fault"
    try:
        wait_until(is_told, f"the health check tells Slurm that {node} {news}", timeout=180)  # busy, it took a minute
    except ClusterError as error:
        raise ClusterError(f"{error}; {said_by_hooks(cluster, node)}") from error
    reason_given = reason.read(given(cluster, node))
    assert reason_given is not None
    return reason_given


def forget_the_brake(cluster: Cluster, node: str) -> None:
    """On a busy machine the other node may not answer Slurm for a moment, and the last node in service is not drained.
    A site's health check then asks again after 10 minutes; here, at its next call."""
    record = cluster.state / f"health-state/{node}.told.json"
    with contextlib.suppress(OSError, ValueError):  # it is being replaced
        if json.loads(record.read_text()).get("braked"):
            record.unlink()


def said_by_hooks(cluster: Cluster, node: str) -> str:
    """What explains a wait that was in vain."""
    states = cluster.sh("sinfo", "-N", "-o", "%N %T %H %E").stdout
    folder = cluster.state / "health-state"
    kept = "".join(f"{path.name}:\n{path.read_text()}\n" for path in sorted(folder.glob("*")) if path.is_file())
    return f"Slurm says of {node} and the others:\n{states}; the hooks keep:\n{kept}"


def wait_for_a_load(cluster: Cluster) -> None:
    """What the driver reported on n1 is out of its log, which does not say that it is gone."""

    def asks() -> bool:
        reason_given = reason.read(given(cluster, "n1"))
        return reason_given is not None and reason_given.asks_for_a_load

    wait_until(asks, "the reason asks for a load", timeout=180)


def resume_under_load(cluster: Cluster) -> None:
    with playbook(cluster) as book:
        again = ("env", f"BRINGUP_RUN_NAME={book.name}-load", BRINGUP, "resume-nodes", "--apply")
        done = cluster.sh(*again, timeout=280)
        assert "resumed: n1: passes again" in done.stdout, done.stdout + done.stderr


def resume(cluster: Cluster, *options: str, timeout: float = 120) -> str:
    done = cluster.sh(BRINGUP, "resume-nodes", *options, timeout=timeout)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("make", "repair", "gate", "action"),
    [
        (REMOVE, BACK, "discovery.gpu.count", "reboot"),
        (XID_SAID, XID_GONE, "discovery.kernel_log.xid", "reboot"),
        (
            ("mount", "-o", "remount,size=64k", "/tmp"),
            ("mount", "-o", "remount,size=1g", "/tmp"),
            "discovery.tmp.space",
            "configure",
        ),
        (
            ("mount", "-t", "tmpfs", "lost", str(CHECKOUT)),
            ("umount", "--lazy", str(CHECKOUT)),
            "discovery.mount",
            "configure",
        ),
    ],
    ids=["a GPU is lost", "an Xid", "a full /tmp", "a missing mount"],
)
def test_a_fault_is_named_drained_repaired_and_resumed(
    looked_after: Cluster, make: tuple[str, ...], repair: tuple[str, ...], gate: str, action: str
):
    made = looked_after.on("n1", *make)
    assert made.returncode == 0, made.stderr
    try:
        reason_given = wait_for_reason(looked_after, "n1", passes=False)
        assert gate in reason_given.gates
        assert (reason_given.action, reason_given.by) == (action, "health-check")
        assert looked_after.node_state("n1").startswith("drain")
        assert looked_after.node_state("n0") == "idle"
        assert "n1: not yet: its health check has not seen it pass" in resume(looked_after, "--apply")
    finally:
        assert looked_after.on("n1", *repair).returncode == 0
    if gate == "discovery.kernel_log.xid":
        wait_for_a_load(looked_after)
        resume_under_load(looked_after)
        looked_after.wait_idle()
        return
    wait_for_reason(looked_after, "n1", passes=True)
    assert looked_after.node_state("n1") == "drained"  # nobody is resumed by a health check
    assert "nothing was done" in resume(looked_after)
    assert looked_after.node_state("n1") == "drained"
    assert "resumed: n1" in resume(looked_after, "--apply")
    looked_after.wait_idle()


def test_after_a_gpu_reset_what_the_driver_had_said_no_longer_counts(looked_after: Cluster):
    """The kernel keeps its log until the node boots again."""
    looked_after.on("n1", *XID_SAID)
    try:
        wait_for_reason(looked_after, "n1", passes=False)
        completed = looked_after.on("n1", looked_after.state / "health/health-check", "--repaired")
        assert completed.returncode == 0, completed.stderr
        wait_for_reason(looked_after, "n1", passes=True)
        looked_after.on("n1", "bash", "-c", f"echo '{XID.replace('61000000', '999999999999999')}' >>/dev/kmsg")
        wait_for_reason(looked_after, "n1", passes=False)  # a later one counts
    finally:
        looked_after.on("n1", *XID_GONE)
    wait_for_a_load(looked_after)
    assert looked_after.on("n1", looked_after.state / "health/health-check", "--repaired").returncode == 0
    wait_for_reason(looked_after, "n1", passes=True)
    assert "resumed: n1" in resume(looked_after, "--apply")
    looked_after.wait_idle()


def test_what_a_person_drained_stays_as_it_is(looked_after: Cluster):
    """Also while the node has a fault that the health check sees, and after it has gone."""
    looked_after.sh("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=fan is loud")
    log = looked_after.state / "health-state/n1.log"
    looked_after.on("n1", *REMOVE)
    try:
        wait_until(lambda: "somebody else keeps the node out (fan is loud)" in log.read_text(), "the fault is said")
    finally:
        looked_after.on("n1", *BACK)
    assert given(looked_after, "n1") == "fan is loud"
    assert "n1: left as it is: bringup did not drain it" in resume(looked_after, "--apply")
    assert looked_after.node_state("n1") == "drained"
    looked_after.sh("scontrol", "update", "NodeName=n1", "State=RESUME")
    looked_after.wait_idle()


def test_a_prolog_drains_a_node_with_a_fault_and_its_job_is_requeued(looked_after: Cluster):
    """By a check that the site added: the prolog sees the fault before the health check does."""
    fault = looked_after.shared / "fault"
    check = looked_after.state / "health/checks.d/90-licence"
    check.write_text(
        "#!/bin/bash\n# occasions: idle prolog\n# budget: 3 s\n"
        f'[ ! -e "{fault}-$BRINGUP_OCCASION" ] || {{ echo no licence server; exit 1; }}\n'
    )
    check.chmod(0o755)
    fault = Path(f"{fault}-prolog")
    try:
        fault.touch()
        output = looked_after.shared / "job.out"
        job = ("sbatch", "--parsable", f"--output={output}", "--nodelist=n1", "--gres=gpu:1", "--wrap", "hostname")
        number = looked_after.sh(*job).stdout.strip()
        log = looked_after.state / "health-state/n1.log"
        drained = "prolog: drained: bringup: checks.licence no licence server"
        wait_until(lambda: drained in log.read_text(), "the prolog drains its node")
        state = ("squeue", "-h", "-j", number, "-o", "%T")
        wait_until(lambda: looked_after.sh(*state).stdout.strip() == "PENDING", "the job is requeued")
        reason_given = wait_for_reason(looked_after, "n1", passes=True)  # to the health check, which asked it, too
        assert (reason_given.finding, reason_given.by) == ("checks.licence no licence server", "prolog")
        looked_after.sh("scancel", number)
    finally:
        fault.unlink(missing_ok=True)
    assert "resumed: n1" in resume(looked_after, "--apply")
    looked_after.wait_idle()
    check.unlink()


@pytest.fixture
def in_shadow(looked_after: Cluster) -> Iterator[Cluster]:
    baseline = looked_after.shared / "baseline.json"
    assert looked_after.run("health-check", baseline).returncode == 0
    yield looked_after
    assert looked_after.run("health-check", baseline, "--drain").returncode == 0


def test_shadow_mode_says_and_leaves_the_node_in_service(in_shadow: Cluster):
    log = in_shadow.state / "health-state/n1.log"
    in_shadow.on("n1", *REMOVE)
    try:
        wait_until(
            lambda: "health-check: shadow: would drain: bringup: discovery.gpu.count 1" in log.read_text(), "said"
        )
        ran = in_shadow.sh("srun", "--nodelist=n1", "hostname")
        assert ran.stdout.strip() == "n1", ran.stderr
        wait_until(lambda: "prolog: shadow: would refuse the node" in log.read_text(), "the prolog said it, too")
        assert given(in_shadow, "n1") == "none"
    finally:
        in_shadow.on("n1", *BACK)


def test_what_a_run_drained_is_asked_again_while_nobody_else_can_use_it(in_shadow: Cluster, tmp_path: Path):
    with playbook(in_shadow) as book:
        again = ("env", f"BRINGUP_RUN_NAME={book.name}-again", BRINGUP, "resume-nodes", "--apply")
        in_shadow.on("n1", *REMOVE)
        try:
            assert book.run("discovery").returncode == 1
            page = tmp_path / "report.html"
            drained = in_shadow.sh(BRINGUP, "report", book.folder("discovery"), "-o", page, "--apply")
            assert "drained: n1" in drained.stdout, drained.stderr
            reason_given = reason.read(given(in_shadow, "n1"))
            assert reason_given is not None
            assert reason_given.by == f"run {book.name}"
            asked = in_shadow.sh(*again, timeout=240)
            assert asked.returncode == 1
            assert "stays drained: n1: bringup: discovery.gpu.count" in asked.stdout
            assert in_shadow.node_state("n1") == "drained"
        finally:
            in_shadow.on("n1", *BACK)
        asked = in_shadow.sh(*(f"{word}2" if "RUN_NAME" in str(word) else word for word in again), timeout=240)
        assert "resumed: n1: passes again: discovery.gpu.count" in asked.stdout, asked.stderr
    in_shadow.wait_idle()
    assert "bringup-resume" not in in_shadow.sh("scontrol", "show", "reservation").stdout


def test_faults_of_gpus_and_ports_drain_their_node_and_a_gpu_that_hangs_does_not():
    """On simulated GPUs: nobody can tell what a driver that gives no answer hides."""
    with with_health_check("--simulate", "h100") as cluster:
        for fault, gate in (
            (("gpu", "n1", "1", "ecc", "2"), "discovery.gpu.ecc"),
            (("gpu", "n1", "1", "lost"), "discovery.gpu.answering"),
            (("port", "n1", "mlx5_0", "down"), "discovery.rdma.active"),
        ):
            assert cluster.run(*fault).returncode == 0
            assert gate in wait_for_reason(cluster, "n1", passes=False).gates
            assert cluster.node_state("n0") == "idle"
            assert cluster.run("gpu", "n1", "repair").returncode == 0
            wait_for_reason(cluster, "n1", passes=True)
            assert "resumed: n1" in resume(cluster, "--apply")
            cluster.wait_idle()
        answers = cluster.state / "health-state/n1.health-check.json"
        assert cluster.run("gpu", "n1", "1", "hang").returncode == 0
        wait_until(lambda: "no answer within" in answers.read_text(), "the check of the GPUs is ended")
        assert given(cluster, "n1") == "none"
        cluster.run("gpu", "n1", "repair")
