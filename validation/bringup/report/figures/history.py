"""Measures over time: a picture each, a point per run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from bringup.compare.history import Finding
from bringup.report import outputs
from bringup.report.figures import canvas

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


def draw(findings: Sequence[Finding], folder: Path) -> list[Path]:
    """Of series of two runs or more. Returns what was written. UsageError when something else is there."""
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
        times: Any = [datetime.fromisoformat(point.opened_at) for point in series.points]
        values = [point.value for point in series.points]
        axis.plot(times, values, "o-", color=canvas.COLOURS[0], linewidth=1, markersize=5)
        axis.plot(times[-1:], values[-1:], "D", color=canvas.COLOURS[3], markersize=8, label=f"newest: {finding.said}")
        if finding.usual is not None:
            axis.axhline(finding.usual, color="black", linestyle="--", linewidth=1, label="median before it")
        axis.set(title=canvas.label(f"{series.measure}, {series.where}", 90), ylabel=canvas.label(series.unit))
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend(fontsize="x-small")
        figure.autofmt_xdate()
        canvas.save(figure, path)
    return list(written)
