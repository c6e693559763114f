"""Real trainings on CPU: two torchrun launchers stand for two nodes, told apart by SLURMD_NODENAME as Slurm sets it."""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import warm_python
from bringup.kernel.records import read_record
from bringup.training.records import RunArgs, TrainMetrics
from programs import ROOT, begun, free_port

SOURCE = ROOT / "training" / "src"
TORCHRUN = [sys.executable, str(SOURCE / "launcher.py")]  # as the jobs start it
STEPS = ["--steps", "6"]  # of a test that compares no trajectory
TWELVE = ("--steps", "12")
UNPROFILED = ("--profiled-steps", "0")
NOTHING_ELSE = ("--no-rehearse-resume", *UNPROFILED)  # of a test that looks at losses, norms and rows alone
ONLY_TRAINED = (*TWELVE, *NOTHING_ELSE)
ACCELERATE = [sys.executable, "-m", "accelerate.commands.launch", "--config_file"]
BARE_LOOP = "../benchmarks/bare_loop"
ON_CPU = ("--mixed_precision", "no")  # where the programs compute in float32; the files say bf16, as on GPUs


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


def injected(drill: str) -> dict[str, str]:
    """The environment that makes this fault, as `bringup drill` sets it."""
    return {"BRINGUP_DRILL": drill, "PYTHONPATH": str(ROOT / "training/injected")} if drill else {}


def launch(folder: Path, commands: list[list[str]], drill: str = "") -> Finished:
    (folder / "raw").mkdir(parents=True)
    python = warm_python.python()  # torchrun starts ranks with PYTHON_EXEC
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHON_EXEC": python}
    started = time.monotonic()
    environment |= injected(drill) | {"RUN_DIR": str(folder)}
    starts = [
        [*(python if word == sys.executable else word for word in command), "--run-dir", folder] for command in commands
    ]
    launchers = [
        begun(command, env=environment | {"SLURMD_NODENAME": f"n{node}"}, stderr=subprocess.STDOUT)
        for node, command in enumerate(starts)
    ]
    try:
        output = "".join(launcher.communicate(timeout=120)[0] for launcher in launchers)
    finally:
        for launcher in launchers:
            launcher.kill()
    return Finished(folder, [launcher.returncode for launcher in launchers], output, time.monotonic() - started)


def one_node(folder, entrypoint, *options, drill="", launcher=None) -> Finished:
    launcher = launcher or [*TORCHRUN, "--standalone", "--nproc-per-node", "2"]
    return launch(folder, [[*launcher, str(SOURCE / f"{entrypoint}.py"), *STEPS, *options]], drill)


def two_nodes(folder, ranks_per_node, entrypoint, *options, drill="", config=None, nodes=2) -> Finished:
    """Two launchers, or more: torchrun's, or accelerate's with a configuration of training/accelerate."""
    port = free_port()

    def launcher(node: int) -> list[str]:
        if config is None:
            here = f"--nnodes {nodes} --node-rank {node} --nproc-per-node {ranks_per_node}"
            return [*TORCHRUN, *f"{here} --master-addr 127.0.0.1 --master-port {port}".split()]
        there = f"--main_process_ip 127.0.0.1 --main_process_port {port} --num_processes {2 * ranks_per_node}"
        here = f"--machine_rank {node} --parallelism_config_dp_shard_size {ranks_per_node}"
        return [*ACCELERATE, str(ROOT / f"training/accelerate/{config}.yaml"), *ON_CPU, *there.split(), *here.split()]

    program = [str(SOURCE / f"{entrypoint}.py"), *STEPS, *options]
    return launch(folder, [[*launcher(node), *program] for node in range(nodes)], drill)


def train(kind: str, folder: Path, *options: str, launcher: list[str] | None = None) -> Finished:
    """As its program: single on one rank, ddp (two micro-steps) and fsdp on two, hsdp on two nodes of two."""
    if kind == "hsdp":
        return two_nodes(folder, 2, "train_fsdp_multi_node", "--hsdp", *options)
    if kind == "single":
        return one_node(folder, "train_single_gpu", *options, launcher=[sys.executable])
    accumulation = ("--gradient-accumulation", "2") if kind == "ddp" else ()
    return one_node(folder, f"train_{kind}_single_node", *accumulation, *options, launcher=launcher)


def changed(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Python that is started from now on runs `code` first."""
    warm_python.python()  # not the server, which stays for other tests
    (folder / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def documents_tokenized(run: Finished) -> list[int]:
    """By each rank."""
    by_rank = dict(re.findall(r"rank(\d+)\] (\d+) documents tokenised", run.output))
    return [int(by_rank.get(str(rank), 0)) for rank in range(run.metrics().world_size)]


def ended_well(run: Finished) -> Finished:
    assert set(run.codes) == {0}, run.output
    return run


def require_refused(run: Finished, message: str) -> None:
    """One line, exit code 2, no training; of the ranks nothing is known."""
    (line,) = [line for line in run.output.splitlines() if "refused:" in line]
    assert message in line
    assert (run.codes == [2] and "Traceback" not in run.output) or run.ranks_as_ended == ["2", "2"]  # by accelerate
    for rank in (0, 1):
        assert run.value(rank, "train.rank.state") is None
        assert message in run.facts(rank)["train.rank.state"]["why"]
    require_untrained(run)


def require_not_promised(run: Finished, message: str) -> None:
    """One line, exit code 1 on every rank, no training."""
    refusals = [line for line in run.output.splitlines() if "refused:" in line]
    assert len(refusals) == 1
    assert message in refusals[0]
    assert run.ranks_as_ended == ["1", "1"]
    for rank in (0, 1):
        assert run.value(rank, "train.rank.state") == "refused"
        assert message in run.value(rank, "train.rank.error")
    require_untrained(run)


def require_untrained(run: Finished) -> None:
    assert not (run.folder / "metrics.json").exists()
    assert "step 1/" not in run.output
