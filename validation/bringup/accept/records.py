"""`acceptance.json`: what the runs showed of each line of a contract, of which machines, by which evidence."""

from bringup.accept.contract import Contract, Waiver
from bringup.kernel.characters import many
from bringup.kernel.facts.names import first_few, listed
from bringup.kernel.records import Moment, Name, NodeName, Record, StrEnum, Versioned


class State(StrEnum):
    PROVEN = "proven"
    REFUTED = "refuted"
    NOT_PROVEN = "not proven"  # nothing speaks against it, and the evidence has a gap, or is of a placeholder
    NOT_ASKED = "not asked"


class Result(Record):
    line: Name  # of the contract
    says: str
    state: State
    seen: str  # the number
    why: str | None  # it is not simply proven
    limits: list[str]  # how small a fault its checks find
    runs: list[str]  # that speak of it: PHASE/NAME, their folders
    exception: Waiver | None

    @property
    def row(self) -> list[str]:
        waived = f"accepted by {self.exception.who}: {self.exception.why}" if self.exception else None
        why, limits = "; ".join(filter(None, (waived, self.why))), "; ".join(self.limits)
        return [str(self.state), f"{self.says} ({self.line})", self.seen, why, limits, first_few(self.runs, 3)]


class Acceptance(Versioned):
    contract: Contract
    made_at: Moment
    cluster: str
    boots: dict[NodeName, str]  # node -> boot id, of the newest discovery: another boot is another evidence
    results: list[Result]
    closed: dict[str, str]  # SHA-256 of a closed.json, which holds the checksums of its evidence -> the run

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
        return f"{many(len(states), 'line')}: {counts}" + f"; {waived} accepted although not proven" * bool(waived)

    def otherwise(self, now: "Acceptance") -> list[str]:
        """Say what is not as it was accepted. now: made again, of today's runs."""
        others = [run for closed, run in now.closed.items() if closed not in self.closed]
        words = [f"{run}: its closed.json is another one" for run in others if run in self.closed.values()]
        states = {each.line: each.state for each in self.results}
        for was, each in ((states.get(each.line, "no such line"), each) for each in now.results):
            if (was, each.state) == (State.PROVEN, State.NOT_PROVEN) or was != each.state is State.REFUTED:
                words.append(f"{each.line}: {each.state}; accepted was {was}: {each.why}")
        again = [node for node, boot in now.boots.items() if self.boots.get(node, boot) != boot]
        return words + [f"booted since: {listed(again)}"] * bool(again)
