"""bringup run itself: killed, started twice, and on a full disk."""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO

import pytest
from bringup.kernel.records import read_record
from bringup.report import campaigns
from harness import CHECKOUT, Cluster, wait_until
from playbook import BRINGUP, Playbook, playbook
from programs import begun, program

pytestmark = pytest.mark.cluster

SMALL_DISK = """\
schema_version: 1
name: small-disk
description: a results folder of 2 MiB is all that is asked for
extends: local-cpu
expect:
  discovery.folders.space: {at_least: 0, unit: GiB, source: "the disk of this test"}
  discovery.folders.files: {at_least: 10, unit: count, source: "the disk of this test"}
"""


def start(cluster: Cluster, name: str, *phases: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    command, own = cluster.command("sh", BRINGUP, "run", *phases), {"BRINGUP_RUN_NAME": name, **(env or {})}
    how = {"cwd": CHECKOUT, "stderr": subprocess.STDOUT, "start_new_session": True}
    return begun(command, env=cluster.environment(own), **how)


def iterate_until(pattern: re.Pattern[str], stream: IO[str]) -> Iterator[str]:
    """The lines up to the first one with this pattern."""
    for line in stream:
        yield line
        if pattern.search(line):
            return


class Killed:
    """A `bringup run` that is killed at the sign of a moment, resumed under another name, and leaves nothing behind."""

    def __init__(self, cluster: Cluster, killed: Playbook, resumed: Playbook) -> None:
        self.cluster, self.killed, self.resumed = cluster, killed, resumed
        self.place = CHECKOUT / "validation/results/playbook" / killed.name

    def at(
        self, sign: Callable[[], object], what: str, *phases: str, env: Mapping[str, str] | None = None
    ) -> list[str]:
        """The phases that it had recorded as done."""
        process = start(self.cluster, self.killed.name, *phases, env=env)
        try:
            wait_until(sign, what, poll=0.05)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        return [step.phase for step in read_record(self.place / "playbook.json", campaigns.Playbook).steps]

    def go_on(self, *, kept: tuple[str, ...], again: tuple[str, ...] = ()) -> None:
        """Every phase passes in the end: `kept` once, in the killed run; `again` once, in the resumed one."""
        done = self.resumed.run("--resume", str(self.place))
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("KEPT") == len(kept), done.stdout
        for phases, held, other in ((kept, self.killed, self.resumed), (again, self.resumed, self.killed)):
            for phase in phases:
                folder = held.folder(phase)
                assert [path.name for path in folder.parent.glob(f"{folder.name}*")] == [folder.name]
                assert held.verdicts(phase).outcome.exit_code == 0
                assert not other.folder(phase).exists()
        self.cluster.wait_idle()  # and no job is left


@pytest.fixture
def killed(cluster: Cluster) -> Iterator[Killed]:
    cluster.wait_idle()
    with playbook(cluster) as first, playbook(cluster) as other:
        yield Killed(cluster, first, other)


def state_of(cluster: Cluster, job: str) -> str:
    return cluster.sh("squeue", "--noheader", f"--jobs={job}", "--format=%T").stdout.strip()


@contextlib.contextmanager
def busy(cluster: Cluster) -> Iterator[None]:
    """All nodes, for somebody else."""
    job = cluster.sh(
        "sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 600"
    ).stdout.strip()
    try:
        wait_until(lambda: state_of(cluster, job) == "RUNNING", "all nodes are taken")
        yield
    finally:
        cluster.sh("scancel", job)


def test_a_run_that_is_killed_while_its_job_is_pending_finds_the_job_again(killed: Killed):
    noted = killed.place / "discovery.job"

    def pending() -> bool:
        return noted.is_file() and state_of(killed.cluster, noted.read_text().strip()) == "PENDING"

    with busy(killed.cluster):
        assert killed.at(pending, "the discovery job is pending", "discovery", "nccl_pairwise") == []
        assert pending()
    killed.go_on(kept=("discovery",), again=("nccl_pairwise",))


def test_a_run_that_is_killed_while_its_job_runs_finds_what_the_job_found(killed: Killed):
    folder = killed.killed.folder("discovery")
    killed.cluster.slurmd("n1", "pause")  # the job cannot end before the kill
    try:
        assert killed.at((folder / "run.json").is_file, "the discovery job has begun", "discovery") == []
        assert not (folder / "closed.json").exists()
    finally:
        killed.cluster.slurmd("n1", "cont")
    killed.go_on(kept=("discovery",))


def test_a_run_that_is_killed_between_two_phases_runs_the_second_one_only(killed: Killed):
    programs = killed.cluster.shared / killed.killed.name  # here sbatch never comes back with the second phase
    sign = programs / "asked"
    waits = f'[[ "$*" != *pairwise* ]] || {{ touch {sign}; sleep 600; }}'
    program(programs / "sbatch", f'{waits}\nexec /usr/bin/sbatch "$@"')
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}
    moment = "the second phase is about to be submitted"
    assert killed.at(sign.is_file, moment, "discovery", "nccl_pairwise", env=path) == ["discovery"]
    killed.go_on(kept=("discovery",), again=("nccl_pairwise",))


