"""bringup run waits for a controller that is away, and for what an earlier run has left at work."""

import fcntl
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from bringup.kernel.errors import ControllerAway, SlurmError
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.phases import PHASES
from bringup.run import launch, programs, slurm, waiting
from bringup.run import site as at_site
from bringup.run import site_file as sites
from harness import wait_until
from loops import case_for_each
from programs import program

AWAY = "slurm_load_partitions: Unable to contact slurm controller (connect failure)"


@pytest.fixture
def sinfo(tmp_path, monkeypatch):
    """A sinfo that reaches no controller for the first two calls, then lists two nodes."""
    monkeypatch.setattr(slurm, "_AGAIN_S", 0.0)
    calls = tmp_path / "calls"
    away = f'[ "$(wc -l <"{calls}")" -gt 2 ] || {{ echo "{AWAY}" >&2; exit 1; }}'
    program(tmp_path / "sinfo", f"echo call >>'{calls}'\n{away}\nprintf 'main*\\037n[0-1]\\n'")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return calls


def test_a_controller_that_is_away_is_waited_for_and_that_is_said_and_another_error_is_not(sinfo, monkeypatch):
    messages: list[str] = []
    assert slurm.patiently(lambda: slurm.partition_nodes(None), messages.append) == ["n0", "n1"]
    assert len(sinfo.read_text().splitlines()) == 3
    assert len(messages) == 2
    assert "Unable to contact slurm controller" in messages[0]
    with pytest.raises(SlurmError, match="no partition 'gpu'"):
        slurm.patiently(lambda: slurm.partition_nodes("gpu"), pytest.fail)
    sinfo.unlink()
    monkeypatch.setenv("BRINGUP_WAIT_S", "0")
    with pytest.raises(ControllerAway, match="connect failure"):
        slurm.patiently(lambda: slurm.partition_nodes(None), lambda text: None)


