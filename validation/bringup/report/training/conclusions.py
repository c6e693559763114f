"""What follows from the verdicts and the numbers of trainings, in sentences. Nothing is concluded from a run whose
evidence does not hold."""

from __future__ import annotations

from collections.abc import Sequence

from bringup.compare import entries, sidebyside
from bringup.compare.entries import Entry
from bringup.errors import NotComparable, RecordError
from bringup.plan.catalogue import GATES
from bringup.plan.phases import PHASES
from bringup.records import Outcome, Verdict
from bringup.report import text
from bringup.report.training.trained import Trained

SHARDED = ("fsdp", "hsdp")


def takeaways(runs: Sequence[Trained]) -> list[str]:
    """A sentence per gate: what was seen on all runs that planned it, and what was not."""
    by_gate: dict[str, list[tuple[str, Verdict]]] = {}
    for run in runs:
        for verdict in run.judged.verdicts.verdicts:
            if verdict.gate.startswith("train."):
                by_gate.setdefault(verdict.gate, []).append((run.judged.run.phase, verdict))
    all_phases = list(dict.fromkeys(run.judged.run.phase for run in runs))
    passed, others = [], []
    for gate, of_gate in by_gate.items():
        bad = [(phase, verdict) for phase, verdict in of_gate if verdict.outcome is not Outcome.PASS]
        of_these = list(dict.fromkeys(phase for phase, _ in (bad or of_gate)))
        phases = f"all {len(of_these)}" if len(of_these) > 1 and of_these == all_phases else ", ".join(of_these)
        if not bad:
            passed.append(f"PASS: {GATES[gate].proves if gate in GATES else gate} ({phases})")
        else:
            worst = max((verdict for _, verdict in bad), key=lambda verdict: verdict.outcome.rank)
            others.append(f"{text.MARK[worst.outcome]}: {gate} [{worst.subject}] {text.sentence(worst)} ({phases})")
    excluded = {
        entry.gate: entry.reason
        for run in runs
        for entry in run.judged.verdicts.not_applicable
        if entry.gate.startswith("train.")
    }
    return others + passed + [f"NOT ASKED: {gate}: {reason}" for gate, reason in excluded.items()]


def strategies(runs: Sequence[Trained]) -> list[str]:
    """Speed and memory of the strategies at the same number of ranks, from `bringup compare`'s rules of what may be
    compared."""
    known = [entry for run in runs if (entry := _entry(run)) is not None]
    if len({entry.metrics.observed.kind for entry in known}) < 2:
        return ["Not compared: this needs trainings with two strategies whose evidence holds, in one report."]
    try:
        entries.refuse_repeated(known)
        beside = sidebyside.compare(known)
    except NotComparable as error:
        return [f"Not compared: {error}"]
    sentences = []
    for ranks in dict.fromkeys(row.entry.metrics.world_size for row in beside.rows):
        alike = {
            row.entry.metrics.observed.kind: row.entry for row in beside.rows if row.entry.metrics.world_size == ranks
        }
        base = alike.get("ddp")
        if base is not None:
            sentences += [_against(base, alike[kind], kind, ranks) for kind in SHARDED if kind in alike]
    agreeing = "all losses agree" if not beside.disagreeing else f"{len(beside.disagreeing)} run(s) DISAGREE"
    return [
        *(sentences or ["No DDP run has the same number of ranks as a sharded one."]),
        f"{agreeing}: {beside.note}.",
    ]


def _entry(run: Trained) -> Entry | None:
    try:
        return entries.entry(run.judged)
    except (NotComparable, RecordError):
        return None


def _against(base: Entry, other: Entry, kind: str, ranks: int) -> str:
    hosts = len(set(other.metrics.observed.hosts))
    speed = 100 * other.metrics.tokens_per_s / base.metrics.tokens_per_s
    seen, of_base = other.metrics.observed, base.metrics.observed
    held = 100 * seen.parameters_local_max / seen.parameters
    sentence = (
        f"{ranks} ranks on {hosts} node(s): {kind.upper()} made {speed:.0f} % of DDP's tokens per second "
        f"({other.metrics.tokens_per_s:,.0f} of {base.metrics.tokens_per_s:,.0f}); its fullest rank held {held:.3g} % "
        f"of the parameters (DDP {100 * of_base.parameters_local_max / of_base.parameters:.3g} %)"
    )
    ours, theirs = other.metrics.memory_check, base.metrics.memory_check
    if theirs.states_measured_bytes:
        share = 100 * ours.states_measured_bytes / theirs.states_measured_bytes
        sentence += f", and parameters, gradients and optimizer took {share:.0f} % of DDP's memory"
    return f"{sentence}."


def assessment(runs: Sequence[Trained]) -> list[str]:
    """One sentence per run, and what they do not show."""
    sentences = []
    for run in runs:
        verdicts = run.judged.verdicts
        why = "" if run.judged.objection is None else f"; its numbers must not be used: {run.judged.objection}"
        title, counted = PHASES[run.judged.run.phase].title, text.counted(verdicts.verdicts)
        sentences.append(f"{text.MARK[verdicts.outcome]}: {title}: {counted}{why}.")
    if any(run.args.device == "cpu" for run in runs):
        sentences.append(
            "The trainings computed on the CPU: this proves the path, and says nothing about a GPU or NCCL."
        )
    return sentences