def test_a_run_that_is_killed_when_its_second_phase_was_submitted_repeats_neither(killed: Killed):
    noted = killed.place / "nccl_pairwise.job"
    assert killed.at(noted.is_file, "the second phase was submitted", "discovery", "nccl_pairwise") == ["discovery"]
    killed.go_on(kept=("discovery", "nccl_pairwise"))


def test_a_run_that_is_killed_while_the_script_of_a_phase_runs_waits_for_the_script(killed: Killed):
    folder = killed.killed.folder("smoke")
    assert killed.at((folder / "run.json").is_file, "smoke has begun", "smoke") == []
    assert not (folder / "closed.json").exists()
    killed.go_on(kept=("smoke",))


def test_a_node_that_another_job_holds_is_waited_for_by_name(cluster: Cluster):
    """The phase once began, waited BRINGUP_WAIT_S in the queue, and said that nothing had run."""
    held = cluster.sh(
        "sbatch", "--parsable", "--nodelist=n1", "--exclusive", "--output=/dev/null", "--wrap", "sleep 280"
    )
    job = held.stdout.strip()
    wait_until(lambda: "allocated" in cluster.node_state("n1"), "n1 allocated")
    with playbook(cluster) as book:
        process = start(cluster, book.name, "nccl_monitoring", env={"BRINGUP_WAIT_S": "3"})
        assert process.stdout is not None
        waits = re.compile(rf"waiting for n1 \(held by job {job} of \w+\)")
        lines = list(iterate_until(waits, process.stdout))
        cluster.sh("scancel", job)
        rest, _ = process.communicate(timeout=200)
        assert waits.search(lines[-1]), [*lines, rest]
        assert process.returncode == 0, rest


def test_two_runs_at_once_do_not_meet(cluster: Cluster):
    cluster.wait_idle()
    with playbook(cluster) as first, playbook(cluster) as other:
        started = [start(cluster, book.name, "discovery") for book in (first, other)]
        for process, book in zip(started, (first, other), strict=True):
            output, _ = process.communicate(timeout=120)
            assert process.returncode == 0, output
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
    fill = (
        "free=$(df --output=avail -k validation/results | tail -n 1) && "
        f'head -c "$(((free - {left_kib}) * 1024))" /dev/zero >validation/results/fill || true'
    )
    cluster.wait_idle()
    room = cluster.shared / "small-disk.yaml"
    room.write_text(SMALL_DISK, encoding="utf-8")
    profile = {"BRINGUP_PROFILE": str(room)}
    assert cluster.sh("mkdir", "validation/results/discovery", "validation/results/playbook").returncode == 0
    cluster.sh("bash", "-c", fill)
    full = cluster.sh(BRINGUP, "run", "discovery", env=profile, timeout=120)
    assert full.returncode == 2
    assert "No space left on device; free some space there" in full.stderr
    assert str(CHECKOUT / "validation/results") in full.stderr
    assert len(full.stderr.splitlines()) == 1
    assert cluster.sh("rm", "validation/results/fill").returncode == 0
    begun = cluster.sh("ls", "validation/results/playbook").stdout.split()
    again = ("--resume", f"validation/results/playbook/{begun[0]}") if begun else ("discovery",)
    assert bool(begun) is (left_kib > 0)  # where nothing could be written nothing had begun
    done = cluster.sh(BRINGUP, "run", *again, env=profile, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
