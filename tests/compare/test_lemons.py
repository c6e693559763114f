"""Nodes that stand in failed jobs more often than chance: the exact test, made-up fleets, a table of sacct."""

import json
import math
import re
import time
from collections.abc import Iterable
from datetime import timedelta

import lemon_nodes
import pytest
from bringup.cli import main
from bringup.compare import lemons
from bringup.kernel.errors import UsageError
from bringup.readers import jobs as answers
from bringup.readers.jobs import AccountedJob
from bringup.run import slurm
from runs_for_tests import FIXTURES

SEED = 1  # of a fleet whose lemon is found


def test_the_chance_is_that_of_a_draw():
    """Of 10 jobs 4 failed; 3 of the 5 with the node among them: (C(4,3) C(6,2) + C(4,4) C(6,1)) / C(10,5)."""
    assert math.isclose(lemons.chance([(10, 4, 5)], 3), (4 * 15 + 6) / 252)
    assert lemons.chance([(10, 4, 5)], 0) == 1
    of_two = [(2, 1, 1), (2, 1, 1)]  # two fair coins
    assert [round(lemons.chance(of_two, least), 9) for least in (0, 1, 2)] == [1, 0.75, 0.25]


def test_a_planted_lemon_is_found_among_64_nodes_and_no_other_is_named():
    answer = lemons.find(lemon_nodes.fleet(SEED, effect=0.4))
    assert answer.nodes == lemon_nodes.NODES
    assert [each.node for each in answer.named] == [lemon_nodes.LEMON]


@pytest.mark.parametrize("kind", ["nightly", "bursts", "mended", "mended by one"])
def test_fleets_without_a_lemon_whose_programs_break_for_days_or_hours_give_no_alarm(kind):
    """All fleets of each kind: docs/results/lemons.md. Of the last two kinds each fleet gave one, before."""
    assert [seed for seed in range(3) if lemons.find(lemon_nodes.fleet(seed, kind)).named] == []


def a_job(user: str, state: str, node: str, minute: int, name: str = "train") -> AccountedJob:
    start = lemon_nodes.BEGIN + timedelta(minutes=minute)
    return AccountedJob(user, name, state, (node,), start, start + timedelta(seconds=30))


def table(jobs: Iterable[AccountedJob]) -> str:
    """As `sacct --parsable2` prints it."""
    rows = [
        f"{at}|{job.user}|{job.state}|{','.join(job.nodes)}|{job.start.isoformat()}|{job.end.isoformat()}|{job.name}\n"
        for at, job in enumerate(jobs)
    ]
    return "".join(["|".join(answers.OF_ENDED_JOBS) + "\n", *rows])


def test_a_program_that_always_fails_on_the_first_free_node_accuses_it_not():
    """ann's other program succeeds elsewhere in the same nights: her programs compare only with themselves."""
    nights = range(0, 30 * 1440, 1440)
    jobs = [a_job("ann", "FAILED", "n1", minute, "nightly") for minute in nights]
    jobs += [a_job("ann", "COMPLETED", f"n{2 + each}", minute + each) for minute in nights for each in range(9)]
    assert lemons.find(jobs).named == []


def test_a_program_that_was_broken_for_days_accuses_not_where_it_stood_in_them():
    """Placement and code both stay for a while: on n1 while it was broken, on n2 before and after."""
    bad = range(10, 16)
    days = [(("FAILED", "n1") if day in bad else ("COMPLETED", "n2"), day) for day in range(30)]
    assert lemons.find([a_job("ann", *how, 1440 * day + each) for how, day in days for each in (0, 300)]).named == []


def test_of_a_program_on_one_node_and_day_the_first_job_counts_however_it_ended():
    jobs = [a_job("ann", "COMPLETED", "n0", 0), *(a_job("ann", "FAILED", "n1", at) for at in range(1, 600, 70))]
    jobs += [a_job("ann", "COMPLETED", f"n{2 + each}", 610 + each) for each in range(9)]
    jobs += [a_job("ann", "FAILED", "n2", 700)]
    answer = lemons.find(jobs)
    assert answer.named == []
    assert (answer.jobs, answer.failed, answer.left_out) == (10, 1, 10)


def of_many_days(users: Iterable[str]) -> list[AccountedJob]:
    """Each user's program runs each day; then it fails on n1, and on none of eight others."""
    jobs = []
    for place, user in enumerate(users):
        for day in range(9):
            minute = 1440 * day + 100 * place
            jobs += [a_job(user, "COMPLETED", "n0", minute), a_job(user, "FAILED", "n1", minute + 1)]
            jobs += [a_job(user, "COMPLETED", f"n{2 + each}", minute + 2 + each) for each in range(8)]
    return jobs


def test_a_node_in_whose_failed_jobs_one_user_stood_is_shown_and_not_named(shown, monkeypatch, tmp_path):
    alone, both = lemons.find(of_many_days(["ann"])), lemons.find(of_many_days(["ann", "bob"]))
    assert ([each.node for each in alone.named], [each.node for each in alone.of_one_user]) == ([], ["n1"])
    assert ([each.node for each in both.named], both.of_one_user) == (["n1"], [])
    monkeypatch.setattr("bringup.report.run_folders.every_run", list)
    file = tmp_path / "jobs.txt"
    file.write_text(table(of_many_days(["ann"])))
    assert re.search(r"n1 +9 +9 +1\.0 .* all of one user", shown(2, "history", "--lemons", file))


def test_where_every_job_fails_no_node_is_suspect():
    """Each stood in as many failed jobs as it has to."""
    jobs = [a_job("ann", "FAILED", f"n{node}", 1440 * day + node + 1) for day in range(9) for node in range(4)]
    answer = lemons.find([*jobs, *(a_job("ann", "COMPLETED", "n9", 1440 * day) for day in range(9))])
    assert (answer.failed, answer.named, answer.next) == (36, [], None)


