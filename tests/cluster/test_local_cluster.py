"""The local cluster is what it claims to be: separate hosts, real confinement, and nothing left behind."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bringup.kernel.facts.hostlist import shortened
from harness import CHECKOUT, PROGRAM, Cluster, running_cluster, state_folder, wait_until
from loops import case_for_each
from programs import program

pytestmark = pytest.mark.cluster

# What a task may do: the GPUs that it can open (ENXIO: allowed, there is no driver; EPERM: denied) and its cores.
PROBE = """
import errno, glob, json, os, sys
def attempt(path):
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return errno.errorcode[error.errno]
    return "opened"
print(json.dumps({
    "host": os.uname().nodename,
    "task": int(os.environ.get("SLURM_LOCALID", 0)),
    "gpus": {path[-1]: attempt(path) for path in sorted(glob.glob("/dev/nvidia*"))},
    "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
    "cores": sorted(os.sched_getaffinity(0)),
}))
"""


def probe(cluster: Cluster, *srun: str) -> dict[tuple[str, int], dict]:
    """What each task of a step may do, by (host, local task)."""
    done = cluster.sh("srun", *srun, "python3", "-c", PROBE)
    assert done.returncode == 0, done.stderr
    tasks = [json.loads(line) for line in done.stdout.splitlines()]
    return {(task["host"], task["task"]): task for task in tasks}


def job_states(cluster: Cluster, name: str) -> list[str]:
    return cluster.sh("squeue", "-h", "-t", "all", "-n", name, "-o", "%T").stdout.split()


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"  # a zombie only waits for the machine's init


def descendants(pid: int) -> set[int]:
    pids = {pid}
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a start makes many that live for a moment
            for child in children.read_text().split():
                pids |= descendants(int(child))
    return pids


def recorded_pid(folder: Path, name: str) -> int:
    path = folder / "run" / name
    wait_until(lambda: path.exists() and path.read_text().split(), f"{name} was written, and not only made", poll=0.002)
    return int(path.read_text().split()[0])


def traces(folder: Path) -> dict[str, set[str]]:
    """What a cluster with this state folder could leave on the machine; others may come and go meanwhile."""
    name = f"bringup-{hashlib.sha256(bytes(folder)).hexdigest()[:8]}"
    return {
        "mounts": set(Path("/proc/self/mountinfo").read_text().splitlines()),
        "interfaces": {path.name for path in Path("/sys/class/net").iterdir()},
        "cgroups": {str(path) for level in (name, f"*/{name}") for path in Path("/sys/fs/cgroup").glob(level)},
        "state": {str(path) for path in folder.parent.iterdir()},
    }


@pytest.fixture
def confined(cluster: Cluster) -> Cluster:
    if cluster.sh("printenv", "BRINGUP_PROFILE").stdout.strip() != "local-cpu":
        pytest.fail("confinement can only be tested where 'cluster up' does not say what is lacking", pytrace=False)
    return cluster


@pytest.fixture
def state() -> Iterator[Path]:
    """Where a test starts a cluster and ends it itself; whatever the test does, nothing runs on."""
    with state_folder() as folder:
        try:
            yield folder
        finally:
            Cluster(folder).down()


@pytest.fixture
def readable_copy() -> Iterator[Path]:
    """The program in a checkout that any user can read, at a path with a space and a quote, beneath /tmp."""
    with tempfile.TemporaryDirectory(prefix="it's a copy ", dir="/tmp") as folder:
        copy = Path(folder)
        copy.chmod(0o777)
        shutil.copytree(CHECKOUT / PROGRAM.parent, copy / PROGRAM.parent)
        yield copy


def test_each_node_is_a_host_of_its_own(cluster: Cluster) -> None:
    facts = "hostname; hostname -I; cat /proc/sys/kernel/random/boot_id; ls /sys/class/net; touch /tmp/$0 /dev/shm/$0"
    n0 = cluster.on("n0", "bash", "-c", facts, "bringup-of-n0").stdout.split()
    n1 = cluster.on("n1", "bash", "-c", facts, "bringup-of-n1").stdout.split()
    assert n0[:2] == ["n0", "10.77.1.10"]
    assert n1[:2] == ["n1", "10.77.1.11"]
    assert n0[2] != n1[2]
    assert n0[3:] == n1[3:] == ["eth0", "lo"]
    assert cluster.on("n1", "find", "/tmp", "/dev/shm", "-name", "bringup-of-n0").stdout == ""
    assert "bringup-of-n0" not in cluster.on("n1", "ps", "ax").stdout
    assert not Path("/tmp/bringup-of-n0").exists()


def test_nodes_share_the_checkout_and_the_state_folder(cluster: Cluster) -> None:
    note = cluster.shared / "note"
    assert cluster.on("n0", "bash", "-c", 'echo hello >"$0"', note).returncode == 0
    assert cluster.on("n1", "cat", note).stdout == "hello\n"
    assert cluster.sh("srun", "-N2", "test", "-x", CHECKOUT / PROGRAM).returncode == 0


def test_tasks_get_the_limits_of_an_ordinary_login_shell(cluster: Cluster) -> None:
    """Slurm's default hands them on. Where they were taken away, a gate that fails on ordinary clusters went unseen."""
    assert cluster.sh("srun", "-N1", "bash", "-c", "ulimit -Sn").stdout.split() == ["1024"]
    assert int(cluster.sh("srun", "-N1", "bash", "-c", "ulimit -Sl").stdout) <= 8192


