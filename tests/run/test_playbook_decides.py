"""What `bringup run` does after each phase: what it goes on with, on which nodes, and what it keeps. Phases end here
as they are told to; nothing is submitted."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from bringup import results
from bringup.errors import CannotStart, RunError
from bringup.judge import Judged
from bringup.plan import profile as profiles
from bringup.plan.phases import PHASES
from bringup.records import Outcome, Step, read_record
from bringup.records import Playbook as Record
from bringup.report.text import MARK
from bringup.report.view import in_short
from bringup.results import PLAYBOOK, PLAYBOOKS
from bringup.run import playbook, slurm
from factory import LOCAL_CLUSTER, a_run, a_verdict, healthy, judged_of
from rich.console import Console
from runs_for_tests import opened

NODES = {name: slurm.Node("IDLE", "", 2, "gpu:2") for name in ("n0", "n1", "n2")}
Ends = Callable[[str, list[str]], Judged]


class Run:
    """A run whose phases end as `ends` says. ran: phase and nodes of those that were started."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch, ends: Ends) -> None:
        self.place, self.ends, self.ran = place, ends, dict[str, list[str]]()
        monkeypatch.setattr(playbook, "REPOSITORY", place)
        monkeypatch.setattr(playbook, "requested_nodes", lambda *asked: NODES)
        monkeypatch.setattr(playbook, "known_partitions", dict)
        monkeypatch.setattr(playbook.Launch, "run", lambda launch, *asked: self.launched(launch.phase.stem, *asked))

    def launched(self, phase: str, nodes: list[str], *asked: object) -> Judged:
        self.ran[phase] = nodes
        return self.ends(phase, nodes)

    def of(self, *phases: str, resume: Path | None = None) -> dict[str, Step]:
        local = profiles.load("local-cpu")
        playbook.run(playbook.Request(local, "local-cpu", phases=list(phases), resume=resume))
        (folder,) = (self.place / PLAYBOOKS).iterdir()
        return {step.phase: step for step in read_record(folder / PLAYBOOK, Record).steps}


def well(phase: str, nodes: list[str]) -> Judged:
    return healthy(phase, len(nodes), LOCAL_CLUSTER, "local-cpu")


def bad(judged: Judged, gate: str, subject: str, outcome: Outcome = Outcome.FAIL) -> Judged:
    verdicts = [*judged.verdicts.verdicts, a_verdict(gate, subject, outcome)]
    return replace(judged, verdicts=judged.verdicts.model_copy(update={"verdicts": verdicts, "outcome": outcome}))


@pytest.mark.parametrize(
    ("gate", "outcome", "runs"),
    [
        (None, Outcome.PASS, True),
        ("nccl.wrong_values", Outcome.FAIL, False),
        ("nccl.wrong_values", Outcome.INCOMPLETE, False),
        ("site.scratch-is-mounted", Outcome.FAIL, True),  # a check of the site
    ],
)
def test_a_training_does_not_run_after_a_collective_that_it_builds_on_failed(
    tmp_path, monkeypatch, capsys, gate: str | None, outcome: Outcome, runs: bool
):
    def ends(phase: str, nodes: list[str]) -> Judged:
        ended = well(phase, nodes)
        return ended if gate is None or phase != "nccl_scaling" else bad(ended, gate, "2-nodes", outcome)

    run = Run(tmp_path, monkeypatch, ends)
    training = run.of("nccl_scaling", "run_ddp_2node")["run_ddp_2node"]
    assert ("run_ddp_2node" in run.ran) is runs
    assert (training.why_not_run or "") == ("" if runs else "needs nccl_scaling, which did not pass")
    if not runs:  # what stays to be seen when details have scrolled away
        shown = capsys.readouterr().out
        assert re.search(rf"^{MARK[outcome]} +0 s  {PHASES['nccl_scaling'].title}$", shown, re.M), shown
        assert re.search(rf"^NOT RUN +0 s  {PHASES['run_ddp_2node'].title}$", shown, re.M)


