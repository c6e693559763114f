"""FLOPs against torch's own count, a rank's own time and the straggler, NaN, and what --recipe fast chooses."""

import math
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from bringup.training.formulae import pace
from bringup.training.records import RankTimes
from loops import case_for_each
from recipe import fast as recipes
from recipe import meter, trajectory
from recipe.arguments import Args

pytestmark = pytest.mark.filterwarnings("default")


def times(**own: list[float]) -> Any:
    step = [1.0] * len(own["forward"])
    return RankTimes(step_p50=step, step_p95=step, step_max=step, **own)


def test_the_straggler_is_who_works_longest_where_all_steps_are_equally_long():
    slow = times(fetch=[0.01] * 4, forward=[0.1, 0.1, 0.32, 0.1], optimizer=[0.01] * 4)
    straggler = pace.straggler(slow, ["n0", "n0", "n1", "n1"])
    assert (straggler.rank, straggler.node, straggler.part) == (2, "n1", "forward")
    assert straggler.slowdown == pytest.approx(0.34 / 0.12)


def test_of_two_ranks_the_slow_one_is_held_against_the_other():
    straggler = pace.straggler(times(fetch=[0.3, 0.0], forward=[0.1, 0.1], optimizer=[0.0, 0.0]), ["n0", "n0"])
    assert (straggler.rank, straggler.part, straggler.slowdown) == (0, "fetch", pytest.approx(4.0))


def test_one_rank_is_no_straggler():
    assert pace.straggler(times(fetch=[0.1], forward=[0.1], optimizer=[0.1]), ["n0"]) is None


def test_own_time_is_counted_in_the_step_it_falls_into():
    clock = meter.Meter(lambda step: None)
    state = type("State", (), {"global_step": 1})
    clock.on_train_begin(None, state, None)
    batches = clock.timed(iter([1, 2]))
    for step in (1, 2):
        state.global_step = step
        assert next(batches) == step
        for part in ("forward", "forward", "optimizer"):
            clock.start(part)
            clock.stop(part)
        clock.on_step_end(None, state, None)
    assert list(batches) == []
    assert len(clock.step_times_s()) == 2
    assert {part: len(values) for part, values in clock.own.items()} == {"fetch": 2, "forward": 2, "optimizer": 2}
    assert all(math.fsum(own) <= step for *own, step in zip(*clock.own.values(), clock.step_times_s(), strict=True))


def test_a_block_that_was_left_in_the_middle_is_not_counted():
    clock = meter.Meter(lambda step: None)
    clock.start("forward", "a")
    clock.start("forward", "a")
    clock.stop("forward", "a")
    clock.stop("forward", "a")
    assert len(clock.spans) == 1


@case_for_each(
    ([1.0, math.nan], [1.0, math.nan], "step 12: the loss of this rank is nan"),
    ([1.0, 1.0, math.inf], [1.0, math.nan, 1.0], "step 12: the gradient norm is nan, the loss of this rank was finite"),
)
def test_what_is_no_number_names_its_step_and_whether_it_began_here(losses, norms, says):
    with pytest.raises(trajectory.NotFinite, match=says):
        trajectory.judge(11, losses, norms)


def test_finite_numbers_pass():
    trajectory.judge(1, [1.0, 2.0], [0.5, 0.0])


def test_a_nan_is_noticed_at_the_next_look_and_not_before(tmp_path):
    values = [1.0] * 6 + [math.nan] * 14
    at, clock = SimpleNamespace(step=0), SimpleNamespace(steps=[])

    def recent(most: int) -> Any:
        kept = torch.tensor(values[max(0, at.step - most) : at.step])
        return kept, torch.ones_like(kept)

    shown = trajectory.Live(tmp_path / "progress.jsonl", 300, 1, lambda speed: None)
    for at.step in range(1, 10):
        shown.after_step(at.step, SimpleNamespace(recent=recent), clock)
    at.step = 10
    with pytest.raises(trajectory.NotFinite, match="step 7: the loss of this rank is nan"):
        shown.after_step(10, SimpleNamespace(recent=recent), clock)


def test_what_micro_steps_leave_is_one_tensor_a_step():
    """A tensor of four bytes takes 512 of a GPU's memory, until the training ends or writes a checkpoint."""
    so_far, micro_steps = trajectory.Trajectory(), 64
    for step in range(1, 6):
        for micro_step in range(micro_steps):
            so_far.add(torch.tensor([micro_step, micro_step]), torch.tensor(float(step) / micro_steps))
        so_far.add_norm(torch.tensor(2.0 * step))
    losses, norms = so_far.recent(2)
    assert (losses.tolist(), norms.tolist()) == ([4.0, 5.0], [8.0, 10.0])
    kept = [len(each) for listed in vars(so_far).values() if isinstance(listed, list) for each in listed]
    assert kept == [3] * 5
    so_far.settle()
    assert (so_far.loss, so_far.grad_norm) == ([1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 4.0, 6.0, 8.0, 10.0])
    assert so_far.rows == [row for row in range(micro_steps) for _ in range(2)] * 5


def fields_of(args: Any) -> dict[str, Any]:
    """Of recipe.arguments.Args: what recipes.choose() reads."""
    read = {"model": "tiny", "attention": "sdpa", "dataloader_workers": 0, "timeout_s": 60}
    return dict.fromkeys(args.__dataclass_fields__) | read


def test_fast_says_for_each_change_whether_it_can_be():
    assert recipes.choose(Args(**fields_of(Args) | {"recipe": "plain"})) == {recipes.NO_LOOK: "on"}
    tuning = recipes.choose(Args(**fields_of(Args) | {"recipe": "fast"}))
    compiles = " " not in sys.prefix  # Inductor finds no headers in a path with a space
    on = {what: state == "on" for what, state in tuning.items()}
    assert on == {recipes.NO_LOOK: True, recipes.COMPILE: compiles, recipes.CHUNKED_LOSS: True}