def test_sh_keeps_the_folder_the_exit_code_and_the_input(cluster: Cluster) -> None:
    done = cluster.sh("bash", "-c", "pwd; cat; exit 7", cwd=cluster.shared, stdin="typed\n")
    assert (done.stdout, done.returncode) == (f"{cluster.shared}\ntyped\n", 7)
    assert cluster.sh(stdin="hostname\nexit 3\n").stdout == "ctl\n"
    assert cluster.sh("no-such-command").returncode == 127
    assert cluster.sh("bash", "-c", "kill -KILL $$").returncode == 137


def test_a_step_can_have_a_terminal(cluster: Cluster) -> None:
    # a standard input that stays open: at its end script(1) types an end of file into the terminal, which may echo it
    reader, writer = os.pipe()
    try:
        done = subprocess.run(
            ["script", "-qec", "./cluster sh srun --pty tty", "/dev/null"],
            cwd=(CHECKOUT / PROGRAM).parent, env=cluster.environment(), stdin=reader, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(reader)
        os.close(writer)
    assert done.stdout.strip() == "/dev/pts/0"


def test_jobs_can_be_interrupted(cluster: Cluster) -> None:
    """A daemon that inherited an ignored SIGINT would hand it on, and no job could trap it."""
    done = cluster.sh("srun", "bash", "-c", "trap 'echo caught' INT; kill -INT $$")
    assert done.stdout == "caught\n", done.stderr


def test_a_task_cannot_open_a_gpu_it_does_not_own(confined: Cluster) -> None:
    tasks = probe(confined, "-N2", "--ntasks-per-node=2", "--gpus-per-task=1")
    assert {key: task["gpus"] for key, task in tasks.items()} == {
        ("n0", 0): {"0": "ENXIO", "1": "EPERM"},
        ("n0", 1): {"0": "EPERM", "1": "ENXIO"},
        ("n1", 0): {"0": "ENXIO", "1": "EPERM"},
        ("n1", 1): {"0": "EPERM", "1": "ENXIO"},
    }


def test_a_job_that_asks_for_no_gpu_can_open_none(confined: Cluster) -> None:
    task = probe(confined, "-w", "n0")["n0", 0]
    assert task["gpus"] == {"0": "EPERM", "1": "EPERM"}
    assert task["visible"] is None


def test_a_step_of_an_exclusive_job_gets_the_gpus_that_it_asks_for(confined: Cluster) -> None:
    script = 'srun python3 -c "$0"; srun --gpus-per-node=$SLURM_GPUS_ON_NODE python3 -c "$0"'
    done = confined.sh(
        "salloc", "-Q", "-N1", "--exclusive", "--mem=0", "--gpus-per-node=2", "bash", "-c", script, PROBE
    )
    for line in done.stdout.splitlines():
        assert json.loads(line)["gpus"] == {"0": "ENXIO", "1": "ENXIO"}
    assert len(done.stdout.splitlines()) == 2, done.stderr


def test_a_task_has_the_cores_it_asked_for(confined: Cluster) -> None:
    cores = len(os.sched_getaffinity(0))
    assert len(probe(confined, "-w", "n0", "-c1")["n0", 0]["cores"]) == 1
    assert len(probe(confined, "-w", "n0", f"-c{cores}")["n0", 0]["cores"]) == cores


def test_a_job_over_its_memory_ends_out_of_memory(confined: Cluster) -> None:
    done = confined.sh("srun", "-J", "greedy", "--mem=100M", "python3", "-c", "bytearray(300 << 20)")
    assert done.returncode != 0
    assert "Out Of Memory" in done.stderr
    wait_until(lambda: job_states(confined, "greedy") == ["OUT_OF_MEMORY"], "the job ends OUT_OF_MEMORY")


def test_more_gpus_than_cores_give_up_the_confinement_of_cores_alone(confined, start_cluster):
    gpus = len(os.sched_getaffinity(0)) + 1
    other = start_cluster("--nodes", "1", "--gpus", str(gpus))
    tasks = probe(other, "-J", "here", f"--ntasks-per-node={gpus}", "--gpus-per-task=1")
    assert job_states(confined, "here") == [], "two clusters stand side by side"
    assert [list(task["gpus"].values()).count("ENXIO") for task in tasks.values()] == [1] * gpus


def test_a_dead_slurmd_comes_back(cluster: Cluster) -> None:
    cluster.slurmd("n1", "kill")
    assert cluster.run("slurmd", "n1", "stop").returncode == 2
    cluster.slurmd("n1", "start")
    assert cluster.sh("srun", "-w", "n1", "hostname").stdout == "n1\n"
    cluster.wait_idle()


def test_a_node_powered_off_is_noticed_and_boots_again(cluster: Cluster) -> None:
    """It once came back with another MAC address, and the others sent to the old one for half a minute."""
    ask = "import socket; socket.create_connection(('n1', 6818), 5).close()"
    assert cluster.on("n0", "python3", "-c", ask).returncode == 0
    before = cluster.on("n1", "cat", "/proc/sys/kernel/random/boot_id").stdout
    cluster.off("n1")
    assert cluster.on("n1", "true").returncode == 2
    assert cluster.run("off", "n1").returncode == 2
    wait_until(lambda: cluster.node_state("n1") == "down*", "n1 is down*")
    cluster.boot("n1")
    cluster.wait_idle()
    answer = cluster.on("n0", "python3", "-c", ask)
    assert answer.returncode == 0, answer.stderr
    assert cluster.on("n1", "cat", "/proc/sys/kernel/random/boot_id").stdout != before
    assert cluster.sh("srun", "-N2", "--gpus-per-node=2", "true").returncode == 0


@pytest.mark.parametrize("restarted", [False, True])
def test_a_throttled_node_is_held_back_and_no_other_one(cluster: Cluster, restarted: bool) -> None:
    """A slurmd that was started again once stood outside of the node's share of CPU time, and its jobs with it."""
    if restarted:
        cluster.slurmd("n1", "stop")
        cluster.slurmd("n1", "start")
        cluster.wait_idle()

    def held_back() -> list[int]:
        either = "cd /sys/fs/cgroup/cpu 2>/dev/null || cd /sys/fs/cgroup"  # cgroup v1, v2
        counted = cluster.sh("bash", "-c", f"{either}; awk '/^nr_throttled/ {{ print $2 }}' n0/cpu.stat n1/cpu.stat")
        return [int(line) for line in counted.stdout.split()]

    work = ("srun", "-N2", "python3", "-c", "sum(range(3_000_000))")
    before = held_back()
    assert cluster.sh(*work).returncode == 0
    assert held_back() == before
    assert cluster.run("throttle", "n1", "10").returncode == 0
    assert cluster.sh(*work).returncode == 0
    assert cluster.run("throttle", "n1", "off").returncode == 0
    n0, n1 = held_back()
    assert n0 == before[0]
    assert n1 > before[1]
    assert cluster.sh(*work).returncode == 0
    assert held_back() == [n0, n1]


def test_up_again_changes_nothing_and_another_shape_is_refused(cluster: Cluster) -> None:
    assert "already up" in cluster.up().stdout
    refused = cluster.run("up", "--nodes", "3")
    assert refused.returncode == 2
    assert "run 'cluster down' first" in refused.stderr


@case_for_each(


        "fly", "up --fast", "up --nodes", "up --nodes 0", "up --nodes two", "up --nodes 65", "up --gpus -1",
        "on n0", "on n2 true", "on ctl true", "off", "off n0 n1", "boot n07", "boot n0", "slurmd n0",
        "slurmd n0 explode", "slurmd n0 start", "throttle n0", "throttle n0 0", "throttle n9 5", "throttle n0 5%",
        "status now", "down please", "nfs-like n0", "nfs-like n0 /no/such/folder",

)  # fmt: skip
def test_a_wrong_call_is_one_line_and_code_2(cluster: Cluster, arguments: str) -> None:
    done = cluster.run(*arguments.split())
    assert done.returncode == 2
    assert re.fullmatch(r"cluster: .+\n", done.stderr)


def test_without_a_cluster_the_verbs_say_how_to_start_one(state: Path) -> None:
    nowhere = Cluster(state)
    for arguments in (["sh", "true"], ["on", "n0", "true"], ["off", "n0"]):
        done = nowhere.run(*arguments)
        assert (done.returncode, done.stderr) == (2, "cluster: no cluster is up; run 'cluster up'\n")
    assert nowhere.run("status").returncode == 1
    assert nowhere.down().stdout == "cluster: nothing is up\n"


def test_a_foreign_folder_is_never_taken_for_state(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for verb in ("up", "down"):
        assert Cluster(tmp_path).run(verb).returncode == 2
    assert (tmp_path / "thesis.tex").exists()


def test_a_start_that_fails_says_why_and_leaves_nothing(state: Path, tmp_path: Path) -> None:
    before = traces(state)
    program(tmp_path / "munged", "echo 'munged: no entropy today' >&2; exit 1")
    done = Cluster(state).run("up", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.returncode == 2
    assert "no entropy today" in done.stderr
    assert traces(state) == before


@pytest.mark.parametrize("outer_is_killed", [False, True])
def test_down_leaves_no_process_mount_or_cgroup(state: Path, outer_is_killed: bool) -> None:
    before = traces(state)
    cluster = Cluster(state)
    cluster.up()
    assert traces(state) != before
    cluster.sh("sbatch", "-J", "long", "-o", "/dev/null", "-N2", "--gpus-per-node=2", "--wrap", "srun sleep 600")
    wait_until(lambda: job_states(cluster, "long") == ["RUNNING"], "the job runs")
    outer = recorded_pid(state, "ctl.outer")
    pids = descendants(outer)
    assert len(pids) > 10
    if outer_is_killed:
        os.kill(outer, signal.SIGKILL)
    cluster.down()
    assert [pid for pid in pids if alive(pid)] == []
    assert traces(state) == before


@pytest.mark.parametrize("seen", ["run/ctl.outer", "run/munge.sock", "run/n0"])
def test_an_interrupted_start_leaves_nothing(state: Path, seen: str) -> None:
    before = traces(state)
    # env: a pytest in the background ignores SIGINT, and so would its children
    cluster = Cluster(state, prefix=("env", "--default-signal"))
    up = subprocess.Popen(cluster.command("up"), env=cluster.environment(), stdout=subprocess.DEVNULL)
    wait_until((state / seen).exists, f"the start gets to {seen}", poll=0.002)
    pids = descendants(recorded_pid(state, "ctl.outer"))
    up.send_signal(signal.SIGINT)
    assert up.wait(timeout=30) == 130
    assert [pid for pid in pids if alive(pid)] == []
    assert traces(state) == before


def test_down_can_keep_the_logs() -> None:
    with running_cluster("--nodes", "1") as cluster:
        cluster.run("down", "--keep-logs")
        assert "slurmctld.log" in {path.name for path in (cluster.state / "log").iterdir()}
        cluster.down()
        assert not cluster.state.exists()


def test_it_runs_from_a_path_with_a_space(readable_copy: Path) -> None:
    cluster = Cluster(None, readable_copy)
    try:
        cluster.up()
        done = cluster.sh("srun", "-N2", "bash", "-c", 'pwd; touch "from $(hostname)"', cwd=readable_copy)
        assert done.stdout == f"{readable_copy}\n" * 2, done.stderr
        assert (readable_copy / "from n0").exists()
        assert (readable_copy / "from n1").exists()
    finally:
        cluster.down()


def test_it_runs_without_root(readable_copy: Path) -> None:
    # not the user nobody: Slurm 26.05 refuses it as SlurmUser
    somebody = ("setpriv", "--reuid=1", "--regid=1", "--clear-groups", "env", "HOME=/nonexistent")
    cluster = Cluster(None, readable_copy, somebody if os.geteuid() == 0 else ())
    try:
        assert "are not confined: not run by root" in cluster.up().stdout
        assert cluster.sh("printenv", "BRINGUP_PROFILE").stdout == "local-cpu-unconfined\n"
        assert len(probe(cluster, "-N2", "--ntasks-per-node=2", "--gpus-per-task=1")) == 4
        slow = "tc qdisc add dev eth0 root tbf rate 100mbit burst 64kb latency 50ms"
        faults = f"set -e; umount /dev/nvidia1; rm /dev/nvidia1; mount -t tmpfs tmpfs /mnt; {slow}"
        assert cluster.on("n1", "bash", "-c", faults).returncode == 0
        assert "throttle needs root" in cluster.run("throttle", "n1", "10").stderr
        cluster.off("n1")
        cluster.boot("n1")
        assert cluster.on("n1", "ls", "/dev/nvidia1").returncode == 0
    finally:
        cluster.down()


def test_slurm_reads_each_short_form_of_a_node_list(cluster: Cluster):
    """Numbers inside of names were put into brackets once, and Slurm refused the list."""
    forms = [
        [f"n{number:02}" for number in (0, 1, 2, 7, 8, 10)],
        [f"gpu-{rack:02}-{node:02}" for rack in range(3) for node in range(9, 12)],
        [f"rack{rack}a-n{node}" for rack in (1, 2, 5) for node in range(8, 12)],
        [f"gpu{number}-ib" for number in range(1, 6)],
        [f"n{number}.lab.org" for number in range(9, 14)],
        [f"gpu-a{number:02}-r1" for number in range(5)],
    ]
    for names in forms:
        hostnames = cluster.run("sh", "scontrol", "show", "hostnames", shortened(names)).stdout.split()
        assert sorted(hostnames) == sorted(names)
