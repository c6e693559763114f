"""Checkpoints on one and two gloo ranks: saved state is read back on any rank count; half a checkpoint is refused."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import real_trainings as trainings
import torch
import warm_python
from bringup.kernel.records import read_record, write_record
from bringup.training.records import Checkpoint, TrainMetrics
from factory import a_run
from programs import begun, ran
from real_trainings import NOTHING_ELSE, SOURCE, STEPS, TORCHRUN, UNPROFILED, Finished, ended_well, one_node, two_nodes
from recipe.checkpoint import state
from tiers import first, in_test_all
from transformers import set_seed

pytestmark = pytest.mark.filterwarnings("default")

SINGLE, FSDP, DDP = "train_single_gpu", "train_fsdp_single_node", "train_ddp_single_node"
SMALL = ["--sequence-length", "32", *NOTHING_ELSE]  # and 6 steps


def one_process(folder: Path, *options: str, drill: str = "", under: tuple[str, ...] = ()) -> Finished:
    (folder / "raw").mkdir(parents=True)
    python = sys.executable if under else warm_python.python()
    done = ran(
        [*under, python, str(SOURCE / f"{SINGLE}.py"), *SMALL, *STEPS, "--run-dir", str(folder), *options],
        env=os.environ | {"SLURMD_NODENAME": "n0", "OMP_NUM_THREADS": "1"} | trainings.injected(drill),
        capture_output=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    return Finished(folder, [done.returncode], done.stdout, 0.0)


def two_ranks(folder: Path, entrypoint: str, *options: str, drill: str = "") -> Finished:
    return one_node(folder, entrypoint, *SMALL, *options, drill=drill)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """FSDP on two ranks, uninterrupted, with checkpoints after steps 2, 4 and 6, of which two stay."""
    return ended_well(two_ranks(tmp_path_factory.mktemp("runs") / "saved", FSDP, "--save-steps", "2"))


@pytest.fixture
def copied(tmp_path: Path, saved: Finished) -> Path:
    return Path(shutil.copytree(saved.folder, tmp_path / "earlier"))


def step(folder: Path, number: int) -> Path:
    return folder / "checkpoints" / f"step-{number:08d}"


def trained(metrics: TrainMetrics) -> tuple[Any, ...]:
    return metrics.loss, metrics.grad_norm, metrics.sample_count, metrics.sample_distinct


def test_a_checkpoint_names_all_its_files_and_none_is_left_in_parts(saved):
    kept = sorted(path.name for path in (saved.folder / "checkpoints").iterdir())
    assert kept == [step(Path(), n).name for n in (4, 6)]
    record = read_record(step(saved.folder, 4) / "checkpoint.json", Checkpoint)
    assert (record.step, record.world_size, record.strategy, len(record.loss)) == (4, 2, "fsdp", 4)
    there = {path.name for path in step(saved.folder, 4).iterdir()} - {"checkpoint.json"}
    assert {file.name for file in record.files} == there == {"__0_0.distcp", "__1_0.distcp", ".metadata"}
    times = saved.metrics().checkpoint
    assert times.after_steps == [2, 4, 6]
    assert (times.bytes, times.read_gib_per_s) == (pytest.approx(record.bytes, rel=0.01), None)
    assert times.write_gib_per_s == pytest.approx(times.bytes / 2**30 / times.write_s)
    assert times.checksum_s is not None
    assert times.predicted_bytes == pytest.approx(record.bytes, rel=0.01)


def test_the_same_ranks_continue_bit_for_bit_and_pass_over_a_save_that_was_killed(tmp_path, copied):
    (copied / "checkpoints" / ".step-00000005.part").mkdir()
    run = ended_well(two_ranks(tmp_path / "again", FSDP, "--resume", str(copied)))
    whole = read_record(copied / "metrics.json", TrainMetrics)
    metrics = run.metrics()
    assert trained(metrics) == trained(whole)
    assert metrics.parameter_checksums == whole.parameter_checksums
    assert (metrics.resumed.run, metrics.resumed.step) == ("saved", 4)
    assert metrics.checkpoint.predicted_bytes == pytest.approx(metrics.checkpoint.bytes, rel=0.01)  # of the same ranks
    assert (metrics.checkpoint.differing, metrics.checkpoint.after_steps) == (0, [])
    assert [run.value(rank, "train.checkpoint.resumable") for rank in (0, 1)] == [0, 0]


def test_one_process_continues_what_two_ranks_saved_under_fsdp_and_ddp_continues_that(tmp_path, saved):
    alone = ended_well(one_process(tmp_path / "alone", "--resume", str(saved.folder), "--save-steps", "5"))
    ddp = ended_well(two_ranks(tmp_path / "ddp", DDP, "--resume", str(alone.folder)))
    continued = ddp.metrics().checkpoint
    why = "it was written by other ranks or another strategy"
    assert (continued.predicted_bytes, continued.predicted_reason) == (None, why)
    whole = saved.metrics()
    for run, begins, ranks in ((alone, 4, 2), (ddp, 5, 1)):
        metrics = run.metrics()
        assert metrics.loss == pytest.approx(whole.loss, abs=1e-5)
        assert (metrics.sample_count, metrics.sample_distinct) == (48, 48)
        assert (metrics.resumed.step, metrics.resumed.world_size) == (begins, ranks)
    assert metrics.loss[:4] == whole.loss[:4]


def test_a_cut_checkpoint_is_passed_over_for_the_one_before(tmp_path):
    killed = one_process(tmp_path / "killed", "--save-steps", "2", drill="kill-in-save:0@6")
    cut = step(killed.folder, 4) / "__0_0.distcp"
    cut.write_bytes(cut.read_bytes()[:5000])
    run = ended_well(one_process(tmp_path / "run", "--resume", str(killed.folder)))
    resumed = run.metrics().resumed
    assert resumed.step == 2
    (passed_over,) = resumed.passed_over
    assert passed_over.startswith(f"{cut.parent.name}/{cut.name}: 5000 bytes, ")


def test_more_ranks_continue_and_save_and_are_continued(tmp_path):
    """What rank 1 trained on since then is less than what rank 0 took over: its rows are as many as it says."""
    killed = one_process(tmp_path / "killed", "--save-steps", "2", drill="kill-in-save:0@6")
    shutil.rmtree(step(killed.folder, 4))
    more = ended_well(two_ranks(tmp_path / "more", DDP, "--resume", str(killed.folder), "--save-steps", "3"))
    again = ended_well(two_ranks(tmp_path / "again", DDP, "--resume", str(more.folder)))
    assert again.metrics().resumed.step == 3
    assert trained(again.metrics()) == trained(more.metrics())


def test_one_bit_that_changed_is_refused_with_the_tensor(tmp_path, copied):
    changed_file = step(copied, 4) / "__1_0.distcp"
    content = changed_file.read_bytes()
    at = 2 * len(content) // 3  # inside a tensor
    changed_file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    message = refusal(one_process(tmp_path / "run", "--resume", str(copied)))
    assert f"--resume: 1 of 156 tensors in {step(copied, 4)} are not what was saved, " in message
    assert "remove this folder, and the checkpoint before it is taken" in message


def refusal(run: Finished) -> str:
    assert run.codes == [2], run.output
    lines = [line for line in run.output.splitlines() if "refused:" in line]
    assert len(lines) == 1, run.output
    return lines[0]


def test_when_none_is_whole_it_is_refused_and_the_file_named(tmp_path, copied):
    cut = step(copied, 4) / ".metadata"
    cut.write_bytes(cut.read_bytes()[:100])
    message = refusal(one_process(tmp_path / "run", "--resume", str(copied)))
    assert f"{cut.parent.name}/{cut.name}: 100 bytes, " in message


def test_another_recipe_is_refused_with_the_field(tmp_path, saved):
    message = refusal(one_process(tmp_path / "run", "--resume", str(saved.folder), "--learning-rate", "0.01"))
    assert "is of another training: learning_rate 0.001 there, 0.01 here" in message


def test_a_rank_killed_in_a_save_leaves_the_checkpoint_before_and_a_requeued_job_finds_it(tmp_path, saved):
    first = tmp_path / "job"
    killed = one_process(first, "--save-steps", "2", drill="kill-in-save:0@4")
    assert killed.codes == [-9], killed.output
    assert sorted(path.name for path in (first / "checkpoints").iterdir()) == [".step-00000004.part", "step-00000002"]
    again = tmp_path / "job-r1"
    again.mkdir()
    plan = a_run("run_1gpu", ["n0"], gpus=1).model_copy(update={"name": "job", "continues": "job", "slurm_job_id": "7"})
    write_record(again / "run.json", plan.model_copy(update={"slurm_restart_count": 1}))
    run = ended_well(one_process(again, "--resume", "auto"))
    metrics = run.metrics()
    assert (metrics.resumed.run, metrics.resumed.step) == ("job", 2)
    assert metrics.loss == pytest.approx(saved.metrics().loss, abs=1e-5)


def test_a_stop_file_ends_all_ranks_after_the_same_step_with_a_checkpoint(tmp_path, saved):
    (tmp_path / "stopped").mkdir()
    (tmp_path / "stopped/stop").touch()
    stopped = ended_well(two_ranks(tmp_path / "stopped", FSDP))
    assert not (stopped.folder / "metrics.json").exists()
    states = [stopped.facts(rank)["train.rank.state"] for rank in (0, 1)]
    assert {state["value"] for state in states} == {None}
    assert len({state["why"] for state in states}) == 1
    assert "stopped on request after step 2 of 6, with a checkpoint" in states[0]["why"]
    rest = two_ranks(tmp_path / "rest", FSDP, "--resume", str(stopped.folder))
    assert trained(rest.metrics()) == trained(saved.metrics())


def test_sigterm_to_the_launcher_and_its_ranks_saves(tmp_path):
    """As Slurm sends it to a step: when a job is cancelled or preempted."""
    folder = tmp_path / "told"
    (folder / "raw").mkdir(parents=True)
    command = [*TORCHRUN, "--standalone", "--nproc-per-node", "2", str(SOURCE / f"{DDP}.py"), "--steps", "2000"]
    launcher = begun(
        [*command, "--sequence-length", "8", *NOTHING_ELSE, "--run-dir", str(folder)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "RUN_DIR": str(folder)},
        stderr=subprocess.STDOUT,
    )
    try:
        while not (folder / "raw/progress.jsonl").exists() and launcher.poll() is None:
            time.sleep(0.1)
        ranks = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
        for process in (launcher.pid, *map(int, ranks)):
            os.kill(process, signal.SIGTERM)
        output = launcher.communicate(timeout=120)[0]
    finally:
        launcher.kill()
    run = Finished(folder, [launcher.returncode], output, 0.0)
    assert run.codes == [0], output
    assert len(ranks) == 2
    assert all("stopped on request after step" in run.facts(rank)["train.rank.state"]["why"] for rank in (0, 1))
    assert len([*folder.glob("checkpoints/step-*/checkpoint.json")]) == 1


# each rank adds a line: how many elements it read from the files of a checkpoint
READS_COUNTED = """
import math, pathlib
from torch.distributed.checkpoint import FileSystemReader

