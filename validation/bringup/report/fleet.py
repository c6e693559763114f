"""The nodes: a square for each with its worst outcome, and how many of them are broken, suspected and clean.

Only what was judged of a node alone, or of its ranks, counts here. A pair accuses neither of its nodes by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from bringup.kernel.facts.names import listed, shortened
from bringup.kernel.judge import Judged
from bringup.kernel.plan import subjects as naming
from bringup.kernel.records import Action, Outcome, Verdict, grouped, worst
from bringup.report.text import sentence

# not by colour alone
LETTER = {Outcome.PASS: "", Outcome.NO_LIMIT: "", Outcome.WARN: "W", Outcome.INCOMPLETE: "I", Outcome.FAIL: "F"}
COSTS = list(Action)
MAX_NAMES = 64  # nodes whose names stand in their squares; of more, whole rows of clean nodes are counted
ROW = 32  # nodes of such a row


@dataclass(frozen=True)
class Node:
    name: str
    verdicts: Sequence[Verdict]  # about it alone

    @cached_property
    def outcome(self) -> Outcome:
        return worst([Outcome.PASS, *(verdict.outcome for verdict in self.verdicts if not verdict.outcome.is_quiet)])

    @cached_property
    def bad(self) -> list[Verdict]:
        """Return those that have this outcome, unless it is a pass."""
        return [v for v in self.verdicts if v.outcome is self.outcome and not v.outcome.is_quiet]

    @property
    def gates(self) -> list[str]:
        return list(dict.fromkeys(verdict.gate for verdict in self.bad))

    @property
    def says(self) -> str:
        """Say what is wrong: of those that have this outcome the one whose usual help costs most."""
        return sentence(max(self.bad, key=lambda verdict: COSTS.index(verdict.action) if verdict.action else -1))

    @property
    def letter(self) -> str:
        return LETTER[self.outcome]

    @property
    def title(self) -> str:
        if not self.verdicts:
            return f"{self.name}: nothing was judged of it alone"
        return f"{self.name}: {self.outcome}" + (f": {self.says} [{shortened(self.gates)}]" if self.bad else "")


def nodes(judged: Sequence[Judged]) -> list[Node]:
    """Return the nodes in the order in which runs name them."""
    alone = grouped((naming.nodes_of(each.subject)[0], each) for run in judged for each in of_single_nodes(run))
    return [Node(name, alone.get(name, [])) for name in dict.fromkeys(name for run in judged for name in run.run.nodes)]


def of_single_nodes(run: Judged) -> list[Verdict]:
    """Return verdicts about one node, or a rank of it. What failed on most nodes of the run accuses none of them."""
    own = set(run.run.nodes)
    about = [(naming.nodes_of(verdict.subject), verdict) for verdict in run.verdicts.verdicts]
    single = [(named[0], verdict) for named, verdict in about if len(named) == 1 and named[0] in own]
    failed = grouped((verdict.gate, node) for node, verdict in single if verdict.outcome is Outcome.FAIL)
    whole = {gate for gate, nodes in failed.items() if len(own) > 1 and 2 * len(set(nodes)) > len(own)}
    return [verdict for _, verdict in single if verdict.outcome is not Outcome.FAIL or verdict.gate not in whole]


@dataclass(frozen=True)
class Standing:
    """Each node in one class: a gate of its own failed; something else is against it; not all is known; nothing is."""

    broken: list[str]
    suspected: list[str]
    unknown: list[str]
    clean: list[str]

    @property
    def count(self) -> int:
        return sum(map(len, (self.broken, self.suspected, self.unknown, self.clean)))

    @property
    def words(self) -> str:
        """Say how many are what: `2 broken: n1, n3; 1 suspected: n2`."""
        classes = (("broken", self.broken), ("suspected", self.suspected), ("not fully known", self.unknown))
        return "; ".join(f"{len(names):,} {word}: {listed(names)}" for word, names in classes if names)

    @property
    def parts(self) -> list[tuple[str, float, float]]:
        """Return style, begin and width, of a bar of 100 units. A class of any node is wide enough to be seen."""
        classes = {"pass": self.clean, "incomplete": self.unknown, "warn": self.suspected, "fail": self.broken}
        wide = [(style, max(1.0, 100 * len(names) / self.count)) for style, names in classes.items() if names]
        unit = 100 / sum(width for _, width in wide) if wide else 0.0
        begins = [unit * sum(width for _, width in wide[:index]) for index in range(len(wide))]
        return [(f"fill-{style}", at, unit * width) for at, (style, width) in zip(begins, wide, strict=True)]


def standing(judged: Sequence[Judged], fleet: Sequence[Node]) -> Standing:
    bad = (v for run in judged for v in run.verdicts.verdicts if v.outcome in (Outcome.FAIL, Outcome.WARN))
    suspects = {node for verdict in bad if len(named := naming.nodes_of(verdict.subject)) == 2 for node in named}
    suspects |= {node.name for node in fleet if node.outcome is Outcome.WARN}
    classes: dict[str, list[str]] = {"broken": [], "suspected": [], "unknown": [], "clean": []}
    for node in fleet:
        unknown = "unknown" if node.outcome is Outcome.INCOMPLETE else "clean"
        suspected = "suspected" if node.name in suspects else unknown
        classes["broken" if node.outcome is Outcome.FAIL else suspected].append(node.name)
    return Standing(**classes)


def rows(fleet: Sequence[Node]) -> tuple[list[list[Node]], str]:
    """Return the rows of squares, and what is said of those left out: of a large fleet the rows in which all nodes are
    clean. A row ends where the name before its number changes: where names say racks, it is of one rack."""
    if len(fleet) <= MAX_NAMES:
        return [list(fleet)], ""
    racks = grouped((node.name.rstrip("0123456789"), node) for node in fleet)
    cut = [rack[start : start + ROW] for rack in racks.values() for start in range(0, len(rack), ROW)]
    shown = [row for row in cut if any(node.letter for node in row)]
    clean = [node.name for row in cut if row not in shown for node in row]
    return shown, f"Not shown: {len(cut) - len(shown)} rows of clean nodes, {listed(clean)}." if clean else ""
