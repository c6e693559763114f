"""The schemas of the records are JSON Schemas, and a reader that is not ours agrees with ours about files."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from bringup import results as runs
from bringup import schemas as made
from bringup.cli import main
from bringup.errors import FileError, RecordError
from bringup.plan.catalogue import GATES
from bringup.plan.profile import PROFILES, dump, load, names, parse
from bringup.records import TrainMetrics, read_record
from loops import for_each
from runs_for_tests import discovery
from schema_reader import validate

FIXTURES = Path(__file__).parent / "fixtures/training"
TRAININGS = sorted(path for path in FIXTURES.iterdir() if path.is_dir())


def test_every_schema_is_one_and_is_printed_by_its_name(capsys):
    schemas = made.schemas()
    assert {"run_args", "metrics", "run", "verdicts", "profile", "site"} <= schemas.keys()
    for name, schema in schemas.items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert main(["schema", name]) == 0
        assert json.loads(capsys.readouterr().out) == schema
    assert main(["schema", "verdict"]) == 2
    assert "there is no schema of 'verdict'; there are advice, " in capsys.readouterr().err


@for_each("folder", TRAININGS, ids=lambda path: path.name)
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


@for_each(
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
        ("steps_done", ...),  # it is gone
    ],
)
def test_what_our_reader_refuses_the_schema_refuses(tmp_path, field, value):
    data: dict[str, Any] = json.loads((TRAININGS[0] / runs.METRICS).read_text()) | {field: value}
    file = tmp_path / runs.METRICS
    file.write_text(json.dumps({name: known for name, known in data.items() if known is not ...}))
    with pytest.raises(RecordError):
        read_record(file, TrainMetrics)
    with pytest.raises(jsonschema.ValidationError):
        validate(file)


# --- profiles

PROFILE = jsonschema.Draft202012Validator(made.profile_schema())


def as_json(text: str) -> Any:
    """JSON has no keys that are numbers."""
    return json.loads(json.dumps(yaml.safe_load(text)))


@for_each("path", [PROFILES / f"{name}.yaml" for name in names()], ids=lambda path: path.stem)
def test_every_profile_that_is_shipped_keeps_to_the_schema_before_and_after_it_is_resolved(path):
    PROFILE.validate(as_json(path.read_text()))
    PROFILE.validate(as_json(dump(load(path.stem))))


GOOD = """
schema_version: 1
name: here
description: a test
expect:
  nccl.all_reduce.busbw: {at_least: 380, at: 8GiB, unit: GB/s, source: "a test"}
"""


@for_each(
    ("was", "instead"),
    [
        ("at_least: 380", "at_lest: 380"),
        ("at_least: 380", "at_least: 1e5"),
        ("at_least: 380", "at_least: {share_of_celing: 0.9}"),
        ("at_least: 380", "at_least: {share_of_ceiling: 90}"),
        ("at_least: 380", "at_most: 380"),
        ("at_least: 380", "at_least: 380, one_of: [a]"),
        ("at_least: 380, ", ""),
        ("unit: GB/s", "unit: Gb/s"),
        ('source: "a test"', "at: 8GiB"),
        ("nccl.all_reduce.busbw", "nccl.all_reduce.busbandwidth"),
        ("nccl.all_reduce.busbw", "nccl.step"),
        ("description: a test", ""),
        ("schema_version: 1", "schema_version: 9"),
        ("description: a test", "descripton: a test"),
        ("description: a test", "description: a test\nnot_applicable: [{gate: nccl.nick, reason: a test}]"),
        ("description: a test", "description: a test\nmachine: {gpus: {value: 8, source: a test}}"),
    ],
)
def test_what_our_reader_of_profiles_refuses_the_schema_refuses(was, instead):
    PROFILE.validate(as_json(GOOD))
    assert parse(GOOD, "here.yaml", GATES).expect
    text = GOOD.replace(was, instead)
    assert text != GOOD
    with pytest.raises(FileError):
        parse(text, "here.yaml", GATES)
    with pytest.raises(jsonschema.ValidationError):
        PROFILE.validate(as_json(text))
