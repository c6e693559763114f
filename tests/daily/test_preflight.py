"""What preflight shows its command of a job, and how it goes on after a bad end. No Slurm."""

import inspect
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bringup.kernel import results as runs
from bringup.kernel.errors import UsageError
from bringup.kernel.plan import profile as profiles
from bringup.kernel.records import read_record
from bringup.kernel.results import PREFLIGHT
from bringup.preflight import allocation as allocations
from bringup.preflight import checks, command, flow
from bringup.preflight.allocation import Allocation
from bringup.preflight.records import Preflight, PreflightLook
from bringup.report.campaigns import LeftOut
from bringup.run import programs as started
from bringup.run import waiting
from loops import case_for_each, for_each
from programs import program, ran
from tiers import first

JOB = {"SLURM_JOB_ID": "17", "SLURM_NTASKS": "7", "SLURM_TASKS_PER_NODE": "2(x3),1", "SLURM_GPUS_ON_NODE": "2"}
JOB |= dict.fromkeys(("SLURM_JOB_NODELIST", "SLURM_NODELIST"), "n[0-3]")
JOB |= dict.fromkeys(("SLURM_JOB_NUM_NODES", "SLURM_NNODES"), "4")
JOB |= {"SLURM_JOB_CPUS_PER_NODE": "8(x4)", "PATH": "/usr/bin"}


def test_the_command_sees_a_job_of_the_chosen_nodes(tmp_path: Path):
    shown = allocations.of_environment(JOB).for_command(["n0", "n3"], tmp_path / "hosts")
    assert (shown["SLURM_JOB_NODELIST"], shown["SLURM_NNODES"]) == ("n0,n3", "2")
    assert (shown["SLURM_TASKS_PER_NODE"], shown["SLURM_NTASKS"]) == ("2,1", "3")
    assert (shown["BRINGUP_OTHER_NODES"], shown["MASTER_ADDR"]) == ("n1,n2", "n0")
    bound = {"SLURM_TRES_BIND": "gres/gpu:per_task:1", "SLURM_GPU_BIND": "single:1"}  # srun obeys them in each step
    given = JOB | bound
    script = Allocation("17", ["n0", "n1", "n2", "n3"], 2, given).for_script(["n0", "n3"], "discovery")
    assert given == JOB | bound
    assert not {"SLURM_NTASKS", *bound} & script.keys() and script["BRINGUP_NODES"] == "n0,n3"


@for_each({}, {"SLURM_JOB_ID": "17"}, {**JOB, "SLURM_JOB_ID": "$(id)"})
def test_outside_of_a_job_it_says_how_to_get_one(environment):
    with pytest.raises(UsageError, match="works inside a job of yours"):
        allocations.of_environment(environment)


def test_srun_on_the_path_keeps_steps_away_from_the_other_nodes(tmp_path: Path):
    program(tmp_path / "srun", 'printf "%s\\n" "$@"')
    path = {"PATH": f"{allocations.SRUN}:{tmp_path}:{os.environ['PATH']}"}
    for others, options in (("n1,n2", ["--exclude=n1,n2"]), ("", [])):
        done = ran(["srun", "-n2", "a b"], env=path | {"BRINGUP_OTHER_NODES": others}, check=True)
        assert done.stdout.splitlines() == [*options, "-n2", "a b"]


# --- the command


def test_output_is_passed_on_and_the_exit_code_kept(capfdbinary: pytest.CaptureFixture[bytes]):
    ended = command.run(["bash", "-c", "echo one; echo two >&2; exit 7"], os.environ, None)
    assert (ended.code, capfdbinary.readouterr()) == (7, (b"one\n", b"two\n"))
    assert command.run(["bash", "-c", "kill -9 $$"], os.environ, None).code == 137


def test_a_command_that_prints_nothing_is_ended_with_all_that_it_started(tmp_path: Path):
    begun = time.monotonic()
    ended = command.run(["bash", "-c", f"sleep 60 & echo $! >{tmp_path}/pid; wait"], os.environ, 1)
    assert ended.code is None and time.monotonic() - begun < 15
    state = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    while state.exists() and ") Z " not in state.read_text():  # Z: ended, and its new parent has not looked yet
        assert time.monotonic() - begun < 15
        time.sleep(0.05)


def test_a_command_that_leaves_a_process_with_its_output_open_ends_all_the_same():
    begun = time.monotonic()
    assert command.run(["bash", "-c", "sleep 20 & exit 3"], os.environ, None).code == 3
    assert time.monotonic() - begun < 15


