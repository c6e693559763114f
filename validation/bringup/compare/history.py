"""All runs of a checkout over time: is the newest one slower than those before it? `bringup history`

A series is one measure of runs that may be compared: the same cluster, phase, gate, size of messages and numbers of
nodes and GPUs; of trainings also the same arguments and kind of GPU. Its value is that of the run: where a gate judges
nodes, the worst of them.

Days differ, so a day is one value, the median of its runs. The newest days stand against those before: their median and
a robust spread. A single low day is no news: it takes NEWEST of them, and more where low days were frequent before.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import NamedTuple

from bringup.compare import noise
from bringup.domains.chance import most_events
from bringup.kernel.characters import many
from bringup.kernel.facts.parser_result import is_number
from bringup.kernel.judge import Judged
from bringup.kernel.plan import stand_ins, subjects
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.expectation import SPEEDS
from bringup.kernel.records import Outcome, SlurmCluster, grouped
from bringup.report import text
from bringup.training.comparison.entries import MFU, OVER_TIME_EXCLUDE, OVER_TIME_IGNORE, TOKENS_PER_S
from bringup.training.records import ARGUMENTS
from bringup.training.records.folder import records_of

NEWEST = 3
LEAST_DAYS = 10 + NEWEST
MOST_DAYS = 30  # after which a loss is what is usual
LEAST_SPREAD = 0.005  # relative, of days
REGRESSION, LOW, TOO_FEW = "regression", "low: run it again on another day", "too few days"
COMPARED_S, WRONG = "sweep.gpu.load.compared_s", "sweep.gpu.load.wrong_values"
_UNITS = (*SPEEDS, "us")  # of gates whose value is a speed or a latency
_OUTCOMES: dict[str, Outcome] = {  # worst first
    REGRESSION: Outcome.FAIL,
    LOW: Outcome.INCOMPLETE,
    "improvement": Outcome.PASS,
    "cannot tell": Outcome.INCOMPLETE,
    "within noise": Outcome.PASS,
    TOO_FEW: Outcome.INCOMPLETE,
}
_BETTER = {"at_least": 1, "near_peers": 1, "at_most": -1}
HEADER = ("measure", "where", "runs", "first", "median before", "newest", "unit", "change", "said")


class Point(NamedTuple):
    opened_at: str
    run: str
    value: float


class Series(NamedTuple):
    measure: str
    where: str
    unit: str
    better: int  # +1: more is better, -1: less is
    points: list[Point]  # oldest first

    @property
    def of_days(self) -> list[float]:
        """Return the median of each day's runs."""
        days = grouped((point.opened_at[:10], point.value) for point in self.points)
        return [median(values) for values in days.values()]


class Finding(NamedTuple):
    series: Series
    usual: float | None  # median of the days before the newest ones
    change: float | None  # of the newest day, relative
    said: str

    @property
    def outcome(self) -> Outcome:
        return _OUTCOMES[self.said]

    @property
    def is_judged(self) -> bool:
        return self.said != TOO_FEW

    @property
    def row(self) -> list[str]:
        """Return its cells below HEADER."""
        line, first, newest = self.series, self.series.points[0], self.series.points[-1]
        usual = "" if self.usual is None else f"{self.usual:.4g}"
        change = "" if self.change is None else f"{100 * self.change:+.1f} %"
        conclusion = self.said if self.is_judged else f"{len(line.of_days)} of {LEAST_DAYS} days"
        begin = [line.measure, line.where, str(len(line.points)), first.opened_at[:10]]
        return [*begin, usual, f"{newest.value:.4g}", line.unit, change, conclusion]


def series(judged: Iterable[Judged]) -> list[Series]:
    """Make series from the runs whose evidence holds."""
    found_series: dict[tuple[SlurmCluster, tuple[str, ...]], Series] = {}
    ordered = sorted((run for run in judged if run.objection is None), key=lambda run: run.run.opened_at)
    is_one = len({run.run.of_cluster for run in ordered}) < 2
    for run in ordered:
        for key, empty, value in [*_of_gates(run), *_of_training(run)]:
            where = empty.where if is_one else f"{empty.where}, {run.run.of_cluster}"
            known = found_series.setdefault((run.run.of_cluster, key), empty._replace(where=where))
            known.points.append(Point(run.run.opened_at, run.run.name, value))
    return list(found_series.values())


