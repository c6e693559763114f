"""A profile from finished runs: what a cluster without published numbers showed when it was healthy, as expectations for later.

A floor (at_least) is the worst value seen, less a margin. A ceiling (at_most) that the runs met stays as it was declared: it is a
limit, and a quiet hour would make it a false alarm. Every entry says what was seen, by which run, and when.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bringup import judge, runs
from bringup.gates import GATES, of_phase
from bringup.gates.gate import FromProfile, Gate
from bringup.profile import Expectation, Profile
from bringup.records import Observation, Run, Value

MARGIN = 0.1  # below the worst value seen; above it for a ceiling that nobody has declared
_SIZES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class NotHealthy(ValueError):
    """A run that is no measure of health. One line: which run, what failed, what to do."""


def measured(folders: Sequence[Path], name: str) -> Profile:
    """The runs' own profile with a number for every FromProfile gate that they observed. Raises NotHealthy."""
    base = runs.load_profile(folders[0])
    expect: dict[str, Expectation] = {}
    found: dict[str, list[tuple[Run, list[Observation]]]] = {}
    for folder in folders:
        run, profile = runs.load(folder), runs.load_profile(folder)
        if profile.name != base.name:
            raise NotHealthy(f"{folder}: judged against {profile.name}, {folders[0]} against {base.name}; give runs of one profile")
        expect |= profile.expect
        observations, verdicts = judge.judge_folder(folder)
        bad = [verdict for verdict in verdicts.verdicts if judge.is_fault_or_gap(verdict, profile)]
        if bad:
            raise NotHealthy(f"{folder}: {bad[0].gate} [{bad[0].subject}] is {bad[0].outcome} ({len(bad)} such verdicts); "
                             "a profile is made of runs that passed")
        for gate in of_phase(run.phase):
            if isinstance(gate.expect, FromProfile) and profile.reason_not_applicable(gate.id) is None:
                found.setdefault(gate.id, []).append((run, _seen(gate, run, profile, observations.observations)))
    for gate_id, several in found.items():
        entry = _expectation(GATES[gate_id], several, expect.get(gate_id))
        if entry is not None:
            expect[gate_id] = entry
    names = ", ".join(dict.fromkeys(run.name for several in found.values() for run, _ in several))
    return base.model_copy(update={"name": name, "extends": None, "expect": expect,
                                   "description": f"measured by {names}; before that they had passed {base.name}"})


def _seen(gate: Gate, run: Run, profile: Profile, observations: Sequence[Observation]) -> list[Observation]:
    """What the gate would judge: its quantity on the planned subjects, at the declared size or else the largest one."""
    declared = profile.expect.get(gate.id)
    planned = set(run.planned.get(gate.id, []))
    named = [one for one in observations if one.subject in planned and one.value is not None
             and one.quantity.partition("@")[0] == gate.quantity]
    sizes = {one.quantity.partition("@")[2] for one in named}
    if sizes <= {""} or not named:
        return named
    at = declared.at if declared is not None else max(sizes, key=_bytes)
    return [one for one in named if one.quantity == f"{gate.quantity}@{at}"]


def _bytes(size: str) -> float:
    match = re.fullmatch(r"([\d.]+)([KMG]?i?B)", size)
    return float(match[1]) * _SIZES.get(match[2], 0) if match else 0.0


def _expectation(gate: Gate, several: list[tuple[Run, list[Observation]]], declared: Expectation | None) -> Expectation | None:
    seen = [one for _, observed in several for one in observed]
    if not seen:
        return None
    rule = declared.rule if declared is not None else str(gate.rule)
    values = [one.value for one in seen if one.value is not None]
    limits = _limits(rule, values, declared)
    if limits is None:
        return None
    by = ", ".join(f"{run.name} on {run.opened_at[:10]}" for run, observed in several if observed)
    at = seen[0].quantity.partition("@")[2] or None
    source = f"measured by {by}: {_spread(values)}"
    if declared is not None and limits == declared.expected:
        source = f"{declared.source}; {source}"
    return Expectation.model_validate({rule: limits, "at": at, "unit": gate.unit, "source": source})


def _limits(rule: str, values: list[Value], declared: Expectation | None) -> object | None:
    """None where the values cannot become one expectation."""
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    texts = sorted({str(value) for value in values})
    match rule:
        case "at_least" if numbers:
            return _rounded(min(numbers) * (1 - MARGIN) if min(numbers) > 0 else min(numbers) * (1 + MARGIN))
        case "at_most" if numbers:
            return declared.expected if declared is not None else _rounded_up(max(numbers) * (1 + MARGIN))
        case "between" if numbers:
            return declared.expected if declared is not None else [min(numbers), max(numbers)]
        case "equals" if len(texts) == 1:
            return values[0]
        case "one_of":
            return texts
    return None


def _rounded(number: float) -> float:
    """Three digits: more would pretend to a precision that one run does not have. The margin is wider than the rounding."""
    return float(f"{number:.3g}")


def _rounded_up(number: float) -> float:
    return max(number, _rounded(number))


def _spread(values: list[Value]) -> str:
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == len(values) and numbers:
        return f"{min(numbers):.4g} to {max(numbers):.4g} in {len(numbers)} observations"
    return f"{', '.join(sorted({str(value) for value in values}))} in {len(values)} observations"
