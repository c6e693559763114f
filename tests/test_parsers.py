"""Parsers on real output: healthy, degraded, truncated, empty, and not that at all."""

from bringup.evidence import monitor
from bringup.evidence.parsed import Parsed
from runs_for_tests import FIXTURES


def values(parsed: Parsed, quantity: str) -> dict[str, object]:
    return {
        observation.subject: observation.value
        for observation in parsed.observations
        if observation.quantity == quantity
    }


def test_the_monitor_is_judged_on_the_samples_that_the_duration_asks_for():
    text = (FIXTURES / "monitor.csv").read_text()
    assert values(monitor.parse(text, "f", 7.0), "nccl.monitor.coverage") == {"n0": 1.0, "n1": 1.0}
    assert values(monitor.parse(text, "f", 71.0), "nccl.monitor.coverage") == {"n0": 0.1, "n1": 0.1}
    assert values(monitor.parse(text, "f", None), "nccl.monitor.coverage") == {"n0": None, "n1": None}
    assert monitor.parse("", "f", 7.0).problems == ["f: holds no sample"]


def test_a_damaged_sample_is_a_problem_and_no_crash():
    parsed = monitor.parse("0: n0,1.0,abc,1,2,3,,,\n0: n0,1\n", "f", 2.0)
    assert len(parsed.problems) == 3
    assert parsed.observations == []
