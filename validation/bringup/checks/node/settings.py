"""Settings that should be equal, as lists of NAME=VALUE. They are compared by name, so a verdict names the odd one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Observation

ABSENT = "absent"  # as probes/settings.py says of a setting that this kernel has not got
_SHOWN = 4


def derive(observed: Seen, quantity: str, facts: Iterable[str], missing: str) -> Parsed:
    """Number of a node's settings that differ from those of most nodes. missing: the value of a node without the
    name."""
    derived = Parsed()
    facts = list(facts)
    values: dict[str, dict[str, str]] = {}
    evidence: dict[str, str] = {}
    for name in facts:
        for subject, several in observed.by_subject(name).items():
            known = _known(several[0])
            evidence.setdefault(subject, several[0].evidence)
            if known is None:
                derived.saw(quantity, subject, None, "count", several[0].evidence, several[0].why or "no list arrived")
            else:
                values.setdefault(subject, {}).update(known)
    unknown = {observation.subject for observation in derived.observations}
    settings = {node: known for node, known in values.items() if node not in unknown}
    usual = _usual(settings, missing)
    for node, known in settings.items():
        if len(settings) < 2:
            derived.saw(quantity, node, None, "count", evidence[node], "no other node was there to compare with")
            continue
        different = [
            f"{name}: {known.get(name, missing)}, {says}"
            for name, (value, says) in usual.items()
            if known.get(name, missing) != value
        ]
        more = f"; and {len(different) - _SHOWN} more" if len(different) > _SHOWN else ""
        why = "; ".join(different[:_SHOWN]) + more if different else f"of {len(usual)} that were compared"
        derived.saw(quantity, node, len(different), "count", evidence[node], why)
    return derived


def _known(fact: Observation) -> dict[str, str] | None:
    if not isinstance(fact.value, list):
        return None
    return {name: value for name, _, value in (entry.rpartition("=") for entry in fact.value)}


def _usual(settings: dict[str, dict[str, str]], missing: str) -> dict[str, tuple[str | None, str]]:
    """Name -> the value of most nodes, and its words. A setting that no node has is not compared."""
    usual: dict[str, tuple[str | None, str]] = {}
    for name in dict.fromkeys(name for known in settings.values() for name in known):
        counts = Counter(known.get(name, missing) for known in settings.values())
        if set(counts) == {ABSENT}:
            continue
        value, number = counts.most_common(1)[0]
        if number * 2 > len(settings):
            usual[name] = value, f"{number} of {len(settings)} have {value}"
        else:
            usual[name] = None, f"{len(counts)} different values and no majority"
    return usual
