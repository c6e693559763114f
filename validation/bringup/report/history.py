"""What `bringup history` prints, and its pictures: one per measure, a point per run."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bringup.compare.history import LEAST_BEFORE, Finding
from bringup.records import time_of
from bringup.report import outputs, text
from bringup.report.figures import canvas

HEADER = ("measure", "where", "runs", "first", "median before", "newest", "unit", "change", "said")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


def screen(findings: Sequence[Finding], runs: int) -> str:
    """A row per measure, regressions first; then one line that sums them up."""
    rows = [
        [
            finding.series.measure,
            finding.series.where,
            str(len(finding.series.points)),
            finding.series.points[0].opened_at[:10],
            "" if finding.usual is None else f"{finding.usual:.4g}",
            f"{finding.series.points[-1].value:.4g}",
            finding.series.unit,
            "" if finding.change is None else f"{100 * finding.change:+.1f} %",
            _conclusion(finding),
        ]
        for finding in findings
    ]
    counts = Counter(finding.said for finding in findings if finding.is_judged)
    parts = [f"{count} {result}" for result, count in counts.items()] if findings else ["nothing was measured"]
    parts += _too_few([finding for finding in findings if not finding.is_judged])
    return "\n".join([*([text.columns(HEADER, rows), ""] if rows else []), f"{runs} run(s): {'; '.join(parts)}"])


def _conclusion(finding: Finding) -> str:
    return finding.said if finding.is_judged else f"{len(finding.series.points)} of {LEAST_BEFORE + 1} runs"


def _too_few(findings: Sequence[Finding]) -> list[str]:
    """What can be said all the same: how much they changed, which may be noise."""
    if not findings:
        return []
    need = f"{len(findings)} measure(s) with fewer than the {LEAST_BEFORE + 1} runs that tell a change from noise"
    changed = [finding for finding in findings if finding.change is not None]
    if not changed:
        return [need]
    largest = min(changed, key=lambda finding: finding.series.better * (finding.change or 0))
    series = largest.series
    return [f"{need}; the worst change is {100 * (largest.change or 0):+.1f} %: {series.measure}, {series.where}"]


def as_json(findings: Sequence[Finding]) -> str:
    return json.dumps(
        [
            {
                "measure": finding.series.measure,
                "where": finding.series.where,
                "unit": finding.series.unit,
                "said": finding.said,
                "change": finding.change,
                "median_before": finding.usual,
                "points": [asdict(point) for point in finding.series.points],
            }
            for finding in findings
        ],
        indent=1,
    )


def draw(findings: Sequence[Finding], folder: Path) -> list[Path]:
    """A picture of each series of two runs or more. Returns what was written. UsageError if something else is there."""
    outputs.make_folder("--plot", folder)
    written: dict[Path, Finding] = {}
    for finding in findings:
        if len(finding.series.points) > 1:
            name = _NOT_IN_NAMES.sub("-", f"{finding.series.measure}-{finding.series.where}")
            written[folder / f"{name}.png"] = finding
    outputs.check([outputs.Output("--plot", path, outputs.PICTURE) for path in written])
    for path, finding in written.items():
        series = finding.series
        figure, [axis] = canvas.panels(1, 1, (7.4, 3.6))
        times: Any = [time_of(point.opened_at) for point in series.points]
        values = [point.value for point in series.points]
        axis.plot(times, values, "o-", color=canvas.COLOURS[0], linewidth=1, markersize=5)
        axis.plot(times[-1:], values[-1:], "D", color=canvas.COLOURS[3], markersize=8, label=f"newest: {finding.said}")
        if finding.usual is not None:
            axis.axhline(finding.usual, color="black", linestyle="--", linewidth=1, label="median before it")
        axis.set_ylim(bottom=0)
        canvas.finish(axis, canvas.label(f"{series.measure}, {series.where}", 90), "", canvas.label(series.unit))
        figure.autofmt_xdate()
        canvas.save(figure, path)
    return list(written)
