"""Gates of the run itself: it was closed, its evidence is its own, and Slurm started it once."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from bringup import judge
from bringup.records import Closed, Kind, Run, Verdict, read_record, write_record
from bringup.results import CLOSED, RUN, UNREADABLE
from runs_for_tests import OPEN, PASS, WARN, discovery, reseal

SOMEBODY = 65534
CLOCK = "raw/clock.jsonl"
DENIED = f"{CLOCK} cannot be read: Permission denied"


def verdict_of(gate: str, folder: Path) -> Verdict:
    return next(verdict for verdict in judge.judge_folder(folder).verdicts.verdicts if verdict.gate == gate)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    return discovery(tmp_path, monkeypatch)


@pytest.fixture
def here(folder, monkeypatch) -> Path:
    """The folder, as the working directory: the way there may be closed to somebody else."""
    folder.chmod(0o755)
    monkeypatch.chdir(folder)
    return folder


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
    assert (closed.outcome, closed.kind) == (OPEN, Kind.ABSENT)
    assert verdict_of("run.evidence", folder).blocked_by == ["run.closed"]


def test_a_closing_record_that_cannot_be_read_or_was_cut_off_is_not_a_missing_one(here):
    (here / CLOSED).chmod(0o000)
    with as_somebody_else():
        closed = verdict_of("run.closed", Path())
    assert (closed.outcome, closed.kind) == (OPEN, Kind.UNKNOWN)
    assert "Permission denied" in (closed.cause or "")
    (here / CLOSED).chmod(0o644)
    (here / CLOSED).write_text("{")
    closed = verdict_of("run.closed", here)
    assert (closed.outcome, closed.kind) == (OPEN, Kind.UNKNOWN)
    assert "closed.json: not a valid Closed" in (closed.cause or "")


# ---- started once


def test_a_job_that_slurm_started_again_is_a_warning(folder):
    opened = json.loads((folder / RUN).read_text())
    (folder / RUN).write_text(json.dumps({**opened, "slurm_restart_count": 1}))
    restarts = verdict_of("run.restarts", reseal(folder))
    assert (restarts.outcome, restarts.value) == (WARN, 1)


# ---- whose evidence it is


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: (folder / CLOCK).unlink(), f"{CLOCK} is gone"),
        (lambda folder: (folder / CLOCK).write_text("{}\n"), f"{CLOCK} was changed after"),
        (lambda folder: (folder / "raw/more.jsonl").write_text("{}\n"), "raw/more.jsonl came after"),
    ],
)
def test_evidence_that_is_not_as_it_was_when_the_run_was_closed_is_incomplete(
    folder, change: Callable[[Path], object], says: str
):
    change(folder)
    verdict = verdict_of("run.evidence", folder)
    assert (verdict.outcome, verdict.kind) == (OPEN, Kind.JUDGED)
    assert says in verdict.observed


@pytest.mark.parametrize(("hidden", "mode"), [("raw", 0o000), ("raw", 0o444), (CLOCK, 0o000)])
def test_what_you_may_not_read_was_neither_changed_nor_removed(here, hidden, mode):
    (here / hidden).chmod(mode)
    with as_somebody_else():
        verdict = verdict_of("run.evidence", Path())
        notes = judge.judge_folder(Path()).verdicts.notes
    (here / hidden).chmod(0o755)
    assert (verdict.outcome, verdict.kind, verdict.value) == (OPEN, Kind.UNKNOWN, None)
    assert DENIED in (verdict.cause or "")
    assert not any(word in str(verdict) for word in ("is gone", "was changed"))
    assert any(hidden in note and "Permission denied" in note for note in notes)


def test_a_file_that_was_changed_is_said_also_where_another_one_cannot_be_read(here):
    (here / CLOCK).chmod(0o000)
    (here / "raw/mpi-list.txt").write_text("changed")
    with as_somebody_else():
        verdict = verdict_of("run.evidence", Path())
    assert verdict.value == "raw/mpi-list.txt was changed after the run was closed"


@pytest.mark.parametrize(
    ("run", "utc", "says"),
    [
        ("another", None, "wrote it for run another"),
        (None, "2031-01-01T00:00:00Z", "wrote it at 2031"),
        (None, "yesterday", "wrote it at yesterday"),
        (None, timedelta(minutes=60), "wrote it at "),
        (None, timedelta(minutes=9), None),  # clocks of hosts may differ by minutes
    ],
)
def test_a_stamp_of_another_run_or_time_is_said(folder, run, utc, says):
    opened = read_record(folder / RUN, Run)
    if isinstance(utc, timedelta):
        utc = f"{datetime.fromisoformat(opened.opened_at) - utc:%Y-%m-%dT%H:%M:%SZ}"
    closing = {"run": run or opened.name, "utc": utc or opened.opened_at}
    facts = folder / "raw/inventory.jsonl"
    facts.write_text(facts.read_text().replace('"end": ', f'{json.dumps(closing)[1:-1]}, "end": '))
    verdict = verdict_of("run.evidence", reseal(folder))
    assert verdict.outcome is (PASS if says is None else OPEN)
    assert (says or "") in verdict.observed


def test_a_file_that_nobody_could_read_when_the_run_was_closed_is_no_evidence_later(folder):
    closed = read_record(folder / CLOSED, Closed)
    files = closed.files | {CLOCK: f"{UNREADABLE}Permission denied"}
    write_record(folder / CLOSED, closed.model_copy(update={"files": files}), replace=True)
    verdict = verdict_of("run.evidence", folder)
    assert (verdict.outcome, verdict.kind) == (OPEN, Kind.UNKNOWN)
    assert f"{CLOCK} could not be read when the run was closed" in (verdict.cause or "")
