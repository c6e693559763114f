"""Which nodes preflight accuses and chooses, what it shows of a job, and how it goes on after a bad end. No Slurm."""

import inspect
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from bringup import judge
from bringup import results as runs
from bringup.daily.preflight import allocation as allocations
from bringup.daily.preflight import checks, command, flow
from bringup.daily.preflight import programs as started
from bringup.daily.preflight.allocation import Allocation
from bringup.errors import UsageError
from bringup.judge import Judged
from bringup.plan import catalogue
from bringup.records import Kind, LeftOut, Outcome, Preflight, PreflightLook, Verdict, read_record
from bringup.results import PREFLIGHT
from bringup.run import slurm
from factory import a_run, a_verdict, judged_of
from loops import for_each
from programs import program, ran
from runs_for_tests import unpacked
from tiers import first

NODES = ["n0", "n1", "n2", "n3"]
# --- whom verdicts accuse


def bad(gate: str, subject: str, outcome: Outcome = Outcome.FAIL, kind: Kind = Kind.JUDGED) -> Verdict:
    return a_verdict(gate=gate, subject=subject, outcome=outcome, kind=kind)


def accused(*verdicts: Verdict, phase: str = "discovery", nodes: Sequence[str] = NODES) -> checks.Accusation:
    return checks.accuse(judged_of(*verdicts, run=a_run(phase, list(nodes))))


FLEET = next(gate.id for gate in catalogue.GATES.values() if gate.per == "node" and gate.rule == "all_equal")
MISSING = (Outcome.INCOMPLETE, Kind.ABSENT)


@for_each(
    "verdicts, nodes",
    [
        ([bad("discovery.gpu.count", "n1"), bad("discovery.gpu.count", "n0", Outcome.PASS)], {"n1"}),
        ([bad("discovery.gpu.count", "n1"), bad("discovery.gpu.answering", "n2", *MISSING)], {"n1", "n2"}),
        ([bad("discovery.gpu.answering", "n1", Outcome.INCOMPLETE, Kind.BLOCKED)], set()),  # by another gate
        # it cannot be compared, because its peer is silent
        ([bad(FLEET, "n0", Outcome.INCOMPLETE, Kind.UNKNOWN), bad("discovery.gpu.count", "n1", *MISSING)], {"n1"}),
        ([bad("discovery.gpu.count", node) for node in NODES[:2]], {"n0", "n1"}),  # half of the nodes
        ([bad("discovery.gpu.count", node) for node in NODES[:3]] + [bad("discovery.gpu.answering", "n3")], {"n3"}),
    ],
)
def test_a_fault_and_a_missing_answer_accuse_their_own_node(verdicts, nodes):
    result = accused(*verdicts)
    assert set(result.nodes) == nodes
    assert list(result.everywhere.values()) == ([NODES[:3]] if nodes == {"n3"} else [])  # of no single node


def test_what_failed_is_told_before_what_was_not_found_out_for_it():
    """Of a node without the results folder, preflight named only the two answers that this had prevented."""
    result = accused(
        bad("discovery.names.unresolved", "n1", Outcome.INCOMPLETE, Kind.UNKNOWN),
        bad("discovery.names.differ", "n1", Outcome.INCOMPLETE, Kind.UNKNOWN),
        bad("discovery.folders.writes", "n1"),
    )
    assert result.nodes["n1"][0].startswith("discovery.folders.writes: ")


def test_slow_pairs_accuse_the_node_that_they_share_and_else_the_link():
    shared = accused(bad("nccl.pair.link", "n0--n1"), bad("nccl.pair.link", "n1--n2"), phase="nccl_pairwise")
    assert set(shared.nodes) == {"n1"} and shared.links == []
    alone = accused(bad("nccl.pair.link", "n0--n1"), phase="nccl_pairwise")
    assert not alone.nodes and alone.links == [("n0", "n1")]
    known = accused(bad("nccl.pair.node", "n1"), bad("nccl.pair.link", "n0--n1"), phase="nccl_pairwise")
    assert set(known.nodes) == {"n1"} and known.links == []
    pairs = ("n0--n1", "n0--n2", "n1--n2")  # ended or never begun: three healthy nodes had no two that might work
    open_pairs = accused(*(bad("nccl.pair.link", pair, *MISSING) for pair in pairs), phase="nccl_pairwise")
    assert not open_pairs.nodes and open_pairs.links == []
    assert open_pairs.remarks[0].startswith("not known of 3 links or pairs: nccl.pair.link: ")
    assert checks.choose(NODES, 3, [("n0", "n1")]) == ["n0", "n2", "n3"]
    assert checks.choose(NODES[:2], 2, [("n0", "n1")]) is None
    assert checks.choose(NODES[:1], 2, []) is None


