"""Settings that should be equal, NAME=VALUE in lists, compared name by name: a verdict says which one differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Observation

ABSENT = "absent"  # as probes/settings.py says of a setting that this kernel has not got
_TOLD = 4


def derive(seen: Seen, quantity: str, facts: Iterable[str], missing: str) -> Parsed:
    """How many of its settings a node has otherwise than most nodes. missing: the value where a node names none."""
    found = Parsed()
    facts = list(facts)
    told: dict[str, dict[str, str]] = {}
    evidence: dict[str, str] = {}
    for name in facts:
        for subject, several in seen.by_subject(name).items():
            known = _known(several[0])
            evidence.setdefault(subject, several[0].evidence)
            if known is None:
                found.saw(quantity, subject, None, "count", several[0].evidence, several[0].why or "no list arrived")
            else:
                told.setdefault(subject, {}).update(known)
    unknown = {one.subject for one in found.observations}
    settings = {node: known for node, known in told.items() if node not in unknown}
    usual = _usual(settings, missing)
    for node, known in settings.items():
        if len(settings) < 2:
            found.saw(quantity, node, None, "count", evidence[node], "no other node was there to compare with")
            continue
        odd = [
            f"{name}: {known.get(name, missing)}, {says}"
            for name, (value, says) in usual.items()
            if known.get(name, missing) != value
        ]
        more = f"; and {len(odd) - _TOLD} more" if len(odd) > _TOLD else ""
        why = "; ".join(odd[:_TOLD]) + more if odd else f"of {len(usual)} that were compared"
        found.saw(quantity, node, len(odd), "count", evidence[node], why)
    return found


def _known(fact: Observation) -> dict[str, str] | None:
    if not isinstance(fact.value, list):
        return None
    return {name: value for name, _, value in (entry.rpartition("=") for entry in fact.value)}


def _usual(settings: dict[str, dict[str, str]], missing: str) -> dict[str, tuple[str | None, str]]:
    """Name -> the value of most nodes, and that in words. A setting that no node has was not compared."""
    found: dict[str, tuple[str | None, str]] = {}
    for name in dict.fromkeys(name for known in settings.values() for name in known):
        counts = Counter(known.get(name, missing) for known in settings.values())
        if set(counts) == {ABSENT}:
            continue
        value, number = counts.most_common(1)[0]
        if number * 2 > len(settings):
            found[name] = value, f"{number} of {len(settings)} have {value}"
        else:
            found[name] = None, f"{len(counts)} different values and no majority"
    return found