def test_what_a_shell_started_gets_time_to_end():
    """A shell ends at once, and an srun below it was killed before it could end its step."""
    slow = "trap 'sleep 0.5; echo ended; exit' TERM; echo begun; while :; do sleep 0.1; done"
    assert command.run(["bash", "-c", f'bash -c "{slow}" & wait'], os.environ, 1).code is None
    shell = started.start(["bash", "-c", f'bash -c "{slow}" & wait'], os.environ, stdout=subprocess.PIPE)
    output = shell.child.stdout
    assert output is not None and output.readline() == b"begun\n"
    started.end(shell)
    assert output.read() == b"ended\n"
    output.close()


STUBBORN = """import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def say(words):  # at once: print writes word by word, and two ranks write into one pipe
    os.write(1, f"rank {os.environ['RANK']} {words}\\n".encode())
signal.signal(signal.SIGUSR1, lambda *_: say("was warned"))
say(f"is process {os.getpid()}")
if os.environ["RANK"] == "1":
    time.sleep(1)  # the other one is there
    eval(sys.argv[1])
time.sleep(600)
"""
USR1 = "os.kill(os.getppid(), signal.SIGUSR1)"


@for_each(
    *first(
        [
            (USR1, (), 138, 0),  # torchrun does not handle it, and dies
            ("None", (), None, 0),  # it prints nothing more
            (USR1, ("--signals-to-handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1", "--shutdown-timeout", "1"), 1, 2),
        ]
    )
)
def test_of_a_torchrun_whose_ranks_ignore_their_end_no_process_is_left(
    monkeypatch, tmp_path: Path, capfd, does: str, options: tuple[str, ...], code: int | None, warned: int
):
    """Its ranks are leaders of sessions of their own, and held the GPUs while the nodes were looked at."""
    stubborn = tmp_path / "stubborn.py"
    stubborn.write_text(STUBBORN)
    monkeypatch.setattr(started, "ENDING_S", 3)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *options]
    ended = command.run([*torchrun, str(stubborn), does], {**os.environ, "OMP_NUM_THREADS": "1"}, 30)
    output = capfd.readouterr().out
    ranks = re.findall(r"is process (\d+)", output)
    assert ended.code == code and len(ranks) == 2
    assert [pid for pid in ranks if is_running(pid)] == []
    assert output.count("was warned") == warned


def is_running(pid: str) -> bool:
    try:
        return ") Z " not in Path("/proc", pid, "stat").read_text()
    except OSError:
        return False


def test_torchrun_has_the_time_that_it_gives_its_ranks():
    """It was killed after 20 s, and its ranks stayed."""
    from torch.distributed.elastic.multiprocessing.api import PContext

    assert inspect.signature(PContext.close).parameters["timeout"].default < started.ENDING_S


def test_only_what_the_program_started_is_ended(tmp_path: Path):
    """Of a shell that has ended: a process in a session of its own, and one that cleared its environment, too."""
    script = "setsid sleep 600 & env -i sleep 600 & exit 0"
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    shell = started.start(["bash", "-c", script], os.environ)
    shell.child.wait()
    assert len(shell.left()) == 2
    started.end(shell)
    assert shell.left() == [] and other.poll() is None
    other.kill()
    other.wait()


def test_steps_have_ended_only_where_slurm_says_so(monkeypatch: pytest.MonkeyPatch):
    answers: list[set[str] | None] = [{"17.0", "17.1"}, {"17.0"}]
    monkeypatch.setattr(waiting, "steps_of", lambda job: answers.pop(0) if len(answers) > 1 else answers[0])
    monkeypatch.setattr(waiting, "STEPS_END_S", 0.1)
    monkeypatch.setattr(waiting.slurm, "ask", lambda *command: "")
    assert waiting.end_steps("17", {"17.0"}, print)
    answers[:] = [None]
    assert not waiting.end_steps("17", {"17.0"}, print)
    assert not waiting.end_steps("17", None, print)


def test_a_warning_of_slurm_reaches_the_command(tmp_path: Path):
    script = f"trap 'touch {tmp_path}/warned; exit 0' USR1; sleep 0.3; kill -USR1 $PPID; while :; do sleep 0.1; done"
    assert command.run(["bash", "-c", script], os.environ, None).code == 0
    assert (tmp_path / "warned").exists()


# --- how it goes on after a bad end


