"""`bringup report` prints what a person pastes, with what it rests on; it says why where there is no line, and runs
nothing."""

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from bringup.cli import main
from bringup.kernel import results
from bringup.kernel.judge import judge_folder
from bringup.run import node_lines
from loops import case_for_each
from programs import program
from runs_for_tests import discovery, lose_a_gpu, reseal

INVENTORY = "raw/inventory.jsonl"
BOOTED = 1_700_000_000
FORM = "%Y-%m-%dT%H:%M:%SZ"
OURS = "bringup: discovery.gpu.count; reboot (2023-11-23T02:00Z, run abc)"


SCONTROL = """case "$*" in
  "show config") cat "$here/config" ;;
  *"show node"*) [[ $SLURM_TIME_FORMAT == %s ]] && cat "$here/nodes" ;;
  *) echo "$*" >>"$here/calls" ;;
esac"""


class Slurm:
    """A scontrol that shows two nodes, and notes each order."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "calls"
        folder.mkdir()
        self.is_called("a-cluster", "ctl0(10.0.0.1)")
        self.nodes = {"n0": ("IDLE", "none", BOOTED), "n1": ("IDLE", "none", BOOTED)}
        self.show()
        program(folder / "scontrol", f'here="{folder}"\n{SCONTROL}')

    def node_is(self, node: str, state: str | None = "IDLE", given: str = "none", booted: float = BOOTED) -> None:
        """None: Slurm does not know it."""
        self.nodes.pop(node)
        if state is not None:
            self.nodes[node] = (state, given, booted)
        self.show()

    def show(self) -> None:
        (self.folder / "nodes").write_text(
            "".join(
                f"NodeName={name} Arch=x86_64 Gres=gpu:2 State={state} ThreadsPerCore=1 BootTime={booted:.0f} "
                f"SlurmdStartTime=1700000100 Reason={given} [root@1700000000]\n"
                for name, (state, given, booted) in self.nodes.items()
            )
        )

    def is_called(self, name: str, controller: str) -> None:
        (self.folder / "config").write_text(f"ClusterName = {name}\nSlurmctldHost[0] = {controller}\n")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    made = Slurm(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{made.folder}:{os.environ['PATH']}")
    return made


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm: Slurm) -> Path:
    """A discovery of the cluster that is here, a moment ago; n1 lacks a GPU."""
    return lose_a_gpu(discovery(tmp_path / "runs", monkeypatch))


@pytest.fixture
def healthy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm: Slurm) -> Path:
    return discovery(tmp_path / "healthy", monkeypatch)


@pytest.fixture
def reported(capsys: pytest.CaptureFixture[str], tmp_path: Path, slurm: Slurm) -> Callable[..., str]:
    def report(*runs: Path) -> str:
        main(["report", *map(str, runs), "-o", str(tmp_path / "page.html"), "--force"])
        assert not slurm.log.exists(), "it ordered something"
        return capsys.readouterr().out

    return report


DRAIN = "scontrol update NodeName=n1 State=DRAIN 'Reason=bringup: discovery.gpu.count"
RESUME = "scontrol update NodeName=n1 State=RESUME"
SOON = 4_000_000_000.0  # no time of now: each process that collects the tests gives them these names


def test_a_drain_line_stands_under_its_run_age_cluster_and_boot(run: Path, reported: Callable[..., str]):
    remark, line = reported(run).splitlines()[1:3]
    assert line.startswith(DRAIN)
    assert remark == f"# n1: run {run.name} (closed 0.0 h ago, a-cluster at ctl0); boot: 2023-11-14T22:13Z"


def changed(folder: Path, file: str, **fields: object) -> Path:
    (folder / file).write_text(json.dumps(json.loads((folder / file).read_text()) | fields))
    return reseal(folder)


NO_LINE: dict[str, tuple[Callable[[Path, Slurm], object], str]] = {
    # what differs, of the run or of what Slurm says now -> the words beside it
    "another cluster": (
        lambda run, slurm: slurm.is_called("elsewhere", "ctl0"),
        "# no line for n1: run {run} is of cluster a-cluster at ctl0, and this is elsewhere at ctl0",
    ),
    "another one of that name": (  # many are called `cluster`
        lambda run, slurm: slurm.is_called("a-cluster", "ctl1(10.0.0.1)"),
        "# no line for n1: run {run} is of cluster a-cluster at ctl0, and this is a-cluster at ctl1",
    ),
    "no cluster": (
        lambda run, slurm: changed(run, results.RUN, controller=None),
        "does not say which cluster it is of, and this is a-cluster at ctl0",
    ),
    "changed": (
        lambda run, slurm: (run / INVENTORY).write_text((run / INVENTORY).read_text() + "\n"),
        "was changed after the run was closed",
    ),
    "open": (lambda run, slurm: (run / results.CLOSED).unlink(), "# no line for n1: run {run} cannot be used: "),
    "booted since": (lambda run, slurm: slurm.node_is("n1", booted=SOON), "# no line for n1: it booted at "),
    "out already": (
        lambda run, slurm: slurm.node_is("n1", "IDLE+DRAIN", "fan is loud"),
        "# no line for n1: Slurm has it as IDLE+DRAIN already: fan is loud",
    ),
    "unknown": (lambda run, slurm: slurm.node_is("n1", None), "# no line for n1: Slurm knows no such node"),
    "drained by us, and failed again": (lambda run, slurm: slurm.node_is("n1", "IDLE+DRAIN", OURS), ""),
}


@pytest.mark.parametrize("name", NO_LINE)
def test_there_is_no_line_unless_the_evidence_is_whole_of_here_and_of_this_boot(run, slurm, reported, name):
    change, words = NO_LINE[name]
    change(run, slurm)
    output = reported(run)
    assert "scontrol" not in output
    assert words.format(run=run.name) in output


@case_for_each(
    (23.9, True, "closed 23.9 h ago"),
    (24.1, False, "was closed 24.1 h ago, expected at most 24.0 h; run the phase again"),
    (-24, False, "was closed 24.0 h from now, by the clock of this host"),
)
def test_evidence_holds_for_a_day(run: Path, hours: float, holds: bool, words: str):
    now = datetime.now(UTC) + timedelta(hours=hours)
    output = "\n".join(node_lines.lines([judge_folder(run)], now))
    assert (DRAIN in output) is holds
    assert words in output


def test_the_oldest_of_several_runs_has_to_be_of_this_boot(run, tmp_path, monkeypatch, slurm, reported):
    changed(run, results.RUN, opened_at=(datetime.now(UTC) - timedelta(hours=1)).strftime(FORM))
    later = lose_a_gpu(discovery(tmp_path / "later", monkeypatch))
    slurm.node_is("n1", booted=time.time() - 1800)
    assert DRAIN not in reported(run, later)
    assert DRAIN in reported(later)


def test_where_slurm_cannot_be_asked_the_line_is_printed_and_that_is_said(run, slurm, reported):
    (slurm.folder / "scontrol").write_text("#!/bin/bash\necho no controller >&2\nexit 1\n")
    output = reported(run)
    assert DRAIN in output
    assert "boot: not known" in output
    assert "# what these nodes are now, Slurm could not be asked: scontrol: no controller" in output


@case_for_each(
    ("IDLE+DRAIN", OURS, BOOTED, "# n1 passes again (discovery.gpu.count): run {run} (closed 0.0 h ago, a-cluster"),
    ("IDLE+DRAIN", OURS, SOON, "# no line for n1: it booted at "),
    ("IDLE+DRAIN", "fan is loud", BOOTED, ""),
    ("IDLE+DRAIN", "NHC: check_cmd_status: bringup: a.b; reset (x, y)", BOOTED, ""),
    ("IDLE", OURS, BOOTED, ""),
    ("DOWN", OURS, BOOTED, ""),
    ("IDLE+DRAIN", OURS.replace("gpu.count", "gone"), BOOTED, ""),
    ("IDLE+DRAIN", OURS.replace("discovery.gpu.count", "sweep.load.wrong_values"), BOOTED, "was not asked there"),
    ("IDLE+DRAIN", OURS.replace("2023", "2999"), BOOTED, "was not asked there since"),
    ("IDLE+DRAIN", OURS.replace("gpu.count", "slurm.proctrack site.gone"), BOOTED, "was not asked"),
)
def test_a_node_that_we_had_drained_and_that_passes_again_gets_a_resume_line_and_no_other_one(
    healthy: Path, slurm: Slurm, reported: Callable[..., str], state: str, given: str, booted: float, words: str
):
    slurm.node_is("n1", state, given, booted)
    output = reported(healthy)
    assert (RESUME in output) == ("scontrol" in output) == ("passes again" in words)
    assert words.format(run=healthy.name) in output
