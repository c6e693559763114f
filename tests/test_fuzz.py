"""Whatever arrives in a results folder: nothing raises that is not a typed error, and what is missing never becomes a pass.

Random, but the same every time (derandomize): a failure here is a finding, not weather.
"""

from __future__ import annotations

import json
import shutil
import string
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from bringup import hostlist, judge, pending, report, runs, signs
from bringup import profile as profiles
from bringup.parsers import read_run
from bringup.phases import REPOSITORY
from bringup.profile import ProfileError
from bringup.records import Outcome, RecordError, Run, RunArgs, TrainMetrics, read_record
from bringup.runs import RunError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runs_for_tests import FIXTURES, discovery
from test_training_records import run_of

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
}
CONTENT = {name: (FIXTURES / seed).read_text() if seed else '{"schema_version": 1, "exit_code": 0, "closed_at": "x"}'
           for name, seed in SEEDS.items()}


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """The text cut off, with lines lost, doubled or swapped, or with something else written into it."""
    lines = text.splitlines(keepends=True)
    where = draw(st.integers(0, max(0, len(text) - 1)))
    kind = draw(st.sampled_from(("cut", "lost", "doubled", "swapped", "written", "other")))
    if kind == "cut":
        return text[:where]
    if kind == "written":
        return text[:where] + draw(st.text(max_size=30)) + text[where + draw(st.integers(0, 40)):]
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
    path = finished / name
    before = path.read_bytes() if path.exists() else None
    path.parent.mkdir(exist_ok=True)
    path.write_text(data.draw(damaged(CONTENT[name])), errors="surrogatepass")
    try:
        verdicts = judge.judge_folder(finished)[1]
        run = runs.load(finished)
        assert "\x1b" not in report.screen(finished, run, verdicts)
        assert "<script" not in report.markdown(run, verdicts)
        signs.in_run(finished, run)
    finally:
        path.unlink() if before is None else path.write_bytes(before)


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


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
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


@pytest.mark.parametrize(("file", "kind"), [("run.json", Run), ("run_args.json", RunArgs), ("metrics.json", TrainMetrics)])
@MANY
@given(data=st.data())
def test_a_record_with_any_value_in_any_place_is_read_or_refused_by_name(trained, file, kind, data):
    path = trained / file
    whole = path.read_text()
    record = json.loads(whole)
    *parents, last = data.draw(st.sampled_from(places(record)))
    target = record
    for step in parents:
        target = target[step]
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
    target = content
    for step in parents:
        target = target[step]
    target[last] = data.draw(JSON)
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