def test_what_was_slow_once_after_a_bad_end_accuses_no_node_and_what_is_broken_does():
    """On a busy machine a healthy node was exchanged, because one look at the links had been slow."""
    slow = [bad("nccl.pair.node", "n1"), bad("nccl.pair.link", "n2--n3")]
    broken = bad("sweep.load.wrong_values", "n0")
    first, well = accused(*slow, broken), accused()
    assert first.has_slow and not accused(broken).has_slow
    once, twice = first.confirmed_by(well), accused(*slow).confirmed_by(first)
    assert set(once.nodes) == {"n0"} and once.links == []
    assert [line for line in once.remarks if "measured again" in line] == [
        f"{name} was slow, and no more when it was measured again" for name in ("n1", "n2--n3")
    ]
    assert set(twice.nodes) == {"n0", "n1"} and twice.links == [("n2", "n3")]


@for_each("is_first, looks", [(True, 1), (False, 2)])
def test_only_after_a_bad_end_a_slow_link_is_measured_again(monkeypatch, tmp_path: Path, is_first: bool, looks: int):
    names: list[str] = []

    def one_phase(setting, phase, nodes, name):
        names.append(name)
        return judged_of(bad("nccl.pair.node", "n1"), run=a_run("nccl_pairwise", NODES))

    monkeypatch.setattr(checks, "_by_slurm", lambda nodes: ([], []))
    monkeypatch.setattr(checks, "_one_phase", one_phase)
    monkeypatch.setattr(checks.opening, "lacks_torch", lambda phase, site: False)
    profile = catalogue.load_profile("generic")
    request = checks.Request([], 2, 2, None, ["nccl_pairwise"], profile, "generic", None)
    setting = checks.Setting(request, allocations.of_environment(JOB), "p", tmp_path, lambda line: None)
    looked, _ = checks.look(setting, NODES, 1, is_first=is_first)
    assert [entry.node for entry in looked.accused] == ["n1"]
    assert names == ["p-1", "p-1-again"][:looks]


def test_a_node_that_drains_keeps_its_job_and_a_lost_one_is_accused(monkeypatch: pytest.MonkeyPatch):
    states = {"n0": "ALLOCATED+DRAIN", "n1": "DOWN+NOT_RESPONDING", "n2": "ALLOCATED", "n3": "ALLOCATED+MAINTENANCE"}
    known = {node: slurm.Node(state, "why", 2, "gpu:2") for node, state in states.items()}
    monkeypatch.setattr(checks.slurm, "nodes", lambda nodes: known)
    accusations, remarks = checks._by_slurm(NODES)
    assert [entry.node for entry in accusations] == ["n1"]
    assert remarks == ["n0: Slurm says ALLOCATED+DRAIN: why", "n3: Slurm says ALLOCATED+MAINTENANCE: why"]
    assert not accused(bad("discovery.node.state", "n0")).nodes


def test_a_node_that_answers_late_is_asked_again_and_most_nodes_at_once_are_not_lost(monkeypatch: pytest.MonkeyPatch):
    """On a busy machine Slurm missed the answers of three healthy nodes for a moment, and no spare was left."""

    def asked(*answers: dict[str, str]) -> tuple[list[str], list[str]]:
        left = list(answers)

        def known(nodes: Sequence[str]) -> dict[str, slurm.Node]:
            states = left.pop(0) if len(left) > 1 else left[0]
            return {node: slurm.Node(states.get(node, "ALLOCATED"), "", 2, "gpu:2") for node in nodes}

        monkeypatch.setattr(checks.slurm, "nodes", known)
        monkeypatch.setattr(checks, "SILENT_S", 0 if len(answers) == 1 else 30)
        monkeypatch.setattr(checks.time, "sleep", lambda seconds: None)
        accusations, remarks = checks._by_slurm(NODES)
        return [entry.node for entry in accusations], remarks

    silent = dict.fromkeys(NODES[:3], "ALLOCATED+NOT_RESPONDING")
    assert asked(silent, {}) == ([], [])
    assert asked(silent, {"n2": "DOWN+NOT_RESPONDING"})[0] == ["n2"]
    assert asked({"n2": silent["n2"]})[0] == ["n2"]
    accusations, remarks = asked(silent)
    assert accusations == [] and len(remarks) == 3


