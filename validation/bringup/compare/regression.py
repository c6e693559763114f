"""Training runs against a baseline: regression, improvement, or within noise. `bringup compare RUN... --baseline
RUN...`

Runs with the same arguments are repetitions of each other, or their days are: noise.fit decides by when the runs were
opened. Per measure the interval of the relative change decides (noise.conclusion). Of too few runs only the losses are
judged. The spread inside the runs (noise.error_inside) is a lower bound on that between them.
"""

from collections.abc import Sequence
from statistics import fmean, median
from typing import NamedTuple

from bringup.compare import noise
from bringup.kernel.characters import many
from bringup.kernel.errors import NotComparable
from bringup.kernel.records import Outcome, worst
from bringup.training.comparison.entries import MEASURES, TOKENS_PER_S, Entry, Measure, refuse_repeated
from bringup.training.comparison.sidebyside import LOSS_TOLERANCE_NATS
from bringup.training.records import ARGUMENTS, differing_fields

_MOST_SHOWN = 10.0  # of an upper bound: beyond it a number says no more than that nothing is known
_OUTCOMES = {"REGRESSION": Outcome.FAIL, "DISAGREES": Outcome.FAIL, "cannot tell": Outcome.INCOMPLETE}


class Finding(NamedTuple):
    """One measure of runs with the same arguments, in words."""

    measure: str
    before: str
    now: str
    change: str
    conclusion: str
    why: str

    @property
    def outcome(self) -> Outcome:
        return _OUTCOMES.get(self.conclusion, Outcome.PASS)


class Comparison(NamedTuple):
    """Runs with the same arguments on both sides."""

    title: str
    design: str  # what the dates of the runs allow
    environment: list[str]  # what differs around the runs
    findings: list[Finding]


def check(later: Sequence[Entry], earlier: Sequence[Entry]) -> list[Comparison]:
    """Compare every run of today with those of the baseline that have its arguments.

    Raises NotComparable: no run of the baseline has these arguments (the fields are named), a side mixes versions,
    GPU types or clusters, a run is there twice or on both sides, or one was resumed.
    """
    refuse_repeated([*earlier, *later])
    for entry in [*earlier, *later]:
        if entry.metrics.resumed is not None:
            resumed = f"{entry.folder.name} was resumed at step {entry.metrics.resumed.step}"
            why = "its window of steady steps is another one; take runs that began at step 1"
            raise NotComparable(f"{resumed}: {why}")
    groups: dict[str, tuple[list[Entry], list[Entry]]] = {}
    for entry in later:
        differing = [differing_fields(candidate.args, entry.args, ARGUMENTS["repeated"]) for candidate in earlier]
        like = [candidate for candidate, fields in zip(earlier, differing, strict=True) if not fields]
        if not like:
            nearest = min(range(len(earlier)), key=lambda index: len(differing[index]))
            near = f"nearest is {earlier[nearest].folder.name}: {'; '.join(differing[nearest])}"
            raise NotComparable(f"{entry.folder.name} has no like run in the baseline; {near}")
        groups.setdefault(like[0].folder.name, (like, []))[1].append(entry)
    # every comparison is one of several: the chance of a false alarm is shared by all of them
    confidence = noise.shared_confidence(sum(len(_recorded(*sides)) for sides in groups.values()))
    return [_compare(before, after, confidence) for before, after in groups.values()]


def _recorded(before: Sequence[Entry], after: Sequence[Entry]) -> list[Measure]:
    runs = [*before, *after]
    return [measure for measure in MEASURES if any(measure.read(entry.metrics) is not None for entry in runs)]


def _compare(before: Sequence[Entry], after: Sequence[Entry], confidence: float) -> Comparison:
    old, new = _surroundings("the baseline", before), _surroundings("the runs", after)
    args = after[0].args
    where = f"{many(args.world_size, 'rank')} on {many(args.nodes, 'node')}"
    title = f"{args.entrypoint}, {args.model}, {where}: {many(len(after), 'run')} against {len(before)}"
    findings = [_finding(measure, before, after, confidence) for measure in _recorded(before, after)]
    around = [f"{name} {old[name]} → {new[name]}" for name in old if old[name] != new[name]]
    return Comparison(title, _design(before, after), around, [_loss(before, after), *findings])


