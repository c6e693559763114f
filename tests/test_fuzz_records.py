"""Records, profiles, node lists and words of Slurm with anything in them: read, or refused in one line by name."""

import json
import string
from pathlib import Path

import pytest
import yaml
from advised import advice
from bringup.drill import result
from bringup.kernel import records
from bringup.kernel.errors import FileError, RecordError, RunError, UsageError
from bringup.kernel.facts import hostlist
from bringup.kernel.plan import profile as profiles
from bringup.kernel.records import Closed, Outcome, Record, as_json, read_record
from bringup.kernel.results import REPOSITORY
from bringup.readers.known import pending
from bringup.report import collection
from bringup.report import text as report
from bringup.report.campaigns import DrillReport, Playbook, Step
from bringup.training.records import Checkpoint, CheckpointFile
from damage_for_tests import JSON, MANY, NASTY, damaged, everywhere, inside, places
from factory import a_drill_report, a_drill_result, a_verdict
from hypothesis import given
from hypothesis import strategies as st
from loops import for_each

PASSED = {"outcome": Outcome.PASS, "blocks": False}
PLAYBOOK = Playbook(
    name="p",
    nodes=["n0"],
    profile="local-cpu",
    planned=["discovery", "smoke"],
    left_out=["too few nodes"],
    steps=[Step(phase="discovery", folder="validation/results/discovery/gone", seconds=1, **PASSED)],
)
DRILLS = a_drill_report(a_drill_result(false_alarms=["a"]))
CHECKPOINT = Checkpoint(
    run="x",
    step=6,
    world_size=2,
    strategy="fsdp",
    recipe={"seed": 1},
    fingerprints={"w": 7},
    files=[CheckpointFile(name="__0_0.distcp", rank=0, bytes=10)],
    loss=[2.5],
    grad_norm=[1.0],
)
VERDICTS = records.Verdicts(
    phase="smoke",
    run="x",
    profile="generic",
    outcome=Outcome.FAIL,
    not_applicable=[],
    notes=["n"],
    verdicts=[a_verdict()],
    signs=[records.Sign(signature="s", evidence="raw/launch.log:1", line="l", count=1)],
)
OBSERVED = records.Observation(quantity="q", subject="n0", value=["a"], unit="text", evidence="e")
OBSERVATIONS = records.Observations(problems=["p"], observations=[OBSERVED])
CLOSED = Closed(exit_code=0, closed_at="2026-01-01T00:00:00Z", files={"raw/a": "b"})
RECORDS = {
    type(record).__name__: record
    for record in (PLAYBOOK, DRILLS, CHECKPOINT, VERDICTS, OBSERVATIONS, CLOSED, records.Continued(run="x"))
}


def used(folder: Path, record: Record) -> None:
    """What is done with a record that could be read."""
    if isinstance(record, Playbook):
        try:
            collection.gather([folder])
        except RunError as error:  # its runs are not there
            assert str(error).startswith(f"{folder}: none of its")
            assert "\n" not in str(error)
    elif isinstance(record, DrillReport):
        result.markdown(record)
        result.totals(record)


def read_or_refused(path: Path, kind: type[Record]) -> None:
    try:
        record = read_record(path, kind)
    except RecordError as error:
        assert str(path) in str(error)
        assert "\n" not in str(error)
        return
    assert kind.model_validate_json(record.model_dump_json()) == record
    used(path.parent, record)


def placed(folder: Path, name: str) -> tuple[Path, Record]:
    return folder / ("playbook.json" if name == "Playbook" else "record.json"), RECORDS.get(name) or advice()


@pytest.mark.parametrize("name", [*RECORDS, "Advice"])
@MANY
@given(data=st.data())
def test_any_record_with_any_value_in_any_place_is_read_or_refused_by_name(tmp_path, name, data):
    path, record = placed(tmp_path, name)
    path.write_text(data.draw(damaged(json.dumps(as_json(record)))), errors="surrogatepass")
    read_or_refused(path, type(record))


@for_each(*RECORDS, "Advice")
@for_each(*NASTY, ids=lambda value: repr(value)[:14])
def test_no_value_that_nobody_wrote_makes_the_reader_of_a_record_raise(tmp_path, name, value):
    path, record = placed(tmp_path, name)
    for text in everywhere(json.dumps(as_json(record)), value):
        path.write_text(text)
        read_or_refused(path, type(record))


def test_a_record_whose_key_holds_a_line_feed_is_refused_in_one_line(tmp_path):
    (tmp_path / "closed.json").write_text(CLOSED.model_dump_json().replace('"raw/a":"b"', '"raw/a\\n":null'))
    read_or_refused(tmp_path / "closed.json", Closed)


HOST = st.text(string.ascii_lowercase, min_size=1, max_size=4)


@MANY
@given(text=st.text(string.ascii_lowercase + string.digits + "[],-. ", max_size=30))
def test_a_node_list_is_expanded_or_refused_and_never_long(text):
    try:
        names = hostlist.expand(text)
    except UsageError as error:
        assert "\n" not in str(error)
        return
    assert 0 < len(names) == len(set(names)) <= hostlist.MAX_NODES


@MANY
@given(prefix=HOST, first=st.integers(0, 500), count=st.integers(1, 40))
def test_a_range_names_each_node_once_in_order(prefix, first, count):
    assert hostlist.expand(f"{prefix}[{first}-{first + count - 1}]") == [f"{prefix}{first + n}" for n in range(count)]


def test_a_profile_whose_key_holds_a_line_feed_is_refused_in_one_line():
    with pytest.raises(FileError) as refused:
        profiles.parse('schema_version: 1\nname: x\ndescription: x\nexpect: {"\\n": null}\n', "here.yaml")
    assert "\n" not in str(refused.value)


@MANY
@given(data=st.data())
def test_a_profile_with_any_value_in_any_place_is_read_or_refused_in_one_line(data):
    content = yaml.safe_load((REPOSITORY / "validation/profiles/local-cpu.yaml").read_text())
    *parents, last = data.draw(st.sampled_from(places(content)))
    inside(content, parents)[last] = data.draw(JSON)
    try:
        profiles.parse(yaml.safe_dump(content), "here.yaml")
    except FileError as error:
        assert str(error).startswith("here.yaml")
        assert "\n" not in str(error)


@MANY
@given(reason=st.text(max_size=40))
def test_any_reason_of_slurm_is_one_line(reason):
    assert "\n" not in report.plain(pending.explain(reason, {}))


@MANY
@given(text=st.text(max_size=80))
def test_text_from_a_cluster_reaches_a_report_without_markup_or_control_characters(text):
    shown = report.escaped(text)
    assert not set(shown) & set("<>\x1b\n\r\x00")
    assert "|" not in shown.replace("\\|", "")
