"""Training runs against a baseline: regression, improvement, or within noise. `bringup compare RUN... --baseline
RUN...`

Method. Runs with the same arguments are repetitions of each other. Per measure, the interval of the relative change
between the two sides (noise.interval: Welch on logarithms, run by run) decides:

  regression      the whole interval is on the worse side of zero, and the change is larger than the measure's `ignore`
  improvement     the same on the better side
  within noise    the interval excludes a regression as large as the measure's `exclude`: this is what a pass says
  cannot tell     neither; more repetitions are needed, and how many is said

FALSE_ALARMS bounds the chance that anything at all is called a regression when nothing changed: it is divided among
the measures (Bonferroni). A pass asks for evidence too (two one-sided tests: Schuirmann, J. Pharmacokin. Biopharm.
15, 657, 1987): few or noisy runs that merely show no difference are `incomplete`. One run on each side has no spread
between runs at all, so it can tell nothing but whether the losses agree. The spread inside the runs
(noise.error_inside) is a lower bound on that between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from bringup.compare import noise
from bringup.compare.entries import Entry, refuse_repeated
from bringup.compare.sidebyside import LOSS_TOLERANCE_NATS
from bringup.errors import NotComparable
from bringup.records import Outcome, TrainMetrics, worst

FALSE_ALARMS = 0.01
ENVIRONMENT = ("torch", "transformers", "accelerate")
"""Fields of the arguments in which the two sides may differ: what they run on is what a regression check is about."""
_MOST_SHOWN = 10.0  # of an upper bound: beyond it a number says no more than that nothing is known
IGNORED_ARGUMENTS = frozenset(
    {"schema_version", "timeout_s", "profiled_steps", *ENVIRONMENT}
)  # runs that differ in these alone may be compared


@dataclass(frozen=True)
class Measure:
    name: str
    unit: str
    better: int  # +1: more is better, -1: less is
    ignore: float  # relative change up to which even a certain difference is nobody's business
    exclude: float  # relative change for the worse that a pass must have excluded
    read: Callable[[TrainMetrics], float | None]
    resolution: float = 0.0  # smaller values count as this: 5 ms more of 5 ms is not a regression of a start-up
    steps: bool = False  # whether the spread of the steps inside a run bounds its noise from below


def _startup(part: str) -> Measure:
    """Reads from disks and waits for others: noisy, and not worth a second."""
    return Measure(
        f"start-up: {part.removesuffix('_s').replace('_', ' ')}",
        "s",
        -1,
        0.10,
        0.50,
        lambda metrics: float(getattr(metrics.startup, part)),
        resolution=1.0,
    )


MEASURES = (
    Measure("tokens per second", "tokens/s", 1, 0.01, 0.05, lambda metrics: metrics.tokens_per_s, steps=True),
    Measure("MFU", "share", 1, 0.01, 0.05, lambda metrics: metrics.mfu, steps=True),
    Measure("step p50", "s", -1, 0.01, 0.05, lambda metrics: metrics.step_time_s.p50, steps=True),
    Measure("step p95", "s", -1, 0.03, 0.15, lambda metrics: metrics.step_time_s.p95),
    Measure("host memory", "GiB", -1, 0.02, 0.10, lambda metrics: metrics.memory.host_rss_gib, resolution=0.1),
    Measure(
        "device memory allocated",
        "GiB",
        -1,
        0.02,
        0.05,
        lambda metrics: metrics.memory.device_allocated_gib,
        resolution=0.1,
    ),
    Measure(
        "device memory reserved",
        "GiB",
        -1,
        0.02,
        0.10,
        lambda metrics: metrics.memory.device_reserved_gib,
        resolution=0.1,
    ),
    Measure(
        "memory of the states",
        "MiB",
        -1,
        0.01,
        0.05,
        lambda metrics: metrics.memory_check.states_measured_bytes / 2**20 if metrics.memory_check else None,
        resolution=0.1,
    ),
    Measure(
        "checkpoint write",
        "GiB/s",
        1,
        0.10,
        0.30,
        lambda metrics: metrics.checkpoint.write_gib_per_s if metrics.checkpoint else None,
    ),
    Measure(
        "checkpoint read",
        "GiB/s",
        1,
        0.10,
        0.30,
        lambda metrics: metrics.checkpoint.read_gib_per_s if metrics.checkpoint else None,
    ),
    *(_startup(part) for part in ("import_s", "process_group_s", "first_collective_s", "load_s", "first_step_s")),
)


@dataclass(frozen=True)
class Finding:
    """One measure of runs with the same arguments."""

    measure: str
    before: str
    now: str
    change: str
    conclusion: str  # regression, improvement, within noise, cannot tell
    why: str
    outcome: Outcome


@dataclass(frozen=True)
class Comparison:
    """Runs with the same arguments on both sides."""

    title: str
    environment: list[str]  # what differs around the runs
    findings: list[Finding]


def check(later: Sequence[Entry], earlier: Sequence[Entry]) -> list[Comparison]:
    """Every run of today against those of the baseline that have its arguments.

    Raises NotComparable: no run of the baseline has these arguments (the fields are named), a side mixes versions or
    GPU types, a run is there twice or on both sides, or one was resumed.
    """
    refuse_repeated([*earlier, *later])
    for entry in [*earlier, *later]:
        if entry.metrics.resumed is not None:
            raise NotComparable(
                f"{entry.folder.name} was resumed at step {entry.metrics.resumed.step}: its window of steady steps "
                "is another one; take runs that began at step 1"
            )
    groups: dict[str, tuple[list[Entry], list[Entry]]] = {}
    for entry in later:
        like = [candidate for candidate in earlier if not _unlike(candidate, entry)]
        if not like:
            nearest = min(earlier, key=lambda candidate: len(_unlike(candidate, entry)))
            raise NotComparable(
                f"{entry.folder.name} has no like run in the baseline; nearest is {nearest.folder.name}: "
                f"{'; '.join(_unlike(nearest, entry))}"
            )
        groups.setdefault(like[0].folder.name, (like, []))[1].append(entry)
    # every comparison is one of several: the chance of a false alarm is shared by all of them
    compared = sum(1 for sides in groups.values() for measure in MEASURES if _recorded(measure, sides))
    confidence = 1 - 2 * FALSE_ALARMS / max(1, compared)
    return [_compare(before, after, confidence) for before, after in groups.values()]


def _unlike(entry: Entry, other: Entry) -> list[str]:
    left, right = entry.args.model_dump(), other.args.model_dump()
    return [
        f"{name} {left[name]} vs {right[name]}"
        for name in left
        if name not in IGNORED_ARGUMENTS and left[name] != right[name]
    ]


def _recorded(measure: Measure, sides: tuple[Sequence[Entry], Sequence[Entry]]) -> bool:
    return any(measure.read(entry.metrics) is not None for side in sides for entry in side)


def _compare(before: Sequence[Entry], after: Sequence[Entry], confidence: float) -> Comparison:
    _one_environment("the baseline", before)
    _one_environment("the runs", after)
    args = after[0].args
    title = (
        f"{args.entrypoint}, {args.model}, {args.world_size} rank(s) on {args.nodes} node(s): "
        f"{len(after)} run(s) against {len(before)}"
    )
    findings = [_loss(before, after)]
    findings += [
        _finding(measure, before, after, confidence) for measure in MEASURES if _recorded(measure, (before, after))
    ]
    return Comparison(title, _environment_changes(before, after), findings)


def _surroundings(entry: Entry) -> dict[str, str]:
    settings = {name: str(getattr(entry.args, name)) for name in ENVIRONMENT}
    return settings | {"GPU": entry.metrics.gpu0 or "none"}


def _one_environment(side: str, entries: Sequence[Entry]) -> None:
    first = _surroundings(entries[0])
    for entry in entries[1:]:
        for name, value in _surroundings(entry).items():
            if value != first[name]:
                raise NotComparable(
                    f"{side}: {name} {first[name]} in {entries[0].folder.name}, {value} in {entry.folder.name}: "
                    "repetitions must be of one environment; compare them apart"
                )


def _hosts(entries: Iterable[Entry]) -> list[str]:
    return sorted({host for entry in entries for host in entry.metrics.observed.hosts})


def _environment_changes(before: Sequence[Entry], after: Sequence[Entry]) -> list[str]:
    old, new = _surroundings(before[0]), _surroundings(after[0])
    changes = [f"{name} {old[name]} → {new[name]}" for name in old if old[name] != new[name]]
    if _hosts(before) != _hosts(after):
        changes.append(f"nodes {', '.join(_hosts(before))} → {', '.join(_hosts(after))}")
    return changes


def _loss(before: Sequence[Entry], after: Sequence[Entry]) -> Finding:
    """Losses are not a matter of noise: the same arguments and seed give the same trajectory, within the dtype's
    tolerance."""
    name = "loss, nats"
    args = after[0].args
    tolerance = LOSS_TOLERANCE_NATS.get(args.compute_dtype)
    trajectories = [entry.metrics.loss for entry in [*before, *after]]
    lengths = {len(losses) for losses in trajectories}
    if lengths != {args.steps}:
        return Finding(
            name,
            "",
            "",
            "",
            "cannot tell",
            f"{args.steps} steps, and {min(lengths)} losses in one of the runs",
            Outcome.INCOMPLETE,
        )
    middle = [median(losses) for losses in zip(*trajectories[: len(before)], strict=True)]
    gaps = [max(abs(loss - usual) for loss, usual in zip(losses, middle, strict=True)) for losses in trajectories]
    own_gap, gap = max(gaps[: len(before)]), max(gaps[len(before) :])
    shown = (f"{middle[-1]:.4f}", f"{fmean(entry.metrics.loss[-1] for entry in after):.4f}", f"gap {gap:.1e}")
    if tolerance is None:
        return Finding(
            name, *shown, "cannot tell", f"no tolerance is known for {args.compute_dtype}", Outcome.INCOMPLETE
        )
    allowed = max(tolerance, own_gap)
    if gap > allowed:
        return Finding(
            name,
            *shown,
            "DISAGREES",
            f"tolerance {allowed:.1e}: another computation, its speed means nothing yet",
            Outcome.FAIL,
        )
    unsteady = (
        f"; the baseline itself differs by {own_gap:.1e}, more than {tolerance:.0e}" if own_gap > tolerance else ""
    )
    return Finding(name, *shown, "agrees", f"tolerance {allowed:.1e}{unsteady}", Outcome.PASS)


def _finding(measure: Measure, before: Sequence[Entry], after: Sequence[Entry], confidence: float) -> Finding:
    sides = [[measure.read(entry.metrics) for entry in side] for side in (before, after)]
    name = f"{measure.name}, {measure.unit}"
    old, new = ([value for value in side if value is not None] for side in sides)
    shown = (_shown(old), _shown(new))
    values = [[max(value, measure.resolution) for value in side] for side in (old, new)]
    if any(None in side for side in sides):
        return Finding(name, *shown, "", "cannot tell", "not recorded in all runs", Outcome.INCOMPLETE)
    inside = (
        [noise.error_inside(steps) for entry in [*before, *after] if (steps := entry.steps)] if measure.steps else []
    )
    known = [error for error in inside if error is not None]
    floor = (fmean(error**2 for error in known)) ** 0.5 if known else 0.0
    interval = noise.interval(values[0], values[1], confidence, floor)
    if interval is None:
        if values[0] == values[1] == [measure.resolution]:
            return Finding(
                name, *shown, "", "within noise", f"both below {measure.resolution:g} {measure.unit}", Outcome.PASS
            )
        change = values[1][0] / values[0][0] - 1
        return Finding(
            name,
            *shown,
            f"{change:+.1%}".replace("%", " %"),
            "cannot tell",
            _one_each(change, known),
            Outcome.INCOMPLETE,
        )
    return _decided(measure, name, shown, values, interval, confidence)


def _one_each(change: float, inside: Sequence[float]) -> str:
    """What a single pair of runs lets one say."""
    words = "one run on each side: the spread between runs is not known; repeat, 5 on each side tell most"
    error = noise.explained_inside(inside)
    if error is None:
        return words
    than = "more" if abs(change) > error else "no more"
    return f"{than} than the steps inside the runs explain (±{error:.1%}); {words}".replace("%", " %")


def _decided(
    measure: Measure,
    name: str,
    shown: tuple[str, str],
    values: Sequence[Sequence[float]],
    interval: noise.Interval,
    confidence: float,
) -> Finding:
    high = f"{interval.high:+.1%}" if interval.high <= _MOST_SHOWN else f"> {_MOST_SHOWN:+.0%}"
    change = f"{interval.change:+.1%} [{interval.low:+.1%}, {high}]".replace("%", " %")
    least, most = (interval.low, interval.high) if measure.better > 0 else (-interval.high, -interval.low)
    large = abs(interval.change) > measure.ignore
    if most < 0 and large:
        return Finding(name, *shown, change, "REGRESSION", "", Outcome.FAIL)
    if least > 0 and large:
        return Finding(name, *shown, change, "improvement", "", Outcome.PASS)
    if least > -measure.exclude:
        return Finding(
            name,
            *shown,
            change,
            "within noise",
            f"{measure.exclude:.0%} worse is excluded".replace("%", " %"),
            Outcome.PASS,
        )
    spread = max(noise.spread(side) for side in values)
    needed = noise.repetitions(spread, measure.exclude, confidence, more_than=min(map(len, values)))
    advice = (
        f"about {needed} runs on each side"
        if needed
        else f"more than {noise.MOST_REPETITIONS} runs on each side; quieten it"
    )
    return Finding(
        name,
        *shown,
        change,
        "cannot tell",
        f"{measure.exclude:.0%} worse is not excluded: the spread is {spread:.1%}, take {advice}".replace("%", " %"),
        Outcome.INCOMPLETE,
    )


def _shown(values: Sequence[float]) -> str:
    """The median, and from where to where."""
    if not values:
        return "not recorded"
    if len(values) == 1:
        return f"{values[0]:,.4g}"
    return f"{median(values):,.4g} ({min(values):,.4g} to {max(values):,.4g})"


def table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    header = ["measure", "baseline", "now", "change [bounds]", "verdict", "why"]
    return header, [
        [finding.measure, finding.before, finding.now, finding.change, finding.conclusion, finding.why]
        for finding in comparison.findings
    ]


def overall(compared: Sequence[Comparison]) -> Outcome:
    return worst([finding.outcome for comparison in compared for finding in comparison.findings])


def in_words(compared: Sequence[Comparison]) -> str:
    """The last line: what was found, worst first."""
    findings = [finding for comparison in compared for finding in comparison.findings]
    bad = [finding for finding in findings if finding.outcome is Outcome.FAIL]
    open_ = [finding for finding in findings if finding.outcome is Outcome.INCOMPLETE]
    words = [f"{len(bad)} of {len(findings)} measures worse: {_names(bad)}"] if bad else ["no regression was found"]
    if open_:
        words.append(f"{len(open_)} cannot be told: {_names(open_)}")
    elif not bad:
        words = [f"no regression in {len(findings)} measures"]
    return f"{'; '.join(words)} (false alarms: at most {FALSE_ALARMS:.0%} of checks)".replace("%", " %")


def _names(findings: Sequence[Finding]) -> str:
    return ", ".join(dict.fromkeys(finding.measure.partition(",")[0] for finding in findings))