def _surroundings(side: str, entries: Sequence[Entry]) -> dict[str, str]:
    """Return what the runs of a side ran on. Raises NotComparable where they differ in more than their nodes."""
    several = []
    for entry in entries:
        known = {name: str(getattr(entry.args, name)) for name in ARGUMENTS["environment"]}
        several.append(known | {"GPU": entry.metrics.gpu0 or "none", "cluster": entry.of_cluster or "unknown"})
    for entry, known in zip(entries, several, strict=True):
        for name, value in known.items():
            if value != several[0][name]:
                seen = f"{several[0][name]} in {entries[0].folder.name}, {value} in {entry.folder.name}"
                why = "repetitions must be of one environment; compare them apart"
                raise NotComparable(f"{side}: {name} {seen}: {why}")
    hosts = {host for entry in entries for host in entry.metrics.observed.hosts}
    return several[0] | {"nodes": ", ".join(sorted(hosts))}


def _loss(before: Sequence[Entry], after: Sequence[Entry]) -> Finding:
    """No matter of noise: the same arguments and seed give the same trajectory, within the dtype's tolerance."""
    name = "loss, nats"
    args = after[0].args
    tolerance = LOSS_TOLERANCE_NATS.get(args.compute_dtype)
    trajectories = [entry.metrics.loss for entry in [*before, *after]]
    lengths = {len(losses) for losses in trajectories}
    if lengths != {args.steps}:
        why = f"{args.steps} steps, and {min(lengths)} losses in one of the runs"
        return Finding(name, "", "", "", "cannot tell", why)
    middle = [median(losses) for losses in zip(*trajectories[: len(before)], strict=True)]
    gaps = [max(abs(loss - usual) for loss, usual in zip(losses, middle, strict=True)) for losses in trajectories]
    own_gap, gap = max(gaps[: len(before)]), max(gaps[len(before) :])
    shown = (f"{middle[-1]:.4f}", f"{fmean(entry.metrics.loss[-1] for entry in after):.4f}", f"gap {gap:.1e}")
    if tolerance is None:
        return Finding(name, *shown, "cannot tell", f"no tolerance is known for {args.compute_dtype}")
    words = f"tolerance {max(tolerance, own_gap):.1e}"
    if gap > max(tolerance, own_gap):
        return Finding(name, *shown, "DISAGREES", f"{words}: another computation, its speed means nothing yet")
    if own_gap > tolerance:
        words += f"; the baseline itself differs by {own_gap:.1e}, more than {tolerance:.0e}"
    return Finding(name, *shown, "agrees", words)


def _finding(measure: Measure, before: Sequence[Entry], after: Sequence[Entry], confidence: float) -> Finding:
    old, new = _of_runs(measure, before), _of_runs(measure, after)
    if len(old) + len(new) < len(before) + len(after):
        change, conclusion, why = "", "cannot tell", "not recorded in all runs"
    else:
        steps = [entry.metrics.steps_s for entry in (*before, *after)] if measure.steps else []
        change, conclusion, why = difference(measure, old, new, noise.floor_of(steps), confidence)
    spaced = (text.replace("%", " %") for text in (change, conclusion, why))
    return Finding(f"{measure.name}, {measure.unit}", _shown(old), _shown(new), *spaced)


def _of_runs(measure: Measure, entries: Sequence[Entry]) -> list[noise.Timed]:
    values = [(entry.opened_at, measure.read(entry.metrics)) for entry in entries]
    return [noise.Timed(opened_at, value) for opened_at, value in values if value is not None]


