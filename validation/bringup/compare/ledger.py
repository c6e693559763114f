"""Silent corruption: how long results were compared with the right ones, what differed, and what none allows.

Time counts while something was computed that was then compared: of the sustained load the last product of each window,
which is known to the last bit. Other comparisons (seeded steps, collectives, copies) are counted, and add no time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from bringup.formulae.chance import most_events
from bringup.judge import Judged
from bringup.plan import stand_ins
from bringup.records import Outcome

SECONDS, WRONG = "sweep.gpu.load.compared_s", "sweep.gpu.load.wrong_values"
COUNTED = {  # gates whose pass says that results were equal, bit by bit
    "sweep.step.cpu": "seeded steps",
    "sweep.step.gpu": "seeded steps",
    "sweep.inside.wrong_values": "collectives inside a node",
    "nccl.wrong_values": "collectives",
    "smoke.compute.wrong_values": "products and copies",
    "train.checkpoint.intact": "checkpoints",
}
Kind = Literal["GPU", "simulated GPU", "CPU, not a GPU"]


@dataclass
class Line:
    """One kind of device."""

    hours: float = 0.0  # of devices
    devices: set[str] = field(default_factory=set)
    findings: list[str] = field(default_factory=list)  # run and device


@dataclass(frozen=True)
class Ledger:
    lines: dict[Kind, Line]
    counted: dict[str, tuple[int, int]]  # what was compared -> (verdicts that say so, those that say they differ)


def of(judged: Iterable[Judged]) -> Ledger:
    """From the runs whose evidence holds. A fault that a drill made is in no run of a cluster: drills keep theirs."""
    lines: dict[Kind, Line] = {}
    counted: dict[str, tuple[int, int]] = {}
    for run in judged:
        if run.objection is not None:
            continue
        seconds = {seen.subject: seen.value for seen in run.observations if seen.quantity == SECONDS}
        for seen in run.observations:
            lasted = seconds.get(seen.subject)
            if seen.quantity != WRONG or not isinstance(seen.value, int) or not isinstance(lasted, int | float):
                continue
            line = lines.setdefault(_kind(seen.subject), Line())
            line.hours += lasted / 3600
            line.devices.add(seen.subject)
            if seen.value:
                line.findings.append(f"{run.run.name} {seen.subject}")
        for verdict in run.verdicts.verdicts:
            if verdict.gate in COUNTED and verdict.outcome in (Outcome.PASS, Outcome.FAIL):
                asked, bad = counted.get(COUNTED[verdict.gate], (0, 0))
                counted[COUNTED[verdict.gate]] = asked + 1, bad + (verdict.outcome is Outcome.FAIL)
    return Ledger(lines, counted)


def _kind(subject: str) -> Kind:
    device = subject.partition("/")[2]
    if device.startswith(stand_ins.GPU):
        return "simulated GPU"
    return "GPU" if device.startswith(("GPU-", "gpu")) else "CPU, not a GPU"


def sentences(ledger: Ledger) -> list[str]:
    """One for each kind of device that computed, and one for what was counted. Empty: nothing was compared."""
    lines = []
    for kind, line in sorted(ledger.lines.items()):
        findings = f"{len(line.findings)} findings" + (f" ({', '.join(line.findings[:4])})" if line.findings else "")
        lines.append(
            f"silent corruption, {kind}: {_lasting(line.hours)} of {len(line.devices)} devices compared bit by bit, "
            f"{findings}; so at most one in {_lasting(line.hours / most_events(len(line.findings)))} (95 %)"
        )
    if ledger.counted:
        parts = (f"{what} {asked}, of which {bad} differ" for what, (asked, bad) in sorted(ledger.counted.items()))
        lines.append(f"compared besides, in verdicts: {'; '.join(parts)}")
    return lines


def _lasting(hours: float) -> str:
    return f"{hours:.3g} device-hours" if hours >= 1 else f"{3600 * hours:.3g} device-seconds"
