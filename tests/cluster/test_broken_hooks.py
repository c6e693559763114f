"""Hooks on a real Slurm: what is broken drains nothing, and what all nodes find at once drains one of ten."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bringup.report import reason
from harness import CHECKOUT, Cluster, running_cluster, wait_until
from hooks_for_tests import BREAKS
from playbook import playbook
from runs_for_tests import reseal

pytestmark = pytest.mark.cluster
BRINGUP = CHECKOUT / ".venv/bin/bringup"
NODES = [f"n{number}" for number in range(10)]
SICK = "#!/bin/bash\n# occasions: {}\n# budget: 3 s\necho sick; exit 1\n"


@pytest.fixture(scope="module")
def ten() -> Iterator[tuple[Cluster, Path]]:
    """10 nodes with the health check in shadow mode, and the run that their baseline was made of."""
    with running_cluster("--nodes", "10", "--gpus", "2") as cluster, playbook(cluster) as book:
        assert book.run("discovery").returncode == 0
        made = cluster.sh(BRINGUP, "site-baseline", book.folder("discovery"), "-o", cluster.shared / "baseline.json")
        assert made.returncode == 0, made.stderr
        # all prologs of a job begin with it, and not with its first step
        with (cluster.state / "slurm.conf").open("a") as stream:
            stream.write("PrologFlags=Alloc\n")
        installed = cluster.run("health-check", cluster.shared / "baseline.json")
        assert installed.returncode == 0, installed.stderr
        yield cluster, book.folder("discovery")


def out(cluster: Cluster) -> dict[str, str]:
    """Node -> reason, of the nodes that have one."""
    rows = cluster.sh("sinfo", "-h", "-N", "-o", "%N|%T|%E").stdout.splitlines()
    shown = [row.split("|", 2) for row in rows]
    return {node: given for node, state, given in shown if given != "none" or state.startswith(("drain", "down"))}


def logs(cluster: Cluster) -> str:
    return "".join(path.read_text() for path in sorted((cluster.state / "health-state").glob("*.log")))


def interval(cluster: Cluster, seconds: int) -> None:
    conf = cluster.state / "slurm.conf"
    lines = conf.read_text().splitlines()
    changed = [line for line in lines if not line.startswith("HealthCheckInterval=")]
    conf.write_text("\n".join([*changed, f"HealthCheckInterval={seconds}", ""]))
    cluster.sh("scontrol", "reconfigure")


def hooks_at_work(cluster: Cluster) -> list[Path]:
    hook = str(cluster.state / "health/hook.py").encode()
    at_work = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            at_work += [path] if hook in path.read_bytes().split(b"\0") else []
    return at_work


def start_anew(cluster: Cluster) -> None:
    for node in out(cluster):
        cluster.sh("scontrol", "update", f"NodeName={node}", "State=RESUME")
    for path in (cluster.state / "health-state").glob("n*"):
        path.unlink(missing_ok=True)
    cluster.wait_idle()


def drained_alone(cluster: Cluster, by: str) -> None:
    """One of ten, and the nine others said why not."""
    wait_until(lambda: logs(cluster).count(f" {by}: not drained: ") >= 9, f"nine nodes say it, by {by}", timeout=120)
    wait_until(lambda: len(out(cluster)) == 1, "one node stays drained")
    (given,) = out(cluster).values()
    reason_given = reason.read(given)
    assert reason_given is not None
    assert reason_given.by == by
    assert "of 10 nodes of partition main are drained by bringup already, at most 1" in logs(cluster)


def install(cluster: Cluster, baseline: Path, *options: str) -> None:
    done = cluster.run("health-check", baseline, *options)
    assert done.returncode == 0, done.stderr


def test_hooks_that_break_in_shadow_mode_drain_nothing(ten: tuple[Cluster, Path]):
    """One after another, by jobs on a real Slurm: each meets a prolog and an epilog."""
    cluster, _ = ten
    interval(cluster, 0)
    health, kept = cluster.state / "health", cluster.state / "health.kept"
    assert cluster.sh("cp", "-a", health, kept).returncode == 0
    for name, damage in BREAKS.items():
        damage(health)
        ran = cluster.sh("srun", "--nodes=2", "hostname", timeout=60)
        assert ran.returncode == 0, f"{name}: {ran.stderr}"
        checked = cluster.on("n1", health / "health-check")
        assert checked.returncode == 0, f"{name}: {checked.stderr}"
        assert out(cluster) == {}, name
        cluster.sh("rm", "-rf", health)
        assert cluster.sh("cp", "-a", kept, health).returncode == 0
    cluster.wait_idle()
    assert out(cluster) == {}


@pytest.mark.parametrize("hook", ["prolog", "epilog"])
def test_a_job_on_ten_nodes_whose_hooks_all_find_a_fault_drains_one(ten: tuple[Cluster, Path], hook: str):
    cluster, _ = ten
    install(cluster, cluster.shared / "baseline.json", "--drain")
    start_anew(cluster)
    check = cluster.state / "health/checks.d/90-sick"
    check.write_text(SICK.format(hook))
    check.chmod(0o755)
    try:
        job = cluster.sh("sbatch", "--parsable", "--nodes=10", "--output=/dev/null", "--wrap", "true").stdout.strip()
        drained_alone(cluster, hook)
        cluster.sh("scancel", job)
    finally:
        check.unlink()
    start_anew(cluster)


def test_a_hook_that_is_killed_takes_no_node_out_beyond_the_limit(ten: tuple[Cluster, Path]):
    """n1 has a fault and n0 is out already. Each hook is killed at 10 points of its life; then the check runs."""
    cluster, _ = ten
    install(cluster, cluster.shared / "baseline.json", "--drain")
    interval(cluster, 0)
    start_anew(cluster)
    cluster.sh(
        "scontrol", "update", "NodeName=n0", "State=DRAIN", "Reason=bringup: x; reboot (2026-11-23T02:00Z, run a)"
    )
    health, check = cluster.state / "health", cluster.state / "health/checks.d/90-sick"
    check.write_text(SICK.format("health-check prolog epilog"))
    check.chmod(0o755)
    try:
        for hook in ("health-check", "prolog", "epilog"):
            begun = time.monotonic()
            cluster.on("n1", health / hook)
            life_s = time.monotonic() - begun
            for point in range(10):
                killed = cluster.on("n1", "timeout", "-s", "KILL", f"{life_s * (point + 0.5) / 10:.3f}", health / hook)
                assert killed.returncode in (0, 1, 137, -9), f"{hook}, {point}: {killed}"
                assert cluster.on("n1", health / "health-check").returncode == 0
                assert set(out(cluster)) == {"n0"}, f"{hook}, {point}"
                assert not list((cluster.state / "health-state").glob("*.claim.json")), f"{hook}, {point}"
    finally:
        check.unlink()
    install(cluster, cluster.shared / "baseline.json")
    start_anew(cluster)


def test_a_wrong_baseline_drains_one_node_of_ten(ten: tuple[Cluster, Path]):
    cluster, _ = ten
    baseline = json.loads((cluster.shared / "baseline.json").read_text())
    for entry in baseline["groups"][0]["asked"]:
        entry["limit"] = 3 if entry["gate"] == "discovery.gpu.count" else entry["limit"]
    wrong = cluster.shared / "wrong.json"
    wrong.write_text(json.dumps(baseline))
    install(cluster, wrong, "--drain")
    interval(cluster, 2)
    drained_alone(cluster, "health-check")
    (cluster.state / "health/off").touch()
    interval(cluster, 0)
    wait_until(lambda: not hooks_at_work(cluster), "the last hook with the wrong baseline has ended")
    (cluster.state / "health/off").unlink()
    install(cluster, cluster.shared / "baseline.json")
    start_anew(cluster)


def test_a_report_drains_one_node_of_ten_and_only_for_evidence_that_holds(ten: tuple[Cluster, Path], tmp_path: Path):
    """A gate that fails on half of the nodes has not failed on most of them."""
    cluster, folder = ten
    report = (BRINGUP, "report", folder, "-o", tmp_path / "report.html", "--apply")
    inventory = folder / "raw/inventory.jsonl"
    inventory.write_text(
        "".join(
            line.replace('"value": 2', '"value": 1')
            if '"discovery.gpu.count"' in line and any(f'"{node}"' in line for node in NODES[:5])
            else line
            for line in inventory.read_text().splitlines(keepends=True)
        )
    )
    refused = cluster.sh(*report)
    assert refused.returncode == 2
    assert "was changed after the run was closed; no node is drained for it" in refused.stdout
    assert out(cluster) == {}
    reseal(folder)
    drained = cluster.sh(*report)
    assert drained.stdout.count("\ndrained: ") == 1, drained.stdout
    assert drained.stdout.count("\nnot drained: ") == 4
    assert "1 of 10 nodes of partition main are drained by bringup already, at most 1" in drained.stdout
    assert len(out(cluster)) == 1
    start_anew(cluster)
