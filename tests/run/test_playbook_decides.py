"""What `bringup run` does after each phase: what it goes on with, on which nodes, and what it keeps. Phases end here
as they are told to; nothing is submitted."""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from bringup.kernel import results
from bringup.kernel.errors import CannotStart, RunError
from bringup.kernel.judge import Judged
from bringup.kernel.plan import profile, scope
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Observation, Outcome, Run, Verdict, read_record
from bringup.kernel.results import PLAYBOOK, PLAYBOOKS
from bringup.report.campaigns import Playbook as Record
from bringup.report.campaigns import Step
from bringup.report.text import MARK
from bringup.report.view import in_short
from bringup.run import playbook, slurm
from bringup.run.healthy_rest import lacking, unhealthy_nodes
from factory import LOCAL_CLUSTER, a_run, a_verdict, healthy, judged_of
from loops import case_for_each, for_each
from rich.console import Console
from runs_for_tests import opened

NODES = {name: slurm.Node("IDLE", "", 2, "gpu:2") for name in ("n0", "n1", "n2")}
Ends = Callable[[str, list[str]], Judged]


class Played:
    """A run whose phases end as `ends` says. ran: phase and nodes of those that were started."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch, ends: Ends) -> None:
        self.place, self.ends, self.ran = place, ends, dict[str, list[str]]()
        monkeypatch.setattr(playbook, "REPOSITORY", place)
        monkeypatch.setattr(playbook, "requested_nodes", lambda *asked: NODES)
        monkeypatch.setattr(playbook, "known_partitions", dict)
        monkeypatch.setattr(playbook.Launch, "run", lambda launch: self.launched(launch.phase.stem, launch.nodes))

    def launched(self, phase: str, nodes: list[str]) -> Judged:
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


@case_for_each(
    (None, Outcome.PASS, True),
    ("nccl.wrong_values", Outcome.FAIL, False),
    ("nccl.wrong_values", Outcome.INCOMPLETE, False),
    ("site.scratch-is-mounted", Outcome.FAIL, True),  # a check of the site
)
def test_a_training_does_not_run_after_a_collective_that_it_builds_on_failed(
    tmp_path, monkeypatch, capsys, gate: str | None, outcome: Outcome, runs: bool
):
    def ends(phase: str, nodes: list[str]) -> Judged:
        ended = well(phase, nodes)
        return ended if gate is None or phase != "nccl_scaling" else bad(ended, gate, "2-nodes", outcome)

    run = Played(tmp_path, monkeypatch, ends)
    training = run.of("nccl_scaling", "run_ddp_2node")["run_ddp_2node"]
    assert ("run_ddp_2node" in run.ran) is runs
    assert (training.why_not_run or "") == ("" if runs else "needs nccl_scaling, which did not pass")
    if not runs:  # what stays to be seen when details have scrolled away
        shown = capsys.readouterr().out
        assert re.search(rf"^{MARK[outcome]} +0 s  {PHASES['nccl_scaling'].title}$", shown, re.M), shown
        assert re.search(rf"^NOT RUN +0 s  {PHASES['run_ddp_2node'].title}$", shown, re.M)


@pytest.mark.parametrize("noted", [False, True])
def test_a_phase_that_passed_leaves_one_line_unless_there_is_something_to_read(noted):
    notes = ("the kernel log of n1 could not be read",) if noted else ()
    passed = judged_of(a_verdict("smoke.x", "n0", Outcome.PASS), run=a_run("smoke"), notes=notes)
    shown = in_short(passed).splitlines()
    assert shown[0].startswith("PASS       Smoke")
    assert (len(shown) > 1) is noted


def test_a_phase_that_passed_on_all_nodes_runs_again_where_one_of_them_is_left_out_now(tmp_path, monkeypatch):
    def ends(phase: str, nodes: list[str]) -> Judged:
        ended = well(phase, nodes)
        return bad(ended, "discovery.gpu.count", "n2") if phase == "discovery" else ended

    names = list(NODES)
    passed = {"outcome": Outcome.PASS, "blocks": False, "seconds": 1}
    seen = {"smoke": well("smoke", names), "run_1gpu": well("run_1gpu", names[:1])}
    steps = {stem: (Step(phase=stem, folder=f"validation/results/{stem}", **passed), run) for stem, run in seen.items()}
    earlier = Record(name="x", nodes=names, profile="local-cpu", planned=["discovery", *steps], left_out=[], steps=[])
    monkeypatch.setattr(playbook, "earlier_run", lambda folder: earlier)
    monkeypatch.setattr(playbook, "passed_before", lambda *asked: steps)
    run = Played(tmp_path, monkeypatch, ends)
    run.of("discovery", "smoke", "run_1gpu", resume=tmp_path / "x")
    assert run.ran == {"discovery": names, "smoke": ["n0", "n1"]}
    assert PHASES["run_1gpu"].max_nodes == 1  # n0 alone, as before


def test_a_run_is_resumed_on_the_nodes_that_it_had_and_not_on_some_of_them(tmp_path, monkeypatch):
    more = [*NODES, "n3"]
    earlier = Record(name="x", nodes=more, profile="local-cpu", planned=["discovery"], left_out=[], steps=[])
    monkeypatch.setattr(playbook, "earlier_run", lambda folder: earlier)
    run = Played(tmp_path, monkeypatch, well)
    with pytest.raises(CannotStart, match="that run was on n0, n1, n2, n3, this one on n0, n1, n2"):
        run.of("discovery", resume=tmp_path / "x")
    assert run.ran == {}


# --- nodes of one GPU: a strategy between the GPUs of a node cannot run there, which is no fault of the cluster

INSIDE_A_NODE = {"run_ddp_1node", "run_fsdp_1node", "run_hsdp_2node"}


@pytest.mark.parametrize(("gpus", "left_out"), [(1, INSIDE_A_NODE), (2, set())])
def test_a_run_leaves_out_what_needs_two_gpus_in_a_node_and_says_why(tmp_path, monkeypatch, gpus, left_out):
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


# --- what a run goes on without: nodes that failed discovery or smoke, and variants of NCCL whose hardware no node has


FOUR = ("n0", "n1", "n2", "n3")


def fault(gate: str, subject: str, outcome: Outcome = Outcome.FAIL) -> Verdict:
    return a_verdict(gate=gate, subject=subject, outcome=outcome)


def left_out(*verdicts: Verdict) -> list[str] | None:
    unhealthy = unhealthy_nodes(judged_of(*verdicts, run=a_run("smoke", FOUR)))
    return None if unhealthy is None else [entry.node for entry in unhealthy]


BOUND, SLOWEST = "smoke.gpu.bound", fault("nccl.pair.slowest", "job")
PAIRS = [fault("smoke.fs.pair.write", f"n1->{other}") for other in ("n0", "n2", "n3")]


@for_each(
    ([fault(BOUND, "n0", Outcome.PASS)], []),
    ([fault(BOUND, "n1", Outcome.WARN)], []),
    # the files of n1 are not seen by anybody: every pair with it fails
    (PAIRS, ["n1"]),
    ([*PAIRS, fault(BOUND, "n3")], ["n1", "n3"]),
    ([fault(BOUND, "n1"), *PAIRS], ["n1"]),
    # the slowest pair is explained by the node that is slow with everybody
    ([fault("nccl.pair.node", "n2"), SLOWEST], ["n2"]),
    ([SLOWEST], None),
    ([fault(BOUND, "n2"), SLOWEST], None),
    # what no minority of nodes explains stops the run
    ([fault("smoke.exit_code", "job")], None),  # Slurm's own promise
    ([fault(BOUND, "n0"), fault("smoke.exit_code", "job")], None),
    ([fault("smoke.fs.pair.write", "n0->n1")], None),  # one of two, and nobody knows which
    ([fault("smoke.fs.pair.write", "n0->n1"), fault("smoke.fs.pair.created", "n2->n3")], None),
    ([fault(BOUND, node) for node in FOUR[:3]], None),  # most nodes: not the nodes' fault
    ([fault(BOUND, node) for node in FOUR[:2]], ["n0", "n1"]),  # half of them may go on
    ([fault(BOUND, "n9")], None),  # a node that took no part
    ([fault("no.such.gate", "n0")], None),
)
def test_nodes_that_explain_all_that_failed_are_left_out_and_else_the_run_stops(verdicts, nodes):
    assert left_out(*verdicts) == nodes


def test_of_a_node_that_is_left_out_faults_are_told_before_gaps():
    gap = fault("smoke.node.ran_tasks", "n2", Outcome.INCOMPLETE)
    [entry] = unhealthy_nodes(judged_of(gap, fault(BOUND, "n2"), run=a_run("smoke", FOUR))) or []
    why = "smoke.gpu.bound fail; smoke.node.ran_tasks incomplete"
    assert (entry.node, entry.phase, entry.why) == ("n2", "smoke", why)


# --- hardware that no node has

PAIR = ("n0", "n1")


@dataclass
class Discovery:
    """A discovery of two nodes with one GPU each."""

    observations: list[Observation]
    run: Run = field(default_factory=lambda: a_run("discovery", PAIR, gpus=1))


def discovery_of(ports: object = 0, state: str | None = None, links: object = 0) -> Any:
    facts = [("discovery.rdma.ports", "n0", 0), ("discovery.rdma.ports", "n1", ports)]
    facts += [("discovery.gpu.nvlinks", "n0/GPU-a", 0), ("discovery.gpu.nvlinks", "n1/GPU-b", links)]
    if state is not None:
        facts.append(("discovery.rdma.state", "n1/mlx5_0:1", state))
    how = {"unit": "text", "evidence": "x", "why": None}
    return Discovery([Observation(quantity=what, subject=of, value=value, **how) for what, of, value in facts])


@for_each(
    # two of four GPUs say that they have no link
    (replace(discovery_of(), run=a_run("discovery", PAIR, gpus=2)), "rdma"),
    (discovery_of(), "rdma nvlink"),
    (discovery_of(ports=1, state="1: DOWN"), "rdma nvlink"),
    (discovery_of(ports=1, state="4: ACTIVE"), "nvlink"),
    (discovery_of(ports=None), "nvlink"),
    (discovery_of(links=18), "rdma"),
    (discovery_of(links=None), "rdma"),
)
def test_only_what_every_node_says_that_it_lacks_is_lacking(discovery: Any, lacks: str) -> None:
    assert lacking([discovery]) == lacks
    assert lacking([]) == "", "without a discovery nothing is known"


def test_a_variant_without_its_hardware_is_not_planned_and_the_reason_is_said() -> None:
    generic = profile.load("generic")
    entries = scope.without("nccl_scaling", ["rdma", "nvlink"], generic)
    assert {entry.gate: entry.reason.split()[3] for entry in entries} == {
        "nccl.variant.nvlink.effect": "NVLink",
        "nccl.variant.nvlink.busbw": "NVLink",
        "nccl.variant.nic.effect": "active",
        "nccl.variant.nic.busbw": "active",
    }
    assert scope.without("nccl_scaling", [], generic) == []
    assert scope.without("smoke", ["rdma"], generic) == []