def judge(all_series: Sequence[Series]) -> list[Finding]:
    """Judge all series, worst first."""
    confidence = noise.shared_confidence(sum(len(line.of_days) >= LEAST_DAYS for line in all_series))
    findings = [finding_of(line, confidence) for line in all_series]
    return sorted(findings, key=lambda finding: list(_OUTCOMES).index(finding.said))


def finding_of(line: Series, confidence: float) -> Finding:
    """Judge the newest days of a series."""
    days = line.of_days
    if len(days) < LEAST_DAYS:
        usual = median(days[:-1]) if len(days) > 1 else None
        return Finding(line, usual, days[-1] / usual - 1 if usual else None, TOO_FEW)
    gains = [line.better * math.log(day) for day in days]
    count = len(days) - NEWEST
    usual, noisy = _usual(gains[:count], confidence)
    newest = [gain - usual for gain in gains[count:]]
    least = max(LEAST_DAYS - NEWEST, len(days) - MOST_DAYS)
    if any(_is_lower(gains, before, confidence) for before in range(least, count + 1)):
        answer = REGRESSION
    elif newest[-1] < -_bound(noisy, count):
        answer = LOW
    elif min(newest) > _bound(noisy, count):
        answer = "improvement"
    elif fmean(newest) - noisy * math.sqrt(1 / NEWEST + 1 / count) > math.log1p(-OVER_TIME_EXCLUDE):
        answer = "within noise"
    else:
        answer = "cannot tell"
    return Finding(line, math.exp(line.better * usual), math.expm1(line.better * newest[-1]), answer)


def _is_lower(gains: Sequence[float], before: int, confidence: float) -> bool:
    """Say whether all days but the first `before` are low, and chance does that as rarely as a false alarm may come."""
    usual, noisy = _usual(gains[:before], confidence)
    lowest = usual - _bound(noisy, before)
    frequent = (sum(gain < lowest for gain in gains[:before]) + 0.5) / (before + 1)
    return max(gains[before:]) < lowest and frequent ** (len(gains) - before) <= (1 - confidence) / 2


def _usual(gains: Sequence[float], confidence: float) -> tuple[float, float]:
    """Return the median, and how far a single day may be from it. Robust: of ten days one may be bad."""
    usual, count = median(gains), len(gains)
    # of few normal values the median deviation is too small: Croux and Rousseeuw, Computational Statistics 1, 411, 1992
    deviation = 1.4826 * count / (count - 0.8) * median(abs(gain - usual) for gain in gains)
    return usual, noise.t_quantile(confidence, count - 1) * max(deviation, LEAST_SPREAD)


def _bound(noisy: float, before: int) -> float:
    """How far a day is from the usual one if it is low."""
    return max(noisy * math.sqrt(1 + 1 / before), -math.log1p(-OVER_TIME_IGNORE))


def screen(findings: Sequence[Finding], runs: int) -> str:
    """Write a row per measure, regressions first; then one line that sums them up."""
    # one run alone shows nothing over time
    rows = [finding.row for finding in findings if finding.is_judged or len(finding.series.points) > 1]
    counts = Counter(finding.said for finding in findings if finding.is_judged)
    parts = [f"{count} {result}" for result, count in counts.items()] if findings else ["nothing was measured"]
    parts += _too_few([finding for finding in findings if not finding.is_judged])
    return "\n".join([*([text.columns(HEADER, rows), ""] if rows else []), f"{many(runs, 'run')}: {'; '.join(parts)}"])


def _too_few(findings: Sequence[Finding]) -> list[str]:
    """Say what can be said all the same: how much they changed, which may be noise."""
    if not findings:
        return []
    need = f"{many(len(findings), 'measure')} with fewer than the {LEAST_DAYS} days that tell a change from noise"
    changed = [finding for finding in findings if finding.change is not None]
    if not changed:
        return [need]
    largest = min(changed, key=lambda finding: finding.series.better * (finding.change or 0))
    series = largest.series
    return [f"{need}; the worst change is {100 * (largest.change or 0):+.1f} %: {series.measure}, {series.where}"]


