"""The committed schemas are those of the records, and a reader that is not ours agrees with ours about files."""

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from bringup import generated
from bringup import results as runs
from bringup.cli import main
from bringup.errors import RecordError
from bringup.records import RunArgs, TrainMetrics, read_record
from runs_for_tests import discovery
from schema_reader import validate

FIXTURES = Path(__file__).parent / "fixtures/training"
TRAININGS = sorted(path for path in FIXTURES.iterdir() if path.is_dir())


def test_the_committed_schemas_do_not_lag_behind_the_records():
    committed = {path.name: path.read_text() for path in generated.SCHEMAS.iterdir()}
    assert committed == generated.schemas(), "the records changed: bringup schema, and commit validation/schemas"
    assert {
        "run_args.schema.json",
        "metrics.schema.json",
        "run.schema.json",
        "verdicts.schema.json",
    } <= committed.keys()


@pytest.mark.parametrize("text", generated.schemas().values(), ids=generated.schemas())
def test_every_schema_is_one(text):
    jsonschema.Draft202012Validator.check_schema(json.loads(text))


@pytest.mark.parametrize("folder", TRAININGS, ids=lambda path: path.name)
def test_records_of_real_trainings_are_valid(folder):
    validate(folder / runs.RUN_ARGS)
    validate(folder / runs.METRICS)


def test_every_record_that_a_run_leaves_is_valid(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    assert main(["judge", str(folder)]) == 0
    records = sorted(path.name for path in folder.glob("*.json"))
    assert records == ["closed.json", "observations.json", "run.json", "verdicts.json"]
    for name in records:
        validate(folder / name)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tokens_per_s", "fast"),
        ("tokens_per_s", -1),
        ("world_size", 0),
        ("world_size", 2.5),
        ("loss", [1.0, None]),
        ("schema_version", 2),
        ("no_such_field", 1),
        ("tokens_per_s", None),
    ],
)
def test_what_our_reader_refuses_the_schema_refuses(tmp_path, field, value):
    data: dict[str, Any] = json.loads((TRAININGS[0] / runs.METRICS).read_text()) | {field: value}
    file = tmp_path / runs.METRICS
    file.write_text(json.dumps(data))
    with pytest.raises(RecordError):
        read_record(file, TrainMetrics)
    with pytest.raises(jsonschema.ValidationError):
        validate(file)


def test_a_field_that_is_gone_is_refused_by_both(tmp_path):
    shutil.copytree(TRAININGS[0], tmp_path / "run")
    file = tmp_path / "run" / runs.RUN_ARGS
    data = json.loads(file.read_text())
    del data["seed"]
    file.write_text(json.dumps(data))
    with pytest.raises(RecordError):
        read_record(file, RunArgs)
    with pytest.raises(jsonschema.ValidationError, match="seed"):
        validate(file)


def test_schemas_can_be_written_elsewhere(tmp_path, capsys):
    assert main(["schema", str(tmp_path / "new")]) == 0
    assert (
        len(capsys.readouterr().out.splitlines()) == len(list((tmp_path / "new").iterdir())) == len(generated.kinds())
    )
