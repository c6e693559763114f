"""What to do next: first causes before what follows, failed subjects only, commands that run as pasted and stand
once."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bringup.kernel.judge import Judged
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.gate import Guide
from bringup.kernel.plan.profile import PROFILES
from bringup.kernel.records import Action, Kind, Mark, Outcome, Verdict
from bringup.kernel.results import REPOSITORY
from bringup.kernel.run_folder import RunFolder, Seal
from bringup.report import explain, next_steps, page
from bringup.report.campaigns import Step
from bringup.report.collection import Collection
from bringup.report.links import nowhere
from bringup.report.run_folders import Absent
from factory import GPU_CLUSTER, LOCAL_CLUSTER, a_run, a_verdict, gathered, judged_of, playbook

PLAYBOOK = REPOSITORY / "validation/results/playbook/p"
GATE, OTHER = "discovery.gpu.count", "discovery.kernel"
NODES = ("n0", "n1", "n2")


@pytest.fixture(autouse=True)
def guides(monkeypatch) -> None:
    """Two gates that share their commands."""
    for gate in (GATE, OTHER):
        looks = ("look at {run} {node} {nodes} {node_count} {gpus} {profile}", "bringup why {job}")
        guide = Guide(title="t", page="01-environment", action=Action.RESET, next=looks)
        monkeypatch.setitem(GATES, gate, GATES[gate].model_copy(update={"guide": guide}))


def judged(*verdicts: Verdict, name: str = "run", folder: str = "/nowhere/a run", **run: object) -> Judged:
    opened = a_run("discovery", NODES, gpus=4, name=name, plan={}).model_copy(update=run)
    return judged_of(*verdicts, run=opened, folder=Path(folder))


def cards(*runs: Judged) -> list[next_steps.Card]:
    return next_steps.cards(runs, nowhere)


def test_a_node_that_is_only_incomplete_is_not_among_those_that_failed():
    failed = a_verdict(GATE, "n1", Outcome.FAIL)
    open_end = a_verdict(GATE, "n0", Outcome.INCOMPLETE, "nothing")
    [card] = cards(judged(open_end, failed))
    assert card.outcome is Outcome.FAIL
    assert card.subjects == "n1"
    assert [finding.subjects for finding in card.findings] == ["discovery: n1"]
    shown = page.render(gathered(judged(open_end, failed)))
    shown = shown[shown.index('<h2 id="next"') : shown.index('<h2 id="questions"')]
    assert re.findall(r'<td class="where">([^<]*)</td>', shown) == ["n1"]


def test_of_several_runs_those_that_failed_are_named_and_phases_that_found_one_cause_share_a_card():
    incomplete, failed = a_verdict(GATE, "n0", Outcome.INCOMPLETE), a_verdict(GATE, "n2", Outcome.FAIL)
    [card] = cards(*[judged(incomplete, name="a"), judged(failed, name="b", folder="/nowhere/b")])
    assert card.subjects == "n2"
    assert "/nowhere/b" in card.commands[0]
    again = judged(a_verdict(GATE, "n1"))
    [card] = cards(again, replace(again, run=a_run("smoke", NODES, plan={})))
    assert [finding.subjects for finding in card.findings] == ["discovery, smoke: n1"]


def test_gates_that_share_a_guide_are_one_card_and_their_commands_appear_once():
    two = (a_verdict(gate, node) for gate, node in ((GATE, "n1"), (OTHER, "n2")))
    [card] = cards(judged(*[verdict.model_copy(update={"action": Action.RESET}) for verdict in two]))
    assert [finding.gate for finding in card.findings] == [GATE, OTHER]
    assert (card.subjects, card.action, len(card.commands)) == ("n1, n2", "reset", 1)
    [card] = cards(judged(a_verdict(GATE, "n1"), a_verdict(OTHER, "n2", Outcome.WARN)))
    assert (card.outcome, card.subjects, card.count) == (Outcome.FAIL, "n1", 1), "who only warns is not accused"


def test_a_dead_node_is_one_card_however_many_gates_are_open():
    def absent(gate: str) -> Verdict:
        return a_verdict(gate, "n1", Outcome.INCOMPLETE, "nothing", kind=Kind.ABSENT, cause="nothing arrived from n1")

    [card] = cards(judged(*(absent(gate) for gate in list(GATES)[:40])))
    assert card.subjects == "n1"
    assert len(card.findings) == next_steps.MAX_FINDINGS
    assert card.hidden == 40 - next_steps.MAX_FINDINGS


def test_a_command_that_two_causes_share_stands_in_the_first_card(monkeypatch):
    guide = GATES[OTHER].guide.model_copy(update={"title": "another"})
    monkeypatch.setitem(GATES, OTHER, GATES[OTHER].model_copy(update={"guide": guide}))
    assert [len(card.commands) for card in cards(judged(a_verdict(GATE, "n1"), a_verdict(OTHER, "n1")))] == [1, 0]


def test_places_are_filled_from_the_run_and_what_is_not_known_is_left_out():
    [card] = cards(judged(a_verdict(GATE, "n1"), a_verdict(GATE, "n2")))
    assert card.commands == ["look at '/nowhere/a run' n1 n0,n1,n2 3 4 local-cpu"]
    [card] = cards(judged(a_verdict(GATE, "n1"), slurm_job_id="7", profile="ours"))
    assert card.commands == ["look at '/nowhere/a run' n1 n0,n1,n2 3 4 '/nowhere/a run/profile.yaml'", "bringup why 7"]
    assert not (PROFILES / "ours.yaml").exists()


def test_what_follows_from_something_is_no_first_cause():
    failed = a_verdict(GATE, "n1", Outcome.FAIL)
    blocked = a_verdict(OTHER, "n1", Outcome.INCOMPLETE, kind=Kind.BLOCKED)
    absent = a_verdict(OTHER, "n0", Outcome.INCOMPLETE, kind=Kind.ABSENT)
    undeclared = a_verdict(OTHER, "n2", Outcome.INCOMPLETE, kind=Kind.UNDECLARED)
    warned = a_verdict(OTHER, "n2", Outcome.WARN)

    def of(*verdicts: Verdict) -> explain.Causes:
        return explain.causes_of(judged_of(*verdicts).verdicts)

    causes = of(blocked, absent, undeclared, warned, failed)
    assert (causes.first, causes.following, causes.undeclared) == ([failed, warned], [blocked, absent], [undeclared])
    assert of(blocked, absent, undeclared).first == [absent]
    assert of(blocked, undeclared).first == [blocked]
    assert of(undeclared).first == [undeclared]
    unknown = a_verdict(OTHER, "n0", Outcome.INCOMPLETE, kind=Kind.UNKNOWN)
    assert of(unknown, absent).first == [unknown]


def test_the_commands_of_a_healthy_page_name_every_folder_and_run_as_pasted():
    real = playbook(1, GPU_CLUSTER)
    folders = [f"/nowhere/run {n}" for n in range(len(real))]
    runs = [replace(run, files=RunFolder(Path(folder))) for folder, run in zip(folders, real, strict=True)]
    [command] = next_steps.commands(gathered(*runs))
    assert shlex.split(command) == ["bringup", "profile", "--from", *folders, "-o", "measured.yaml"]
    step = Step(phase="smoke", folder="f", outcome=Outcome.PASS, blocks=False, seconds=1)
    steps = {run.folder: step for run in runs}
    [command] = next_steps.commands(Collection(judged=runs, playbooks=[PLAYBOOK], steps=steps))
    assert command == "bringup profile --from validation/results/playbook/p -o measured.yaml"


def test_the_numbers_of_a_rehearsal_are_not_offered_as_a_profile():
    """They were: floors of stand-ins, below a decision that says so."""
    rehearsed = gathered(*playbook(2, LOCAL_CLUSTER))
    assert rehearsed.headline.mark is Mark.NOT_PROVEN
    assert next_steps.commands(rehearsed) == []
    assert "as a profile" not in page.render(rehearsed)
    assert "as a profile" in page.render(gathered(*playbook(2, GPU_CLUSTER)))


def test_the_worst_runs_are_explained_first():
    outcomes = [Outcome.WARN, Outcome.INCOMPLETE, Outcome.INCOMPLETE, Outcome.INCOMPLETE, Outcome.FAIL]
    runs = [judged(a_verdict(GATE, "n1", outcome), folder=f"/nowhere/{n}") for n, outcome in enumerate(outcomes)]
    commands = next_steps.commands(gathered(*runs))
    assert commands[0] == "bringup explain /nowhere/4"
    assert len(commands) == next_steps.MAX_EXPLAINED
    assert "bringup explain /nowhere/0" not in commands


def test_a_playbook_is_continued_where_it_ran_and_not_in_a_copy_and_one_that_never_ran_is_open(tmp_path):
    run = judged(a_verdict(GATE, "n1"))
    gathered = Collection(judged=[run], absent=[Absent("smoke", "x")], playbooks=[PLAYBOOK, tmp_path])
    assert next_steps.commands(gathered)[1:] == ["bringup run --resume validation/results/playbook/p"]
    nothing_ran = page.render(Collection(absent=[Absent("smoke", "x")]))
    assert "is not proven" in nothing_ran and "Nothing failed." not in nothing_ran


def test_only_the_first_causes_are_unfolded_and_warnings_stop_nothing():
    failed = [cards(judged(a_verdict(GATE, f"n{number}")))[0] for number in range(3)]
    [warned] = cards(judged(a_verdict(GATE, "n1", Outcome.WARN)))
    many = next_steps.arranged([*failed, *failed, *failed, warned])
    assert [len(part) for part in (many.unfolded, many.folded, many.warnings)] == [next_steps.MAX_UNFOLDED, 4, 1]
    alone = next_steps.arranged([warned])
    assert (alone.unfolded, alone.warnings) == ([warned], [])


def test_one_thing_that_is_not_known_is_one_card_for_all_gates_that_wait_for_it():
    """A kernel log that is closed to users."""
    why = "not found out: the kernel log cannot be read"
    gates = ("discovery.kernel_log.xid", "load.kernel_log")
    silent = {"outcome": Outcome.INCOMPLETE, "observed": "nothing", "kind": Kind.UNKNOWN, "cause": why}
    [card] = cards(judged(*(a_verdict(gate, "n1", **silent) for gate in gates)))
    assert [finding.gate for finding in card.findings] == [*gates]


def test_an_explanation_starts_no_phase_that_ran_beside_it_and_says_once_what_holds_for_all_runs():
    """`explain` of a playbook named the script of the pairs, which had run in it, and three times that no line in the
    logs matches a known fault; the same line of evidence was told twice."""
    slow = judged_of(a_verdict("nccl.all_reduce.busbw", "2-nodes"), run=a_run("nccl_scaling"))
    again = [a_verdict(f"discovery.rdma.{name}", "n0", evidence="raw/x:7") for name in ("active", "same")]
    pairs, port = judged_of(a_verdict("nccl.pair.slowest", "job"), run=a_run("nccl_pairwise")), judged_of(*again)
    script = "sbatch --nodes=2 --nodelist=n0,n1 infrastructure-validation/scripts/nccl_pairwise.sbatch"
    assert script in explain.screens([slow])
    shared = explain.screen(judged(a_verdict(GATE, "n1"), a_verdict(OTHER, "n1")))
    assert shared.count("look at") == 1, "gates that share a guide had the same three commands each"
    assert shared.index(GATE) < shared.index(OTHER) < shared.index("look at")
    shown = explain.screens([slow, pairs, port])
    assert f"        {script}" not in shown
    assert "        bringup explain /nowhere\n" in shown
    assert shown.count("no line in the logs matches a known fault") == 1
    assert "FAIL discovery.rdma.same [n0]: by the same line\n" in shown


def test_what_only_follows_is_a_line_for_each_reason():
    """Of a drained node it was a list of 55 gates without a reason."""
    silent = {"cause": "Slurm gives no job to this node: DOWN", "kind": Kind.ABSENT}
    gates = [gate for gate in GATES if gate.startswith("discovery.gpu.")][:20]
    followed = [a_verdict(gate, "n1", Outcome.INCOMPLETE, "nothing", **silent) for gate in gates]
    shown = explain.screen(judged(a_verdict(OTHER, "n1"), *followed))
    reason = f"  [n1]: Slurm gives no job to this node: DOWN (20 gates: {', '.join(gates[:3])}, …)\n"
    assert f"not proven, blocked by another gate, or without evidence (20):\n{reason}" in shown
    some = [gate for gate in GATES if gate.startswith("discovery.") and gate != OTHER][:25]
    alone: dict[str, Any] = {"evidence": "none", "kind": Kind.ABSENT}
    each = [a_verdict(gate, "n1", Outcome.INCOMPLETE, "nothing", cause=f"lacks {gate}", **alone) for gate in some]
    shown = explain.screen(judged(a_verdict(OTHER, "n1"), *each))
    assert shown.count(": lacks ") == 20
    assert "  … and 5 more reasons; report.md has all\n" in shown


def test_a_run_that_is_not_closed_is_said_to_go_on_and_who_knows():
    """Its gates were explained one by one, as if something were broken."""
    going_on = judged(a_verdict(GATE, "n1", Outcome.INCOMPLETE, "nothing"), slurm_job_id="7")
    assert "it still runs, or was ended before its end. bringup why 7 says which" in explain.screen(going_on)
    assert "still runs" not in explain.screen(replace(going_on, seal=Seal()))