def as_json(findings: Sequence[Finding]) -> str:
    measures = [
        {
            **{name: getattr(finding.series, name) for name in ("measure", "where", "unit")},
            "said": finding.said,
            "change": finding.change,
            "median_before": finding.usual,
            "points": [point._asdict() for point in finding.series.points],
        }
        for finding in findings
    ]
    return json.dumps(measures, indent=1)


def compared(judged: Iterable[Judged]) -> str:
    """Say for how long results were compared bit by bit, on what, and what no finding allows (95 %). Empty: never."""
    hours: dict[str, float] = defaultdict(float)
    wrong: Counter[str] = Counter()
    for run in (run for run in judged if run.objection is None):
        seconds = {seen.subject: seen.value for seen in run.observations if seen.quantity == COMPARED_S}
        for seen in run.observations:
            lasted = seconds.get(seen.subject)
            if seen.quantity == WRONG and isinstance(seen.value, int) and isinstance(lasted, int | float):
                hours[_device(seen.subject)] += lasted / 3600
                wrong[_device(seen.subject)] += seen.value > 0
    parts = [
        f"{kind}: {lasted:.3g} device-hours, {wrong[kind]} findings, so at most one in "
        f"{lasted / most_events(wrong[kind]):.3g} (95 %)"
        for kind, lasted in sorted(hours.items())
    ]
    return f"silent corruption, compared bit by bit: {'; '.join(parts)}" if parts else ""


def _device(subject: str) -> str:
    device = subject.partition("/")[2]
    if device.startswith(stand_ins.GPU):
        return "simulated GPUs"
    return "GPUs" if device.startswith(("GPU-", "gpu")) else "CPUs"


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 1: something became slower; 2: something was low once, or nothing could be told; 0 otherwise."""
    answers = {finding.said for finding in findings}
    is_known = LOW not in answers and Outcome.PASS in {finding.outcome for finding in findings}
    return Outcome.FAIL.exit_code if REGRESSION in answers else 0 if is_known else Outcome.INCOMPLETE.exit_code


def _shape(run: Judged) -> str:
    return f"{many(len(run.run.nodes), 'node')} x {run.run.gpus_per_node} GPUs"


def _of_gates(run: Judged) -> Iterable[tuple[tuple[str, ...], Series, float]]:
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for verdict in run.verdicts.verdicts:
        is_known = verdict.unit in _UNITS and verdict.gate in GATES and verdict.rule in _BETTER
        if is_known and is_number(verdict.value) and verdict.value > 0:
            scale = verdict.subject if subjects.nodes_of_scale(verdict.subject) is not None else ""
            values[verdict.gate, verdict.at or "", scale].append(float(verdict.value))
    for (gate, at, scale), observed in values.items():
        better = _BETTER[GATES[gate].rule]
        measure = f"{gate} at {at}" if at else gate
        key = (run.run.phase, gate, at, scale, _shape(run), run.run.profile)
        where = f"{run.run.phase}, {scale or _shape(run)}"
        yield key, Series(measure, where, GATES[gate].unit, better, []), min(observed) if better > 0 else max(observed)


def _of_training(run: Judged) -> Iterable[tuple[tuple[str, ...], Series, float]]:
    if (records := records_of(run)) is None:
        return
    arguments = records.args.model_dump(mode="json")
    kept = {name: value for name, value in arguments.items() if name not in ARGUMENTS["repeated"]}
    same = json.dumps(kept, sort_keys=True)
    where = f"{run.run.phase}, {records.args.model}, {_shape(run)}"
    for measure in (TOKENS_PER_S, MFU):
        value = measure.read(records.metrics)
        if value is not None and value > 0:
            series_of = Series(measure.name, where, measure.unit, measure.better, [])
            yield (run.run.phase, measure.name, same, records.metrics.gpu0 or ""), series_of, value
