"""Programs run through CUDA, on the stand-in's devices, in what no CPU and no live phase of make test runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from cuda_mutants import table, unnoticed_by_run

ROOT = Path(__file__).resolve().parents[2]


def on_stand_in(*words: object, gpus: int = 1) -> str:
    """What the command printed, which has to pass."""
    command = [sys.executable, "tests/cuda/on_stand_in.py", "--gpus", str(gpus), *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def test_the_bare_loop_offloads_to_the_host(tmp_path: Path) -> None:
    """The norm of gradients on the host is reduced there, which nccl cannot."""
    (tmp_path / "raw").mkdir()
    launch = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    options = (
        "--strategy",
        "fsdp",
        "--cpu-offload",
        "--steps",
        4,
        "--warmup-steps",
        1,
        "--no-rehearse-resume",
        "--run-dir",
        tmp_path,
    )
    on_stand_in(*launch, "training/benchmarks/bare_loop.py", *options, gpus=2)
    losses = json.loads((tmp_path / "bare_loop.json").read_text())["loss"]
    assert len(losses) == 4 and losses[-1] < losses[0] < 7


def test_a_peak_that_is_not_reset_is_noticed() -> None:
    command = (sys.executable, "tests/cuda/on_stand_in.py", sys.executable, "tests/cuda/peaks.py")
    (mutant,) = [each for each in table() if each.noticed_by == "run peaks"]
    assert unnoticed_by_run(None, command) is None
    assert unnoticed_by_run(mutant, command) is None
