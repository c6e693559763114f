"""Starts a program of the recipe, or the bare loop, in one of the strategies on this machine, and reads what it wrote.

HSDP needs two nodes: two launchers on this machine stand for them, each with as many ranks and GPUs.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRAINING = Path(__file__).resolve().parent.parent
BARE_LOOP = TRAINING / "benchmarks/bare_loop.py"
PROGRAMS = {
    "single": ["train_single_gpu.py"],
    "ddp": ["train_ddp_single_node.py"],
    "fsdp": ["train_fsdp_single_node.py"],
    "hsdp": ["train_fsdp_multi_node.py", "--hsdp"],
}
"""Strategy -> its program in training/src, with the option that it needs."""


class ProgramFailed(RuntimeError):
    """A program did not train, or trained something else than the other one. One line."""


@dataclass(frozen=True)
class Trained:
    """One run of one program. `loss` (nats), `grad_norm`: of every step."""

    tokens_per_s: float
    fastest_step_s: float
    loss: list[float]
    grad_norm: list[float]
    gpu: str | None  # model of rank 0; None: on a CPU, or the bare loop, which does not record it


def with_trainer(strategy: str, options: list[str], ranks: int) -> Trained:
    """The program of the recipe. Raises ProgramFailed."""
    program, *options_of_strategy = PROGRAMS[strategy]
    return _run(strategy, [str(TRAINING / "src" / program), *options_of_strategy], options, ranks)


def bare(strategy: str, options: list[str], ranks: int) -> Trained:
    """The same training without Trainer. Raises ProgramFailed."""
    return _run(strategy, [str(BARE_LOOP), "--strategy", strategy], options, ranks)


def _run(strategy: str, program: list[str], options: list[str], ranks: int) -> Trained:
    """One run in a folder of its own, which is removed. Raises ProgramFailed with what the program printed last."""
    with tempfile.TemporaryDirectory(prefix="bringup-benchmark-") as name:
        folder = Path(name)
        (folder / "raw").mkdir()
        launchers = []
        for node, command in enumerate(_commands(strategy, program, ranks)):
            environment = {"OMP_NUM_THREADS": "1"} | dict(os.environ)
            if strategy == "hsdp":
                environment |= {"SLURMD_NODENAME": f"n{node}", "CUDA_VISIBLE_DEVICES": gpus_of_node(node, ranks)}
            arguments = [*command, "--run-dir", name, *options]
            pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            launchers.append(subprocess.Popen(arguments, env=environment, **pipes))
        output = [launcher.communicate()[0] for launcher in launchers]
        codes = [launcher.returncode for launcher in launchers]
        if any(codes):
            raise ProgramFailed(f"{Path(program[0]).name} ({strategy}) ended with {codes}: {output[0].strip()[-500:]}")
        written = folder / "bare_loop.json"
        record = json.loads((written if written.is_file() else folder / "metrics.json").read_text())
        return Trained(
            tokens_per_s=record["tokens_per_s"],
            fastest_step_s=record.get("fastest_step_s") or min(record["steps_s"]),
            loss=record["loss"],
            grad_norm=record["grad_norm"],
            gpu=record.get("gpu0"),
        )


def gpus_of_node(node: int, ranks: int) -> str:
    """Of those in sight, which Slurm or the shell may have named."""
    in_sight = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(2 * ranks)))).split(",")
    return ",".join(in_sight[node * ranks : (node + 1) * ranks])


def _commands(strategy: str, program: list[str], ranks: int) -> list[list[str]]:
    """A launcher per node: torchrun, or Python alone for one process."""
    if strategy == "single":
        return [[sys.executable, *program]]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    if strategy != "hsdp":
        return [[*torchrun, "--standalone", *program]]
    port = 10_000 + os.getpid() % 10_000  # none of those that Linux hands out by itself
    meet = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(port)]
    return [[*torchrun, *meet, "--node-rank", str(node), *program] for node in range(2)]


def strategies(text: str) -> list[str]:
    """The strategies in a list with commas. Raises ValueError with the names there are."""
    names = text.split(",")
    if unknown := set(names) - set(PROGRAMS):
        raise ValueError(f"--strategies {', '.join(sorted(unknown))}: expected some of {', '.join(PROGRAMS)}")
    return names


def commit() -> str:
    """The commit of this checkout, for the page that a benchmark writes."""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, cwd=TRAINING, capture_output=True, text=True, check=False).stdout.strip()
