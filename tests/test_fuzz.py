"""Any damage in a results folder raises typed errors only, and missing evidence never becomes a pass.

The damage is random, but the same every time (derandomize): a failure here can be repeated.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bringup.kernel import judge
from bringup.kernel import results as runs
from bringup.kernel.errors import FileError, RecordError, RunError
from bringup.kernel.facts.observations import of_run
from bringup.kernel.records import Outcome, Run, read_record
from bringup.kernel.run_folder import RunFolder
from bringup.readers import topology
from bringup.readers.known import signs
from bringup.report import document
from bringup.report import view as report
from bringup.training.records import RunArgs, TrainMetrics
from damage_for_tests import FEW, JSON, MANY, NASTY, damaged, everywhere, inside, places
from hypothesis import given
from hypothesis import strategies as st
from loops import case_for_each, for_each
from runs_for_tests import FIXTURES, discovery, reseal
from tiers import first
from trained_runs import HUNG, WAITING, ended, rank_said, run_of, stalled

# a file of a run's folder -> real output that such a file held
SEEDS = {
    "raw/inventory.jsonl": "inventory-two-nodes.jsonl",
    "raw/clock.jsonl": "clock-two-nodes.jsonl",
    "raw/binding.jsonl": "binding.jsonl",
    "raw/monitor.csv": "monitor.csv",
    "raw/scontrol-node.txt": "slurm/nodes-six-states.txt",
    "raw/scontrol-config.txt": "slurm/config.txt",
    "raw/mpi-list.txt": "slurm/mpi-list.txt",
    "raw/ping.txt": "slurm/ping.txt",
    "raw/job-memory.txt": "slurm/job-out-of-memory.txt",
    "raw/job-exit-code.txt": "slurm/job-exit-code.txt",
    "raw/bad-exit.txt": "slurm/rank-killed.txt",
    "raw/requeue.txt": "slurm/job-failed.txt",
    "raw/launch.log": "slurm/rank-killed.txt",
    "raw/inventory.err": "slurm/node-off-launch.txt",
    "raw/all_reduce_perf-2.txt": "nccl/tests-healthy.txt",
    "raw/nccl-2/n0.log": "nccl/log-ib-gdr.log",
    "closed.json": None,
    "raw/all_reduce-2.rc": None,
    "raw/nvidia-smi-topo-n0.txt": "nvidia-smi/topo-h100-8.txt",
    "raw/pairs-1-1.jsonl": "pairs.jsonl",
    "raw/coherence-see.jsonl": "coherence-see.jsonl",
    "raw/compute.jsonl": "compute.jsonl",
}
ERROR_FILE = "raw/torchrun/none_x/attempt_0/3/error.json"
CONTENT = {
    name: (FIXTURES / seed).read_text() if seed else '{"schema_version": 1, "exit_code": 0, "closed_at": "x"}'
    for name, seed in SEEDS.items()
}


def of_module(make: Callable[[Path, pytest.MonkeyPatch], Path]) -> Any:
    """A fixture: the folder of a run, one for all tests here."""

    @pytest.fixture(scope="module")
    def folder() -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as results, pytest.MonkeyPatch.context() as patch:
            patch.delenv("SLURM_RESTART_COUNT", raising=False)
            yield make(Path(results), patch)

    return folder


finished = of_module(discovery)
unfinished = of_module(partial(discovery, close=False))  # `bringup run` has asked Slurm what became of the job
trained = of_module(lambda results, _: run_of("run_hsdp_2node", results))


@pytest.mark.parametrize("name", SEEDS)
@FEW
@given(data=st.data())
def test_no_file_makes_the_judge_raise(finished, name, data):
    outcomes_of(finished, name, data.draw(damaged(CONTENT[name])))


def outcomes_of(folder: Path, name: str, text: str) -> dict[tuple[str, str], Outcome]:
    """What is said of the run with this in that file; nothing raises."""
    path = folder / name
    before = path.read_bytes() if path.exists() else None
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, errors="surrogatepass")
    try:
        judged = judge.judge_folder(folder)
        assert "\x1b" not in report.screen(judged)
        assert "<script" not in document.run(judged)
        signs.in_run(judged.files)
        return {(verdict.gate, verdict.subject): verdict.outcome for verdict in judged.verdicts.verdicts}
    finally:
        path.unlink() if before is None else path.write_bytes(before)


@pytest.mark.parametrize("answer", ["job-failed.txt", "job-out-of-memory.txt"])
@FEW
@given(data=st.data())
def test_whatever_slurm_says_of_a_job_that_was_not_closed_it_is_not_closed(unfinished, answer, data):
    text = (FIXTURES / "slurm" / answer).read_text()
    assert outcomes_of(unfinished, runs.JOB_AFTER, data.draw(damaged(text)))["run.closed", "job"] is Outcome.INCOMPLETE


def a_broken_training(results: Path, _: pytest.MonkeyPatch) -> Path:
    """One rank raised, and two left only their stacks."""
    folder = ended(results)
    for rank in (1, 2):
        (folder / f"raw/rank{rank}.jsonl").write_text("")
    stalled(folder, 1, WAITING, 74)
    stalled(folder, 2, HUNG, 74)  # not behind: who raised is the first
    (folder / ERROR_FILE).parent.mkdir(parents=True)
    shutil.copyfile(FIXTURES / "training/error.json", folder / ERROR_FILE)
    rank_said(folder, "n1", 3, error_file=ERROR_FILE, state="raised", error="ValueError: step 4: the row is not there")
    (folder / "raw/launch.log").write_text((FIXTURES / "slurm/rank-killed.txt").read_text())
    return folder


broken = of_module(a_broken_training)


@case_for_each("raw/stacks/rank2.json", "raw/stacks/rank2.txt", "raw/rank3.jsonl", "raw/launch.log", ERROR_FILE)
@FEW
@given(data=st.data())
def test_whatever_a_rank_left_that_did_not_finish_it_has_not_finished(broken, data, name):
    outcomes = outcomes_of(broken, name, data.draw(damaged((broken / name).read_text())))
    for rank in ("n0/rank1", "n1/rank2", "n1/rank3"):
        assert outcomes["train.rank.finished", rank] is not Outcome.PASS, rank


def not_passed(folder: Path) -> set[tuple[str, str]]:
    return {(v.gate, v.subject) for v in judge.judge_folder(folder).verdicts.verdicts if v.outcome is not Outcome.PASS}


@case_for_each(
    "raw/inventory.jsonl", "raw/clock.jsonl", "raw/scontrol-node.txt", "raw/scontrol-config.txt", "raw/mpi-list.txt"
)
@FEW
@given(data=st.data())
def test_lines_that_are_lost_never_turn_anything_into_a_pass(finished, data, name):
    """The run is one that failed: n1 differs from n0 in what must be equal, and lacks a GPU."""
    path = finished / name
    facts = finished / "raw/inventory.jsonl"
    before, healthy = path.read_bytes(), facts.read_bytes()
    faulty = healthy
    for quantity, value, other in (("gpu.count", b"2", b"1"), ("kernel", b'"6', b'"5')):
        line_part = f'"n1", "quantity": "discovery.{quantity}", "value": '.encode()
        assert line_part + value in faulty
        faulty = faulty.replace(line_part + value, line_part + other)
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


@case_for_each(("run.json", Run), ("run_args.json", RunArgs), ("metrics.json", TrainMetrics))
@MANY
@given(data=st.data())
def test_a_record_with_any_value_in_any_place_is_read_or_refused_by_name(trained, data, file, kind):
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
        except (RunError, FileError, RecordError) as error:
            assert str(trained) in str(error)
    finally:
        path.write_text(whole)


@pytest.mark.parametrize("file", ["metrics.json", "run_args.json", "raw/rank2.jsonl", "raw/reference.metrics.json"])
@FEW
@given(share=st.floats(0, 0.999))
def test_a_training_file_cut_off_anywhere_is_missed(trained, file, share):
    """As if it had been so when the run was closed: not its checksum speaks against it, but what is not in it."""
    path, closed = trained / file, trained / runs.CLOSED
    whole, sealed = path.read_bytes(), closed.read_bytes()
    cut = whole[: int(len(whole) * share)]
    path.write_bytes(cut)
    try:
        missed = not_passed(reseal(trained))
        assert ("run.evidence", "job") not in missed
        assert missed or cut.strip() == whole.strip()
    finally:
        path.write_bytes(whole)
        closed.write_bytes(sealed)


@pytest.mark.parametrize("name", ("raw/stacks/rank2.json", "raw/rank3.jsonl", ERROR_FILE))
@pytest.mark.parametrize("value", first(NASTY), ids=lambda value: repr(value)[:14])
def test_no_value_that_a_rank_could_not_have_written_makes_the_judge_raise_or_a_rank_finish(broken, name, value):
    for text in everywhere((broken / name).read_text(), value):
        outcomes = outcomes_of(broken, name, text)
        for rank in ("n0/rank1", "n1/rank2", "n1/rank3"):
            assert outcomes["train.rank.finished", rank] is not Outcome.PASS, text


@for_each("", "?", "SYS", "GPU0", "NIC0", "NV18", "X")
def test_no_word_in_any_cell_of_the_topology_makes_the_judge_raise(word):
    lines = CONTENT["raw/nvidia-smi-topo-n0.txt"].splitlines()
    for number, cells in enumerate(line.split("\t") for line in lines):
        for cell in range(len(cells)):
            changed = "\t".join([*cells[:cell], word, *cells[cell + 1 :]])
            topology.parse("\n".join([*lines[:number], changed, *lines[number + 1 :]]), "raw/x.txt", "n0")


def test_the_run_of_these_tests_is_healthy(trained, finished, tmp_path):
    """Otherwise the properties above would say nothing."""
    assert not_passed(trained) == set()
    assert not_passed(finished) == set()
    copy = shutil.copytree(finished, tmp_path / "copy")
    assert of_run(RunFolder(copy), None)[0].observations