# ---- how often Slurm is asked


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        fake = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep, time=lambda: self.now)
        monkeypatch.setattr(launch, "time", fake)
        monkeypatch.setattr(slurm, "time", fake)
        monkeypatch.setattr(waiting, "time", fake)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Controller:
    """Answers squeue, scontrol and scancel of one job on n0 and n1, and notes every question and its time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
        self.clock, self.begun = clock, clock.now
        self.asked: list[tuple[float, tuple[str, ...]]] = []
        self.state: Callable[[float], tuple[str, str]] = lambda seconds: ("COMPLETED", "None")
        self.n1: Callable[[float], str] = lambda seconds: "IDLE"
        self.away: Callable[[float], bool] = lambda seconds: False
        monkeypatch.setattr(slurm, "ask", self.ask)

    def ask(self, *command: str, **options: object) -> str:
        seconds = self.clock.now - self.begun
        self.asked.append((seconds, command))
        if self.away(seconds):
            raise ControllerAway(AWAY)
        if command[0] == "squeue":
            return slurm.SEPARATOR.join([*self.state(seconds), "n[0-1]"]) + "\n"
        if command[0] == "scontrol":
            line, states = "NodeName={} Gres=gpu:2 State={} Version=23.11\n", ("IDLE", self.n1(seconds))
            return "".join(line.format(*of_node) for of_node in zip(("n0", "n1"), states, strict=True))
        return ""

    def commands(self, name: str) -> list[tuple[str, ...]]:
        return [command for _, command in self.asked if command[0] == name]


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Controller:
    return Controller(monkeypatch, Clock(monkeypatch))


def starting(phase: str = "discovery", folder: Path = Path("/nowhere"), tell: Callable[[str], None] = str):
    at = (["n0", "n1"], 2, {}, profiles.load("generic"), None)
    return launch.Launch(PHASES[phase], "x", folder, tell, *at)


def wait(tell: Callable[[str], None] = str) -> bool:
    return starting(tell=tell)._wait("7", ["n0", "n1"])


def test_a_job_that_waits_for_an_hour_costs_slurmctld_few_questions(controller: Controller):
    """It was squeue and twice all nodes every half second: 21,600 questions."""
    controller.state = lambda seconds: ("PENDING", "Priority") if seconds < 3600 else ("COMPLETED", "None")
    assert wait() is True
    assert len(controller.commands("squeue")) <= 140
    assert len(controller.asked) == len(controller.commands("squeue")), "its nodes do not matter yet"
    times = [seconds for seconds, _ in controller.asked]
    gaps = [after - before for before, after in pairwise(times)]
    assert max(gaps) <= 30.01
    assert all(gap >= 5 for time, gap in zip(times, gaps, strict=False) if time > 30)


def test_of_the_nodes_only_the_jobs_own_are_asked_for_and_once_at_each_look(controller: Controller):
    controller.state = lambda seconds: ("PENDING", "Resources") if seconds < 600 else ("COMPLETED", "None")
    assert wait() is True
    looks = controller.commands("squeue")
    assert len(looks) <= 40
    assert controller.commands("scontrol") == [("scontrol", "--oneliner", "show", "node", "n0,n1")] * (len(looks) - 1)


@case_for_each(
    # the local cluster is not slowed
    ({0: "PENDING", 1: "RUNNING", 8: "COMPLETED"}, None, 8, 10.4, None),
    # the filesystem says when: nobody waits half a minute, and slurmctld gets no question for it
    ({0: "RUNNING", 1801: "COMPLETED"}, 1800, 1801, 1803, None),
    # with Slurm 26.05 a node with another munge key answers, and never ends a job
    ({0: "RUNNING", 20: "COMPLETING"}, 18, 50, 80, "has done its work"),
    ({0: "RUNNING", 20: "COMPLETING"}, None, launch.STUCK_S, 2 * launch.STUCK_S, "did not close its run"),
    # it is being requeued, and its next attempt writes into the same run
    ({0: "RUNNING", 20: "COMPLETING", 320: "PENDING", 340: "RUNNING", 400: "COMPLETED"}, None, 400, 431, None),
)
def test_a_job_is_waited_for_until_it_ended_or_cannot_end(
    controller: Controller, monkeypatch, states: dict[int, str], closed_at: int | None, least, most, says: str | None
):
    def seconds() -> float:
        return controller.clock.now - controller.begun

    messages: list[str] = []
    controller.state = lambda now: ([state for since, state in states.items() if since <= now][-1], "None")
    is_closed = lambda _: {Path("x")} if closed_at is not None and seconds() >= closed_at else set()  # noqa: E731
    monkeypatch.setattr(launch.Started, "closed", is_closed)
    assert wait(messages.append) is True
    assert least <= seconds() < most
    assert len(controller.commands("squeue")) <= 100 + most / 30
    if says is not None:
        assert messages[-1] == f"job 7 {says} and stays completing; scontrol show job 7 names its nodes"


def test_jobs_that_smoke_submitted_are_asked_for_together(controller: Controller, tmp_path: Path, monkeypatch):
    (tmp_path / "raw").mkdir()
    ends = {"11": 3.0, "12_3": 7.0, "13": 9999.0}

    def ask(*command: str, **options: object) -> str:
        seconds = controller.clock.now - controller.begun
        controller.asked.append((seconds, command))
        if command[0] == "scontrol":
            return f"JobId={command[-1]} JobState=COMPLETED\n"
        left = command[4].removeprefix("--jobs=").split(",")
        return "".join(f"{job}{slurm.SEPARATOR}{'COMPLETED' if seconds >= ends[job] else 'RUNNING'}\n" for job in left)

    monkeypatch.setattr(slurm, "ask", ask)
    jobs = (("a", "11", 90), ("b", "12_3", 90), ("c", "13", 60), ("refused", "", 90))
    waiting.keep_ended_jobs(tmp_path, [waiting.Awaited(f"job-{name}.txt", *job) for name, *job in jobs])
    assert sorted(path.name for path in (tmp_path / "raw").iterdir()) == ["job-a.txt", "job-b.txt"]
    assert 60 <= controller.clock.now - controller.begun < 70
    assert len(controller.commands("squeue")) < 30
    assert len(controller.commands("scontrol")) == 2


def test_a_job_that_slurm_has_forgotten_is_read_from_the_accounting(controller: Controller, tmp_path, monkeypatch):
    """slurmctld forgets a job MinJobAge seconds after its end, and says so with an error."""
    (tmp_path / "raw").mkdir()
    header = "JobID|State|ExitCode|Submit|Start|End\n"
    table = f"{header}11|CANCELLED by 0|0:0|2026-01-02T03:04:05|Unknown|2026-01-02T03:04:09\n"
    accounting = {"11": table, "12": header, "13": None}

    def ask(*command: str, **options: object) -> str:
        if command[0] == "sacct":
            state = accounting[command[3].removeprefix("--jobs=")]
            if state is None:
                raise SlurmError("sacct: Slurm accounting storage is disabled")
            return state
        raise SlurmError(f"{command[0]}: slurm_load_jobs error: Invalid job id specified")

    monkeypatch.setattr(slurm, "ask", ask)
    for number, patience in (("11", 90), ("12", 30), ("13", 3600)):
        waiting.keep_ended_jobs(tmp_path, [waiting.Awaited(f"job-{number}.txt", number, patience)])
    assert (tmp_path / "raw/job-11.txt").read_text() == table
    assert [path.name for path in (tmp_path / "raw").iterdir()] == ["job-11.txt"]
    waited = controller.clock.now - controller.begun
    assert 30 <= waited < 40, "the accounting may be late; where there is none, nobody waits"


def test_a_job_that_squeue_leaves_out_and_that_has_not_ended_is_no_evidence_of_its_end(
    controller: Controller, tmp_path: Path, monkeypatch
):
    (tmp_path / "raw").mkdir()

    def ask(*command: str, **options: object) -> str:
        ended = controller.clock.now - controller.begun > 20
        return f"JobId=11 JobState={'COMPLETED' if ended else 'RUNNING'}\n" if command[0] == "scontrol" else ""

    monkeypatch.setattr(slurm, "ask", ask)
    waiting.keep_ended_jobs(tmp_path, [waiting.Awaited("job-a.txt", "11", 10)])
    assert list((tmp_path / "raw").iterdir()) == []
    waiting.keep_ended_jobs(tmp_path, [waiting.Awaited("job-a.txt", "11", 60)])
    assert "COMPLETED" in (tmp_path / "raw/job-a.txt").read_text()
    monkeypatch.setattr(slurm, "ask", pytest.fail)  # of an end that was kept
    waiting.keep_ended_jobs(tmp_path, [waiting.Awaited("job-a.txt", "11", 90)])


# ---- a node that is lost while the job waits


@case_for_each(
    ("BeginTime", "IDLE+NOT_RESPONDING", 10, range(0), True),
    ("BeginTime", "IDLE+NOT_RESPONDING", 9999, range(0), False),
    ("Resources", "DOWN", 75, range(2, 60), True),  # after an outage nodes have their moment, too
)
def test_a_waiting_job_is_given_up_for_a_node_that_stays_away_and_not_for_one_that_comes_back(
    controller: Controller, reason: str, state: str, back_after_s: int, away: range, ends: bool
):
    controller.state = lambda seconds: ("PENDING", reason) if seconds < 300 else ("COMPLETED", "None")
    controller.away = lambda seconds: away.start <= seconds < away.stop
    controller.n1 = lambda seconds: state if seconds < back_after_s else "IDLE"
    assert wait() is ends
    assert controller.commands("scancel") == ([] if ends else [("scancel", "7")])


def test_a_cloud_node_that_is_off_is_usable_and_one_that_is_down_is_not(controller: Controller, monkeypatch):
    """Slurm powers it up for the job; nothing was ever submitted to such a cluster."""
    # POWERING_DOWN: the job waits until it is off, and powers it up
    usable = [f"IDLE+CLOUD+{state}" for state in ("POWERED_DOWN", "POWERING_UP", "POWER", "POWERING_DOWN")]
    for state in (*usable, "DOWN+CLOUD+POWERED_DOWN", "IDLE+MAINTENANCE+RESERVED"):
        controller.n1 = lambda seconds, state=state: state
        assert slurm.nodes(["n0", "n1"])["n1"].is_usable is (state in usable), state
    monkeypatch.setenv("SBATCH_RESERVATION", "bringup")  # the reservation that keeps it
    assert slurm.nodes(["n0", "n1"])["n1"].is_usable


# ---- Ctrl-C


@pytest.fixture
def sent(monkeypatch) -> list[tuple[str, list[str]]]:
    """The name of the run and the nodes of each job that is submitted; they are the jobs 12, 13 and so on."""
    sent: list[tuple[str, list[str]]] = []

    def submit(script: str, nodes: list[str], environment: dict[str, str], options: object) -> str:
        sent.append((environment.get("BRINGUP_RUN_NAME", ""), nodes))
        return str(11 + len(sent))

    monkeypatch.setattr(slurm, "submit", submit)
    return sent


@pytest.fixture
def submitted(controller: Controller, sent, tmp_path: Path) -> Callable[[], None]:
    """A phase is submitted, and the user presses Ctrl-C at the second look."""

    def interrupted(seconds: float) -> tuple[str, str]:
        if seconds > 0:
            raise KeyboardInterrupt
        return "PENDING", "Resources"

    controller.state = interrupted
    return lambda: starting(folder=tmp_path).submit({})


def test_ctrl_c_cancels_the_job_and_wins_while_slurmctld_is_away_and_the_job_that_stays_is_named(controller, submitted):
    """scancel's error took the place of the interruption: the run went on to the next phase, and the job stayed."""
    with pytest.raises(KeyboardInterrupt) as stopped:
        submitted()
    assert controller.commands("scancel") == [("scancel", "12")]
    assert not hasattr(stopped.value, "__notes__")
    controller.asked.clear()
    controller.away = lambda seconds: any(command[0] == "scancel" for _, command in controller.asked)
    with pytest.raises(KeyboardInterrupt) as stopped:
        submitted()
    assert len(controller.commands("scancel")) > 10, "it was tried with patience"
    assert "job 13 was not cancelled" in stopped.value.__notes__[0]
    assert stopped.value.__notes__[0].endswith("next: scancel 13")