@pytest.mark.parametrize("noted", [False, True])
def test_a_phase_that_passed_leaves_one_line_unless_there_is_something_to_read(tmp_path, noted):
    verdicts = judged_of(a_verdict("smoke.x", "n0", Outcome.PASS)).verdicts
    notes = ["the kernel log of n1 could not be read"] if noted else []
    shown = in_short(tmp_path, a_run("smoke"), verdicts.model_copy(update={"notes": notes})).splitlines()
    assert shown[0].startswith("PASS       Smoke")
    assert (len(shown) > 1) is noted


def test_a_phase_that_passed_on_all_nodes_runs_again_where_one_of_them_is_left_out_now(tmp_path, monkeypatch):
    def ends(phase: str, nodes: list[str]) -> Judged:
        ended = well(phase, nodes)
        return bad(ended, "discovery.gpu.count", "n2") if phase == "discovery" else ended

    names = list(NODES)
    steps = {
        stem: (
            Step(phase=stem, folder=f"validation/results/{stem}", outcome=Outcome.PASS, blocks=False, seconds=1),
            seen,
        )
        for stem, seen in (("smoke", well("smoke", names)), ("run_1gpu", well("run_1gpu", names[:1])))
    }
    earlier = Record(name="x", nodes=names, profile="local-cpu", planned=["discovery", *steps], left_out=[], steps=[])
    monkeypatch.setattr(playbook, "earlier_run", lambda folder: earlier)
    monkeypatch.setattr(playbook, "passed_before", lambda *asked: steps)
    run = Run(tmp_path, monkeypatch, ends)
    run.of("discovery", "smoke", "run_1gpu", resume=tmp_path / "x")
    assert run.ran == {"discovery": names, "smoke": ["n0", "n1"]}
    assert PHASES["run_1gpu"].max_nodes == 1  # n0 alone, as before


def test_a_run_is_resumed_on_the_nodes_that_it_had_and_not_on_some_of_them(tmp_path, monkeypatch):
    more = [*NODES, "n3"]
    earlier = Record(name="x", nodes=more, profile="local-cpu", planned=["discovery"], left_out=[], steps=[])
    monkeypatch.setattr(playbook, "earlier_run", lambda folder: earlier)
    run = Run(tmp_path, monkeypatch, well)
    with pytest.raises(CannotStart, match="that run was on n0, n1, n2, n3, this one on n0, n1, n2"):
        run.of("discovery", resume=tmp_path / "x")
    assert run.ran == {}


# --- nodes of one GPU: a strategy between the GPUs of a node cannot run there, which is no fault of the cluster

INSIDE_A_NODE = {"run_ddp_1node", "run_fsdp_1node", "run_hsdp_2node"}


@pytest.mark.parametrize(("gpus", "left_out"), [(1, INSIDE_A_NODE), (2, set())])
def test_a_run_leaves_out_what_needs_two_gpus_in_a_node_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, left_out: set[str]
) -> None:
    monkeypatch.setattr(results, "PLAYBOOKS", tmp_path)
    monkeypatch.setattr(playbook, "known_partitions", dict)
    request = playbook.Request(profiles.load("local-cpu"), "local-cpu")
    planned, named, _ = playbook._plan(request, ["n0", "n1"], gpus, Console(file=io.StringIO()))
    assert set(PHASES) - set(planned) == left_out
    assert set(named) == {f"{stem}: needs at least 2 GPUs in a node, 1 there" for stem in left_out}


@pytest.mark.parametrize("stem", sorted(INSIDE_A_NODE))
def test_its_script_alone_is_refused_before_a_rank_starts(tmp_path: Path, stem: str) -> None:
    with pytest.raises(RunError, match=f"^{stem} needs at least 2 GPUs in a node, 1 there$"):
        opened(stem, tmp_path, nodes=["n0", "n1"][: PHASES[stem].max_nodes], gpus=1)
    assert list(tmp_path.iterdir()) == []
