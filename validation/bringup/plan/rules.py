"""The closed set of comparisons between what was observed and what is expected. No lambdas, nothing from YAML is code.

A rule either judges one value, or the values of a whole fleet and then says which subjects are odd.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Literal, get_args

from bringup.errors import RuleError
from bringup.records import Limit, Value

ValueRule = Literal["equals", "at_least", "at_most", "between", "one_of"]
FleetRule = Literal["all_equal", "all_distinct", "near_peers"]
Rule = ValueRule | FleetRule

FLEET: tuple[str, ...] = get_args(FleetRule)
VALUE_RULES: tuple[str, ...] = get_args(ValueRule)
DECLARABLE: tuple[str, ...] = (*VALUE_RULES, "near_peers")
"""Rules that a profile may give a number for."""

PEER_DEVIATIONS = 5.0
"""A value is odd only beyond so many median absolute deviations of its fleet: where all scatter, none is odd."""

FEWEST_PEERS = 3
"""Of two values neither can be odd: their median lies between them, as far from both as their deviation."""


UNRECOGNISED = "unknown:"
"""Begins a text, or a part of one behind a +, that was observed and is none of those that this version knows."""

UNSAID = ("text", "count", "flag", "share", "ratio", "sum")
"""Units that a reader does not need to see behind a value."""


def _number(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RuleError(f"{what} {value!r} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise RuleError(f"{what} has {len(str(value))} digits") from None


def _equals(value: Value, expected: Limit) -> bool:
    # True == 1 in Python; a flag that reads 1 is not the expected flag
    if isinstance(value, bool) is not isinstance(expected, bool):
        raise RuleError(f"observed {value!r} and expected {expected!r} are not of one kind")
    if isinstance(value, str) is not isinstance(expected, str):
        raise RuleError(f"observed {value!r} and expected {expected!r} are not of one kind")
    return value == expected


def _between(value: Value, expected: Limit) -> bool:
    if not isinstance(expected, list) or len(expected) != 2:
        raise RuleError(f"between needs [low, high], not {expected!r}")
    low, high = (_number(bound, "bound") for bound in expected)
    return low <= _number(value, "observed") <= high


def _one_of(value: Value, expected: Limit) -> bool:
    if not isinstance(expected, list) or not expected:
        raise RuleError(f"one_of needs a list, not {expected!r}")
    if value in expected:
        return True
    parts = str(value).split("+")
    strange = [part for part in parts if part.startswith(UNRECOGNISED)]
    if strange and all(part in expected for part in parts if part not in strange):
        name = strange[0].removeprefix(UNRECOGNISED)
        raise RuleError(
            f"{name} is not known to this version, which cannot say whether it is expected here; "
            f"a profile that names {strange[0]} accepts it"
        )
    return False


_VALUE: dict[str, Callable[[Value, Limit], bool]] = {
    "equals": _equals,
    "at_least": lambda value, expected: _number(value, "observed") >= _number(expected, "expected"),
    "at_most": lambda value, expected: _number(value, "observed") <= _number(expected, "expected"),
    "between": _between,
    "one_of": _one_of,
}


def allowed(gate_rule: str, profile_rule: str) -> bool:
    """Whether a profile may use this rule for a gate. A profile gives numbers, never another direction. A floor may
    also be relative to the peers."""
    return profile_rule == gate_rule or (gate_rule == "at_least" and profile_rule == "near_peers")


def holds(rule: str, value: Value, expected: Limit) -> bool:
    """Whether `value` meets `expected`. Raises RuleError when the two cannot be compared."""
    return _VALUE[rule](value, expected)


def in_words(rule: str, expected: Limit | None, unit: str) -> str:
    """The expectation as a reader would say it: `≥ 440 GB/s`."""
    tail = "" if unit in UNSAID else f" {unit}"
    if rule == "between" and isinstance(expected, list):
        return f"{expected[0]} to {expected[1]}{tail}"
    if rule == "one_of" and isinstance(expected, list):
        return "one of " + ", ".join(str(item) for item in expected)
    if rule == "equals" and isinstance(expected, bool):
        return "yes" if expected else "no"
    if rule == "near_peers":
        return (
            "near the median of the fleet"
            if expected is None
            else f"no more than {expected:.0%} below the median of the fleet"
        )
    sign = {"equals": "", "at_least": "≥ ", "at_most": "≤ "}.get(rule)
    if sign is not None:
        return f"{sign}{expected}{tail}"
    return {"all_equal": "the same on all nodes", "all_distinct": "different on every node"}[rule]


def odd_ones(
    rule: str, values: Mapping[str, Value], expected: Limit | None = None, at_fault: Collection[str] = ()
) -> dict[str, str]:
    """Subject -> why it is odd, over a fleet.

    Without a majority those are odd that are `at_fault` by what else is known of them, when all others agree. Else
    every subject is: we cannot say who is right.
    """
    if rule == "near_peers":
        return _far_below(
            {subject: _number(value, "observed") for subject, value in values.items()}, _number(expected, "expected")
        )
    keys = {subject: _key(value) for subject, value in values.items()}
    counts = Counter(keys.values())
    if rule == "all_distinct":
        return {
            subject: f"shared by {', '.join(s for s in keys if keys[s] == key)}"
            for subject, key in keys.items()
            if counts[key] > 1
        }
    common, number = counts.most_common(1)[0]
    if number * 2 <= len(keys) and len(counts) > 1:
        return _without_majority(keys, at_fault)
    return {subject: f"{number} of {len(keys)} have {common}" for subject, key in keys.items() if key != common}


def _without_majority(keys: Mapping[str, str], at_fault: Collection[str]) -> dict[str, str]:
    sound = [subject for subject in keys if subject not in at_fault]
    right = {keys[subject] for subject in sound}
    if len(right) == 1 and len(sound) < len(keys):
        return {subject: f"{_has(sound)} {keys[sound[0]]}" for subject, key in keys.items() if key not in right}
    if len(keys) > 2:
        return dict.fromkeys(keys, f"{len(set(keys.values()))} different values and no majority")
    return {
        subject: f"{other} has {key}, and no majority says which is right"
        for subject in keys
        for other, key in keys.items()
        if other != subject
    }


def _has(subjects: list[str]) -> str:
    return f"{subjects[0]} has" if len(subjects) == 1 else f"{', '.join(subjects[:3])} have"


def _far_below(values: Mapping[str, float], share: float) -> dict[str, str]:
    """Robust: one bad subject moves neither the median nor the deviation. Speeds: only too low is odd."""
    median = statistics.median(values.values())
    spread = statistics.median(abs(value - median) for value in values.values())
    allowed = max(PEER_DEVIATIONS * spread, share * abs(median))
    return {
        subject: f"the median of {len(values)} is {median:.4g}"
        for subject, value in values.items()
        if median - value > allowed
    }


def _key(value: Value) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
