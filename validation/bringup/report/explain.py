"""`bringup explain RUN`: what went wrong, from the first cause to its shadows, and the commands to run next.

Everything said comes from the verdicts, the signatures and the documentation's own "Next" blocks; nothing is guessed.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bringup import judge
from bringup.checks.catalogue import GATES
from bringup.known_faults.signatures import SIGNATURES
from bringup.plan import subjects as naming
from bringup.plan.phases import PHASES
from bringup.records import Kind, Outcome, Run, Sign, Verdict, Verdicts
from bringup.report.text import MARK, counted, plain, shown_path
from bringup.results import REPOSITORY

_SHOWN = 6


def run(folder: Path) -> tuple[str, Outcome]:
    """The explanation of one results folder, and its outcome. Raises RunError or ProfileError."""
    judged = judge.judge_folder(folder)
    opened, verdicts = judged.run, judged.verdicts
    lines = [
        f"{MARK[verdicts.outcome]:<10} {PHASES[opened.phase].title}: {counted(verdicts.verdicts)}  ({shown_path(folder)})"
    ]
    if verdicts.outcome is Outcome.PASS:
        return "\n".join([*lines, "nothing to explain: every planned pair passed"]), verdicts.outcome
    first, shadows = _roots(verdicts)
    gates = [
        [verdict for verdict in first if verdict.gate == gate]
        for gate in dict.fromkeys(verdict.gate for verdict in first)
    ]
    for several in gates[:_SHOWN]:
        lines += ["", *_told(several, folder, opened)]
    if len(gates) > _SHOWN:
        lines += [
            "",
            f"… and {len(gates) - _SHOWN} more: {_gates([one for several in gates[_SHOWN:] for one in several])}",
        ]
    lines += _signs(verdicts.signs)
    if shadows:
        lines += ["", f"not proven because of that ({len(shadows)}): {_gates(shadows)}"]
    lines += ["", *(f"note: {plain(note)}" for note in verdicts.notes[:_SHOWN])]
    return "\n".join(lines).rstrip(), verdicts.outcome


def _roots(verdicts: Verdicts) -> tuple[list[Verdict], list[Verdict]]:
    """(what failed, or with no fail what is incomplete for a reason of its own; what only follows from missing evidence)."""
    bad = [verdict for verdict in verdicts.verdicts if verdict.outcome is not Outcome.PASS]
    failed = [verdict for verdict in bad if verdict.outcome is Outcome.FAIL]
    if failed:
        return failed + [verdict for verdict in bad if verdict.outcome is Outcome.WARN], [
            verdict for verdict in bad if verdict.outcome is Outcome.INCOMPLETE
        ]
    told = [verdict for verdict in bad if verdict.kind not in (Kind.ABSENT, Kind.BLOCKED)]
    first = told or bad
    return first, [verdict for verdict in bad if verdict not in first]


def _told(several: Sequence[Verdict], folder: Path, opened: Run) -> list[str]:
    """The verdicts of one gate: a line each, then once what to read and to run."""
    lines = []
    for verdict in several[:_SHOWN]:
        cause = f" ({verdict.cause})" if verdict.cause and verdict.cause not in verdict.observed else ""
        evidence = "" if verdict.evidence == "none" else f"; {verdict.evidence}"
        lines.append(
            f"{MARK[verdict.outcome]} {verdict.gate} [{verdict.subject}]: "
            + plain(f"observed {verdict.observed}, expected {verdict.expected}{cause}{evidence}")
        )
    if len(several) > _SHOWN:
        lines.append(
            f"  … and on {', '.join(verdict.subject for verdict in several[_SHOWN : 2 * _SHOWN])}"
            + (", …" if len(several) > 2 * _SHOWN else "")
        )
    lines.append(f"  read  {several[0].fix}")
    return lines + [
        f"  next  {line}" if number == 0 else f"        {line}"
        for number, line in enumerate(next_commands(several, folder, opened))
    ]


def next_commands(several: Sequence[Verdict], folder: Path, opened: Run) -> list[str]:
    """What the gate's guide says to run next, with this run's folder, nodes, GPUs, job and profile in it; the first node that
    the verdicts are about."""
    gate = GATES.get(several[0].gate)
    if gate is None or gate.guide is None:
        return _from_the_page(several, folder, opened.slurm_job_id)
    known = {
        "nodes": ",".join(opened.nodes),
        "node_count": str(len(opened.nodes)),
        "gpus": str(opened.gpus_per_node),
        "run": shown_path(folder),
        "profile": opened.profile,
    }
    if opened.slurm_job_id is not None:
        known["job"] = opened.slurm_job_id
    nodes = [node for verdict in several for node in naming.nodes_of(verdict.subject) if node in opened.nodes]
    if nodes:
        known["node"] = nodes[0]
    return [plain(command) for command in gate.guide.commands(known)]


def _from_the_page(several: Sequence[Verdict], folder: Path, job_id: str | None) -> list[str]:
    """The "Next" block of the gate's section in docs/, with RUN, JOBID, and NODE (when it is one) filled in; empty without one."""
    page, _, anchor = several[0].fix.partition("#")
    try:
        text = (REPOSITORY / page).read_text(encoding="utf-8")
    except OSError:
        return []
    words = {"RUN": shown_path(folder)}
    if job_id is not None:
        words["JOBID"] = job_id
    nodes = {verdict.subject.split("/")[0] for verdict in several}
    if len(nodes) == 1 and not any(mark in "".join(nodes) for mark in ("--", "->", "-node")) and nodes != {"job"}:
        words["NODE"] = nodes.pop()
    return [
        plain(re.sub(r"\b(RUN|NODE|JOBID)\b", lambda found: shlex.quote(words.get(found[0], found[0])), line))
        for line in _next_block(text, anchor)
    ]


def _next_block(text: str, anchor: str) -> list[str]:
    """What stands behind **Next** in the section whose heading has this anchor: its first fenced block, else its own lines."""
    inside, fenced, paragraph = False, False, False
    said: list[str] | None = None  # the paragraph of **Next** itself
    block: list[str] = []
    for line in text.splitlines():
        if fenced:
            if line.startswith("```"):
                return block
            block.append(line)
        elif line.startswith("#"):
            if said is not None:
                break
            inside = re.sub(r"[^a-z0-9 -]", "", line.lstrip("#").strip().lower()).replace(" ", "-") == anchor
        elif inside and line.startswith("**Next**"):
            said, paragraph = [line.removeprefix("**Next**").strip()], True
        elif said is not None and line.startswith("```"):
            fenced = True
        elif said is not None:
            paragraph = paragraph and bool(line.strip())
            said += [line.strip()] if paragraph else []
    return [line for line in said or [] if line]


def _signs(found: Sequence[Sign]) -> list[str]:
    seen: dict[str, Sign] = {}
    for sign in found:
        seen.setdefault(sign.signature, sign)
    known = [sign for sign in seen.values() if sign.signature in SIGNATURES]
    if not known:
        return ["", "no line in the logs bears the signature of a known fault (docs/06-failure-modes.md#signatures)"]
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
