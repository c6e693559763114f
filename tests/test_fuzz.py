"""Whatever arrives in a results folder: nothing raises that is not a typed error, and what is missing never becomes a pass.

Random, but the same every time (derandomize): a failure here is a finding, not weather.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import string
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from bringup import collection, hostlist, judge, pending, report, runs, signs
from bringup import profile as profiles
from bringup.drills import result
from bringup.parsers import facts, read_run, topology
from bringup.parsers.result import Parsed
from bringup.phases import REPOSITORY
from bringup.profile import ProfileError
from bringup.records import (
    Checkpoint,
    CheckpointFile,
    Closed,
    Continued,
    DrillReport,
    HealthyRound,
    Observation,
    Observations,
    Outcome,
    Playbook,
    Record,
    RecordError,
    Run,
    RunArgs,
    Sign,
    Step,
    TrainMetrics,
    Verdicts,
    as_json,
    read_record,
)
from bringup.runs import RunError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runs_for_tests import FIXTURES, discovery
from test_advise import advice
from test_discovery import LOG as KERNEL_LOG
from test_discovery_gpus import SMI
from test_drill_campaign import report_of, verdict
from test_drill_campaign import told as drill_told
from test_training_failures import HUNG, WAITING, ended, stalled
from test_training_records import rank_said, run_of

sys.path.append(str(Path(__file__).resolve().parents[1] / "infrastructure-validation/probes"))
import fio
import kernel_log
import smi
from facts import Facts

LOCAL_PROFILE = REPOSITORY / "validation/profiles/local-cpu.yaml"
FEW = settings(max_examples=40, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=200)

# a file of a run's folder -> real output that such a file held
SEEDS = {
    "raw/inventory.jsonl": "inventory-two-nodes.jsonl", "raw/clock.jsonl": "clock-two-nodes.jsonl",
    "raw/binding.jsonl": "binding.jsonl",
    "raw/monitor.csv": "monitor.csv", "raw/scontrol-node.txt": "slurm/nodes-six-states.txt",
    "raw/scontrol-config.txt": "slurm/config.txt", "raw/mpi-list.txt": "slurm/mpi-list.txt", "raw/ping.txt": "slurm/ping.txt",
    "raw/job-memory.txt": "slurm/job-out-of-memory.txt", "raw/job-exit-code.txt": "slurm/job-exit-code.txt",
    "raw/bad-exit.txt": "slurm/rank-killed.txt", "raw/requeue.txt": "slurm/job-failed.txt",
    "raw/launch.log": "slurm/rank-killed.txt", "raw/inventory.err": "slurm/node-off-launch.txt",
    "raw/all_reduce_perf-2.json": "nccl/tests-healthy.json", "raw/all_reduce_perf-1.txt": "nccl/tests-healthy.txt",
    "raw/nccl-2/n0.log": "nccl/log-ib-gdr.log", "closed.json": None, "raw/all_reduce-2.rc": None,
    "raw/nvidia-smi-topo-n0.txt": "nvidia-smi/topo-h100-8.txt", "raw/pairs-1-1.jsonl": "pairs.jsonl",
    "raw/coherence-see.jsonl": "coherence-see.jsonl", "raw/compute.jsonl": "compute.jsonl",
}
FIO = (FIXTURES / "fio/write.json").read_text()
ERROR_FILE = "raw/torchrun/none_x/attempt_0/3/error.json"
CONTENT = {name: (FIXTURES / seed).read_text() if seed else '{"schema_version": 1, "exit_code": 0, "closed_at": "x"}'
           for name, seed in SEEDS.items()}


# what is valid JSON and no value that anybody thought of: no path, no digit of ours, no number that fits a float or a date
NASTY = ["\x00", "../..", "x" * 5000, "²KiB", "nccl.all_reduce.busbw@²KiB", "**x", -1, 10**17, 10**400]
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(NASTY),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
                    max_leaves=6)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    found = [path] if path else []
    if isinstance(value, dict):
        found += [one for key, inner in value.items() for one in places(inner, (*path, key))]
    elif isinstance(value, list):
        found += [one for index, inner in enumerate(value[:3]) for one in places(inner, (*path, index))]
    return found


@st.composite
def damaged_json(draw: st.DrawFn, text: str) -> str:
    """A file that is one JSON value, or a line of one that has a value on each: whole, and with something else in one place."""
    begun = text.index("{")
    try:
        before, after, record = text[:begun], "", json.loads(text[begun:])
    except ValueError:
        lines = text.splitlines(keepends=True)
        number = draw(st.sampled_from([number for number, line in enumerate(lines) if "{" in line]))
        label, brace, rest = lines[number].partition("{")
        before, after, record = "".join(lines[:number]) + label, "".join(["\n", *lines[number + 1:]]), json.loads(brace + rest)
    *parents, last = draw(st.sampled_from(places(record)))
    inside(record, parents)[last] = draw(JSON)
    return f"{before}{json.dumps(record)}{after}"


def inside(record: Any, path: Sequence[Any]) -> Any:
    for step in path:
        record = record[step]
    return record


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """The text cut off, with lines lost, doubled or swapped, two words swapped, or with something else written into it."""
    lines = text.splitlines(keepends=True)
    where = draw(st.integers(0, max(0, len(text) - 1)))
    kind = draw(st.sampled_from(("cut", "lost", "doubled", "swapped", "words", "written", "other",
                                  *(["json"] * 4 if "{" in text else []))))
    if kind == "json":
        return draw(damaged_json(text))
    if kind == "cut":
        return text[:where]
    if kind == "written":
        return text[:where] + draw(st.text(max_size=30)) + text[where + draw(st.integers(0, 40)):]
    if kind == "words":
        words = re.split(r"(\s+)", text)
        one, two = (2 * draw(st.integers(0, len(words) // 2)) for _ in range(2))
        words[one], words[two] = words[two], words[one]
        return "".join(words)
    if kind == "other" or not lines:
        return draw(st.text(max_size=300))
    one, two = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
    if kind == "lost":
        return "".join(lines[:min(one, two)] + lines[max(one, two):])
    if kind == "doubled":
        return "".join([*lines, lines[one]])
    lines[one], lines[two] = lines[two], lines[one]
    return "".join(lines)


@pytest.fixture(scope="module")
def finished() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as results, pytest.MonkeyPatch.context() as patch:
        folder = discovery(Path(results), patch)
        yield folder


@pytest.mark.parametrize("name", SEEDS)
@FEW
@given(data=st.data())
def test_no_file_makes_the_judge_raise(finished, name, data):
    told(finished, name, data.draw(damaged(CONTENT[name])))


def told(folder: Path, name: str, text: str) -> Outcome:
    """What is said of the run with this in that file; nothing raises."""
    path = folder / name
    before = path.read_bytes() if path.exists() else None
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, errors="surrogatepass")
    try:
        verdicts = judge.judge_folder(folder)[1]
        run = runs.load(folder)
        assert "\x1b" not in report.screen(folder, run, verdicts)
        assert "<script" not in report.markdown(run, verdicts)
        signs.in_run(folder, run)
        return verdicts.outcome
    finally:
        path.unlink() if before is None else path.write_bytes(before)


@pytest.fixture(scope="module")
def unfinished() -> Iterator[Path]:
    """Its script did not come to its end, and `bringup run` has asked Slurm what became of the job."""
    with tempfile.TemporaryDirectory() as results, pytest.MonkeyPatch.context() as patch:
        yield discovery(Path(results), patch, close=False)


@pytest.mark.parametrize("answer", ["job-failed.txt", "job-out-of-memory.txt"])
@FEW
@given(data=st.data())
def test_whatever_slurm_says_of_a_job_that_was_not_closed_it_does_not_pass(unfinished, answer, data):
    text = (FIXTURES / "slurm" / answer).read_text()
    assert told(unfinished, runs.JOB_AFTER, data.draw(damaged(text))) is Outcome.INCOMPLETE


@pytest.fixture(scope="module")
def broken() -> Iterator[Path]:
    """A training in which one rank raised, and two left only their stacks."""
    with tempfile.TemporaryDirectory() as results, pytest.MonkeyPatch.context() as patch:
        patch.delenv("SLURM_RESTART_COUNT", raising=False)
        folder = ended(Path(results))
        for rank in (1, 2):
            (folder / f"raw/rank{rank}.jsonl").write_text("")
        stalled(folder, 1, WAITING, 74)
        stalled(folder, 2, HUNG, 74)  # not behind: who raised is the first
        (folder / ERROR_FILE).parent.mkdir(parents=True)
        shutil.copyfile(FIXTURES / "training/error.json", folder / ERROR_FILE)
        rank_said(folder, "n1", 3, error_file=ERROR_FILE, state="raised", error="ValueError: step 4: the row is not there")
        (folder / "raw/launch.log").write_text((FIXTURES / "slurm/rank-killed.txt").read_text())
        yield folder


@pytest.mark.parametrize("name", ["raw/stacks/rank2.json", "raw/stacks/rank2.txt", "raw/rank3.jsonl", "raw/launch.log", ERROR_FILE])
@FEW
@given(data=st.data())
def test_whatever_a_rank_left_that_did_not_finish_its_training_does_not_pass(broken, name, data):
    text = data.draw(damaged((broken / name).read_text()))
    assert told(broken, name, text) not in (Outcome.PASS, Outcome.WARN)


def not_passed(folder: Path) -> set[tuple[str, str]]:
    return {(v.gate, v.subject) for v in judge.judge_folder(folder)[1].verdicts if v.outcome is not Outcome.PASS}


@pytest.mark.parametrize("name", ["raw/inventory.jsonl", "raw/clock.jsonl", "raw/scontrol-node.txt", "raw/scontrol-config.txt",
                                  "raw/mpi-list.txt"])
@FEW
@given(data=st.data())
def test_lines_that_are_lost_never_turn_anything_into_a_pass(finished, name, data):
    """The run is one that failed: n1 differs from n0 in what must be equal, and lacks a GPU."""
    path = finished / name
    facts = finished / "raw/inventory.jsonl"
    before, healthy = path.read_bytes(), facts.read_bytes()
    faulty = healthy
    for quantity, value, other in (("gpu.count", b"2", b"1"), ("kernel", b'"6', b'"5')):
        said = f'"n1", "quantity": "discovery.{quantity}", "value": '.encode()
        assert said + value in faulty
        faulty = faulty.replace(said + value, said + other)
    facts.write_bytes(faulty)
    try:
        bad = not_passed(finished)
        lines = path.read_bytes().splitlines(keepends=True)
        kept = data.draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
        path.write_bytes(b"".join(line for line, keep in zip(lines, kept, strict=True) if keep))
        assert bad <= not_passed(finished)
    finally:
        path.write_bytes(before)
        facts.write_bytes(healthy)


@pytest.fixture(scope="module")
def trained() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as results, pytest.MonkeyPatch.context() as patch:
        patch.delenv("SLURM_RESTART_COUNT", raising=False)
        yield run_of("run_hsdp_2node", Path(results))


@pytest.mark.parametrize(("file", "kind"), [("run.json", Run), ("run_args.json", RunArgs), ("metrics.json", TrainMetrics)])
@MANY
@given(data=st.data())
def test_a_record_with_any_value_in_any_place_is_read_or_refused_by_name(trained, file, kind, data):
    path = trained / file
    whole = path.read_text()
    record = json.loads(whole)
    *parents, last = data.draw(st.sampled_from(places(record)))
    target = inside(record, parents)
    if data.draw(st.booleans()):
        target[last] = data.draw(JSON)
    elif isinstance(target, dict):
        del target[last]
    path.write_text(json.dumps(record), errors="surrogatepass")
    try:
        try:
            again = read_record(path, kind)
            assert kind.model_validate_json(again.model_dump_json()) == again
        except RecordError as error:
            assert str(path) in str(error)
            assert "\n" not in str(error)
        try:
            judge.judge_folder(trained)
        except (RunError, ProfileError, RecordError) as error:
            assert str(trained) in str(error)
    finally:
        path.write_text(whole)


@pytest.mark.parametrize("file", ["metrics.json", "run_args.json", "raw/rank2.jsonl", "raw/reference.metrics.json"])
@FEW
@given(share=st.floats(0, 0.999))
def test_a_training_file_cut_off_anywhere_makes_nothing_pass_that_had_not(trained, file, share):
    path = trained / file
    whole = path.read_bytes()
    path.write_bytes(whole[:int(len(whole) * share)])
    try:
        assert not_passed(trained)
    finally:
        path.write_bytes(whole)


def everywhere(text: str, value: object) -> Iterator[str]:
    """A text of JSON, whole or a value on each line, with this value in each place in turn."""
    whole = [text] if text.count("\n") <= 1 else text.splitlines()
    for number, line in enumerate(whole):
        for *parents, last in places(json.loads(line)):
            record = json.loads(line)
            inside(record, parents)[last] = value
            yield "\n".join([*whole[:number], json.dumps(record), *whole[number + 1:], ""])


OF_A_RANK = ("raw/stacks/rank2.json", "raw/rank3.jsonl", ERROR_FILE)


@pytest.mark.parametrize("name", OF_A_RANK)
@pytest.mark.parametrize("value", NASTY, ids=lambda value: repr(value)[:14])
def test_no_value_that_a_rank_could_not_have_written_makes_the_judge_raise(broken, name, value):
    for text in everywhere((broken / name).read_text(), value):
        assert told(broken, name, text) not in (Outcome.PASS, Outcome.WARN)


@pytest.mark.parametrize("word", ["", "?", "SYS", "GPU0", "NIC0", "NV18", "X"])
def test_no_word_in_any_cell_of_the_topology_makes_the_judge_raise(word):
    lines = CONTENT["raw/nvidia-smi-topo-n0.txt"].splitlines()
    for number, cells in enumerate(line.split("\t") for line in lines):
        for cell in range(len(cells)):
            changed = "\t".join([*cells[:cell], word, *cells[cell + 1:]])
            topology.parse("\n".join([*lines[:number], changed, *lines[number + 1:]]), "raw/x.txt", "n0")


# ---- records that are no part of a run's evidence

PLAYBOOK = Playbook(name="p", nodes=["n0"], profile="local-cpu", planned=["discovery", "smoke"], left_out=["too few nodes"], steps=[
    Step(phase="discovery", folder="validation/results/discovery/gone", outcome=Outcome.PASS, blocks=False, seconds=1)])
DRILLS = report_of(drill_told(false_alarms=["a"]), healthy_planned=1, healthy=[
    HealthyRound(number=1, verdicts=3, false_alarms=[], seconds=1.0, evidence=["validation/results/smoke/x"])])
CHECKPOINT = Checkpoint(run="x", step=6, world_size=2, strategy="fsdp", recipe={"seed": 1}, fingerprints={"w": 7},
                        files=[CheckpointFile(name="__0_0.distcp", rank=0, bytes=10, crc32=1)], scheduler={"last_epoch": 6},
                        loss=[2.5], grad_norm=[1.0], written_at="now")
VERDICTS = Verdicts(phase="smoke", run="x", profile="generic", outcome=Outcome.FAIL, not_applicable=[], notes=["n"], verdicts=[
    verdict()], signs=[Sign(signature="s", evidence="raw/launch.log:1", line="l", count=1)])
OBSERVATIONS = Observations(problems=["p"], observations=[
    Observation(quantity="q", subject="n0", value=["a"], unit="text", evidence="e")])
CLOSED = Closed(exit_code=0, closed_at="now", files={"raw/a": "b"})
RECORDS = {type(record).__name__: record for record in (
    PLAYBOOK, DRILLS, CHECKPOINT, VERDICTS, OBSERVATIONS, CLOSED, Continued(run="x"))}


def used(folder: Path, record: Record) -> None:
    """What is done with a record that could be read."""
    if isinstance(record, Playbook):
        collection.gather([folder])
    elif isinstance(record, DrillReport):
        result.markdown(record)
        result.page(record)
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


@pytest.mark.parametrize("name", [*RECORDS, "Advice"])
@MANY
@given(data=st.data())
def test_any_record_with_any_value_in_any_place_is_read_or_refused_by_name(tmp_path, name, data):
    record = RECORDS[name] if name in RECORDS else advice()
    path = tmp_path / ("playbook.json" if name == "Playbook" else "record.json")
    path.write_text(data.draw(damaged(json.dumps(as_json(record)))), errors="surrogatepass")
    read_or_refused(path, type(record))


@pytest.mark.parametrize("name", [*RECORDS, "Advice"])
@pytest.mark.parametrize("value", NASTY, ids=lambda value: repr(value)[:14])
def test_no_value_that_nobody_wrote_makes_the_reader_of_a_record_raise(tmp_path, name, value):
    record = RECORDS[name] if name in RECORDS else advice()
    path = tmp_path / ("playbook.json" if name == "Playbook" else "record.json")
    for text in everywhere(json.dumps(as_json(record)), value):
        path.write_text(text)
        read_or_refused(path, type(record))


def test_a_record_whose_key_holds_a_line_feed_is_refused_in_one_line(tmp_path):
    (tmp_path / "closed.json").write_text(CLOSED.model_dump_json().replace('"raw/a":"b"', '"raw/a\\n":null'))
    read_or_refused(tmp_path / "closed.json", Closed)


# ---- what probes read on a node

def facts_of(look: Callable[[Facts], object]) -> Parsed:
    """What a probe writes is whole and can be read, whatever it was told."""
    stream = io.StringIO()
    probe = Facts("x", stream)
    look(probe)
    probe.finish()
    parsed = facts.parse(stream.getvalue(), "raw/x.jsonl")
    assert parsed.problems == []
    return parsed


@pytest.mark.parametrize("query", sorted(SMI["healthy"]))
@FEW
@given(data=st.data())
def test_no_answer_of_nvidia_smi_makes_the_probe_raise_or_write_what_is_no_fact(query, data):
    answers = SMI["healthy"] | {query: data.draw(damaged(SMI["healthy"][query]))}

    def run(command: Sequence[str], **_: object) -> SimpleNamespace:
        words = {"compute-apps": "processes", "remapped": "remapped", "mig": "mig", "fabric": "fabric", "clocks": "slowdown"}
        return SimpleNamespace(stdout=answers[next((name for word, name in words.items() if word in command[1]), "gpu")])

    facts_of(lambda probe: smi.read(probe, lambda _name, _text: None, run))


def in_kernel_log(text: str) -> Parsed:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "kmsg"
        path.write_text(text, errors="surrogatepass")
        patch.setattr(kernel_log, "KMSG", str(path))
        patch.setattr(kernel_log, "JOURNAL", ("false",))
        return facts_of(kernel_log.kernel_log)


@FEW
@given(data=st.data())
def test_no_kernel_log_makes_the_probe_raise_and_none_without_a_record_is_clean(data):
    text = data.draw(damaged(KERNEL_LOG))
    told = {one.quantity: one.value for one in in_kernel_log(text).observations}
    assert told["discovery.kernel_log.xids"] is not None or not text.strip()


@pytest.mark.parametrize("stamp", ["", "-1", "²", "9" * 400, "9" * 5000], ids=len)
def test_no_time_in_the_kernel_log_makes_the_probe_raise(stamp):
    in_kernel_log(f"6,339,{stamp},-;message\n{KERNEL_LOG}")


def figured(text: str) -> None:
    try:
        speed, moved, _ = fio.figures(text, "write")
    except fio.NoFigure as error:
        assert "\n" not in str(error)
    else:
        assert speed > 0
        assert moved >= 0


@MANY
@given(data=st.data())
def test_what_fio_printed_is_a_figure_or_refused_in_one_line(data):
    figured(data.draw(damaged(FIO)))


@pytest.mark.parametrize("value", [*NASTY, float("inf"), float("nan")], ids=lambda value: repr(value)[:14])
def test_no_value_that_fio_never_printed_makes_the_probe_raise(value):
    begun = FIO.index("{\n")
    for *parents, last in places(json.loads(FIO[begun:])):
        if [*parents, last][:2] != ["jobs", 0] or (*parents, last, "")[2] in ("", "write", "error"):
            record = json.loads(FIO[begun:])
            inside(record, parents)[last] = value
            figured(FIO[:begun] + json.dumps(record, indent=1))


HOST = st.text(string.ascii_lowercase, min_size=1, max_size=4)


@MANY
@given(text=st.text(string.ascii_lowercase + string.digits + "[],-. ", max_size=30))
def test_a_node_list_is_expanded_or_refused_and_never_long(text):
    try:
        names = hostlist.expand(text)
    except ValueError as error:
        assert "\n" not in str(error)
        return
    assert 0 < len(names) == len(set(names)) <= hostlist.MAX_NODES


@MANY
@given(prefix=HOST, first=st.integers(0, 500), count=st.integers(1, 40))
def test_a_range_names_each_node_once_in_order(prefix, first, count):
    assert hostlist.expand(f"{prefix}[{first}-{first + count - 1}]") == [f"{prefix}{first + n}" for n in range(count)]


@MANY
@given(data=st.data())
def test_a_profile_with_any_value_in_any_place_is_read_or_refused_in_one_line(data):
    content = yaml.safe_load(LOCAL_PROFILE.read_text())
    *parents, last = data.draw(st.sampled_from(places(content)))
    inside(content, parents)[last] = data.draw(JSON)
    try:
        profiles.parse(yaml.safe_dump(content), "here.yaml")
    except ProfileError as error:
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


def test_the_run_of_these_tests_is_healthy(trained, finished, tmp_path):
    """Otherwise the properties above would say nothing."""
    assert not_passed(trained) == set()
    assert not_passed(finished) == set()
    copy = shutil.copytree(finished, tmp_path / "copy")
    assert read_run(copy, runs.load(copy)).observations
