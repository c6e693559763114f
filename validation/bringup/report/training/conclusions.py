"""What follows from the verdicts and the numbers of trainings, in sentences. Nothing is concluded from a run whose
evidence does not hold."""

from __future__ import annotations

from collections.abc import Sequence

from bringup.characters import many
from bringup.compare import entries, recommend, sidebyside
from bringup.compare.entries import Entry
from bringup.compare.sidebyside import SideBySide
from bringup.errors import NotComparable, RecordError
from bringup.judge import Judged
from bringup.plan.phases import PHASES
from bringup.records import Outcome, TrainMetrics, Verdict
from bringup.report import text
from bringup.report.training.trained import Trained

SHARDED = ("fsdp", "hsdp")
MOST_NAMED = 5  # gates among the takeaways


def takeaways(runs: Sequence[Trained]) -> list[str]:
    """What did not pass, the worst first; then what was seen, in five sentences at most."""
    return [*_not_passed(runs), *_seen(runs)]


def _not_passed(runs: Sequence[Trained]) -> list[str]:
    """A sentence for a gate, with the trainings in which it did not pass."""
    by_gate: dict[str, list[tuple[str, Verdict]]] = {}
    for run in runs:
        for verdict in run.judged.verdicts.verdicts:
            if verdict.gate.startswith("train.") and not verdict.outcome.is_quiet:
                by_gate.setdefault(verdict.gate, []).append((run.judged.run.phase, verdict))
    worst = {
        gate: max((verdict for _, verdict in bad), key=lambda each: each.outcome.rank) for gate, bad in by_gate.items()
    }
    ordered = sorted(worst, key=lambda gate: -worst[gate].outcome.rank)
    sentences = []
    for gate in ordered[:MOST_NAMED]:
        verdict, phases = worst[gate], ", ".join(dict.fromkeys(phase for phase, _ in by_gate[gate]))
        mark = text.MARK[verdict.outcome]
        sentences.append(f"{mark}: {gate} [{verdict.subject}] {text.sentence(verdict)} ({phases})")
    left = len(ordered) - len(sentences)
    return [
        *sentences,
        *([f"{many(left, 'more gate')} did not pass; the tables of verdicts have them."] if left else []),
    ]


def _seen(runs: Sequence[Trained]) -> list[str]:
    verdicts = [each for run in runs for each in run.judged.verdicts.verdicts if each.gate.startswith("train.")]
    passed = sum(verdict.outcome is Outcome.PASS for verdict in verdicts)
    not_asked = len({entry.gate for run in runs for entry in run.judged.verdicts.not_applicable})
    excluded = f"; {many(not_asked, 'gate')} were not asked" if not_asked else ""
    sentences = [f"{passed} of {len(verdicts)} verdicts passed{excluded}."]
    beside = _beside(runs)
    rows = [] if isinstance(beside, str) else beside.rows
    gaps = [row.gap for row in rows if row.gap is not None]
    if len(gaps) > 1:
        agree = "All learn the same" if all(row.agrees for row in rows) else "They do NOT learn the same"
        sentences.append(f"{agree}: the losses differ by {max(gaps):.1e} nats at most in a step.")
    elif losses := runs[0].metrics.loss:
        sentences.append(f"The loss went from {losses[0]:.4f} to {losses[-1]:.4f} nats in {len(losses)} steps.")
    fastest = max(runs, key=lambda run: run.metrics.tokens_per_s)
    metrics = fastest.metrics
    mfu = f"MFU not known: {metrics.mfu_reason}" if metrics.mfu is None else f"MFU {100 * metrics.mfu:.1f} %"
    share = metrics.communication_share
    exposed = "" if share is None else f"; {100 * share:.1f} % of a step was communication that nothing overlapped"
    sentences.append(
        f"{'Fastest: ' if len(runs) > 1 else ''}{_named(metrics)}: {metrics.tokens_per_s:,.0f} tokens/s, "
        f"{metrics.tokens_per_s_per_rank:,.0f} of a rank, {mfu}{exposed}."
    )
    least = min(runs, key=lambda run: run.metrics.memory_check.states_measured_bytes)
    sentences.append(f"{'Least memory: ' if len(runs) > 1 else ''}{_named(least.metrics)}: {_held(least.metrics)}.")
    if isinstance(beside, SideBySide):
        sentences.append(" ".join(recommend.recommend(beside).choice))
    return sentences


def _named(metrics: TrainMetrics) -> str:
    ranks = metrics.world_size
    return "one rank" if ranks == 1 else f"{metrics.observed.kind.upper()} on {ranks} ranks"


def _held(metrics: TrainMetrics) -> str:
    seen = metrics.observed
    share = 100 * seen.parameters_local_max / seen.parameters
    states = metrics.memory_check.states_measured_bytes / 2**20
    return f"its fullest rank held {share:.3g} % of the parameters, and {states:,.1f} MiB of states"


def _beside(runs: Sequence[Trained]) -> SideBySide | str:
    """The trainings beside each other, by the rules of `bringup compare`; or why they cannot be compared."""
    known = [entry for run in runs if (entry := entry_of(run.judged)) is not None]
    if len({entry.metrics.observed.kind for entry in known}) < 2:
        return "this needs trainings with two strategies whose evidence holds, in one report."
    try:
        entries.refuse_repeated(known)
        return sidebyside.compare(known)
    except NotComparable as error:
        return str(error)


def strategies(runs: Sequence[Trained]) -> list[str]:
    """Speed and memory of the strategies at the same number of ranks, and why; which to take."""
    beside = _beside(runs)
    if isinstance(beside, str):
        return [f"Not compared: {beside}"]
    sentences = []
    for ranks in dict.fromkeys(row.entry.metrics.world_size for row in beside.rows):
        alike = {row.entry.metrics.observed.kind: row for row in beside.rows if row.entry.metrics.world_size == ranks}
        base = alike.get("ddp")
        for kind in SHARDED if base is not None else ():
            if base is not None and kind in alike:
                metrics = alike[kind].entry.metrics
                where = f"{ranks} ranks on {many(len(set(metrics.observed.hosts)), 'node')}"
                reason = recommend.why(recommend.Numbers(base), recommend.Numbers(alike[kind]))
                sentences.append(f"{where}: {reason[:-1]}; {_held(metrics)}.")
    advice = recommend.recommend(beside)
    agreeing = "all losses agree" if not beside.disagreeing else f"{many(len(beside.disagreeing), 'run')} DISAGREE"
    return [
        *(sentences or ["No DDP run has the same number of ranks as a sharded one."]),
        " ".join([*advice.choice, *advice.next]),
        f"{agreeing}: {beside.note}.",
    ]


def entry_of(judged: Judged) -> Entry | None:
    """None where there is no training, or its evidence does not hold."""
    try:
        return entries.entry(judged)
    except (NotComparable, RecordError):
        return None


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