# --- which nodes are the best


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Callable[[str], Judged]:
    """Judges a recorded run: `h100-faults/nvlink-replays/golden-nvlink-replays`."""
    folder = tmp_path_factory.mktemp("recorded")
    return lambda name: judge.judge_folder(unpacked(name.partition("/")[0], folder, name.partition("/")[2]))


def test_the_slowest_device_of_a_node_and_its_middle_partner_rank_it(recorded):
    """Of two speeds on n0, 0.0032 and 0.0056, the second one made a node with one slow GPU the fastest."""
    load = recorded("h100-healthy/h100-healthy/node_sweep/h100-healthy-round-1")
    assert checks.speeds([load]) == {"n0": 0.0032, "n1": 0.0028, "n2": 0.0031}
    assert checks.ranked(NODES[:3], [load]) == ["n0", "n2", "n1"]
    assert checks.ranked(["n2", "n1", "n0"], [load]) == ["n2", "n0", "n1"], "n2 and n0 differ by noise"
    slow_pair = recorded("local-faults/slow-pair/golden-slow-pair")
    assert checks.bandwidths([slow_pair]) == pytest.approx({"n0": 0.1154, "n1": 0.11445, "n2": 0.22745, "n3": 0.19065})
    assert checks.ranked(NODES, [slow_pair]) == ["n2", "n3", "n0", "n1"]


def test_load_decides_before_bandwidth_and_bandwidth_before_warnings(recorded):
    load = recorded("h100-healthy/h100-healthy/node_sweep/h100-healthy-round-1")  # n1 is slow
    pairs = recorded("h100-healthy/h100-healthy/nccl_pairwise/h100-healthy-round-1")  # n2 is slow
    replays = recorded("h100-faults/nvlink-replays/golden-nvlink-replays")  # n1 warns
    assert checks.ranked(NODES[:3], [pairs, load]) == ["n0", "n2", "n1"]
    assert checks.ranked(NODES[:3], [replays, pairs]) == ["n0", "n1", "n2"]
    assert checks.ranked(NODES[:3], [replays]) == ["n0", "n2", "n1"]
    unknown = [verdict for verdict in replays.verdicts.verdicts if verdict.outcome is Outcome.INCOMPLETE]
    assert {verdict.subject.partition("/")[0] for verdict in unknown} >= {"n0", "n1", "n2"}
    assert checks.warned([replays]) == {"n1": 1}, "a gate that is not known is no warning"


# --- what programs see of the job


JOB = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_NODELIST": "n[0-3]",
    "SLURM_NODELIST": "n[0-3]",
    "SLURM_JOB_NUM_NODES": "4",
    "SLURM_NNODES": "4",
    "SLURM_NTASKS": "7",
    "SLURM_TASKS_PER_NODE": "2(x3),1",
    "SLURM_JOB_CPUS_PER_NODE": "8(x4)",
    "SLURM_GPUS_ON_NODE": "2",
    "PATH": "/usr/bin",
}


def test_the_command_sees_a_job_of_the_chosen_nodes(tmp_path: Path):
    shown = allocations.of_environment(JOB).for_command(["n0", "n3"], tmp_path / "hosts")
    assert (shown["SLURM_JOB_NODELIST"], shown["SLURM_NNODES"]) == ("n0,n3", "2")
    assert (shown["SLURM_TASKS_PER_NODE"], shown["SLURM_NTASKS"]) == ("2,1", "3")
    assert (shown["BRINGUP_OTHER_NODES"], shown["MASTER_ADDR"]) == ("n1,n2", "n0")
    bound = {"SLURM_TRES_BIND": "gres/gpu:per_task:1", "SLURM_GPU_BIND": "single:1"}  # srun obeys them in each step
    given = JOB | bound
    script = Allocation("17", NODES, 2, given).for_script(["n0", "n3"], "discovery")
    assert given == JOB | bound
    assert not {"SLURM_NTASKS", *bound} & script.keys() and script["BRINGUP_NODES"] == "n0,n3"


