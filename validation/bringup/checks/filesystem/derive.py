"""What two nodes of a pair observed of one file, put together."""

from __future__ import annotations

from bringup.checks import folders
from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Run


def derive(seen: Seen, run: Run) -> Parsed:
    """A subject whose facts did not arrive stays without evidence."""
    found = Parsed()
    _exclusive(found, seen)
    _same_type(found, seen, run)
    found.add(folders.derive(seen, "discovery.folders", _folders(run)))
    return found


def _folders(run: Run) -> list[str]:
    """That of the results, and those of the site file that jobs write to."""
    named = {} if run.site is None else run.site.says
    return ["results", *(label for label in ("scratch", "checkpoints") if label in named)]


def _exclusive(found: Parsed, seen: Seen) -> None:
    """How many nodes of a pair made the file. Each of the two says whether it did; only both answers together are
    evidence."""
    for pair, observations in seen.by_subject("smoke.fs.pair.created").items():
        answers = [observation.value for observation in observations if observation.value is not None]
        evidence = ", ".join(observation.evidence for observation in observations)
        if len(answers) == 2:
            made = sum(answer is True for answer in answers)
            found.saw("smoke.fs.pair.exclusive", pair, made, "count", evidence)
        else:
            unknown = (observation.why for observation in observations if observation.value is None)
            why = next(unknown, f"{len(observations)} of 2 nodes answered")
            found.saw("smoke.fs.pair.exclusive", pair, None, "count", evidence, why)


def _same_type(found: Parsed, seen: Seen, run: Run) -> None:
    """Pairs are compared, not all nodes: with two nodes there would be no majority to be right."""
    types = {node: observations[0] for node, observations in seen.by_subject("smoke.fs.type").items()}
    planned = (pair for gate, pairs in run.planned.items() if gate.startswith("smoke.fs.pair.") for pair in pairs)
    for pair in dict.fromkeys(planned):
        writer, _, reader = pair.partition("->")
        if writer in types and reader in types:
            first, second = types[writer], types[reader]
            known = first.value is not None and second.value is not None  # two unknowns are not one type
            found.saw(
                "smoke.fs.pair.same_type",
                pair,
                first.value == second.value if known else None,
                "flag",
                f"{first.evidence}, {second.evidence}",
                f"{first.value} and {second.value}",
            )
