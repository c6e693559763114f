"""`acceptance.json`: what the runs showed of each line of a contract, of which machines, by which evidence."""

from typing import Annotated, ClassVar

from pydantic import Field

from bringup.accept.contract import Waiver
from bringup.kernel.characters import many
from bringup.kernel.facts.names import first_few, listed
from bringup.kernel.records import Moment, Name, NodeName, Outcome, Record, StrEnum, Versioned

_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class State(StrEnum):
    PROVEN = "proven"
    REFUTED = "refuted"
    NOT_PROVEN = "not proven"  # nothing speaks against it, and the evidence has a gap, or is of a placeholder
    NOT_ASKED = "not asked"


class Result(Record):
    """One line of the contract."""

    line: Name
    says: str
    state: State
    seen: str  # the number
    why: str | None  # it is not simply proven
    limits: list[str]  # how small a fault its checks find
    runs: list[str]  # phase and name of those that speak of it
    exception: Waiver | None

    @property
    def row(self) -> list[str]:
        waived = f"accepted by {self.exception.who}: {self.exception.why}" if self.exception else None
        why, limits = "; ".join(filter(None, (waived, self.why))), "; ".join(self.limits)
        return [str(self.state), f"{self.says} ({self.line})", self.seen, why, limits, first_few(self.runs, 3)]


class OfRun(Record):
    """A run that was judged for it."""

    phase: Name
    name: Name
    opened_at: Moment
    outcome: Outcome
    nodes: list[NodeName]
    closed_sha256: _Sha256  # of closed.json, which holds the checksums of its evidence
    signed_by: str | None  # None: nobody, or no list of those whose signatures count

    @property
    def row(self) -> list[str]:
        outcome, nodes, signed = str(self.outcome), str(len(self.nodes)), self.signed_by or "nobody"
        return [self.phase, self.name, self.opened_at, outcome, nodes, signed, self.closed_sha256[:16]]


class Acceptance(Versioned):
    BY_EYE: ClassVar[bool] = True

    contract: Name
    contract_sha256: _Sha256  # of contract.yaml beside it
    made_at: Moment
    cluster: str
    boots: dict[NodeName, str]  # node -> boot id, of the newest discovery: another boot is another evidence
    results: list[Result]
    runs: list[OfRun]

    @property
    def exit_code(self) -> int:
        """Return 0: each line is proven or accepted, 1: one is refuted, 2: one is open."""
        states = {each.state for each in self.results if each.exception is None} - {State.PROVEN}
        return 1 if State.REFUTED in states else 2 if states else 0

    @property
    def counted(self) -> str:
        """Count the lines: `6 lines: 3 proven, 1 refuted, 2 not asked; 1 accepted although not proven`."""
        states = [each.state for each in self.results]
        counts = ", ".join(f"{states.count(state)} {state}" for state in State if state in states)
        waived = sum(each.state is not State.PROVEN and each.exception is not None for each in self.results)
        accepted = f"; {waived} accepted although not proven" if waived else ""
        return f"{many(len(states), 'line')}: {counts}{accepted}"

    def otherwise(self, now: "Acceptance") -> list[str]:
        """Say what is not as it was accepted. now: made again, of today's runs."""
        words = ["the contract is not the one that was accepted"] * (now.contract_sha256 != self.contract_sha256)
        known = {(run.phase, run.name): run.closed_sha256 for run in self.runs}
        for run in now.runs:
            if known.get((run.phase, run.name), run.closed_sha256) != run.closed_sha256:
                words.append(f"{run.phase} {run.name}: its closed.json is another one")
        states = {each.line: each.state for each in self.results}
        for was, each in ((states.get(each.line, "no such line"), each) for each in now.results):
            if (was, each.state) == (State.PROVEN, State.NOT_PROVEN) or was != each.state is State.REFUTED:
                words.append(f"{each.line}: {each.state}; accepted was {was}: {each.why}")
        again = [node for node, boot in now.boots.items() if self.boots.get(node, boot) != boot]
        return words + [f"booted since: {listed(again)}"] * bool(again)
