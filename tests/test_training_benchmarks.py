"""The yardstick: do all strategies compute one training?"""

import math
import sys
from dataclasses import replace

import equality
import launched
import pytest
import warm_python
from loops import case_for_each
from tiers import in_test_all

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
