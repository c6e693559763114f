"""Gates of the run itself: it was closed, its evidence is its own, and Slurm started it once."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from bringup import judge
from bringup.records import Closed, Kind, Outcome, Run, Verdict, read_record, write_record
from bringup.results import CLOSED, RUN, UNREADABLE
from runs_for_tests import discovery, reseal

SOMEBODY = 65534


def verdict_of(gate: str, folder: Path) -> Verdict:
    return next(verdict for verdict in judge.judge_folder(folder).verdicts.verdicts if verdict.gate == gate)


@contextmanager
def as_somebody_else() -> Iterator[None]:
    """Root reads everything, so that modes mean nothing to it. Who is not root already is somebody."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(SOMEBODY)
    try:
        yield
    finally:
        os.seteuid(me)


# ---- closed


def test_a_run_that_was_not_closed_is_incomplete_and_nothing_about_its_evidence_is_claimed(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch, close=False)
    closed = verdict_of("run.closed", folder)
    assert (closed.outcome, closed.kind) == (Outcome.INCOMPLETE, Kind.ABSENT)
    assert verdict_of("run.evidence", folder).blocked_by == ["run.closed"]


def test_a_closing_record_that_cannot_be_read_is_not_a_missing_one(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    folder.chmod(0o755)
    monkeypatch.chdir(folder)
    (folder / "closed.json").chmod(0o000)
    with as_somebody_else():
        closed = verdict_of("run.closed", Path())
    assert (closed.outcome, closed.kind) == (Outcome.INCOMPLETE, Kind.UNKNOWN)
    assert "Permission denied" in (closed.cause or "")


def test_a_closing_record_that_was_cut_off_says_so(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    (folder / "closed.json").write_text("{")
    closed = verdict_of("run.closed", folder)
    assert (closed.outcome, closed.kind) == (Outcome.INCOMPLETE, Kind.UNKNOWN)
    assert "closed.json: not a valid Closed" in (closed.cause or "")


# ---- started once


def test_a_job_that_slurm_started_again_is_a_warning(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    opened = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**opened, "slurm_restart_count": 1}))
    restarts = verdict_of("run.restarts", reseal(folder))
    assert (restarts.outcome, restarts.value) == (Outcome.WARN, 1)


# ---- whose evidence it is


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: (folder / "raw/clock.jsonl").unlink(), "raw/clock.jsonl is gone"),
        (lambda folder: (folder / "raw/clock.jsonl").write_text("{}\n"), "raw/clock.jsonl was changed after"),
        (lambda folder: (folder / "raw/more.jsonl").write_text("{}\n"), "raw/more.jsonl came after"),
    ],
)
def test_evidence_that_is_not_as_it_was_when_the_run_was_closed_is_incomplete(tmp_path, monkeypatch, change, says):
    folder = discovery(tmp_path, monkeypatch)
    change(folder)
    verdict = verdict_of("run.evidence", folder)
    assert (verdict.outcome, verdict.kind) == (Outcome.INCOMPLETE, Kind.JUDGED)
    assert says in verdict.observed


@pytest.mark.parametrize(
    ("hidden", "mode", "says"),
    [
        ("raw", 0o000, "raw/clock.jsonl cannot be read: Permission denied"),
        ("raw", 0o444, "raw/clock.jsonl cannot be read: Permission denied"),
        ("raw/clock.jsonl", 0o000, "raw/clock.jsonl cannot be read: Permission denied"),
    ],
    ids=["a folder", "a folder that can be listed", "a file"],
)
def test_what_you_may_not_read_was_neither_changed_nor_removed(tmp_path, monkeypatch, hidden, mode, says):
    folder = discovery(tmp_path, monkeypatch)
    folder.chmod(0o755)
    monkeypatch.chdir(folder)  # the way there may be closed to somebody else
    (folder / hidden).chmod(mode)
    with as_somebody_else():
        verdict = verdict_of("run.evidence", Path())
        notes = judge.judge_folder(Path()).verdicts.notes
    (folder / hidden).chmod(0o755)
    assert (verdict.outcome, verdict.kind, verdict.value) == (Outcome.INCOMPLETE, Kind.UNKNOWN, None)
    assert says in (verdict.cause or "")
    assert not any(word in str(verdict) for word in ("is gone", "was changed"))
    assert any(hidden in note and "Permission denied" in note for note in notes)


def test_a_file_that_was_changed_is_said_also_where_another_one_cannot_be_read(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    folder.chmod(0o755)
    monkeypatch.chdir(folder)
    (folder / "raw/clock.jsonl").chmod(0o000)
    (folder / "raw/mpi-list.txt").write_text("changed")
    with as_somebody_else():
        verdict = verdict_of("run.evidence", Path())
    assert verdict.value == "raw/mpi-list.txt was changed after the run was closed"


@pytest.mark.parametrize(
    ("stamp", "says"),
    [
        ({"run": "another", "utc": None}, "wrote it for run another"),
        ({"run": None, "utc": "2031-01-01T00:00:00Z"}, "wrote it at 2031"),
        ({"run": None, "utc": "yesterday"}, "wrote it at yesterday"),
    ],
)
def test_a_stamp_of_another_run_or_time_is_said(tmp_path, monkeypatch, stamp, says):
    folder = discovery(tmp_path, monkeypatch)
    opened = json.loads((folder / "run.json").read_text())
    closing = {"run": stamp["run"] or opened["name"], "utc": stamp["utc"] or opened["opened_at"]}
    facts = folder / "raw/inventory.jsonl"
    facts.write_text(facts.read_text().replace('"end": ', f'{json.dumps(closing)[1:-1]}, "end": '))
    verdict = verdict_of("run.evidence", reseal(folder))
    assert verdict.outcome is Outcome.INCOMPLETE
    assert says in verdict.observed


def test_a_file_that_nobody_could_read_when_the_run_was_closed_is_no_evidence_later(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    closed = read_record(folder / CLOSED, Closed)
    files = closed.files | {"raw/clock.jsonl": f"{UNREADABLE}Permission denied"}
    write_record(folder / CLOSED, closed.model_copy(update={"files": files}), replace=True)
    verdict = verdict_of("run.evidence", folder)
    assert (verdict.outcome, verdict.kind) == (Outcome.INCOMPLETE, Kind.UNKNOWN)
    assert "raw/clock.jsonl could not be read when the run was closed" in (verdict.cause or "")


@pytest.mark.parametrize(("minutes", "outcome"), [(9, Outcome.PASS), (60, Outcome.INCOMPLETE)])
def test_clocks_of_hosts_may_differ_by_minutes_and_evidence_of_an_hour_before_is_of_another_run(
    tmp_path, monkeypatch, minutes, outcome
):
    folder = discovery(tmp_path, monkeypatch)
    opened = read_record(folder / RUN, Run)
    before = datetime.fromisoformat(opened.opened_at) - timedelta(minutes=minutes)
    stamp = f'"run": "{opened.name}", "utc": "{before:%Y-%m-%dT%H:%M:%SZ}"'
    facts = folder / "raw/inventory.jsonl"
    facts.write_text(facts.read_text().replace('"end": ', f'{stamp}, "end": '))
    assert verdict_of("run.evidence", reseal(folder)).outcome is outcome
