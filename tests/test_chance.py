"""Bounds of rates, and quantiles of Student's t, beside scipy's."""

import pytest
from bringup.compare import noise
from bringup.domains import chance
from loops import for_each
from scipy import stats


@for_each(0, 1, 20, 700, 800, 1000)
def test_the_most_events_are_more_than_were_seen_and_those_of_scipy(events):
    assert events < chance.most_events(events) == pytest.approx(stats.chi2.ppf(0.95, 2 * events + 2) / 2, rel=1e-9)


@for_each((0.95, 1), (0.95, 2), (0.99, 3), (1 - 0.02 / 15, 4), (0.999, 9), (0.9999, 30))
def test_quantiles_are_those_of_scipy(confidence, freedom):
    assert noise.t_quantile(confidence, freedom) == pytest.approx(stats.t.ppf((1 + confidence) / 2, freedom), rel=1e-7)
