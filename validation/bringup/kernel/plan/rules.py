"""The closed set of comparisons between an observed and an expected value. Nothing from YAML is code.

A rule judges one value, or the values of a fleet; the latter names the odd subjects.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Literal, get_args

from bringup.kernel.errors import RuleError
from bringup.kernel.records import Limit, Value, grouped

ValueRule = Literal["equals", "at_least", "at_most", "between", "one_of"]
FleetRule = Literal["all_equal", "all_distinct", "near_peers"]
Rule = ValueRule | FleetRule

FLEET: tuple[str, ...] = get_args(FleetRule)
VALUE_RULES: tuple[str, ...] = get_args(ValueRule)
RULES = (*VALUE_RULES, *FLEET)
DECLARABLE: tuple[str, ...] = (*VALUE_RULES, "near_peers")
"""Rules that a profile may give a number for."""

PEER_DEVIATIONS = 5.0
"""A value is odd only if it is this many median absolute deviations away: if all values scatter, none is odd."""

FEWEST_PEERS = 3
"""With two values neither can be odd: both are one median absolute deviation away from the median."""

UNRECOGNISED = "unknown:"
"""Prefix of an observed text, or of a part of it after a +, that this version does not know."""

WITHOUT_UNIT = ("text", "count", "flag", "share", "ratio", "sum")
"""Units that are not printed after a value."""

SIGNS = {"equals": "", "at_least": "≥ ", "at_most": "≤ "}
SPOKEN = {"equals": "", "at_least": "at least ", "at_most": "at most "}


def _number(value: object, description: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RuleError(f"{description} {value!r} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise RuleError(f"{description} has {len(str(value))} digits") from None


def _equals(value: Value, expected: Limit) -> bool:
    # True == 1 in Python; a flag that reads 1 is not the expected flag
    if any(isinstance(value, kind) is not isinstance(expected, kind) for kind in (bool, str)):
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
        says = f"{name} is not known to this version, which cannot say whether it is expected here"
        raise RuleError(f"{says}; a profile that names {strange[0]} accepts it")
    return False


_VALUE: dict[str, Callable[[Value, Limit], bool]] = {
    "equals": _equals,
    "at_least": lambda value, expected: _number(value, "observed") >= _number(expected, "expected"),
    "at_most": lambda value, expected: _number(value, "observed") <= _number(expected, "expected"),
    "between": _between,
    "one_of": _one_of,
}


def allowed(gate_rule: str, profile_rule: str) -> bool:
    """Say whether a profile may use this rule for a gate. It must keep the gate's direction; a floor may also be
    relative to the peers, and a list may be a single value."""
    return profile_rule == gate_rule or (gate_rule, profile_rule) in (("at_least", "near_peers"), ("one_of", "equals"))


def holds(rule: str, value: Value, expected: Limit) -> bool:
    """Say whether `value` meets `expected`. Raises RuleError when the two cannot be compared."""
    return _VALUE[rule](value, expected)


def value_in_words(value: Value, unit: str) -> str:
    """Say what was observed, in a reader's words: `346.2 GB/s`."""
    tail = "" if unit in WITHOUT_UNIT else f" {unit}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value) + tail
    if isinstance(value, float):
        return (f"{value:.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}") + tail
    return f"{value}{tail}"


def in_words(rule: str, expected: Limit | None, unit: str, signs: Mapping[str, str] = SIGNS) -> str:
    """Say the expectation in a reader's words: `≥ 440 GB/s`, or with the signs of a sentence `at least 440 GB/s`."""
    tail = "" if unit in WITHOUT_UNIT else f" {unit}"
    if rule == "between" and isinstance(expected, list):
        return f"{_exact(expected[0])} to {_exact(expected[1])}{tail}"
    if rule == "one_of" and isinstance(expected, list):
        return ("one of " if len(expected) > 1 else "") + ", ".join(str(item) for item in expected)
    if rule == "equals" and isinstance(expected, bool):
        return "yes" if expected else "no"
    if rule == "near_peers":
        near = "near" if expected is None else f"no more than {expected:.0%} below"
        return f"{near} the median of the fleet"
    if rule in signs:
        return f"{signs[rule]}{_exact(expected)}{tail}"
    return {"all_equal": "the same on all nodes", "all_distinct": "different on every node"}[rule]


def _exact(limit: object) -> str:
    """Without the .0 of a whole number; nothing is rounded."""
    return str(int(limit)) if isinstance(limit, float) and limit.is_integer() and abs(limit) < 1e15 else str(limit)


def odd_ones(
    rule: str, values: Mapping[str, Value], expected: Limit | None = None, at_fault: Collection[str] = ()
) -> dict[str, str]:
    """Return subjects of a fleet that are odd -> why.

    at_fault: subjects that failed another gate. Without a majority they are the odd ones, if all other subjects agree.
    If those disagree, too, every subject is odd, because the right value is unknown.
    """
    if rule == "near_peers":
        numbers = {subject: _number(value, "observed") for subject, value in values.items()}
        return _far_below(numbers, _number(expected, "expected"))
    keys = {subject: ", ".join(value) if isinstance(value, list) else str(value) for subject, value in values.items()}
    counts = Counter(keys.values())
    if rule == "all_distinct":
        sharing = grouped((key, subject) for subject, key in keys.items())
        return {subject: f"shared by {', '.join(sharing[key])}" for subject, key in keys.items() if counts[key] > 1}
    common, number = counts.most_common(1)[0]
    if number * 2 <= len(keys) and len(counts) > 1:
        return _without_majority(keys, at_fault)
    return {subject: f"{number} of {len(keys)} have {common}" for subject, key in keys.items() if key != common}


def _without_majority(keys: Mapping[str, str], at_fault: Collection[str]) -> dict[str, str]:
    sound = [subject for subject in keys if subject not in at_fault]
    right = {keys[subject] for subject in sound}
    if len(right) == 1 and len(sound) < len(keys):
        who = f"{sound[0]} has" if len(sound) == 1 else f"{', '.join(sound[:3])} have"
        return {subject: f"{who} {keys[sound[0]]}" for subject, key in keys.items() if key not in right}
    if len(keys) > 2:
        return dict.fromkeys(keys, f"{len(set(keys.values()))} different values and no majority")
    why = "and no majority says which is right"
    return {subject: f"{peer} has {key}, {why}" for subject in keys for peer, key in keys.items() if peer != subject}


def _far_below(values: Mapping[str, float], share: float) -> dict[str, str]:
    """Subjects far below the median. One bad subject moves neither the median nor the deviation. Only a low value is
    odd, because the values are speeds."""
    median = statistics.median(values.values())
    spread = statistics.median(abs(value - median) for value in values.values())
    allowed = max(PEER_DEVIATIONS * spread, share * abs(median))
    why = f"the median of {len(values)} is {median:.4g}"
    return {subject: why for subject, value in values.items() if median - value > allowed}