def test_neighbours_of_a_lemon_in_its_jobs_are_not_named():
    """n2 stands beside n1 on three days of four, and else beside n9: by its own failures it would be named."""
    jobs, counted = [], []
    for day in range(24):
        user, start = f"u{day % 2}", lemon_nodes.BEGIN + timedelta(days=day, hours=1)
        beside, other = ("n2", "n3") if day % 4 else ("n3", "n2")
        jobs.append(a_job(user, "COMPLETED", "n0", 1440 * day))
        for nodes in (("n1", beside), (other, "n9"), ("n10", "n11"), ("n12", "n13")):
            state = "FAILED" if "n1" in nodes and day % 3 else "COMPLETED"
            counted.append(AccountedJob(user, "train", state, nodes, start, start + timedelta(minutes=1)))
    assert lemons._suspects(counted, {"n2"})[0].chance < lemons.FALSE_ALARMS / 8
    assert [each.node for each in lemons.find([*jobs, *counted]).named] == ["n1"]


def test_many_strata_take_no_longer_than_they_must():
    """The sum of 3,000 strata took 41 s."""
    begun = time.process_time()
    assert lemons.chance([(20, 10, 10)] * 3000, 40) == pytest.approx(1)
    assert time.process_time() - begun < 5


def test_a_table_of_several_users_as_sacct_prints_it():
    jobs, unread = answers.ended_jobs((FIXTURES / "slurm/sacct-several-users.txt").read_text())
    assert unread == 0
    assert {job.user for job in jobs} == {"ann", "bob", "carol", "dave"}
    assert {job.state for job in jobs} == {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}
    answer = lemons.find(jobs)
    assert (answer.named, answer.next and answer.next.node) == ([], "gpu03")
    with pytest.raises(UsageError, match="not a table of sacct"):
        answers.ended_jobs("JobID|State\n7|FAILED\n")


def test_rows_that_cannot_be_read_are_counted_but_not_jobs_that_run_or_never_began():
    text = table([a_job("ann", "FAILED", "n1", 0, "a|b")])
    text += "7|ann|RUNNING|n1|2026-10-01T00:00:00|Unknown|train\n"
    text += "8|ann|CANCELLED|None assigned|None|2026-10-01T00:00:00|x\n"
    text += "9|ann|FAILED|n1|10:00|11:00|train\n10|ann|FAILED\n"
    jobs, unread = answers.ended_jobs(text)
    assert ([job.name for job in jobs], unread) == (["a|b"], 2)


@pytest.fixture
def sacct(tmp_path, monkeypatch):
    """The program that answers: a function that takes its text."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def write(text: str) -> None:
        (tmp_path / "sacct").write_text(text)
        (tmp_path / "sacct").chmod(0o755)

    return write


def test_the_accounting_is_asked_for_whole_times_and_for_each_run_of_a_requeued_job(sacct, monkeypatch):
    sacct('#!/bin/sh\necho "$SLURM_TIME_FORMAT $*"\n')
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    output = slurm.accounting(answers.OF_ENDED_JOBS)
    assert output.startswith("standard ")
    assert "--duplicates" in output.split()


def test_a_line_feed_in_the_name_of_a_job_makes_no_row(sacct):
    """Twelve failed jobs on n5 by one name: history --lemons named the node."""
    forged = "\n".join(f"{job}|ann|FAILED|n5|2026-10-01T00:00:00|2026-10-01T01:00:00|x" for job in range(12))
    row = ("7", "ann", "COMPLETED", "n1", "2026-10-01T00:00:00", "2026-10-01T01:00:00", f"a|b\n{forged}")
    program = "import sys\nbetween = {a[2:].partition('=')[0]: a.partition('=')[2] for a in sys.argv}"
    rows = f"for row in {(answers.OF_ENDED_JOBS, row)!r}:\n    print(between.join(row))\n"
    sacct(f"#!/usr/bin/env python3\n{program}.get('delimiter', '|')\n{rows}")
    [job], unread = answers.ended_jobs(slurm.accounting(answers.OF_ENDED_JOBS))
    assert (job.nodes, job.name, unread) == (("n1",), "a|b", 0)


@pytest.mark.parametrize("rows", ["", "9|ann|FAILED|n1|10:00|11:00|train\n"])
def test_a_table_without_a_job_that_counts_says_nothing_of_nodes(tmp_path, monkeypatch, capsys, rows):
    monkeypatch.setattr("bringup.report.run_folders.every_run", list)
    file = tmp_path / "jobs.txt"
    file.write_text(table([]) + rows)
    assert main(["history", "--lemons", str(file)]) == 2
    says = f"not known: no job that failed or completed is in the table; {len(rows.splitlines())} row"
    assert says in capsys.readouterr().err


def test_history_names_it_and_says_when_there_is_no_accounting(tmp_path, sacct, monkeypatch, capsys, shown):
    monkeypatch.setattr("bringup.report.run_folders.every_run", list)
    file = tmp_path / "jobs.txt"
    file.write_text(table(lemon_nodes.fleet(SEED, effect=0.4)) + "9|ann|FAILED|n1|10:00|11:00|train\n")
    screen = " ".join(shown(1, "history", "--lemons", file).split())
    assert "n17 stood in failed jobs more often than chance" in screen
    assert "1 row could not be read" in screen
    assert json.loads(shown(1, "history", "--lemons", file, "--json"))["nodes"]["named"][0]["node"] == "n17"
    sacct("#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2; exit 1\n")
    assert main(["history", "--lemons"]) == 2
    assert "Slurm accounting storage is disabled" in capsys.readouterr().err