def test_a_second_ctrl_c_ends_the_patience_and_the_job_is_named_all_the_same(controller, submitted, monkeypatch):
    def cancel(job_id: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(slurm, "cancel", cancel)
    with pytest.raises(KeyboardInterrupt) as stopped:
        submitted()
    assert stopped.value.__notes__ == ["job 12 was not cancelled (interrupted again); next: scancel 12"]


# ---- what is left behind


def test_a_script_of_a_killed_run_is_waited_for(tmp_path, monkeypatch):
    starting("smoke", tmp_path, pytest.fail).wait_for_earlier()  # nothing was left behind
    monkeypatch.setattr(launch, "FILE_LOOK_S", 0.01)
    held = (tmp_path / "smoke.lock").open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    messages: list[str] = []

    def tell(text: str) -> None:
        messages.append(text)
        if len(messages) == 3:
            held.close()

    starting("smoke", tmp_path, tell).wait_for_earlier()
    assert len(messages) >= 3
    assert "still running" in messages[0]


def test_a_script_that_opened_no_run_is_quoted(tmp_path, monkeypatch):
    """Its last line is the first cause: without it the user has to find the log by himself."""
    monkeypatch.setattr(launch, "REPOSITORY", tmp_path)
    training, smoke = starting("run_ddp_2node", tmp_path), starting("smoke", tmp_path)
    assert training.last_words() == "it left no log; slurmd.log of its first node may say why"
    (tmp_path / "run_ddp_2node.job").write_text("12\n")
    (tmp_path / "slurm-logs").mkdir()
    written = {".log": "no Python environment at /x", ".out": "moved", "-r1.out": "the second attempt"}
    for ending, words in written.items():
        (tmp_path / f"slurm-logs/run_ddp_2node-12{ending}").write_text(f"one\n{words}\n\n")
        assert training.last_words().startswith(f"{words}; see ")
    (tmp_path / "smoke.log").write_text("smoke: sinfo gave no list of nodes\n")
    assert smoke.last_words().startswith("smoke: sinfo gave no list of nodes; see ")


def test_a_profile_and_a_site_file_of_the_login_host_alone_are_copied_to_where_nodes_see_them(tmp_path, monkeypatch):
    own = {"BRINGUP_PROFILE": tmp_path / "a profile.yaml", "BRINGUP_SITE": tmp_path / "a site.yaml"}
    own["BRINGUP_PROFILE"].write_text("schema_version: 1\nname: ours\ndescription: ours\nextends: auto\n")
    own["BRINGUP_SITE"].write_text("schema_version: 1\nname: here\nvenv: /x\n")
    site = at_site.AtSite(sites.load(own["BRINGUP_SITE"]), own["BRINGUP_SITE"])
    profile = profiles.load(str(own["BRINGUP_PROFILE"]))
    handed: dict[str, str] = {}

    def submit(self: object, environment: dict[str, str]) -> None:
        handed.update(environment)
        raise KeyboardInterrupt

    monkeypatch.setattr(waiting, "wait_for_smoke", lambda tell: None)
    monkeypatch.setattr(launch.Launch, "submit", submit)
    (folder := tmp_path / "shared").mkdir()
    with pytest.raises(KeyboardInterrupt):
        given = {name: str(path) for name, path in own.items()}
        launch.Launch(PHASES["discovery"], "x", folder, str, ["n0"], 1, given, profile, site).run()
    for path in own.values():
        path.unlink()
    assert profiles.load(handed["BRINGUP_PROFILE"]) == profile
    assert sites.load(Path(handed["BRINGUP_SITE"])) == site.site
    assert {Path(handed[name]).parent for name in own} == {folder}


def test_a_log_of_another_clusters_job_with_the_same_number_is_not_quoted(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "REPOSITORY", tmp_path)
    (tmp_path / "slurm-logs").mkdir()
    log = tmp_path / "slurm-logs/discovery-5.out"
    log.write_text("of yesterday\n")
    os.utime(log, (time.time() - 86400,) * 2)
    (tmp_path / "discovery.job").write_text("4\n5\n")
    assert starting(folder=tmp_path).screen() is None
    log.write_text("of today\n")
    assert starting(folder=tmp_path).screen() == log


def test_every_job_that_was_submitted_for_a_phase_is_noted(controller: Controller, tmp_path: Path, monkeypatch, sent):
    """And each writes a run of its own: `-s2`, not `-r1`, which is the mark of a requeued job."""
    answers = iter([False, True])
    monkeypatch.setattr(launch.Started, "_wait", lambda *arguments: next(answers))
    starting(folder=tmp_path).submit({})
    assert [name for name, _ in sent] == ["x", "x-s2"]
    assert starting(folder=tmp_path).job_ids() == ["12", "13"]


@case_for_each(("run_ddp_2node", False), ("run_1gpu", False), ("nccl_scaling", True))
def test_a_training_is_not_submitted_on_fewer_nodes_than_its_plan(controller, tmp_path, sent, phase, is_submitted):
    """Its batch is of all ranks. Another phase goes on with the nodes that are usable, and the plan holds all."""
    controller.n1 = lambda seconds: "DOWN"
    with nullcontext() if is_submitted else pytest.raises(SlurmError, match="not submitted: n1 DOWN"):
        starting(phase, tmp_path).submit({})
    assert [nodes for _, nodes in sent] == ([["n0"]] if is_submitted else [])


def test_a_program_that_does_not_end_is_killed_with_what_it_started():
    deaf = 'trap "" TERM; sleep 60 & echo $!; wait; wait'
    started = programs.start(["bash", "-c", deaf], os.environ, stdout=subprocess.PIPE, text=True)
    with started.child:
        below = Path("/proc", started.child.stdout.readline().strip(), "stat")
        programs.end(started, 0.5)
    wait_until(lambda: not below.exists() or ") Z " in below.read_text(), "it has ended with the program")
