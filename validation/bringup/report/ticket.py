"""`bringup ticket NODE`: what a vendor or the site's own desk asks for, as one text: what is wrong, on which device of
which machine, since when, with the lines of evidence, and what to attach. With --folder the files, too."""

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from bringup.kernel.errors import RecordError, UsageError
from bringup.kernel.judge import Judged
from bringup.kernel.plan import subjects
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.rules import value_in_words
from bringup.kernel.records import Kind, Outcome, Verdict, known
from bringup.report import system
from bringup.report.explain import next_commands
from bringup.report.render import render
from bringup.report.text import MARK, counted

_BAD = (Outcome.FAIL, Outcome.WARN, Outcome.INCOMPLETE)
_FOLLOWS = (Kind.UNDECLARED, Kind.BLOCKED)  # from the profile, or from another verdict
_OF_A_GPU = ("discovery.gpu.", "inventory.gpu.")
_OF_THE_DRIVER, _SPOKEN = "discovery.kernel_log.", "inventory.kernel_log.line"
_IDENTIFIES = ("model", "pci", "address", "serial", "vbios", "board")
_LONGEST = 400  # characters of a line of evidence
TICKET, SCRIPT = "ticket.md", "attach.sh"
ATTACH = known("attach", list[str])


class Finding(NamedTuple):
    verdict: Verdict
    run: Judged
    line: str  # of the evidence, as it stands in the file; empty where the evidence is no line

    @property
    def commands(self) -> list[str]:
        return next_commands([self.verdict], self.run)


def in_folder(node: str, judged: Sequence[Judged]) -> dict[str, bytes]:
    """Return files of a folder for a vendor: the ticket, a script that collects what to attach, and the whole files in
    which the evidence stands. Raises UsageError when no run is about this node."""
    script = [
        "#!/usr/bin/env bash",
        "# collects what vendors ask for; takes the node for some minutes",
        "set -uo pipefail",
        'cd "$(dirname "${BASH_SOURCE[0]}")" || exit',
        *(command.format(node=shlex.quote(node)) for command in ATTACH),
    ]
    kept = {TICKET: text(node, judged).encode(), SCRIPT: "\n".join([*script, ""]).encode()}
    for finding in _findings(node, _of_node(node, judged)):
        name, run = finding.verdict.evidence.partition(":")[0], finding.run
        if finding.line:
            kept[f"{run.run.phase}-{run.run.name}-{name.rpartition('/')[2]}"] = run.files.read(name).data
    return kept


def text(node: str, judged: Sequence[Judged]) -> str:
    """Write the ticket in Markdown. Raises UsageError when no run is about this node."""
    of_node = _of_node(node, judged)
    findings = _findings(node, of_node)
    return render(
        "ticket.md.j2",
        node=node,
        cluster=system.cluster_name(of_node),
        findings=sorted(findings, key=lambda finding: -finding.verdict.outcome.rank),
        machine=_machine(node, of_node),
        gpus=_gpus(node, of_node, findings),
        runs=[
            (run.run.opened_at, PHASES[run.run.phase].title, MARK[run.verdicts.outcome], counted(_about(node, run)))
            for run in of_node
        ],
        attach=[command.format(node=shlex.quote(node)) for command in ATTACH],
    )


def _of_node(node: str, judged: Sequence[Judged]) -> list[Judged]:
    of_node = sorted((run for run in judged if node in run.run.nodes), key=lambda run: run.run.opened_at)
    if not of_node:
        others = ", ".join(dict.fromkeys(other for run in judged for other in run.run.nodes))
        raise UsageError(f"no run of these is about {node!r}; they are about {others or 'no node'}")
    return of_node


def _about(node: str, run: Judged) -> list[Verdict]:
    return [verdict for verdict in run.verdicts.verdicts if node in subjects.nodes_of(verdict.subject)]


def _findings(node: str, of_node: Sequence[Judged]) -> list[Finding]:
    bad = ((run, verdict) for run in of_node for verdict in _about(node, run) if verdict.outcome in _BAD)
    own = ((run, verdict) for run, verdict in bad if verdict.kind not in _FOLLOWS)
    return [Finding(verdict, run, _quoted(node, run, verdict)) for run, verdict in own]


def _quoted(node: str, run: Judged, verdict: Verdict) -> str:
    """Quote the driver's own lines, where it was the driver that spoke; else the line of the evidence."""
    spoken = [s for s in run.observations if s.quantity == _SPOKEN and s.node == node]
    if spoken and verdict.gate.startswith(_OF_THE_DRIVER):
        return "; ".join(str(s.value) for s in spoken)[:_LONGEST]
    name, _, number = verdict.evidence.partition(",")[0].rpartition(":")  # raw/inventory.jsonl:12
    try:  # line feeds alone, as evidence counts them
        return run.files.text(name, str).split("\n")[int(number) - 1][:_LONGEST]
    except (RecordError, ValueError, IndexError):  # it is no line, or not there any more
        return ""


def _machine(node: str, judged: Sequence[Judged]) -> list[tuple[str, str]]:
    """Return what the newest run knows of the node itself."""
    seen = [fact for run in judged for fact in run.observations if fact.subject == node]
    known = {fact.quantity: value_in_words(fact.value, fact.unit) for fact in seen if fact.value is not None}
    return [(what, known[quantity]) for what, quantity in system.OF_NODES if quantity in known]


def _gpus(node: str, judged: Sequence[Judged], findings: Sequence[Finding]) -> list[tuple[str, str, str]]:
    """UUID, whether a finding names it (or its PCI address or serial number), what is known of it, or identifies it."""
    known: dict[str, dict[str, str]] = {}
    for fact in (fact for run in judged for fact in run.observations if fact.subject.startswith(f"{node}/GPU-")):
        if fact.value is not None and fact.quantity.startswith(_OF_A_GPU):
            device, name = fact.device, fact.quantity.partition(".gpu.")[2]
            known.setdefault(device, {})[name] = value_in_words(fact.value, fact.unit)
    rows = []
    for device, facts in known.items():
        known_by = {device, facts.get("serial", device), facts.get("address", device).partition(".")[0]}
        words = (f"{finding.verdict.observed} {finding.verdict.cause}" for finding in findings)
        is_named = any(name in text for text in words for name in known_by)
        shown = [f"{name} {value}" for name, value in facts.items() if is_named or name in _IDENTIFIES]
        rows.append((device, "yes" if is_named else "", ", ".join(shown)))
    return sorted(rows, key=lambda row: not row[1])
