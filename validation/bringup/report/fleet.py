"""The nodes: a square for each with its worst outcome, and a line for each that is not well.

Only what was judged of a node alone, or of its ranks, counts here. A pair accuses neither of its nodes by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bringup.evidence.names import shortened
from bringup.judge import Judged
from bringup.plan import subjects as naming
from bringup.records import Action, Outcome, Verdict
from bringup.report.text import sentence

# not by colour alone
LETTER = {Outcome.PASS: "", Outcome.NO_LIMIT: "", Outcome.WARN: "W", Outcome.INCOMPLETE: "I", Outcome.FAIL: "F"}
MAX_ROWS = 50
_COSTS = list(Action)
MAX_NAMES = 64  # nodes whose names stand in their squares


@dataclass
class Node:
    name: str
    outcome: Outcome = Outcome.PASS
    judged: int = 0
    gates: list[str] = field(default_factory=list)  # that had this outcome, unless it is a pass
    action: Action | None = None  # what usually helps, of those that failed the one that costs most
    says: str = ""  # what is wrong, of the one that asks for that action

    @property
    def letter(self) -> str:
        return LETTER[self.outcome]

    @property
    def title(self) -> str:
        if not self.judged:
            return f"{self.name}: nothing was judged of it alone"
        return f"{self.name}: {self.outcome}" + (f": {self.says} [{shortened(self.gates)}]" if self.gates else "")

    @property
    def gates_in_short(self) -> str:
        return shortened(self.gates)

    def add(self, verdict: Verdict) -> None:
        self.judged += 1
        if verdict.outcome.is_quiet:
            return
        if verdict.outcome.rank > self.outcome.rank:
            self.outcome, self.gates, self.action, self.says = verdict.outcome, [], None, sentence(verdict)
        if verdict.outcome is not self.outcome:
            return
        if verdict.gate not in self.gates:
            self.gates.append(verdict.gate)
        if verdict.action is not None and (
            self.action is None or _COSTS.index(verdict.action) > _COSTS.index(self.action)
        ):
            self.action, self.says = verdict.action, sentence(verdict)


def nodes(judged: Sequence[Judged]) -> list[Node]:
    """In the order in which runs name them."""
    by_name = {name: Node(name) for run in judged for name in run.run.nodes}
    for run in judged:
        own = set(run.run.nodes)
        for verdict in run.verdicts.verdicts:
            named = naming.nodes_of(verdict.subject)
            if len(named) == 1 and named[0] in own:
                by_name[named[0]].add(verdict)
    return list(by_name.values())


def suspected(judged: Sequence[Judged], fleet: Iterable[Node]) -> set[str]:
    """Nodes that did not pass everything of their own, and those of a pair or link that failed or warned."""
    pairs = [naming.nodes_of(v.subject) for run in judged for v in run.verdicts.verdicts if not v.outcome.is_quiet]
    of_pairs = {node for named in pairs if len(named) == 2 for node in named}
    return of_pairs | {node.name for node in fleet if node.outcome is not Outcome.PASS}


def not_well(fleet: Iterable[Node]) -> list[Node]:
    """Worst first."""
    return sorted((node for node in fleet if node.outcome is not Outcome.PASS), key=lambda node: -node.outcome.rank)
