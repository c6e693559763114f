"""What is seen while it trains: real numbers, in time, and no step that waits for them."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from loops import case_for_each
from recipe import group
from recipe import trajectory as live


def train(shown: live.Live, steps: int) -> None:
    """The loss falls by 0.1 a step of half a second."""
    trajectory = SimpleNamespace(recent=lambda most: (torch.tensor([6.0 - 0.1 * step]), torch.ones(1)))
    clock = SimpleNamespace()
    for step in range(1, steps + 1):
        clock.steps = [0.5] * step
        shown.after_step(step, trajectory, clock)  # type: ignore[arg-type]


@case_for_each(
    (20, 0.412, [*range(2, 21, 2)], "step 20/20  loss 4.0000 (this rank)  16,384 tokens/s  500 ms  MFU 41.2 %"),
    (25, None, [*range(2, 25, 2), 25], "step 25/25  loss 3.5000 (this rank)  16,384 tokens/s  500 ms"),
)
def test_ten_lines_of_a_run_and_its_last_step_say_loss_and_speed(tmp_path, capsys, steps, mfu, steps_seen, last):
    train(live.Live(tmp_path / "progress.jsonl", steps, 8192, lambda speed: mfu), steps)
    lines = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == steps_seen
    of_last = [lines[-1][name] for name in ("of", "loss_of_rank_0", "step_s", "tokens_per_s", "mfu")]
    assert of_last == [steps, pytest.approx(6 - 0.1 * steps), 0.5, 16384, mfu]
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"] {last}")


def test_a_loss_that_has_not_arrived_is_told_later_and_in_order(tmp_path, capsys, monkeypatch):
    passed: list[bool] = []

    def event() -> Any:
        number = len(passed)
        passed.append(False)
        return SimpleNamespace(record=lambda: None, query=lambda: passed[number])

    monkeypatch.setattr(group, "CUDA", True)
    monkeypatch.setattr(torch.cuda, "Event", event)
    shown, clock = live.Live(tmp_path / "progress.jsonl", 4, 8192, lambda speed: None), SimpleNamespace(steps=[0.5])
    train(shown, 3)
    passed[1] = True  # a later one cannot overtake
    shown.tell(clock)  # type: ignore[arg-type]
    assert capsys.readouterr().out == ""
    passed[0] = True
    shown.tell(clock)  # type: ignore[arg-type]
    assert [line.split("] ")[1][:8] for line in capsys.readouterr().out.splitlines()] == ["step 1/4", "step 2/4"]


def test_other_ranks_are_silent_and_a_file_that_cannot_be_written_ends_no_training(tmp_path, capsys, monkeypatch):
    train(live.Live(tmp_path / "gone/progress.jsonl", 2, 8192, lambda speed: None), 2)
    assert capsys.readouterr().out.count("\n") == 2
    monkeypatch.setattr(group, "RANK", 1)
    train(live.Live(tmp_path / "progress.jsonl", 4, 8192, lambda speed: None), 4)
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "progress.jsonl").exists()
