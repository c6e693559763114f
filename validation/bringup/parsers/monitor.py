"""The monitor's samples:
`node,unix_s,cpu_percent,memory_used_gib,tx_bytes,rx_bytes,gpu_percent,gpu_power_w,gpu_temp_c,own_cpu_percent`.

The last one is the sampler's own share of one core since it began; samples of older runs end before it. unix_s is the node's own
time: `derive` says how far that can be put right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from bringup.parsers import clock
from bringup.parsers.result import Parsed

COLUMNS = ("node", "unix_s", "cpu_percent", "memory_used_gib", "tx_bytes", "rx_bytes", "gpu_percent", "gpu_power_w", "gpu_temp_c",
           "own_cpu_percent")
PERIOD_S = 1.0
_SAMPLE = re.compile(r"\d+\.\d+,\d+\.\d+,\d+\.\d+,\d+,\d+")  # the cells that every node can measure
_LABEL = re.compile(r"^\s*\d+: ")
_NUMBER = re.compile(r"\d+(\.\d+)?")


def samples(text: str, where: str) -> tuple[dict[str, list[list[str]]], list[str]]:
    """Cells per node, in the order of arrival; and what is no sample."""
    found: dict[str, list[list[str]]] = {}
    problems: list[str] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        cells = _LABEL.sub("", raw).split(",")
        if tuple(cells) == COLUMNS or raw == "":
            continue
        if len(cells) not in (len(COLUMNS) - 1, len(COLUMNS)) or not _SAMPLE.fullmatch(",".join(cells[1:6])):
            problems.append(f"{where}:{number}: not a sample: {raw[:60]!r}")
            continue
        found.setdefault(cells[0], []).append(cells)
    if not found:
        problems.append(f"{where}: holds no sample")
    return found, problems


def parse(text: str, where: str, duration_s: float | None) -> Parsed:
    """Coverage per node: samples seen / samples that `duration_s` (of the watched step) asks for. And the sampler's own cost."""
    found, problems = samples(text, where)
    parsed = Parsed(problems=problems)
    for node, rows in found.items():
        seconds = len({cells[1].split(".")[0] for cells in rows})  # a sample repeated is no second sample
        if not duration_s:
            parsed.saw("monitor.coverage", node, None, "share", where, "the watched step left no duration")
        else:
            wanted = max(1.0, duration_s / PERIOD_S)
            parsed.saw("monitor.coverage", node, min(1.0, seconds / wanted), "share", where,
                       f"{seconds} samples in {duration_s:.0f} s")
        parsed.saw("monitor.cpu_percent_max", node, max(float(row[2]) for row in rows), "%", where)
        sent = (int(rows[-1][4]) - int(rows[0][4])) / 1e9
        parsed.saw("monitor.sent", node, sent, "GB", where)
        if len(rows[-1]) == len(COLUMNS) and _NUMBER.fullmatch(rows[-1][-1]):
            parsed.saw("monitor.overhead", node, float(rows[-1][-1]), "%", where, "of one core, over the whole run")
        else:
            parsed.saw("monitor.overhead", node, None, "%", where, "the sampler did not count its own time")
    return parsed


def derive(parsed: Parsed) -> None:
    """monitor.clock_uncertainty, s, of every node that was sampled: how well its samples stand on the time axis of all nodes."""
    measured = clock.shifts(parsed.observations)
    why = {one.subject: one.why for one in parsed.observations if one.quantity == clock.BEHIND and one.value is None}
    for one in [one for one in parsed.observations if one.quantity == "monitor.coverage"]:
        shift = measured.get(one.subject)
        if shift is None:
            reason = why.get(one.subject, "nothing arrived")
            parsed.saw("monitor.clock_uncertainty", one.subject, None, "s", one.evidence,
                       f"its clock was not compared, and its samples stand at its own time: {reason}")
        else:
            parsed.saw("monitor.clock_uncertainty", one.subject, shift.uncertainty, "s", one.evidence,
                       f"{shift}; its samples are moved by {shift.moved}")


def times(rows: Sequence[Sequence[str]], shift: clock.Shift | None) -> list[float]:
    """When the samples were taken, unix s on the fleet's clock; on the node's own where the two were not compared."""
    return [float(row[1]) + (shift.seconds if shift else 0.0) for row in rows]
