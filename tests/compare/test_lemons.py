"""Nodes that stand in failed jobs more often than chance: the exact test, made-up fleets, a table of sacct."""

import json
import math
import sys
from pathlib import Path

import pytest
from bringup.cli import main
from bringup.compare import lemons
from bringup.errors import UsageError
from bringup.evidence import slurm as answers
from runs_for_tests import FIXTURES

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "validation/benchmarks"))
import lemon_nodes  # noqa: E402

TABLE = FIXTURES / "slurm/sacct-several-users.txt"


def test_the_chance_is_that_of_a_draw():
    """Of 10 jobs 4 failed; 3 of the 5 with the node among them: (C(4,3) C(6,2) + C(4,4) C(6,1)) / C(10,5)."""
    assert math.isclose(lemons.chance([(10, 4, 5)], 3), (4 * 15 + 6) / 252)
    assert lemons.chance([(10, 4, 5)], 0) == 1
    of_two = [(2, 1, 1), (2, 1, 1)]  # two fair coins
    assert [round(lemons.chance(of_two, least), 9) for least in (0, 1, 2)] == [1, 0.75, 0.25]


def test_a_planted_lemon_is_found_among_64_nodes_and_no_other_is_named():
    answer = lemons.find(lemon_nodes.fleet(0, effect=0.4))
    assert answer.nodes == lemon_nodes.NODES
    assert [each.node for each in answer.named] == [lemon_nodes.LEMON]


def test_fleets_without_a_lemon_give_no_alarm():
    """All 1,000: docs/results/lemons.md."""
    assert [seed for seed in range(8) if lemons.find(lemon_nodes.fleet(seed, jobs=800)).named] == []


def accounted(rows):
    """(user, state, node, start in minutes)"""
    head = "|".join(answers.OF_ENDED_JOBS)
    lines = [
        f"{number}|{user}|{state}|{node}|2026-10-{1 + at // 1440:02}T{at // 60 % 24:02}:{at % 60:02}:00|"
        f"2026-10-{1 + at // 1440:02}T{at // 60 % 24:02}:{at % 60:02}:30"
        for number, (user, state, node, at) in enumerate(rows)
    ]
    return answers.ended_jobs("\n".join([head, *lines, ""]))


def test_a_user_whose_program_is_broken_accuses_no_node():
    """ann fails everywhere, and always sits on n1: her jobs compare only with her own."""
    rows = [("ann", "FAILED", "n1", 120 * number) for number in range(40)]
    rows += [("bob", "COMPLETED", f"n{2 + number % 9}", 120 * number) for number in range(200)]
    assert lemons.find(accounted(rows)).named == []


def test_a_broken_job_that_is_submitted_again_and_again_counts_once():
    rows = [("ann", "FAILED", "n1", number) for number in range(60)]
    rows += [("ann", "COMPLETED", f"n{number % 9}", 120 * number) for number in range(100)]
    answer = lemons.find(accounted(rows))
    assert answer.named == []
    assert (answer.jobs, answer.left_out) == (101, 59)


def test_neighbours_of_a_lemon_in_its_jobs_are_not_named():
    rows = [("ann", "FAILED" if number % 4 else "COMPLETED", "n[1-2]", 120 * number) for number in range(60)]
    rows += [("ann", "COMPLETED", f"n[{2 + number % 4},{7 + number % 3}]", 120 * number) for number in range(120)]
    assert [each.node for each in lemons.find(accounted(rows)).named] == ["n1"]


def test_a_table_of_several_users_as_sacct_prints_it():
    jobs = answers.ended_jobs(TABLE.read_text())
    assert {job.user for job in jobs} == {"ann", "bob", "carol", "dave"}
    assert {job.state for job in jobs} == {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}
    answer = lemons.find(jobs)
    assert [each.node for each in answer.named] == ["gpu03"]
    with pytest.raises(UsageError, match="not a table of sacct"):
        answers.ended_jobs("JobID|State\n7|FAILED\n")


def test_history_names_it_and_says_when_there_is_no_accounting(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("bringup.results.every_run", list)
    assert main(["history", "--lemons", str(TABLE)]) == 1
    assert "gpu03 stood in failed jobs more often than chance" in " ".join(capsys.readouterr().out.split())
    assert main(["history", "--lemons", str(TABLE), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["nodes"]["named"][0]["node"] == "gpu03"
    sacct = tmp_path / "sacct"
    sacct.write_text("#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2; exit 1\n")
    sacct.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert main(["history", "--lemons"]) == 2
    assert "Slurm accounting storage is disabled" in capsys.readouterr().err
