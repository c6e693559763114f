"""Gates of nodes and of the run itself: who answered, what should be equal, libraries, whose evidence it is."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from bringup.kernel import judge
from bringup.kernel.plan import profile
from bringup.kernel.records import Closed, Kind, Run, Verdict, read_record, write_record
from bringup.kernel.results import CLOSED, RUN, UNREADABLE
from factory import a_run
from loops import case_for_each, for_each
from runs_for_tests import FAIL, OPEN, PASS, WARN, add_derived, discovery, judged, parsed_of, reseal
from showing import check, shows_failing

INVENTORY = "raw/inventory.jsonl"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    return discovery(tmp_path, monkeypatch)


def edited(folder: Path, good: str, bad: str, *, times: int = 1) -> Path:
    """As if the nodes had said so before the run was closed."""
    path = folder / INVENTORY
    text = path.read_text()
    assert good in text
    path.write_text(text.replace(good, bad, times))
    return reseal(folder)


def verdicts_of(gate: str, folder: Path, name: str = "generic") -> list[Verdict]:
    """Of n0 and n1."""
    verdicts = judge.judge_folder(folder, profile.load(name)).verdicts.verdicts
    return [verdict for verdict in verdicts if verdict.gate == f"discovery.{gate}"]


# ---- libraries

LIBRARIES = ("libcuda", "libnccl", "libibverbs")


def fact(library: str, value: str) -> str:
    return f'inventory.library.{library}", "value": "{value}"'


def value_in(folder: Path, library: str) -> str:
    lines = [json.loads(line[3:]) for line in (folder / INVENTORY).read_text().splitlines()]
    return next(line["value"] for line in lines if line.get("quantity") == f"inventory.library.{library}")


def test_a_library_that_no_node_has_is_not_the_same_on_all_nodes_and_one_that_none_needs_may_be_absent(folder):
    """No RDMA port, no driver: an ordinary cluster of CPUs, or one on Ethernet."""
    for library in ("libcuda", "libibverbs"):
        verdicts = verdicts_of(f"library.{library}", folder)
        assert {(v.outcome, str(v.value).partition(":")[0]) for v in verdicts} == {(PASS, "absent")}
    assert {judge.stops(verdict) for verdict in verdicts_of("library.libnccl", folder)} == {False}
    for library in (*LIBRARIES, "libmunge"):
        edited(folder, fact(library, value_in(folder, library)), fact(library, "absent"), times=2)
        for name in ("generic", "h100-8x400g"):
            verdicts = verdicts_of(f"library.{library}", folder, name)
            assert [(v.outcome, v.cause) for v in verdicts] == [(OPEN, "not found out: no node has it")] * 2


@shows_failing(*(f"discovery.library.{name}" for name in LIBRARIES))
def test_a_library_that_one_of_two_nodes_has_fails_on_both(folder):
    for library in LIBRARIES:
        absent, there = value_in(folder, library), f"{library}.so.1 1 bytes a"
        verdicts = verdicts_of(f"library.{library}", edited(folder, fact(library, absent), fact(library, there)))
        assert {verdict.outcome for verdict in verdicts} == {FAIL}
        assert sorted(str(verdict.value) for verdict in verdicts) == [absent, there]


@for_each(
    (["nccl 1", "nccl 1", "nccl 1", "absent"], [PASS, PASS, PASS, FAIL]),
    (["absent", "absent", "absent", "nccl 1"], [FAIL] * 4),
    (["absent", "absent", "absent", None], [OPEN] * 4),
    (["absent", "absent", "nccl 1", "nccl 1"], [FAIL] * 4),
)
def test_absence_is_never_what_is_usual(values, outcomes):
    facts = [("inventory.library.libnccl", f"n{number}", value) for number, value in enumerate(values)]
    by_gate = judged(facts, nodes=[f"n{number}" for number in range(4)], profile_name="generic")
    assert [by_gate[f"discovery.library.libnccl n{number}"].outcome for number in range(4)] == outcomes


# ---- drift


@shows_failing("discovery.python", "discovery.cpu.model")
def test_a_node_that_differs_fails_and_of_two_nobody_knows_which_one_is_right(folder):
    for gate, good, bad in (("python", "CPython 3", "CPython 2"), ("cpu.model", '"AMD EPYC"', '"Intel Xeon"')):
        assert [verdict.outcome for verdict in verdicts_of(gate, edited(folder, good, bad))] == [FAIL, FAIL]


def test_a_node_with_half_the_memory_fails_and_the_other_does_not(folder):
    verdicts = verdicts_of("memory", edited(folder, '"value": 23.541', '"value": 11.7'))
    assert all("23.54" in verdict.observed for verdict in verdicts)
    assert [(v.outcome, v.unit) for v in verdicts] == [(PASS, "share"), (FAIL, "share")]


# ---- who answered


def test_every_node_that_a_launch_error_names_fails_and_the_evidence_is_the_line_that_grep_gives(folder):
    """srun speaks of several nodes at once: n[0-1]. A progress bar ends its lines with a carriage return."""
    (folder / INVENTORY).unlink()
    errors = folder / "raw/inventory.err"
    errors.write_text("srun: error: n[0-1]: tasks 0-1: Exited with exit code 127\n")
    verdicts = verdicts_of("node.answered", reseal(folder))
    assert [(verdict.outcome, verdict.kind) for verdict in verdicts] == [(FAIL, Kind.JUDGED)] * 2
    errors.write_bytes(b"10%\r20%\r30%\nsrun: error: n1: task 1: Killed\n")
    assert verdicts_of("node.answered", reseal(folder))[1].evidence == "raw/inventory.err:2"


def test_a_state_of_a_node_is_a_gate_of_discovery_alone(folder):
    observed = {observation.quantity for observation in judge.judge_folder(folder).observations}
    assert {"discovery.node.state", "discovery.node.answered"} <= observed
    assert len(add_derived(parsed_of([("slurm.node.state", "n0", "IDLE")]), a_run("smoke")).observations) == 1


# ---- the run itself: it was closed, its evidence is its own, and Slurm started it once

SOMEBODY = 65534
CLOCK = "raw/clock.jsonl"
DENIED = f"{CLOCK} cannot be read: Permission denied"


def verdict_of(gate: str, folder: Path) -> Verdict:
    return next(verdict for verdict in judge.judge_folder(folder).verdicts.verdicts if verdict.gate == gate)


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
    check(closed, OPEN, "closed.json: not a valid Closed")
    assert closed.kind is Kind.UNKNOWN


def test_a_job_that_slurm_started_again_is_a_warning(folder):
    (folder / RUN).write_text(json.dumps({**json.loads((folder / RUN).read_text()), "slurm_restart_count": 1}))
    restarts = verdict_of("run.restarts", reseal(folder))
    assert (restarts.outcome, restarts.value) == (WARN, 1)


# ---- whose evidence it is


@case_for_each(
    (lambda folder: (folder / CLOCK).unlink(), f"{CLOCK} is gone"),
    (lambda folder: (folder / CLOCK).write_text("{}\n"), f"{CLOCK} was changed after"),
    (lambda folder: (folder / "raw/more.jsonl").write_text("{}\n"), "raw/more.jsonl came after"),
)
def test_evidence_that_is_not_as_it_was_is_incomplete(folder, change, says):
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


@case_for_each(
    ("another", None, "wrote it for run another"),
    (None, "2031-01-01T00:00:00Z", "wrote it at 2031"),
    (None, "yesterday", "wrote it at yesterday"),
    (None, timedelta(minutes=60), "wrote it at "),
    (None, timedelta(minutes=9), None),  # clocks of hosts may differ by minutes
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
    check(verdict, OPEN, f"{CLOCK} could not be read when the run was closed")
    assert verdict.kind is Kind.UNKNOWN
