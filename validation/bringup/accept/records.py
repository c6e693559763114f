"""`acceptance.json`: what the runs showed of each line of a contract, of which machines, by which evidence."""

from typing import Annotated, ClassVar

from pydantic import Field

from bringup.kernel.facts.names import first_few
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
    runs: list[str]  # phase and name of those that speak of it
    limits: list[str] = Field(default_factory=list)  # how small a fault its checks find
    accepted_by: str | None = None  # although it is not proven
    accepted_why: str | None = None

    @property
    def row(self) -> list[str]:
        waived = f"accepted by {self.accepted_by}: {self.accepted_why}" if self.accepted_by else None
        why = "; ".join(filter(None, (waived, self.why)))
        return [f"{self.says} ({self.line})", str(self.state), self.seen, why, "; ".join(self.limits), self.by]

    @property
    def by(self) -> str:
        return first_few(self.runs, 3)


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
    vendor: str | None
    customer: str | None
    made_at: Moment
    cluster: str
    boots: dict[NodeName, str]  # node -> boot id, of the newest discovery: another boot is another evidence
    results: list[Result]
    runs: list[OfRun]

    @property
    def open(self) -> list[Result]:
        """Return lines that are neither proven nor accepted by somebody."""
        return [each for each in self.results if each.state is not State.PROVEN and each.accepted_by is None]

    @property
    def exit_code(self) -> int:
        """Return 0: each line is proven or accepted, 1: one is refuted, 2: one is open."""
        states = {each.state for each in self.open}
        return 1 if State.REFUTED in states else 2 if states else 0

    @property
    def counted(self) -> str:
        """Count the lines: `3 proven, 1 refuted, 2 not asked; 1 accepted although not proven`."""
        states = [each.state for each in self.results]
        counts = ", ".join(f"{states.count(state)} {state}" for state in State if state in states)
        waived = sum(each.state is not State.PROVEN and each.accepted_by is not None for each in self.results)
        return f"{counts}; {waived} accepted although not proven" if waived else counts
