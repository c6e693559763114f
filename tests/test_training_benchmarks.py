"""The yardsticks: do all strategies compute one training, and what does Trainer cost."""

import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import equality
import launched
import overhead
import pytest
import warm_python
from loops import case_for_each
from programs import program
from tiers import in_test_all

BENCHMARKS = Path(__file__).resolve().parent.parent / "training" / "benchmarks"


TRAINED = launched.Trained(tokens_per_s=100.0, fastest_step_s=0.1, loss=[6.0, 5.0], grad_norm=[2.0, 1.0], gpu=None)


def run(monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(sys, "argv", ["equality.py", *options])
    return equality.main()


@case_for_each(
    (TRAINED, 0),
    (replace(TRAINED, loss=[6.0, 5.00002]), 1),
    (replace(TRAINED, grad_norm=[2.0, 1.00002]), 1),
    (replace(TRAINED, loss=[math.nan, 5.0]), 1),
    (replace(TRAINED, grad_norm=[2.0, math.nan]), 1),
)
def test_a_strategy_that_trains_something_else_ends_with_1(monkeypatch, capsys, other, code):
    monkeypatch.setattr(launched, "with_trainer", lambda strategy, *_: other if strategy == "ddp" else TRAINED)
    monkeypatch.setattr(launched, "bare", lambda *_: TRAINED)
    assert run(monkeypatch, "--precisions", "float32", "--strategies", "single,ddp") == code
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| float32")]
    assert ["NOT EQUAL" in row for row in rows] == [False, bool(code), bool(code)]


def test_a_program_that_fails_ends_with_2(monkeypatch, capsys):
    def fails(*_: Any) -> launched.Trained:
        raise launched.ProgramFailed("bare_loop.py (fsdp) ended with [1]")

    monkeypatch.setattr(launched, "with_trainer", lambda *_: TRAINED)
    monkeypatch.setattr(launched, "bare", fails)
    assert run(monkeypatch) == 2
    assert "bare_loop.py (fsdp) ended with [1]" in capsys.readouterr().err


@in_test_all
def test_bfloat16_is_equal_with_and_without_trainer_under_fsdp(monkeypatch, tmp_path):
    """The bare loop once gave its head float32 where the weights were bfloat16, and failed."""
    warm_python.stand_in(monkeypatch)
    table = tmp_path / "equality.md"
    small = ["--steps", "8", "--sequence-length", "128"]
    assert run(monkeypatch, "--precisions", "bfloat16", "--strategies", "fsdp", "--table", str(table), *small) == 0
    rows = [line for line in table.read_text().splitlines() if line.startswith("| bfloat16")]
    assert [row.split(" | ")[1:3] for row in rows] == [["fsdp", "the bare loop"], ["fsdp", "one GPU"]]
    assert " 0.0e+00 " in rows[0]  # the same kernels in the same order


@case_for_each(
    (None, [], False),
    (None, ["--bf16"], True),
    ("NVIDIA H100 80GB HBM3", [], True),
    ("NVIDIA H100 80GB HBM3", ["--no-bf16"], False),
)
def test_a_gpu_computes_in_bfloat16_without_being_asked(monkeypatch, gpu, options, same):
    """The limit of the losses follows what was computed in."""
    monkeypatch.setattr(launched, "with_trainer", lambda *_: replace(TRAINED, gpu=gpu))
    monkeypatch.setattr(launched, "bare", lambda *_: replace(TRAINED, loss=[6.01, 5.0]))
    pairs = overhead.Pairs("single")
    if same:
        overhead.one_pair(pairs, options, 2)
    else:
        with pytest.raises(launched.ProgramFailed, match=r"0\.01 nats apart"):
            overhead.one_pair(pairs, options, 2)


def test_two_launchers_share_the_gpus_that_were_named(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert [launched.gpus_of_node(node, 2) for node in range(2)] == ["4,5", "6,7"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert [launched.gpus_of_node(node, 4) for node in range(2)] == ["0,1,2,3", "4,5,6,7"]


def test_what_one_gpu_can_show_takes_one_of_the_eight_that_slurm_gave(tmp_path):
    python = program(tmp_path / "python", 'echo "$CUDA_VISIBLE_DEVICES"')
    gpus = {"CUDA_VISIBLE_DEVICES": "2,3,4,5", "SINGLE_GPU_ARGS": "--steps 3"}
    environment = os.environ | {"PYTHON": str(python), **gpus}
    script = [str(BENCHMARKS / "single_gpu.sh"), str(tmp_path / "out"), "matmul"]
    subprocess.run(script, env=environment, check=True, capture_output=True)
    assert (tmp_path / "out/matmul/stdout.txt").read_text() == "2\n"


def overhead_is(monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(sys, "argv", ["overhead.py", "--strategies", "single", *options])
    return overhead.main()


def test_the_benchmark_of_trainer_trains_the_same_twice_and_writes_a_ratio(monkeypatch, capsys, tmp_path):
    warm_python.stand_in(monkeypatch)
    small = ["--steps", "4", "--warmup-steps", "1", "--sequence-length", "64"]
    page = tmp_path / "overhead.md"
    assert overhead_is(monkeypatch, "--pairs", "1", "--least", "0", "--table", str(page), *small) == 0
    assert float(re.search(r"losses within (\S+)", capsys.readouterr().out)[1]) < 1e-4
    cells = [cell.strip() for cell in page.read_text().splitlines()[-1].strip("|").split("|")]
    assert cells[:2] == ["single", "1"]
    assert float(cells[2]) > 0
    # a busy machine may take longer than the floor: the warning goes with the number that is printed
    assert ("below 100 ms" in cells[6]) == (float(cells[5]) < 100)


def test_the_benchmark_of_trainer_says_what_a_program_refused(monkeypatch, capsys):
    assert overhead_is(monkeypatch, "--steps", "0") == 2
    refused = capsys.readouterr().err
    assert refused.startswith("overhead: train_single_gpu.py (single) ended with [2]: ")
    assert refused.count("\n") == 1
