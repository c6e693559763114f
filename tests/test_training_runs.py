"""Real trainings on CPU: two torchrun launchers stand for two nodes, told apart by SLURMD_NODENAME as Slurm sets it."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bringup.records import RunArgs, TrainMetrics, read_record

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "training" / "src"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
STEPS = ["--steps", "6"]


@dataclass(frozen=True)
class Finished:
    folder: Path
    codes: list[int]  # per launcher
    output: str
    seconds: float

    def facts(self, rank: int) -> dict[str, Any]:
        lines = (self.folder / "raw" / f"rank{rank}.jsonl").read_text().splitlines()
        return {fact.get("quantity", "end"): fact for fact in map(json.loads, lines)}

    def value(self, rank: int, quantity: str) -> Any:
        return self.facts(rank)[quantity]["value"]

    def metrics(self) -> TrainMetrics:
        return read_record(self.folder / "metrics.json", TrainMetrics)

    def args(self) -> RunArgs:
        return read_record(self.folder / "run_args.json", RunArgs)

    @property
    def ranks_as_ended(self) -> list[str]:
        """Exit codes as torchrun reports them, one per rank that did not end well."""
        return re.findall(r"exitcode  : (-?\d+)", self.output)


def launch(folder: Path, commands: list[list[str]], drill: str = "") -> Finished:
    (folder / "raw").mkdir(parents=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "BRINGUP_DRILL": drill}
    started = time.monotonic()
    launchers = [
        subprocess.Popen(
            [*command, "--run-dir", str(folder), *STEPS], env=environment | {"SLURMD_NODENAME": f"n{node}"}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for node, command in enumerate(commands)
    ]
    try:
        output = "".join(launcher.communicate(timeout=120)[0] for launcher in launchers)
    finally:
        for launcher in launchers:
            launcher.kill()
    return Finished(folder, [launcher.returncode for launcher in launchers], output, time.monotonic() - started)


def one_node(folder: Path, entrypoint: str, *options: str, drill: str = "") -> Finished:
    command = [*TORCHRUN, "--standalone", "--nproc-per-node", "2", str(SOURCE / f"{entrypoint}.py"), *options]
    return launch(folder, [command], drill)


def two_nodes(folder: Path, ranks_per_node: int, entrypoint: str, *options: str, drill: str = "") -> Finished:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    return launch(folder, [
        [*TORCHRUN, "--nnodes", "2", "--node-rank", node, "--nproc-per-node", str(ranks_per_node), "--master-addr",
         "127.0.0.1", "--master-port", port, str(SOURCE / f"{entrypoint}.py"), *options]
        for node in ("0", "1")], drill)


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return launch(tmp_path_factory.mktemp("runs") / "single", [[sys.executable, str(SOURCE / "train_single_gpu.py")]])


def require_same_training(run: Finished, single: Finished) -> None:
    """The loss and gradient norm of every step, and the rows, are those of one process; the records are valid."""
    assert set(run.codes) == {0}, run.output
    ours, reference = run.metrics(), single.metrics()
    assert ours.loss == pytest.approx(reference.loss, abs=1e-5)
    assert ours.grad_norm == pytest.approx(reference.grad_norm, rel=1e-5)
    assert (ours.sample_count, ours.sample_distinct) == (6 * 8, 6 * 8)
    assert ours.tokens_per_step == reference.tokens_per_step == 8 * 128
    assert ours.tokens_per_s == pytest.approx(ours.tokens_per_s_per_rank * ours.world_size)
    assert (ours.mfu, ours.mfu_reason) == (None, "no peak is known for cpu")
    changed = {name for name, value in run.args() if value != getattr(single.args(), name)}
    assert changed <= RunArgs.STRATEGY
    for rank in range(ours.world_size):
        assert run.value(rank, "train.rank.world_size") == ours.world_size
        assert run.value(rank, "train.rank.state") == "finished"
        assert run.value(rank, "train.rank.steps") == 6
        assert "end" in run.facts(rank)


def test_one_process_trains_and_the_loss_falls(single: Finished) -> None:
    require_same_training(single, single)
    metrics = single.metrics()
    assert metrics.observed.kind == "single"
    assert metrics.loss[-1] < metrics.loss[0] - 0.3
    assert metrics.step_time_s.window_steps == 4
    assert sum(metrics.startup.model_dump().values()) < metrics.wall_time_s
    assert "6 steps" in single.output
    assert "warn" not in single.output.lower()


def test_ddp_is_one_training_on_two_ranks(tmp_path: Path, single: Finished) -> None:
    run = one_node(tmp_path / "ddp", "train_ddp_single_node", "--gradient-accumulation", "2")
    require_same_training(run, single)
    observed = run.metrics().observed
    assert (observed.kind, observed.wrapper, observed.hosts) == ("ddp", "DistributedDataParallel", ["n0", "n0"])
    assert len(set(run.metrics().parameter_checksums)) == 1


def test_ddp_across_two_nodes(tmp_path: Path, single: Finished) -> None:
    run = two_nodes(tmp_path / "ddp2", 1, "train_ddp_multi_node")
    require_same_training(run, single)
    assert run.metrics().observed.hosts == ["n0", "n1"]
    assert run.args().nodes == 2


def test_fsdp_holds_half_of_the_parameters_per_rank(tmp_path: Path, single: Finished) -> None:
    run = one_node(tmp_path / "fsdp", "train_fsdp_single_node", "--save-steps", "6")
    require_same_training(run, single)
    observed = run.metrics().observed
    assert (observed.kind, observed.placements, observed.mesh) == ("fsdp", ["(Shard(dim=0),)"], [[0, 1]])
    assert observed.parameters_local_max * 2 == observed.parameters
    assert run.value(0, "train.strategy.kind") == "fsdp"
    assert (run.folder / "checkpoints" / "checkpoint-6" / "pytorch_model_fsdp_0" / ".metadata").is_file()


def test_hsdp_shards_inside_a_node_and_replicates_across(tmp_path: Path, single: Finished) -> None:
    run = two_nodes(tmp_path / "hsdp", 2, "train_fsdp_multi_node", "--hsdp")
    require_same_training(run, single)
    observed = run.metrics().observed
    assert (observed.kind, observed.mesh) == ("hsdp", [[0, 1], [2, 3]])
    assert observed.placements == ["(Replicate(), Shard(dim=0))"]
    assert observed.hosts == ["n0", "n0", "n1", "n1"]
    sums = run.metrics().parameter_checksums
    assert (sums[0], sums[1]) == (sums[2], sums[3])


def require_refused(run: Finished, message: str) -> None:
    """One line, exit code 2 on every rank, no training."""
    refusals = [line for line in run.output.splitlines() if "refused:" in line]
    assert len(refusals) == 1
    assert message in refusals[0]
    assert run.ranks_as_ended == ["2", "2"]
    assert not (run.folder / "metrics.json").exists()
    for rank in (0, 1):
        assert run.value(rank, "train.rank.state") == "refused"
        assert message in run.value(rank, "train.rank.error")
        assert "train.rank.steps" not in run.facts(rank)


def test_fsdp_entrypoint_refuses_to_train_as_ddp(tmp_path: Path) -> None:
    run = one_node(tmp_path / "refused", "train_fsdp_single_node", drill="no-fsdp")
    require_refused(run, "expected fsdp, observed ddp (MULTI_CPU, DistributedDataParallel, plain)")
    assert run.value(0, "train.strategy.kind") == "ddp"
    assert "step 1/" not in run.output


def test_multi_node_entrypoint_refuses_one_host(tmp_path: Path) -> None:
    run = one_node(tmp_path / "one-host", "train_ddp_multi_node")
    require_refused(run, "expected ddp across 2 or more hosts, observed 2 rank(s) on 1 host(s) (n0)")


def test_killed_rank_ends_the_job_and_leaves_no_last_word(tmp_path: Path) -> None:
    run = two_nodes(tmp_path / "killed", 1, "train_ddp_multi_node", drill="kill-rank:1@3")
    assert run.codes == [1, 1]
    assert run.seconds < 60
    assert "-9" in run.ranks_as_ended
    assert not (run.folder / "metrics.json").exists()
    assert run.value(1, "train.rank.started") is True
    assert "train.rank.state" not in run.facts(1)
    assert "end" not in run.facts(1)
    assert run.value(0, "train.rank.state") == "raised"


def test_hung_rank_ends_the_job_after_the_timeout(tmp_path: Path) -> None:
    run = one_node(tmp_path / "hung", "train_fsdp_single_node", "--timeout", "5", drill="hang-rank:1@3")
    assert run.codes == [1]
    assert run.seconds < 60
    assert run.value(0, "train.rank.state") == "raised"
    assert "Timed out waiting 5000ms" in run.value(0, "train.rank.error")
    assert "train.rank.state" not in run.facts(1)
