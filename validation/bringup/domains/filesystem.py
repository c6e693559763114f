"""Filesystems: what the two nodes of a pair observed of one file, and folders that jobs write to."""

from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.records import Run


def exclusive(derived: Parsed, observed: Seen, run: Run) -> None:
    """Count the nodes of a pair that created the file. Both nodes must have answered."""
    for pair, observations in observed.by_subject("smoke.fs.pair.created").items():
        unknown = [seen.why for seen in observations if seen.value is None]
        evidence = ", ".join(seen.evidence for seen in observations)
        is_known = len(observations) - len(unknown) == 2
        why = None if is_known else [*unknown, f"{len(observations)} of 2 nodes answered"][0]
        made = sum(seen.value is True for seen in observations) if is_known else None
        derived.saw("smoke.fs.pair.exclusive", pair, made, "count", evidence, why)


def same_type(derived: Parsed, observed: Seen, run: Run) -> None:
    """Compare pairs instead of all nodes: two nodes have no majority."""
    types = {node: observations[0] for node, observations in observed.by_subject("smoke.fs.type").items()}
    planned = (pair for gate, pairs in run.planned.items() if gate.startswith("smoke.fs.pair.") for pair in pairs)
    for pair in dict.fromkeys(planned):
        writer, _, reader = pair.partition("->")
        if writer in types and reader in types:
            first, second = types[writer], types[reader]
            known = first.value is not None and second.value is not None  # two unknown types are not equal
            is_same, where = first.value == second.value if known else None, f"{first.evidence}, {second.evidence}"
            derived.saw("smoke.fs.pair.same_type", pair, is_same, "flag", where, f"{first.value} and {second.value}")


def folders_work(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive discovery.tmp.writes, discovery.folders.writes: whether what was written in each folder was read back.
    Unknown if one folder is unknown and none is known to fail."""
    named = [label for label in ("scratch", "checkpoints") if run.site is not None and label in run.site.says]
    for gate, labels in (("discovery.tmp.writes", ("tmp", "shm")), ("discovery.folders.writes", ("results", *named))):
        facts = {label: observed.by_subject(f"inventory.folder.{label}.writes") for label in labels}
        for node in dict.fromkeys(node for of_label in facts.values() for node in of_label):
            known = {label: facts[label][node][0] for label in labels if node in facts[label]}
            bad = [f"{label} ({f.why}): {f.value}" for label, f in known.items() if f.value not in (None, "works")]
            unknown = [f"{label}: {fact.why}" for label, fact in known.items() if fact.value is None]
            unknown += [f"nothing was said of {label}" for label in labels if label not in known]
            good = ", ".join(f"{label} ({fact.why})" for label, fact in known.items())
            evidence = ", ".join(fact.evidence for fact in known.values())
            value = False if bad else None if unknown else True
            derived.saw(gate, node, value, "flag", evidence, "; ".join(bad or unknown) or good)
