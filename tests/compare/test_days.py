"""Where days differ: what is promised of `compare --baseline` and `history`, by the generators of days.py."""

from dataclasses import replace
from functools import cache
from random import Random

import days
import numpy as np
import pytest
from bringup.compare import history, noise, regression
from bringup.training.comparison.entries import Entry
from factory import an_entry
from trained_runs import RECORDS

CHECKS = 60
DESIGNS = {design.name: design for design in days.DESIGNS}
ONE_DAY_EACH = "5 runs on one day, 5 on another"


@cache
def an_example() -> Entry:
    return an_entry(RECORDS / "run_ddp_2node")


def entries(runs: list[days.Timed], name: str) -> list[Entry]:
    """Runs that differ from the example in speed, and in when they were opened."""
    several = []
    for number, (opened_at, speed) in enumerate(runs):
        like = an_example()
        steps = {"steps_s": [like.metrics.step_time_s.p50] * 20, "tokens_per_s": like.metrics.tokens_per_s * speed}
        run = like.run.model_copy(update={"opened_at": opened_at, "name": f"{name}{number}"})
        several.append(replace(like, run=run, metrics=like.metrics.model_copy(update=steps)))
    return several


def compared(old: list[days.Timed], new: list[days.Timed]) -> tuple[str, regression.Finding]:
    [comparison] = regression.check(entries(new, "new"), entries(old, "old"))
    return comparison.design, next(each for each in comparison.findings if each.measure.startswith("tokens"))


def conclusions(design: days.Design, lost: float = 0.0) -> list[str]:
    return [compared(*days.sides(Random(seed), design, lost=lost))[1].conclusion for seed in range(CHECKS)]


def test_another_day_is_no_regression_however_many_runs_it_had():
    """71 % of checks of 15 measures were one where nothing had changed."""
    for design in (ONE_DAY_EACH, "10 runs on one day, 10 on another"):
        assert {*conclusions(DESIGNS[design])} == {"cannot tell"}
    design, finding = compared(*days.sides(Random(1), DESIGNS[ONE_DAY_EACH]))
    assert design == (
        "cannot tell: all runs of a side are of one day (2026-11-01): a day may differ by as much; run the baseline "
        "again beside the new runs, in turn, or on 5 days"
    )
    assert finding.why == "a day may differ by as much"


@pytest.mark.parametrize("name", ["3 and 3 days, 3 runs a day", "5 and 5 days, 1 run a day"])
def test_runs_of_one_day_are_no_repetitions(name):
    """15 % of checks gave an alarm with three days a side of three runs."""
    assert "REGRESSION" not in conclusions(DESIGNS[name])


def test_three_runs_in_turn_on_one_day_find_five_percent():
    assert {*conclusions(DESIGNS["3 and 3 runs in turn on one day"], days.LOST)} == {"REGRESSION"}
    design, finding = compared(*days.sides(Random(1), DESIGNS["3 and 3 runs in turn on one day"]))
    assert design.startswith("runs of the same day are compared (2026-11-01); their speed differs by 0.")
    assert finding.conclusion == "within noise"


def test_five_days_a_side_find_five_percent_and_their_spread_is_said():
    assert conclusions(DESIGNS["5 and 5 days, 3 runs a day"], days.LOST).count("REGRESSION") >= 0.9 * CHECKS
    design, _ = compared(*days.sides(Random(1), DESIGNS["5 and 5 days, 3 runs a day"]))
    assert design.startswith("no day is of both sides, so that each day counts as one value; their speed differs by ")
    design, _ = compared(*days.sides(Random(1), DESIGNS["3 common days, 2 and 2 runs a day"]))
    assert "(2026-11-01, 2026-11-02, 2026-11-03)" in design
    assert ", that of days by " in design


def at(*values: float, day: int = 1, hour: int = 6) -> list[days.Timed]:
    return [(f"2026-11-{day:02}T{hour:02}:{minute:02}:00Z", value) for minute, value in enumerate(values)]


def test_a_day_on_which_one_side_ran_before_the_other_is_one_value_of_each():
    before, after = at(1.0, 1.001, 0.999, 1.0), at(0.97, 0.971, 0.97, 0.969, hour=9)
    design, finding = compared(before, after)
    assert finding.conclusion == "cannot tell"
    assert "too few runs in turn on a day of both sides (2026-11-01)" in design
    # the same over midnight, UTC: the last run of the baseline is of the day of the new ones
    assert compared([*before, *at(1.0, day=2)], at(0.97, 0.97, 0.97, day=2, hour=9))[1].conclusion == "cannot tell"
    hours = ((1, 6), (0.9, 9))
    paired = [[run for day in range(1, 7) for run in at(value, day=day, hour=hour)] for value, hour in hours]
    assert compared(*paired)[1].conclusion == "REGRESSION"


def test_a_fit_is_that_of_least_squares():
    """By numpy: a column for each day, and one for the side."""
    old, new = days.sides(Random(1), days.Design("uneven", range(3), range(3), 3), lost=0.05)
    runs = [*old[:-1], *new[1:]]
    names = sorted({opened_at[:10] for opened_at, _ in runs})
    columns = [[opened_at.startswith(name) for name in names] for opened_at, _ in runs]
    matrix = np.array([[*row, number >= len(old) - 1] for number, row in enumerate(columns)], dtype=float)
    solved, squares, rank, _ = np.linalg.lstsq(matrix, np.log([value for _, value in runs]))
    fit = noise.fit([noise.Timed(*run) for run in old[:-1]], [noise.Timed(*run) for run in new[1:]])
    assert (fit.unit, fit.days, fit.freedom, fit.least) == ("runs", names, len(runs) - rank, 8)
    assert (fit.difference, fit.spread) == pytest.approx((solved[-1], (squares[0] / fit.freedom) ** 0.5))
    assert fit.share == pytest.approx(np.linalg.inv(matrix.T @ matrix)[-1, -1])


def test_without_a_common_day_five_a_side_are_needed():
    def fit_of(count: int) -> noise.Fit | None:
        old, new = days.sides(Random(1), days.Design("apart", range(count), range(count, 2 * count), 2))
        return noise.fit([noise.Timed(*run) for run in old], [noise.Timed(*run) for run in new])

    assert fit_of(4) is None
    assert (fit_of(5).unit, fit_of(5).freedom, fit_of(5).least) == ("days", 8, 5)


def test_three_runs_against_ten_give_no_more_alarms_than_is_said():
    """2.9 % at 2 %, before."""
    dice, alarms = Random(3), 0
    for _ in range(2000):
        old, new = ([noise.Timed("2026-11-26", dice.lognormvariate(0, 0.01)) for _ in range(few)] for few in (10, 3))
        alarms += noise.interval(noise.fit(old, new), 0.96).high < 0
    assert alarms <= 55


@pytest.mark.parametrize("kind", ["tails", "bad days"])
def test_a_bad_day_makes_no_row_of_the_history_a_regression(kind):
    """13 and 35 % of calls were one where nothing had changed."""
    assert sum(days.alarmed(seed, 30, kind) for seed in range(CHECKS)) <= 3


def test_a_loss_that_stays_is_found_in_the_history():
    assert sum(days.is_found(seed, 30, 3, "even") for seed in range(CHECKS)) >= 0.9 * CHECKS
    assert sum(days.is_found(seed, 30, 5, "bad days") for seed in range(CHECKS)) >= 0.85 * CHECKS
    assert {history.judge(days.rows(seed, 5, 3, "even"))[0].said for seed in range(5)} == {history.TOO_FEW}
