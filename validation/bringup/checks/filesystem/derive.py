"""Joins what the two nodes of a pair observed of one file."""

from __future__ import annotations

from bringup.checks import folders
from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Run


def derive(observed: Seen, run: Run) -> Parsed:
    """A subject without facts gets no observation, so its gates are incomplete."""
    derived = Parsed()
    _exclusive(derived, observed)
    _same_type(derived, observed, run)
    derived.add(folders.derive(observed, "discovery.folders", _folders(run)))
    return derived


def _folders(run: Run) -> list[str]:
    """The results folder, and the folders of the site file that jobs write to."""
    named = {} if run.site is None else run.site.says
    return ["results", *(label for label in ("scratch", "checkpoints") if label in named)]


def _exclusive(derived: Parsed, observed: Seen) -> None:
    """Number of nodes of a pair that created the file. Both nodes must have answered."""
    for pair, observations in observed.by_subject("smoke.fs.pair.created").items():
        answers = [observation.value for observation in observations if observation.value is not None]
        evidence = ", ".join(observation.evidence for observation in observations)
        if len(answers) == 2:
            made = sum(answer is True for answer in answers)
            derived.saw("smoke.fs.pair.exclusive", pair, made, "count", evidence)
        else:
            unknown = (observation.why for observation in observations if observation.value is None)
            why = next(unknown, f"{len(observations)} of 2 nodes answered")
            derived.saw("smoke.fs.pair.exclusive", pair, None, "count", evidence, why)


def _same_type(derived: Parsed, observed: Seen, run: Run) -> None:
    """Compare pairs instead of all nodes: two nodes have no majority."""
    types = {node: observations[0] for node, observations in observed.by_subject("smoke.fs.type").items()}
    planned = (pair for gate, pairs in run.planned.items() if gate.startswith("smoke.fs.pair.") for pair in pairs)
    for pair in dict.fromkeys(planned):
        writer, _, reader = pair.partition("->")
        if writer in types and reader in types:
            first, second = types[writer], types[reader]
            known = first.value is not None and second.value is not None  # two unknown types are not equal
            derived.saw(
                "smoke.fs.pair.same_type",
                pair,
                first.value == second.value if known else None,
                "flag",
                f"{first.evidence}, {second.evidence}",
                f"{first.value} and {second.value}",
            )
