"""What is seen while it trains: real numbers, in time, and no step that waits for them."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "training/src"))

from recipe import group  # noqa: E402
from recipe.watch import live  # noqa: E402


class Trajectory:
    """Its loss falls by 0.1 a step."""

    def __init__(self) -> None:
        self.step = 0

    def recent(self, most: int) -> tuple[torch.Tensor, list[Any]]:
        return torch.tensor([6.0 - 0.1 * self.step]), []


class Arriving:
    """An event of a device that passes when it is told to."""

    def __init__(self) -> None:
        self.passed = False

    def query(self) -> bool:
        return self.passed


@pytest.fixture
def printed() -> list[str]:
    return []


def a_live(tmp_path: Path, printed: list[str], *, steps: int = 20, mfu: float | None = None) -> live.Live:
    return live.Live(tmp_path / "progress.jsonl", steps, 8192, printed.append, lambda speed: mfu)


def train(shown: live.Live, steps: int, step_s: float = 0.5) -> None:
    trajectory, clock = Trajectory(), SimpleNamespace(steps=[])
    for trajectory.step in range(1, steps + 1):
        clock.steps.append(step_s)
        shown.after_step(trajectory.step, trajectory, clock)  # type: ignore[arg-type]


def lines(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]


def test_ten_lines_of_a_run_say_loss_speed_and_step_time(tmp_path: Path, printed: list[str]) -> None:
    train(a_live(tmp_path, printed, mfu=0.412), 20)
    assert [line["step"] for line in lines(tmp_path)] == list(range(2, 21, 2))
    last = lines(tmp_path)[-1]
    assert (last["of"], last["step_s"], last["tokens_per_s"], last["mfu"]) == (20, 0.5, 16384, 0.412)
    assert last["loss_of_rank_0"] == pytest.approx(4.0)
    assert printed[-1] == "step 20/20  loss 4.0000 (this rank)  16,384 tokens/s  500 ms  MFU 41.2 %"


def test_where_no_peak_is_known_nothing_is_said_of_mfu(tmp_path: Path, printed: list[str]) -> None:
    train(a_live(tmp_path, printed), 2)
    assert "MFU" not in printed[-1]
    assert lines(tmp_path)[-1]["mfu"] is None


def test_the_last_step_is_told_when_it_is_no_tenth_of_the_run(tmp_path: Path, printed: list[str]) -> None:
    train(a_live(tmp_path, printed, steps=25), 25)
    assert [line["step"] for line in lines(tmp_path)][-2:] == [24, 25]


def test_a_loss_that_has_not_arrived_is_told_later_and_in_order(
    tmp_path: Path, printed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Arriving] = []

    def event() -> Any:
        events.append(Arriving())
        return SimpleNamespace(record=lambda: None, query=events[-1].query)

    monkeypatch.setattr(group, "CUDA", True)
    monkeypatch.setattr(torch.cuda, "Event", event)
    shown = a_live(tmp_path, printed, steps=4)
    train(shown, 3)
    assert printed == []
    events[1].passed = True  # a later one cannot overtake
    shown.tell(SimpleNamespace(steps=[0.5]))  # type: ignore[arg-type]
    assert printed == []
    events[0].passed = True
    shown.tell(SimpleNamespace(steps=[0.5]))  # type: ignore[arg-type]
    assert [line.split("  ")[0] for line in printed] == ["step 1/4", "step 2/4"]


def test_other_ranks_are_silent(tmp_path: Path, printed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "RANK", 1)
    train(a_live(tmp_path, printed), 4)
    assert printed == []
    assert not (tmp_path / "progress.jsonl").exists()


def test_a_file_that_cannot_be_written_ends_no_training(tmp_path: Path, printed: list[str]) -> None:
    shown = live.Live(tmp_path / "gone" / "progress.jsonl", 2, 8192, printed.append, lambda speed: None)
    train(shown, 2)
    assert len(printed) == 2
