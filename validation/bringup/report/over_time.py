"""What `bringup history` prints."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from bringup.compare.history import LEAST_BEFORE, Finding
from bringup.report import text

HEADER = ("measure", "where", "runs", "first", "median before", "newest", "unit", "change", "said")


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
            finding.said,
        ]
        for finding in findings
    ]
    counts = Counter(finding.said for finding in findings)
    summary = ", ".join(f"{count} {result}" for result, count in counts.items()) or "nothing was measured"
    least = f"; a measure needs {LEAST_BEFORE + 1} runs" if counts["cannot tell"] else ""
    return "\n".join([*([text.columns(HEADER, rows), ""] if rows else []), f"{runs} run(s): {summary}{least}"])


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
                "points": [
                    {"opened_at": point.opened_at, "run": point.run, "value": point.value}
                    for point in finding.series.points
                ],
            }
            for finding in findings
        ],
        indent=1,
    )
