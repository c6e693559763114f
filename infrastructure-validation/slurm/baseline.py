"""What the facts of this node are compared with: the baseline that `bringup site-baseline` made of a run that passed.

Rules are data in the baseline. The comparisons here are those of validation/bringup/kernel/plan/rules.py, for a Python
without its environment; a test holds the two together.
"""

import json

import own_files

PASS, WATCH, FAULT, UNKNOWN = OUTCOMES = ("pass", "watch", "fault", "unknown")
ACTIONS = (WATCH, "configure", "reset", "reboot", "inspect", "replace")  # what usually helps
ENTRY = dict.fromkeys(("gate", "check", "quantity", "rule", "action"), str)
ENTRY.update(parts=list, limit=(bool, int, float, str, list))


class NoBaseline(Exception):
    """The message is one line."""


def load(path, node):
    """What is asked of this node. Raises NoBaseline."""
    try:
        with own_files.regular(path, "r") as stream:
            baseline = json.load(stream)
        groups = [group for group in baseline["groups"] if node in group["nodes"]]
        asked = groups[-1]["asked"] if groups else []
        lacking = {name for entry in asked for name, kind in ENTRY.items() if not isinstance(entry.get(name), kind)}
        if not isinstance(baseline.get("driver_events"), dict):
            lacking.add("driver_events")
        if lacking:
            raise ValueError("it has no {}, or one of another kind".format(", ".join(sorted(lacking))))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoBaseline(f"{path}: cannot be read as a baseline: {error!r}") from error
    if not groups:
        raise NoBaseline(
            f"{path}: no run in it passed on a node called {node}; run discovery there, then make a new baseline"
        )
    return asked


def judged(limits, facts, unfinished):
    """One answer per entry of `limits`: a dict with gate, outcome, words, action. facts: of the checks that were
    started; unfinished: {name of a check: why it gave no whole answer}."""
    answers = []
    for entry in limits:
        answered = facts.get(entry["check"])
        if entry["check"] in unfinished:
            answers.append(_answer(entry, UNKNOWN, unfinished[entry["check"]]))
        elif answered is not None:  # else: it is not asked on this occasion
            answers.append(_worst(entry, [fact for fact in answered if fact.get("quantity") == entry["quantity"]]))
    return answers


def _worst(entry, facts):
    """The worst of what the parts of the node said. A part that is named and says nothing is unknown."""
    silent = [part for part in entry["parts"] if part not in [_part(fact) for fact in facts]]
    for fact in facts:
        if fact.get("value") is not None and _compared(entry, fact["value"]) is False:
            return _answer(entry, outcome_of(entry["action"]), _words(entry, fact))
    if silent or not facts:
        return _answer(entry, UNKNOWN, "nothing was said of {}".format(", ".join(silent) or entry["quantity"]))
    for fact in facts:
        if fact.get("value") is None or _compared(entry, fact["value"]) is None:
            why = fact.get("why") or "it cannot be compared"
            return _answer(entry, UNKNOWN, f"{_part(fact)}: {why}" if _part(fact) else why)
    return _answer(entry, PASS, _words(entry, facts[0]))


def outcome_of(action):
    """The outcome of a finding: with the action `watch` it is said, and is no fault."""
    return WATCH if action == WATCH else FAULT


def _answer(entry, outcome, words):
    return {"gate": entry["gate"], "outcome": outcome, "words": words, "action": entry["action"]}


def _part(fact):
    return str(fact.get("subject", "")).partition("/")[2]


def _words(entry, fact):
    """`n1/GPU-1: 3, expected 0 (why)`"""
    part, limit = _part(fact), entry["limit"]
    sign = {"at_least": "at least ", "at_most": "at most ", "one_of": "one of ", "between": "between "}.get(
        entry["rule"], ""
    )
    shown = " and ".join(map(str, limit)) if isinstance(limit, list) else limit
    why = " ({})".format(fact["why"]) if fact.get("why") else ""
    return "{}{}, expected {}{}{}".format(part + " " if part else "", fact["value"], sign, shown, why)


def _compared(entry, value):
    """True, False, or None where the two cannot be compared."""
    try:
        return holds(entry["rule"], value, entry["limit"])
    except TypeError:
        return None


def holds(rule, value, limit):
    """Raises TypeError where the two cannot be compared."""
    if rule == "equals":
        if isinstance(value, bool) is not isinstance(limit, bool) or isinstance(value, str) is not isinstance(
            limit, str
        ):
            raise TypeError("not of one kind")
        return value == limit
    if rule == "one_of":
        return value in limit
    if rule == "between":
        return limit[0] <= _number(value) <= limit[1]
    if rule == "at_least":
        return _number(value) >= _number(limit)
    if rule == "at_most":
        return _number(value) <= _number(limit)
    raise TypeError(f"rule {rule} is not known here")


def _number(value):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("not a number")
    return value
