"""Several folders at once. The worst folder of each node counts, and is named. Used by several rooms."""

from __future__ import annotations

from collections.abc import Iterable

from bringup.evidence.parsed import Parsed, Seen, is_number
from bringup.records import Observation

_FACT = "inventory.folder"
_WORKS = "works"  # from probes/folders.py: what was written is read back


def derive(observed: Seen, prefix: str, labels: Iterable[str]) -> Parsed:
    """Facts of each node's worst folder; unknown if one folder is unknown."""
    derived = Parsed()
    labels = list(labels)
    for quantity, unit in (("writes", "flag"), ("space", "GiB"), ("files", "count")):
        facts = {label: observed.by_subject(f"{_FACT}.{label}.{quantity}") for label in labels}
        for node in dict.fromkeys(node for of_label in facts.values() for node in of_label):
            known = {label: facts[label][node][0] for label in labels if node in facts[label]}
            _worst(
                derived, f"{prefix}.{quantity}", node, unit, known, [label for label in labels if label not in known]
            )
    return derived


def _worst(
    derived: Parsed, quantity: str, node: str, unit: str, known: dict[str, Observation], lacking: list[str]
) -> None:
    evidence = ", ".join(fact.evidence for fact in known.values())
    unknown = next((f"{label}: {fact.why}" for label, fact in known.items() if fact.value is None), None)
    if lacking or unknown is not None:
        derived.saw(quantity, node, None, unit, evidence, unknown or f"nothing was said of {', '.join(lacking)}")
    elif unit == "flag":
        bad = [f"{label} ({fact.why}): {fact.value}" for label, fact in known.items() if fact.value != _WORKS]
        good = ", ".join(f"{label} ({fact.why})" for label, fact in known.items())
        derived.saw(quantity, node, not bad, unit, evidence, "; ".join(bad) or good)
    else:
        numbers = {label: fact.value for label, fact in known.items() if is_number(fact.value)}
        text = next(
            (f"{label}: not a number: {fact.value!r}" for label, fact in known.items() if label not in numbers), None
        )
        if text is not None:
            derived.saw(quantity, node, None, unit, evidence, text)
            return
        least = min(numbers, key=lambda label: numbers[label])
        derived.saw(quantity, node, numbers[least], unit, known[least].evidence, f"{least} ({known[least].why})")