read = FileSystemReader.read_data

def read_data(self, plan, planner):
    with (pathlib.Path(__file__).parent / "read").open("a") as stream:
        of_model = [item for item in plan.items if not item.dest_index.fqn.startswith("rank")]
        stream.write(f"{sum(math.prod(item.lengths) for item in of_model)}\\n")
    return read(self, plan, planner)

FileSystemReader.read_data = read_data
"""


@pytest.mark.parametrize("strategy", first(["fsdp", "ddp", "hsdp"]))
def test_a_rehearsal_reads_its_checkpoint_once_for_all_replicas_and_removes_it(tmp_path, monkeypatch, saved, strategy):
    """16 nodes that all read it whole would take longer than they are waited for."""
    short = ("--sequence-length", "32", *UNPROFILED)
    trainings.changed(READS_COUNTED, tmp_path, monkeypatch)
    if strategy == "hsdp":
        run = two_nodes(tmp_path / "run", 2, "train_fsdp_multi_node", "--hsdp", *short)
    else:
        run = one_node(tmp_path / "run", f"train_{strategy}_single_node", *short)
    assert set(run.codes) == {0}, run.output
    elements = [int(line) for line in (tmp_path / "read").read_text().split()]
    assert sum(elements) == pytest.approx(3 * run.metrics().observed.parameters, rel=0.01)  # weights and two moments
    times = run.metrics().checkpoint
    assert (times.differing, times.compared is not None and times.compared > 2 * 150) == (0, True)
    assert list((run.folder / "checkpoints").iterdir()) == []
    for rank in range(len(run.codes)):
        assert run.value(rank, "train.checkpoint.intact") == run.value(rank, "train.checkpoint.resumable") == 0
    if strategy == "fsdp":
        assert trained(run.metrics()) == trained(saved.metrics())


@in_test_all
def test_a_bit_that_does_not_read_back_is_seen_on_the_rank_that_holds_it(tmp_path):
    run = one_node(tmp_path / "run", FSDP, "--sequence-length", "32", *UNPROFILED, drill="flip-checkpoint:1@3")
    assert run.codes == [0], run.output
    assert [run.value(rank, "train.checkpoint.intact") for rank in (0, 1)] == [0, 0]
    assert [run.value(rank, "train.checkpoint.resumable") for rank in (0, 1)] == [0, 1]
    assert "gate_proj" in run.facts(1)["train.checkpoint.resumable"]["why"]


@in_test_all
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small filesystem needs root")
def test_a_full_disk_names_rank_file_and_cause_and_leaves_the_checkpoint_before(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    # room for three checkpoints of 2.8 MB when it begins; when one is there, somebody else takes the rest
    until = f'until [ -e "{small}/run/step-00000002" ]; do sleep 0.01; done'
    another = f'({until}; head -c 16m /dev/zero >"{small}/another") 2>/dev/null & '
    mount = f'mount -t tmpfs -o size=12m tmpfs "{small}"'
    mounted = ("unshare", "-m", "bash", "-c", f'{mount} && {{ {another} }} && exec "$0" "$@"')
    slowly = ("--save-steps", "2", "--steps", "40", "--global-batch", "64", "--sequence-length", "128")
    run = one_process(tmp_path / "run", *slowly, "--checkpoint-dir", str(small), under=mounted)
    assert run.codes == [1], run.output
    message = run.value(0, "train.rank.error")
    part = f"{small}/run/.step-00000004.part"
    assert f"checkpoint of step 4 cannot be written to {part}: rank 0 on n0: No space left on device" in message


@in_test_all
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small filesystem needs root")
def test_a_full_disk_at_the_end_names_the_file_and_leaves_no_half_metrics(tmp_path):
    folder = tmp_path / "run"
    kept = tmp_path / "kept"
    # two pages of 4 KiB are left: one for the rank's facts, one for run_args.json, none for metrics.json
    fill = (
        'mount -t tmpfs -o size=64k tmpfs "$0" && mkdir "$0/raw" && head -c 57344 /dev/zero >"$0/filler"; '
        '"${@:2}"; rc=$?; cp -r "$0/." "$1"; exit $rc'
    )
    run = one_process(folder, under=("unshare", "-m", "bash", "-c", fill, str(folder), str(kept)))
    assert run.codes == [1], run.output
    assert f"OSError: [Errno 28] cannot be written: No space left on device: '{folder}/metrics.json'" in run.output
    assert {path.name for path in kept.iterdir()} == {"raw", "filler", "run_args.json"}


def test_fingerprints_see_one_bit_and_rows_that_changed_places():
    tensor = torch.arange(12.0).reshape(4, 3)
    whole = state.fingerprints_of_all({"a": tensor})["a"]
    bit = tensor.clone()
    bit.view(torch.int32)[2, 1] ^= 1
    assert state.fingerprints_of_all({"a": bit})["a"] != whole
    assert state.fingerprints_of_all({"a": tensor[[1, 0, 2, 3]]})["a"] != whole
    three = {"a": tensor.to(torch.bfloat16), "b": torch.tensor(1.0), "c": torch.empty(0)}
    assert state.fingerprints_of_all(three)["c"] == 0


def test_the_random_state_comes_back():
    before = state.random_state()
    drawn = torch.rand(1).item()
    set_seed(1)
    state.put_random_state(before)
    assert torch.rand(1).item() == drawn
