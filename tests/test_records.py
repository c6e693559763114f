"""Records: strict on read, written once."""

import json

import pytest
from bringup.kernel import results as runs
from bringup.kernel.errors import RecordError
from bringup.kernel.records import Closed, Outcome, read_record, worst, write_record
from bringup.report import run_folders
from loops import case_for_each

CLOSED = Closed(exit_code=0, closed_at="2026-01-01T00:00:00Z", files={})


def test_a_record_is_never_overwritten(tmp_path):
    write_record(tmp_path / "closed.json", CLOSED)
    with pytest.raises(RecordError, match="already written"):
        write_record(tmp_path / "closed.json", Closed(exit_code=1, closed_at="2026-01-02T00:00:00Z", files={}))
    assert read_record(tmp_path / "closed.json", Closed) == CLOSED
    assert [path.name for path in tmp_path.iterdir()] == ["closed.json"]


@case_for_each(
    ({"surprise": 1}, "surprise"),
    ({"exit_code": None}, "exit_code"),
    ({"exit_code": "0"}, "exit_code"),
    ({"schema_version": 2}, "schema_version"),
    ({"closed_at": 7}, "closed_at"),
)
def test_a_damaged_record_is_refused_with_the_field(tmp_path, damage, says):
    path = tmp_path / "closed.json"
    path.write_text(json.dumps(CLOSED.model_dump(mode="json") | damage))
    with pytest.raises(RecordError, match=says) as error:
        read_record(path, Closed)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_a_missing_field_a_cut_off_file_and_no_file_are_refused(tmp_path):
    path = tmp_path / "closed.json"
    with pytest.raises(RecordError, match="cannot be read"):
        read_record(path, Closed)
    path.write_text('{"schema_version": 1, "exit_code": 0}')
    with pytest.raises(RecordError, match="closed_at"):
        read_record(path, Closed)
    path.write_text('{"schema_version": 1, "exi')
    with pytest.raises(RecordError, match="not a valid Closed"):
        read_record(path, Closed)


def test_fail_outranks_incomplete_and_nothing_is_incomplete():
    assert worst([Outcome.PASS, Outcome.FAIL, Outcome.INCOMPLETE]) is Outcome.FAIL
    assert worst([Outcome.PASS, Outcome.INCOMPLETE, Outcome.WARN]) is Outcome.INCOMPLETE
    assert worst([]) is Outcome.INCOMPLETE


def test_exit_codes_are_0_pass_1_fail_2_cannot_tell():
    codes = {outcome.value: outcome.exit_code for outcome in Outcome}
    assert list(codes.items()) == [("pass", 0), ("no-limit", 0), ("warn", 0), ("incomplete", 2), ("fail", 1)]


def test_runs_that_were_never_closed_and_those_of_a_preflight_are_no_history(tmp_path):
    results = tmp_path / "validation/results"
    for name, is_closed in (("a", True), ("open", False), ("look-1", True)):
        (results / "discovery" / name).mkdir(parents=True)
        (results / "discovery" / name / runs.RUN).write_text("{}")
        if is_closed:
            (results / "discovery" / name / runs.CLOSED).write_text("{}")
    (tmp_path / runs.PREFLIGHTS / "look").mkdir(parents=True)
    assert [run.name for run in run_folders.every_run(tmp_path)] == ["a"]
