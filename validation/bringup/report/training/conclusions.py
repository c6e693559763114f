"""What follows from the verdicts and the numbers of trainings, in sentences. Nothing is concluded from a run whose
evidence does not hold."""

from collections.abc import Sequence

from bringup.kernel.characters import many
from bringup.kernel.errors import NotComparable, RecordError
from bringup.kernel.judge import Judged
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Outcome, Verdict, grouped
from bringup.report import text
from bringup.report.training.training_run import Trained
from bringup.report.trainings import layout
from bringup.training.comparison import entries, recommend, sidebyside
from bringup.training.records import TrainMetrics

Compared = sidebyside.SideBySide | str  # str: why not
SHARDED = ("fsdp", "hsdp")
SHORT = 200  # steps


def overview(runs: Sequence[Trained]) -> list[str]:
    """Say what was trained, on what, and what so short a run is for."""
    args, metrics = runs[0].args, runs[0].metrics
    who = ", ".join(dict.fromkeys(_named(run.metrics) for run in runs))
    of_model = f"the model {metrics.model} ({metrics.observed.parameters:,} parameters)"
    sentences = [f"Trained: {of_model}, {args.steps} steps of {metrics.tokens_per_step:,} tokens, by {who}."]
    if args.steps <= SHORT:
        sentences.append("It is short on purpose: it shows how ranks work together, and not how well the model learns.")
    return sentences


def takeaways(runs: Sequence[Trained]) -> list[str]:
    """Say what passed in every run that asked it."""
    judged = grouped((verdict.gate, verdict) for run in runs for verdict in run.judged.verdicts.verdicts)
    sentences = []
    for gate in layout().confirmed:
        alike = judged.get(gate, [])
        if alike and all(verdict.outcome is Outcome.PASS for verdict in alike):
            sentences.append(f"Confirmed: {text.proves(gate)}{_number(alike)}.")
    return sentences


def _number(alike: Sequence[Verdict]) -> str:
    """Say what was observed, and its limit, where one verdict is alone."""
    first = alike[0]
    if len(alike) > 1 or first.unit == "flag":
        return ""
    observed = first.observed.partition(" (")[0]
    return f" ({observed})" if observed == first.expected else f" ({observed}, {first.expected})"


def interpretation(runs: Sequence[Trained], compared: Compared) -> list[str]:
    """Say what the numbers mean: learning, speed, communication, memory."""
    sentences = []
    rows = [] if isinstance(compared, str) else compared.rows
    gaps = [row.gap for row in rows if row.gap is not None]
    if len(gaps) > 1:
        agree = "All learn the same" if all(row.agrees for row in rows) else "They do NOT learn the same"
        sentences.append(f"{agree}: the losses differ by {max(gaps):.1e} nats at most in a step.")
    metrics = max(runs, key=lambda run: run.metrics.tokens_per_s).metrics
    mfu = "" if metrics.mfu is None else f", MFU {100 * metrics.mfu:.1f} %"
    share, scaled = metrics.communication_share, None if metrics.summary is None else metrics.summary.scaling
    alone = "" if scaled is None or metrics.world_size == 1 else f", {100 * scaled:.0f} % of what one alone makes"
    exposed = "" if share is None else f"; {100 * share:.1f} % of a step was communication that nothing overlapped"
    speed = f"{metrics.tokens_per_s:,.0f} tokens/s, {metrics.tokens_per_s_per_rank:,.0f} of a rank"
    sentences.append(f"{'Fastest: ' if len(runs) > 1 else ''}{_named(metrics)}: {speed}{alone}{mfu}{exposed}.")
    least = min(runs, key=lambda run: run.metrics.memory_check.states_measured_bytes)
    sentences.append(f"{'Least memory: ' if len(runs) > 1 else ''}{_named(least.metrics)}: {_held(least.metrics)}.")
    return sentences


def _named(metrics: TrainMetrics) -> str:
    ranks = metrics.world_size
    return "one rank" if ranks == 1 else f"{metrics.observed.kind.upper()} on {ranks} ranks"


def _held(metrics: TrainMetrics) -> str:
    seen = metrics.observed
    share = 100 * seen.parameters_local_max / seen.parameters
    states = metrics.memory_check.states_measured_bytes / 2**20
    return f"its fullest rank held {share:.3g} % of the parameters, and {states:,.1f} MiB of states"


def compared(judged: Sequence[Judged], varied: Sequence[str] = ()) -> Compared:
    """Compare the trainings as `bringup compare` does; or say why not. Empty: there is none whose evidence holds."""
    known = [entry for run in judged if (entry := entry_of(run)) is not None]
    if not known:
        return ""
    try:
        entries.refuse_repeated(known)
        return sidebyside.compare(known, varied)
    except NotComparable as error:
        return str(error)


def strategies(runs: Sequence[Trained], compared: Compared) -> list[str]:
    """Compare speed and memory of the strategies at the same number of ranks, say why, and which to take."""
    if isinstance(compared, str) or len({row.entry.metrics.observed.kind for row in compared.rows}) < 2:
        alone = "no training with another strategy lies beside it, whose evidence holds; see bringup compare."
        why = (isinstance(compared, str) and compared) or alone
        return [] if all(run.metrics.world_size == 1 for run in runs) else [f"Not compared: {why}"]
    sentences = []
    for ranks in dict.fromkeys(row.entry.metrics.world_size for row in compared.rows):
        alike = {row.entry.metrics.observed.kind: row for row in compared.rows if row.entry.metrics.world_size == ranks}
        base = alike.get("ddp")
        for kind in SHARDED if base is not None else ():
            if base is not None and kind in alike:
                metrics = alike[kind].entry.metrics
                where = f"{ranks} ranks on {many(len(set(metrics.observed.hosts)), 'node')}"
                reason = recommend.why(recommend.Numbers(base), recommend.Numbers(alike[kind]))
                sentences.append(f"{where}: {reason[:-1]}; {_held(metrics)}.")
    advice = recommend.recommend(compared)
    return [" ".join([*advice.choice, *advice.next]), *sentences]


def entry_of(judged: Judged) -> entries.Entry | None:
    """Return the entry of a training. None where there is none, or its evidence does not hold."""
    try:
        return entries.entry(judged)
    except (NotComparable, RecordError):
        return None


def assessment(runs: Sequence[Trained]) -> list[str]:
    """Return one sentence per run, and what they do not show."""
    sentences = []
    quiet = [run for run in runs if run.judged.verdicts.outcome.is_quiet and run.judged.objection is None]
    if len(runs) > 1 and quiet:
        titles = ", ".join(PHASES[run.judged.run.phase].title for run in quiet)
        sentences.append(f"PASS: {titles}.")
    for run in runs if len(runs) == 1 else [run for run in runs if run not in quiet]:
        verdicts = run.judged.verdicts
        why = "" if run.judged.objection is None else f"; its numbers must not be used: {run.judged.objection}"
        title, counted = PHASES[run.judged.run.phase].title, text.counted(verdicts.verdicts)
        not_asked = len({entry.gate for entry in verdicts.not_applicable})
        left = f"; {not_asked} checks do not apply here" if not_asked else ""
        sentences.append(f"{text.MARK[verdicts.outcome]}: {title}: {counted}{left}{why}.")
    if any(run.args.device == "cpu" for run in runs):
        sentences += ["The trainings computed on the CPU: this proves the path, and says nothing about a GPU or NCCL."]
    return sentences
