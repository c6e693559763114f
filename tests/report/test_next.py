"""What to do next: first causes before what follows, failed subjects only, commands that run as pasted and stand
once."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from bringup.checks.catalogue import GATES
from bringup.judge import Judged
from bringup.plan.guide import Guide
from bringup.plan.profile import PROFILES
from bringup.records import Action, Kind, Outcome, Verdict
from bringup.report import explain, page
from bringup.report.collection import Collection
from bringup.report.page import next_steps
from bringup.results import REPOSITORY, Absent
from factory import a_run, a_verdict, judged_of

GATE, OTHER = "discovery.gpu.count", "discovery.kernel"
NODES = ("n0", "n1", "n2")


@pytest.fixture(autouse=True)
def guides(monkeypatch) -> None:
    """Two gates that share their commands."""
    for gate in (GATE, OTHER):
        guide = Guide(
            title="t",
            page="01-environment",
            action=Action.RESET,
            observes="o",
            why="w",
            usually_means="u",
            next=("look at {run} {node} {nodes} {node_count} {gpus} {profile}", "bringup why {job}"),
        )
        monkeypatch.setitem(GATES, gate, replace(GATES[gate], guide=guide))


def judged(*verdicts: Verdict, name: str = "run", folder: str = "/nowhere/a run", **run: object) -> Judged:
    opened = a_run("discovery", NODES, gpus=4, name=name, plan={}).model_copy(update=run)
    return replace(judged_of(*verdicts, run=opened), folder=Path(folder))


def gathered(*runs: Judged) -> Collection:
    return Collection(list(runs), [], [], [], {})


def test_a_node_that_is_only_incomplete_is_not_among_those_that_failed():
    failed = a_verdict(GATE, "n1", Outcome.FAIL)
    open_end = a_verdict(GATE, "n0", Outcome.INCOMPLETE, "nothing")
    [row] = next_steps.rows([judged(open_end, failed)])
    assert row.outcome is Outcome.FAIL
    assert row.subjects == "discovery: n1"
    said = page.render(gathered(judged(open_end, failed)))
    assert "discovery: n1<" in said.replace("</td>", "<")
    assert "n0, n1<" not in said[said.index("What to do next") : said.index('<h2 id="run-0"')]


def test_of_several_runs_those_that_failed_are_named():
    runs = [
        judged(a_verdict(GATE, "n0", Outcome.INCOMPLETE), name="a"),
        judged(a_verdict(GATE, "n2", Outcome.FAIL), name="b", folder="/nowhere/b"),
    ]
    [row] = next_steps.rows(runs)
    assert row.subjects == "discovery: n2"
    assert "/nowhere/b" in row.commands[0]


def test_places_are_filled_from_the_run_and_what_is_not_known_is_left_out():
    [row] = next_steps.rows([judged(a_verdict(GATE, "n1"), a_verdict(GATE, "n2"))])
    assert row.commands == ["look at '/nowhere/a run' n1 n0,n1,n2 3 4 local-cpu"]
    [row] = next_steps.rows([judged(a_verdict(GATE, "n1"), slurm_job_id="7", profile="ours")])
    assert row.commands == ["look at '/nowhere/a run' n1 n0,n1,n2 3 4 '/nowhere/a run/profile.yaml'", "bringup why 7"]
    assert not (PROFILES / "ours.yaml").exists()


def test_a_command_stands_once():
    rows = next_steps.rows([judged(a_verdict(GATE, "n1"), a_verdict(OTHER, "n1"))])
    assert [len(row.commands) for row in rows] == [1, 0]


def test_what_follows_from_something_is_no_first_cause():
    failed = a_verdict(GATE, "n1", Outcome.FAIL)
    blocked = a_verdict(OTHER, "n1", Outcome.INCOMPLETE, kind=Kind.BLOCKED)
    absent = a_verdict(OTHER, "n0", Outcome.INCOMPLETE, kind=Kind.ABSENT)
    undeclared = a_verdict(OTHER, "n2", Outcome.INCOMPLETE, kind=Kind.UNDECLARED)
    warned = a_verdict(OTHER, "n2", Outcome.WARN)

    def of(*verdicts: Verdict) -> explain.Causes:
        return explain.causes_of(judged_of(*verdicts).verdicts)

    found = of(blocked, absent, undeclared, warned, failed)
    assert (found.first, found.following, found.undeclared) == ([failed, warned], [blocked, absent], [undeclared])
    assert of(blocked, absent, undeclared).first == [absent]
    assert of(blocked, undeclared).first == [blocked]
    assert of(undeclared).first == [undeclared]
    unknown = a_verdict(OTHER, "n0", Outcome.INCOMPLETE, kind=Kind.UNKNOWN)
    assert of(unknown, absent).first == [unknown]


def test_the_commands_of_a_healthy_page_name_every_folder_and_run_as_pasted():
    runs = [judged(a_verdict(GATE, "n1", Outcome.PASS), name=str(n), folder=f"/nowhere/run {n}") for n in range(6)]
    [command] = next_steps.commands(gathered(*runs))
    assert shlex.split(command) == [
        "bringup", "profile", "--from", *(f"/nowhere/run {n}" for n in range(6)), "-o", "measured.yaml",
    ]  # fmt: skip
    playbook = REPOSITORY / "validation/results/playbook/p"
    seconds = {run.folder: 1.0 for run in runs}
    [command] = next_steps.commands(Collection(runs, [], [], [playbook], seconds))
    assert command == "bringup profile --from validation/results/playbook/p -o measured.yaml"


def test_the_worst_runs_are_explained_first():
    outcomes = [Outcome.WARN, Outcome.INCOMPLETE, Outcome.INCOMPLETE, Outcome.INCOMPLETE, Outcome.FAIL]
    runs = [judged(a_verdict(GATE, "n1", outcome), folder=f"/nowhere/{n}") for n, outcome in enumerate(outcomes)]
    commands = next_steps.commands(gathered(*runs))
    assert commands[0] == "bringup explain /nowhere/4"
    assert len(commands) == next_steps.MAX_EXPLAINED
    assert "bringup explain /nowhere/0" not in commands


def test_a_playbook_is_continued_where_it_ran_and_not_in_a_copy(tmp_path):
    run = judged(a_verdict(GATE, "n1"))
    ours = REPOSITORY / "validation/results/playbook/p"
    found = Collection([run], [Absent("smoke", "x")], [], [ours, tmp_path], {})
    assert next_steps.commands(found)[1:] == ["bringup run --resume validation/results/playbook/p"]


def test_a_page_whose_phases_did_not_run_does_not_say_that_nothing_is_open():
    said = page.render(Collection([], [Absent("smoke", "x")], [], [], {}))
    assert "nothing is open" not in said
    assert "is not proven" in said
