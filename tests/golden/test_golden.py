"""Verdicts and words of recorded runs, and of the catalogue, are as stored in expected/. README.md: how to accept."""

import golden_verdicts as golden
import pytest
from bringup.kernel.plan.phases import PHASES
from tiers import FEWER

ACCEPT = "If these words are better: python validation/benchmarks/golden_verdicts.py --accept"
COLUMNS, TWO_SCREENS = 100, 110  # about
FOUR_SCREENS = 190  # a training has all chapters of its source document, which has 270 lines
WITH_A_TABLE = 140  # a row for each collective, size and scale


@pytest.mark.parametrize("name", [golden.CATALOGUE, "local-healthy", "h100-faults"] if FEWER else golden.recordings())
def test_recorded_runs_are_judged_in_the_stored_words_and_a_report_without_a_failure_fits_two_screens(name):
    """It had a row for each gate with all that was observed: 281 such lines for a healthy discovery of three nodes."""
    now, stored = golden.golden_of(name, whole=not FEWER), golden.stored(name, whole=not FEWER)
    assert list(golden.differences(stored.facts, now.facts)) == []
    if reworded := "\n".join(golden.diff(name, stored.words, now.words)):
        pytest.fail(f"{reworded}\n{ACCEPT}", pytrace=False)  # whole: pytest cuts a comparison of long texts
    lines = {
        run: sum(max(1, -(-len(line) // COLUMNS)) for line in now.words[f"{run} report"].splitlines())
        for run, facts in now.facts.items()
        if facts.get("outcome") == "pass" and f"{run} report" in now.words
    }
    most = {run: FOUR_SCREENS if "/run_" in run else TWO_SCREENS for run in lines}
    most |= {run: WITH_A_TABLE for run in lines if "/nccl_scaling/" in run}
    assert {run: count for run, count in lines.items() if count > most[run]} == {}
    assert name != "local-healthy" or {run.split("/")[1] for run in lines} == {*PHASES}


def test_a_difference_is_one_line():
    before = {"run gate [n0]": {"outcome": "pass", "value": 1}, "run gate [n1]": {"outcome": "pass", "value": True}}
    after = {"run gate [n0]": {"outcome": "pass", "value": 1.0}, "run gate [n2]": {"outcome": "pass", "value": True}}
    changes = ["run gate [n0]: value 1 -> 1.0", "run gate [n1]: is gone", "run gate [n2]: is new"]
    assert list(golden.differences(before, after)) == changes
