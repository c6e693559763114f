"""What a probe tells the judge: its questions are asked here, and its lines are read as the evidence of a run is."""

import io
from collections.abc import Callable
from typing import Any

from bringup.kernel.facts import facts
from bringup.kernel.facts.parser_result import Parsed
from facts import Facts


def told_by(question: Callable[[Any], None], node: str = "n0") -> Parsed:
    """Every line that this question makes the inventory of a node print. What the probe cost, and when, is left out."""
    stream = io.StringIO()
    probe = Facts("inventory", stream)
    probe.at = node
    question(probe)
    probe.finish()
    parsed = facts.parse(stream.getvalue(), "raw/inventory.jsonl")
    assert parsed.problems == []
    left_out = ("probe.inventory.cpu_s", "probe.stamp")
    return Parsed(observations=[seen for seen in parsed.observations if seen.quantity not in left_out])


def answers_of(question: Callable[[Any], None], node: str = "n0") -> dict[str, tuple[Any, str]]:
    """Return quantity -> (value, why) of a question about one thing."""
    return {seen.quantity: (seen.value, seen.why or "") for seen in told_by(question, node).observations}