class Slurmless:
    """A job of four nodes whose checks give prepared answers: look -> node -> what it is accused of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.accused: dict[int, dict[str, str]] = {}
        self.links: dict[int, list[tuple[str, str]]] = {}
        self.lines: list[str] = []
        self.folder = tmp_path / runs.PREFLIGHTS
        monkeypatch.setattr(flow, "REPOSITORY", tmp_path)
        monkeypatch.setattr(checks, "look", self._look)
        monkeypatch.setattr(waiting, "steps_of", lambda job: set())
        monkeypatch.setattr(flow.opening, "default_name", lambda: "flight")

    def _look(self, setting, nodes, number, *, until=(), is_first=False):
        against = self.accused.get(number, {})
        entries = [LeftOut(node=node, phase="discovery", why=against[node]) for node in nodes if node in against]
        look = PreflightLook(nodes=nodes, runs=[], accused=entries, links=self.links.get(number, []), seconds=1)
        return look, []

    def run(self, script: str, *, nodes: int = 2, retries: int = 2) -> int:
        local = profiles.load("local-cpu")
        request = checks.Request(["bash", "-c", script], nodes, retries, None, [], local, "local-cpu", None)
        return flow.run(request, {**os.environ, **JOB, "PATH": os.environ["PATH"]}, self.lines.append)

    @property
    def record(self) -> Preflight:
        return read_record(self.folder / "flight" / PREFLIGHT, Preflight)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Slurmless:
    return Slurmless(monkeypatch, tmp_path)


SHOWN = 'test "$BRINGUP_NODES" = {}'


def test_the_command_runs_on_healthy_nodes_and_its_success_is_ours(job: Slurmless):
    job.accused[0] = {"n0": "discovery.gpu.count: GPUs there: 1"}
    assert job.run(SHOWN.format("n1,n2")) == 0
    assert job.record.attempts[0].spares == ["n3"]
    assert job.lines[:2] == ["left out   n0: discovery.gpu.count: GPUs there: 1", "chosen     n1, n2; spare: n3"]
    assert stat.S_IMODE((job.folder / "flight/command-1.log").stat().st_mode) == 0o600


def test_neither_arguments_nor_output_are_recorded_where_others_can_read_them(job: Slurmless):
    assert job.run("echo password: said; : -u anna:given") == 0
    folder = job.folder / "flight"
    of_its_owner = (folder / "command-1.log").read_text()
    assert "anna:given" in of_its_owner.splitlines()[0] and of_its_owner.endswith("password: said\n")
    text = (folder / PREFLIGHT).read_text()
    assert "anna:given" not in text and "said" not in text
    assert job.record.program == "bash"


def test_with_too_few_healthy_nodes_the_command_does_not_run(job: Slurmless, tmp_path: Path):
    job.accused[0] = {"n0": "a", "n1": "b"}
    assert job.run(f"touch {tmp_path}/ran", nodes=3) == 1
    assert not (tmp_path / "ran").exists()
    assert "needs 3 healthy nodes, and 2 of 4 are healthy" in job.lines[-1]


@case_for_each(
    ({1: {"n1": "1 of 2"}}, {}, SHOWN.format("n0,n2"), 0, ["n0 n1", "n0 n2"], ""),
    # without a culprit no node is exchanged, and the code is the command's: a spare that is sick is not the cause
    ({1: {"n3": "a"}}, {}, "exit 5", 5, ["n0 n1"], "nothing was observed that speaks against one of its nodes"),
    # a sick spare is not taken, and without a healthy one it ends
    ({1: {"n0": "a", "n2": "b"}, 2: {"n1": "c"}}, {}, "exit 5", 5, ["n0 n1", "n1 n3"], "no healthy spare is left"),
    ({1: {"n0": "a"}, 2: {"n1": "b"}, 3: {}}, {}, "exit 5", 5, ["n0 n1", "n1 n2", "n2 n3"], ""),  # at most so often
    ({}, {1: [("n0", "n1")]}, SHOWN.format("n0,n2"), 0, ["n0 n1", "n0 n2"], ""),  # of a bad link one is a spare
)
def test_a_culprit_is_exchanged_and_the_others_stay(job, accused, links, script, code, attempts, says):
    job.accused, job.links = accused, links
    assert job.run(script) == code
    assert [" ".join(attempt.nodes) for attempt in job.record.attempts] == attempts
    assert says in (job.record.conclusion or "")
    if links:
        assert job.record.attempts[1].spares == ["n3", "n1"]
    if attempts == ["n0 n1", "n0 n2"] and accused:
        assert job.record.attempts[0].exchanged == {"n1": "n2"}


def test_more_nodes_than_the_job_has_are_refused(job: Slurmless):
    with pytest.raises(UsageError, match="--nodes 5 does not fit a job of 4 nodes"):
        job.run("true", nodes=5)


def test_the_verb_needs_a_command_and_a_job():
    def ended(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        return ran([sys.executable, "-m", "bringup", "preflight", *arguments], env=environment)

    assert (ended("--nodes", "2").returncode, ended("--nodes", "2", "--", "true").returncode) == (2, 2)
    assert "works inside a job of yours" in ended("--nodes", "2", "--", "true").stderr


def test_where_a_step_of_a_lost_node_stays_further_steps_share_its_cores(job: Slurmless, monkeypatch):
    monkeypatch.setattr(waiting, "end_steps", lambda job, others, tell: False)
    job.accused[1] = {"n1": "Slurm says DOWN"}
    assert job.run('test "${SLURM_OVERLAP:-}" = 1') == 0
    assert len(job.record.attempts) == 2
