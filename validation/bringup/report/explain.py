"""`bringup explain RUN`: what went wrong, from the first cause to what only follows from it, and the commands to run
next.

Everything said comes from the verdicts, the signatures and the guides of the gates; nothing is guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bringup.checks import own
from bringup.checks.catalogue import GATES
from bringup.evidence import hostlist
from bringup.judge import Judged
from bringup.known_faults.signatures import SIGNATURES
from bringup.plan import profile as profiles
from bringup.plan import subjects as naming
from bringup.plan.phases import PHASES
from bringup.records import Kind, Outcome, Run, Sign, Verdict, Verdicts, as_json
from bringup.report.text import MARK, counted, plain, sentence, shown_path
from bringup.results import PROFILE

_SHOWN = 6


def screen(judged: Judged) -> str:
    """The explanation of one run."""
    run, verdicts = judged.run, judged.verdicts
    where = shown_path(judged.folder)
    lines = [f"{MARK[verdicts.outcome]:<10} {PHASES[run.phase].title}: {counted(verdicts.verdicts)}  ({where})"]
    if verdicts.outcome is Outcome.PASS:
        return "\n".join([*lines, "nothing to explain: every planned pair passed"])
    causes = causes_of(verdicts)
    by_gate: dict[str, list[Verdict]] = {}
    for verdict in causes.first:
        by_gate.setdefault(verdict.gate, []).append(verdict)
    groups = list(by_gate.values())
    for group in groups[:_SHOWN]:
        lines += ["", *_in_words(group, judged.folder, run)]
    if len(groups) > _SHOWN:
        rest = [verdict for group in groups[_SHOWN:] for verdict in group]
        lines += ["", f"… and {len(groups) - _SHOWN} more: {_gates(rest)}"]
    lines += _signs(verdicts.signs)
    if causes.following:
        why = "blocked by another gate, or without evidence"
        lines += ["", f"not proven, {why} ({len(causes.following)}): {_gates(causes.following)}"]
    if causes.undeclared:
        lines += ["", f"no number in the profile ({len(causes.undeclared)}): {_gates(causes.undeclared)}"]
    lines += ["", *(f"note: {plain(note)}" for note in verdicts.notes[:_SHOWN])]
    return "\n".join(lines).rstrip()


def as_data(judged: Judged) -> dict[str, object]:
    """The same for programs: the first causes, what follows from them, and the signs in the logs."""
    causes = causes_of(judged.verdicts)
    by_gate: dict[str, list[Verdict]] = {}
    for verdict in causes.first:
        by_gate.setdefault(verdict.gate, []).append(verdict)
    return {
        "folder": shown_path(judged.folder),
        "phase": judged.run.phase,
        "outcome": str(judged.verdicts.outcome),
        "first_causes": [
            {
                "gate": gate,
                "verdicts": [as_json(verdict) for verdict in group],
                "next": next_commands(group, judged.folder, judged.run),
            }
            for gate, group in by_gate.items()
        ],
        "following": [[verdict.gate, verdict.subject] for verdict in causes.following],
        "undeclared": [[verdict.gate, verdict.subject] for verdict in causes.undeclared],
        "signs": [as_json(sign) for sign in judged.verdicts.signs],
        "notes": judged.verdicts.notes,
    }


@dataclass(frozen=True)
class Causes:
    """The verdicts of a run that are not a pass."""

    first: list[Verdict]  # what failed, or with no fail what is incomplete for a reason of its own; then warnings
    following: list[Verdict]  # what only follows: it was blocked, or its evidence did not arrive
    undeclared: list[Verdict]  # of which nobody has said what is expected here


_OWN = (  # of what is incomplete: kinds that have a reason of their own before those that follow from something
    {Kind.UNKNOWN, Kind.JUDGED},
    {Kind.ABSENT},
    {Kind.BLOCKED},
    {Kind.UNDECLARED},
)


def causes_of(verdicts: Verdicts) -> Causes:
    bad = [verdict for verdict in verdicts.verdicts if verdict.outcome is not Outcome.PASS]
    first = [verdict for verdict in bad if verdict.outcome is Outcome.FAIL]
    open_ends = [verdict for verdict in bad if verdict.outcome is Outcome.INCOMPLETE]
    for kinds in _OWN:
        first = first or [verdict for verdict in open_ends if verdict.kind in kinds]
    taken = {id(verdict) for verdict in first}
    left = [verdict for verdict in open_ends if id(verdict) not in taken]
    return Causes(
        first=first + [verdict for verdict in bad if verdict.outcome is Outcome.WARN],
        following=[verdict for verdict in left if verdict.kind is not Kind.UNDECLARED],
        undeclared=[verdict for verdict in left if verdict.kind is Kind.UNDECLARED],
    )


def _in_words(group: Sequence[Verdict], folder: Path, run: Run) -> list[str]:
    """The verdicts of one gate: a line each, then once what to read and to run."""
    lines = []
    for verdict in group[:_SHOWN]:
        evidence = "" if verdict.evidence == "none" else f"; {verdict.evidence}"
        lines.append(
            f"{MARK[verdict.outcome]} {verdict.gate} [{verdict.subject}]: {plain(f'{sentence(verdict)}{evidence}')}"
        )
    if len(group) > _SHOWN:
        lines.append(
            f"  … and on {', '.join(verdict.subject for verdict in group[_SHOWN : 2 * _SHOWN])}"
            + (", …" if len(group) > 2 * _SHOWN else "")
        )
    lines.append(f"  read  {group[0].fix}")
    return lines + [
        f"  next  {line}" if number == 0 else f"        {line}"
        for number, line in enumerate(next_commands(group, folder, run))
    ]


def next_commands(group: Sequence[Verdict], folder: Path, run: Run) -> list[str]:
    """What the gate's guide says to run next, with this run's folder, nodes, GPUs, job and profile in it; the first
    node that the verdicts are about."""
    gate = GATES.get(group[0].gate) or own.of(folder).get(group[0].gate)
    if gate is None:
        return []
    known = {
        "nodes": hostlist.shortened(run.nodes),
        "node_count": str(len(run.nodes)),
        "gpus": str(run.gpus_per_node),
        "run": shown_path(folder),
        "profile": _profile(folder, run),
    }
    if run.slurm_job_id is not None:
        known["job"] = run.slurm_job_id
    nodes = [node for verdict in group for node in naming.nodes_of(verdict.subject) if node in run.nodes]
    if nodes:
        known["node"] = nodes[0]
    return [plain(command) for command in gate.guide.commands(known)]


def _profile(folder: Path, run: Run) -> str:
    """As --profile takes it: the name of one that comes with bringup, else the run's own copy."""
    own = (profiles.PROFILES / f"{run.profile}.yaml").is_file()
    return run.profile if own else shown_path(folder / PROFILE)


def _signs(signs: Sequence[Sign]) -> list[str]:
    seen: dict[str, Sign] = {}
    for sign in signs:
        seen.setdefault(sign.signature, sign)
    known = [sign for sign in seen.values() if sign.signature in SIGNATURES]
    if not known:
        return ["", "no line in the logs bears the signature of a known fault (docs/07-failure-modes.md#signatures)"]
    lines = ["", "signs in the logs, causes before consequences:"]
    for sign in known:
        signature = SIGNATURES[sign.signature]
        times = f", {sign.count} lines" if sign.count > 1 else ""
        lines += [
            f"  {sign.signature}: {signature.cause}",
            f"    {sign.evidence}{times}: {plain(sign.line)}",
            f"    next: {signature.do}",
        ]
    return lines


def _gates(verdicts: Sequence[Verdict]) -> str:
    counts = Counter(verdict.gate for verdict in verdicts)
    return ", ".join(f"{gate} × {count}" if count > 1 else gate for gate, count in counts.items())
