"""bringup run itself: killed, started twice, and with secrets in its environment."""

import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from bringup.records import Playbook, read_record
from harness import CHECKOUT, Cluster, wait_until
from playbook import BRINGUP, playbook

pytestmark = pytest.mark.cluster
PLAYBOOKS = CHECKOUT / "validation/results/playbook"
SECRETS = ("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "MY_PASSWORD")


def start(cluster: Cluster, name: str, *phases: str) -> subprocess.Popen[str]:
    return subprocess.Popen(cluster.command("sh", BRINGUP, "run", *phases), env=cluster.environment({"BRINGUP_RUN_NAME": name}),
                            cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)


def test_a_run_that_is_killed_and_resumed_loses_nothing_and_repeats_nothing_that_had_finished(cluster: Cluster):
    cluster.wait_idle()
    with playbook(cluster) as killed, playbook(cluster) as resumed:
        first = start(cluster, killed.name, "discovery", "nccl_pairwise")
        wait_until((PLAYBOOKS / killed.name / "nccl_pairwise.job").is_file, "the second phase was submitted")
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
        half = read_record(PLAYBOOKS / killed.name / "playbook.json", Playbook)
        assert [step.phase for step in half.steps] == ["discovery"]
        done = resumed.run("--resume", str(PLAYBOOKS / killed.name))
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("KEPT") == 2, done.stdout
        assert not resumed.folder("discovery").exists()
        assert not resumed.folder("nccl_pairwise").exists()


def test_two_runs_at_once_do_not_meet(cluster: Cluster):
    cluster.wait_idle()
    with playbook(cluster) as one, playbook(cluster) as other:
        started = [start(cluster, book.name, "discovery") for book in (one, other)]
        for process, book in zip(started, (one, other), strict=True):
            said, _ = process.communicate(timeout=120)
            assert process.returncode == 0, said
            assert book.verdicts("discovery").outcome.exit_code == 0
    cluster.wait_idle()


@pytest.fixture
def small_disk(cluster: Cluster, tmp_path: Path) -> Iterator[None]:
    """2 MiB under the results folder, the same on all hosts: one block device, mounted on each."""
    image = tmp_path / "disk"
    with image.open("wb") as stream:
        stream.truncate(4 * 2**20)
    subprocess.run(["mkfs.ext4", "-q", "-b", "1024", "-N", "2000", "-m", "0", image], check=True)
    attached = subprocess.run(["losetup", "--find", "--show", image], capture_output=True, text=True, check=False)
    if attached.returncode != 0:
        pytest.skip(f"no loop device here: {attached.stderr.strip()}")
    device = Path(attached.stdout.strip())
    mounted: list[Callable[[], object]] = []
    results = CHECKOUT / "validation/results"
    try:
        number = device.stat().st_rdev
        for node in ("n0", "n1"):
            cluster.on(node, "mknod", device, "b", str(os.major(number)), str(os.minor(number)))
            assert cluster.on(node, "mount", device, results).returncode == 0
            mounted.append(partial(cluster.on, node, "bash", "-c", 'umount "$0" && rm "$1"', results, device))
        assert cluster.sh("mount", device, results).returncode == 0
        mounted.append(partial(cluster.sh, "umount", results))
        yield
    finally:
        for undo in reversed(mounted):
            undo()
        subprocess.run(["losetup", "--detach", device], check=True)


@pytest.mark.parametrize("left_kib", [0, 60])
@pytest.mark.usefixtures("small_disk")
def test_a_full_disk_is_said_and_when_there_is_space_again_the_run_goes_on(cluster: Cluster, left_kib: int):
    fill = ('free=$(df --output=avail -k validation/results | tail -n 1) && '
            f'head -c "$(((free - {left_kib}) * 1024))" /dev/zero >validation/results/fill || true')
    cluster.wait_idle()
    assert cluster.sh("mkdir", "validation/results/discovery", "validation/results/playbook").returncode == 0
    cluster.sh("bash", "-c", fill)
    full = cluster.sh(BRINGUP, "run", "discovery", timeout=120)
    assert full.returncode == 2
    assert "No space left on device; free some space there" in full.stderr
    assert str(CHECKOUT / "validation/results") in full.stderr
    assert len(full.stderr.splitlines()) == 1
    assert cluster.sh("rm", "validation/results/fill").returncode == 0
    begun = cluster.sh("ls", "validation/results/playbook").stdout.split()
    again = ("--resume", f"validation/results/playbook/{begun[0]}") if begun else ("discovery",)
    assert bool(begun) is (left_kib > 0)  # where nothing could be written nothing had begun
    done = cluster.sh(BRINGUP, "run", *again, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_secret_of_the_environment_is_in_anything_that_is_left(cluster: Cluster):
    secret = f"secret-{uuid.uuid4().hex}"
    begun = {path: path.stat().st_mtime_ns for path in (CHECKOUT / "slurm-logs").glob("*.out")}
    cluster.wait_idle()
    with playbook(cluster) as book:
        done = book.run("discovery", "nccl_pairwise", "run_1gpu", env=dict.fromkeys(SECRETS, secret))
        assert done.returncode == 0, done.stdout + done.stderr
        left = [path for results in ("validation/results", "training/results")
                for folder in (CHECKOUT / results).rglob(f"*{book.name}*") for path in folder.rglob("*") if path.is_file()]
        logs = [path for path in (CHECKOUT / "slurm-logs").glob("*.out") if begun.get(path) != path.stat().st_mtime_ns]
        assert len(left) > 20
        assert len(logs) >= 3
        assert [path for path in [*left, *logs] if holds(path, secret)] == []
        assert secret not in done.stdout + done.stderr


def holds(path: Path, secret: str) -> bool:
    return secret.encode() in path.read_bytes()
