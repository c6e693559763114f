"""What two nodes of a pair say of one file, put together."""

from __future__ import annotations

from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Run


def derive(seen: Seen, run: Run) -> Parsed:
    """A subject whose facts did not arrive stays without evidence."""
    found = Parsed()
    _exclusive_winners(found, seen)
    _same_type(found, seen, run)
    return found


def _exclusive_winners(found: Parsed, seen: Seen) -> None:
    """Both nodes of a pair say whether they made the file; only both answers together are evidence."""
    for pair, told in seen.by_subject("smoke.fs.pair.created").items():
        answers = [one for one in told if one.value is not None]
        evidence = ", ".join(one.evidence for one in told)
        if len(answers) == 2:
            found.saw("smoke.fs.pair.winners", pair, sum(one.value is True for one in answers), "count", evidence)
        else:
            why = next((one.why for one in told if one.value is None), f"{len(told)} of 2 nodes answered")
            found.saw("smoke.fs.pair.winners", pair, None, "count", evidence, why)


def _same_type(found: Parsed, seen: Seen, run: Run) -> None:
    """Pairs are compared, not all nodes: with two nodes there would be no majority to be right."""
    types = {node: told[0] for node, told in seen.by_subject("smoke.fs.type").items()}
    planned = (pair for gate, pairs in run.planned.items() if gate.startswith("smoke.fs.pair.") for pair in pairs)
    for pair in dict.fromkeys(planned):
        writer, _, reader = pair.partition("->")
        if writer in types and reader in types:
            one, other = types[writer], types[reader]
            known = one.value is not None and other.value is not None  # two unknowns are not one type
            found.saw(
                "smoke.fs.pair.same_type",
                f"{writer}->{reader}",
                one.value == other.value if known else None,
                "flag",
                f"{one.evidence}, {other.evidence}",
                f"{one.value} and {other.value}",
            )