@for_each("environment", [{}, {"SLURM_JOB_ID": "17"}, {**JOB, "SLURM_JOB_ID": "$(id)"}])
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
    ended = command.run(["bash", "-c", f'bash -c "{slow}" & wait'], os.environ, 1)
    assert ended.code is None
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
    "does, options, code, warned",
    first(
        [
            (USR1, (), 138, 0),  # torchrun does not handle it, and dies
            ("None", (), None, 0),  # it prints nothing more
            (USR1, ("--signals-to-handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1", "--shutdown-timeout", "1"), 1, 2),
        ]
    ),
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
    monkeypatch.setattr(started, "steps_of", lambda job: answers.pop(0) if len(answers) > 1 else answers[0])
    monkeypatch.setattr(started, "STEPS_END_S", 0.1)
    monkeypatch.setattr(started.slurm, "ask", lambda *command: "")
    assert started.end_steps("17", {"17.0"}, print)
    answers[:] = [None]
    assert not started.end_steps("17", {"17.0"}, print)
    assert not started.end_steps("17", None, print)


def test_a_warning_of_slurm_reaches_the_command(tmp_path: Path):
    script = f"trap 'touch {tmp_path}/warned; exit 0' USR1; sleep 0.3; kill -USR1 $PPID; while :; do sleep 0.1; done"
    assert command.run(["bash", "-c", script], os.environ, None).code == 0
    assert (tmp_path / "warned").exists()


# --- all of it


class Slurmless:
    """A job of four nodes whose checks give prepared answers: look -> node -> what it is accused of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.accused: dict[int, dict[str, str]] = {}
        self.links: dict[int, list[tuple[str, str]]] = {}
        self.lines: list[str] = []
        self.folder = tmp_path / runs.PREFLIGHTS
        monkeypatch.setattr(flow, "REPOSITORY", tmp_path)
        monkeypatch.setattr(checks, "look", self._look)
        monkeypatch.setattr(started, "steps_of", lambda job: set())
        monkeypatch.setattr(flow.opening, "default_name", lambda: "flight")

    def _look(self, setting, nodes, number, *, until=(), is_first=False):
        against = self.accused.get(number, {})
        entries = [LeftOut(node=node, phase="discovery", why=against[node]) for node in nodes if node in against]
        look = PreflightLook(nodes=nodes, runs=[], accused=entries, links=self.links.get(number, []), seconds=1)
        return look, []

    def run(self, script: str, *, nodes: int = 2, retries: int = 2) -> int:
        local = catalogue.load_profile("local-cpu")
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


@pytest.mark.parametrize(
    ("accused", "links", "script", "code", "attempts", "says"),
    [
        ({1: {"n1": "1 of 2"}}, {}, SHOWN.format("n0,n2"), 0, ["n0 n1", "n0 n2"], ""),
        # without a culprit no node is exchanged, and the code is the command's: a spare that is sick is not the cause
        ({1: {"n3": "a"}}, {}, "exit 5", 5, ["n0 n1"], "nothing was observed that speaks against one of its nodes"),
        # a sick spare is not taken, and without a healthy one it ends
        ({1: {"n0": "a", "n2": "b"}, 2: {"n1": "c"}}, {}, "exit 5", 5, ["n0 n1", "n1 n3"], "no healthy spare is left"),
        ({1: {"n0": "a"}, 2: {"n1": "b"}, 3: {}}, {}, "exit 5", 5, ["n0 n1", "n1 n2", "n2 n3"], ""),  # at most so often
        ({}, {1: [("n0", "n1")]}, SHOWN.format("n0,n2"), 0, ["n0 n1", "n0 n2"], ""),  # of a bad link one is a spare
    ],
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
    monkeypatch.setattr(started, "end_steps", lambda job, others, tell: False)
    job.accused[1] = {"n1": "Slurm says DOWN"}
    assert job.run('test "${SLURM_OVERLAP:-}" = 1') == 0
    assert len(job.record.attempts) == 2