def difference(
    measure: Measure, before: Sequence[noise.Timed], after: Sequence[noise.Timed], floor: float, confidence: float
) -> tuple[str, str, str]:
    """Return (change, conclusion, why). floor: see noise.fit."""
    old, new = ([run._replace(value=max(run.value, measure.resolution)) for run in side] for side in (before, after))
    if {run.value for run in (*old, *new)} == {measure.resolution}:
        return "", "within noise", f"all below {measure.resolution:g} {measure.unit}"
    if (fit := noise.fit(old, new, floor)) is None:
        change = median(run.value for run in new) / median(run.value for run in old) - 1
        return f"{change:+.1%}", "cannot tell", "a day may differ by as much"
    interval = noise.interval(fit, confidence)
    high = f"{interval.high:+.1%}" if interval.high <= _MOST_SHOWN else f"> {_MOST_SHOWN:+.0%}"
    shown = f"{interval.change:+.1%} [{interval.low:+.1%}, {high}]"
    conclusion = noise.conclusion(interval, measure.better, measure.ignore, measure.exclude)
    if conclusion == "within noise":
        return shown, conclusion, f"{measure.exclude:.0%} worse is excluded"
    if conclusion == "cannot tell":
        needed = noise.repetitions(fit.spread, measure.exclude, confidence, more_than=fit.least)
        count = f"about {needed}" if needed else f"more than {noise.MOST_REPETITIONS}"
        advice = f"{fit.unit} differ by {fit.spread:.1%}, take {count} {fit.unit} on each side"
        return shown, conclusion, f"{measure.exclude:.0%} worse is not excluded: {advice}"
    return shown, "REGRESSION" if conclusion == "regression" else conclusion, ""


def _design(before: Sequence[Entry], after: Sequence[Entry]) -> str:
    """Say what the dates of the runs allow, and by how much days and runs differ in speed."""
    old, new = _of_runs(TOKENS_PER_S, before), _of_runs(TOKENS_PER_S, after)
    if (fit := noise.fit(old, new)) is None:
        return f"cannot tell: {noise.why_nothing_fits(old, new)}"
    spreads = f"their speed differs by {fit.spread:.1%}"
    if fit.unit == "days":
        return f"no day is of both sides, so that each day counts as one value; {spreads}".replace("%", " %")
    apart = "" if fit.between is None else f", that of days by {fit.between:.1%}"
    return f"runs of the same day are compared ({', '.join(fit.days)}); {spreads}{apart}".replace("%", " %")


def _shown(runs: Sequence[noise.Timed]) -> str:
    """Write the median, and from where to where."""
    values = [run.value for run in runs]
    if not values:
        return "not recorded"
    if len(values) == 1:
        return f"{values[0]:,.4g}"
    return f"{median(values):,.4g} ({min(values):,.4g} to {max(values):,.4g})"


def table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    header = ["measure", "baseline", "now", "change [bounds]", "verdict", "why"]
    return header, [list(finding) for finding in comparison.findings]


def overall(compared: Sequence[Comparison]) -> Outcome:
    return worst([finding.outcome for comparison in compared for finding in comparison.findings])


def in_words(compared: Sequence[Comparison]) -> str:
    """Write the last line: what was found, worst first."""
    findings = [finding for comparison in compared for finding in comparison.findings]
    bad = [finding for finding in findings if finding.outcome is Outcome.FAIL]
    open_ = [finding for finding in findings if finding.outcome is Outcome.INCOMPLETE]
    words = [f"{len(bad)} of {len(findings)} measures worse: {_names(bad)}"] if bad else ["no regression was found"]
    if open_:
        words.append(f"{len(open_)} cannot be told: {_names(open_)}")
    elif not bad:
        words = [f"no regression in {len(findings)} measures"]
    return f"{'; '.join(words)} (false alarms: at most {noise.FALSE_ALARMS:.0%} of checks)".replace("%", " %")


def _names(findings: Sequence[Finding]) -> str:
    return ", ".join(dict.fromkeys(finding.measure.partition(",")[0] for finding in findings))
