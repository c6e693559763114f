"""How often to save: the figures of the paper, the best of all intervals, and what has to be given."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from advised import H100, question
from bringup.kernel.errors import UsageError
from bringup.report import advice
from bringup.training.advise import answer, interval
from bringup.training.advise.interval import best_interval_s, between_failures_s, goodput


@pytest.mark.parametrize(("failure_h", "minutes"), [(24, 117), (6, 57), (0.25, 9.1)])
def test_the_interval_is_that_of_the_paper(failure_h, minutes):
    """Daly 2006, figures 3 to 5: a save takes 5 minutes."""
    assert best_interval_s(300, failure_h * 3600) / 60 == pytest.approx(minutes, rel=0.01)


@pytest.mark.parametrize("nodes", [1, 64, 4096])
def test_no_other_interval_leaves_more(nodes):
    failure_s = between_failures_s(0.0038, nodes)
    best_s = best_interval_s(30, failure_s)
    best = goodput(best_s, 30, 300, failure_s)
    assert 0 < best < 1
    assert all(goodput(best_s * share, 30, 300, failure_s) < best for share in (0.5, 0.8, 1.25, 2))


def test_where_failures_come_before_a_restart_ends_nothing_is_left():
    assert goodput(60, 30, 1e6, 100) == 0
    assert best_interval_s(300, 100) == 100


def test_a_half_of_the_time_is_lost_where_saving_takes_as_long_as_training_and_nothing_fails():
    assert goodput(60, 60, 0, 1e9) == pytest.approx(0.5)


def test_nothing_is_assumed_that_was_not_given():
    assert interval.best(None, None, None, 64) is None
    for rate, save_s, restart_s, message in (
        (None, 30, None, "with --failures-per-node-day"),
        (0.0038, None, 300, "--save-s, or --from"),
        (0.0038, 30, None, "--restart-s"),
    ):
        with pytest.raises(UsageError, match=message):
            interval.best(rate, save_s, restart_s, 64)


def test_the_screen_says_after_how_many_steps_to_save():
    every = interval.best(0.0038, 30, 300, 64)
    asked = question(nodes=64, global_batch=512)
    made = answer.advise(asked, answer.known(H100, [], 0.4)).model_copy(update={"checkpoints": every})
    step_s = next(known.step_s for known in made.strategies if known.strategy == made.use)
    assert f"(--save-steps {round(every.interval_s / step_s[1])})" in advice.screen(made)
    assert "98.6 % of the time" in advice.screen(made)


def test_a_save_costs_what_the_last_run_measured_where_nothing_else_is_given():
    """Writing, and the checksums that the training waits for too. Runs without a checkpoint, and runs that are no
    training, say nothing about it."""
    written = SimpleNamespace(metrics=SimpleNamespace(checkpoint=SimpleNamespace(write_s=12.5, checksum_s=3.0)))
    without = SimpleNamespace(metrics=SimpleNamespace(checkpoint=None))
    runs: list[Any] = [SimpleNamespace(folder=Path(name), training=training) for name, training in
                       (("a", written), ("b", without), ("c", None))]  # fmt: skip
    every = interval.best(0.0038, None, 300, 64, runs)
    assert (every.save_s, every.save_source) == (15.5, "measured by a")
    given = interval.best(0.0038, 30, 300, 64, runs)
    assert (given.save_s, given.save_source) == (30, "given")
