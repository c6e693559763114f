"""The monitor's samples: each second a line with the cells of COLUMNS, then a line per GPU with GPU_COLUMNS.

own_cpu_percent is the sampler's own share of one core since it began. Samples of older runs lack it, or also lack the
bytes over RDMA. unix_s is the node's own time; `derive` corrects it with the measured clocks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from bringup.evidence import clock
from bringup.evidence.parsed import Parsed, lines

COLUMNS = (
    "node",
    "unix_s",
    "cpu_percent",
    "memory_used_gib",
    "tx_bytes",
    "rx_bytes",
    "gpu_percent",
    "gpu_power_w",
    "gpu_temp_c",
    "own_cpu_percent",
    "rdma_tx_bytes",
    "rdma_rx_bytes",
)
GPU = "#gpu"  # begins the line of a GPU
GPU_COLUMNS = (GPU, "node", "unix_s", "uuid", "percent", "power_w", "temp_c", "sm_mhz", "slowdowns")
BUSY_PERCENT = 50  # below, a low clock is what an idle GPU has
OWN, RDMA_SENT = COLUMNS.index("own_cpu_percent"), COLUMNS.index("rdma_tx_bytes")
_LENGTHS = (OWN, OWN + 1, len(COLUMNS))  # as they were first, with the sampler's own share, and today
PERIOD_S = 1.0
_DECIMAL, _COUNT = r"[0-9]{1,12}\.[0-9]{1,12}", r"[0-9]{1,20}"
_SAMPLE = re.compile(rf"{_DECIMAL},{_DECIMAL},{_DECIMAL},{_COUNT},{_COUNT}")  # the cells that every node can measure
_LABEL = re.compile(r"^\s*\d+: ")
_NUMBER = re.compile(rf"{_COUNT}|{_DECIMAL}")


def samples(text: str, where: str) -> tuple[dict[str, list[list[str]]], list[str]]:
    """Cells per node, in the order of arrival; and the problems: lines that are not samples."""
    by_node: dict[str, list[list[str]]] = {}
    problems: list[str] = []
    for number, raw in enumerate(lines(text), start=1):
        cells = _LABEL.sub("", raw.rstrip("\r")).split(",")
        if tuple(cells) == COLUMNS or cells == [""] or (cells[0] == GPU and len(cells) == len(GPU_COLUMNS)):
            continue
        if len(cells) not in _LENGTHS or not _SAMPLE.fullmatch(",".join(cells[1:6])):
            problems.append(f"{where}:{number}: not a sample: {raw[:60]!r}")
            continue
        by_node.setdefault(cells[0], []).append(cells)
    if not by_node:
        problems.append(f"{where}: holds no sample")
    return by_node, problems


def gpu_samples(text: str) -> dict[str, list[dict[str, str]]]:
    """Per GPU (`n0/GPU-…`), in the order of arrival."""
    by_gpu: dict[str, list[dict[str, str]]] = {}
    for raw in lines(text):
        cells = _LABEL.sub("", raw.rstrip("\r")).split(",")
        if cells[0] == GPU and len(cells) == len(GPU_COLUMNS):
            row = dict(zip(GPU_COLUMNS, cells, strict=True))
            by_gpu.setdefault(f"{row['node']}/{row['uuid']}", []).append(row)
    return by_gpu


def parse(text: str, where: str, duration_s: float | None) -> Parsed:
    """Facts of each node's samples, their coverage and their cost. duration_s: of the watched step."""
    by_node, problems = samples(text, where)
    parsed = Parsed(problems=problems)
    for node, rows in by_node.items():
        _coverage(parsed, node, rows, where, duration_s)
        parsed.saw("monitor.cpu_percent_max", node, max(float(row[2]) for row in rows), "%", where)
        sent = (int(rows[-1][4]) - int(rows[0][4])) / 1e9
        parsed.saw(
            "monitor.sent", node, sent, "GB", where, "over network interfaces; what RDMA carries is not among it"
        )
        _rdma_sent(parsed, node, rows, where)
        own = cell(rows[-1], OWN)
        parsed.saw(
            "nccl.monitor.overhead",
            node,
            own,
            "%",
            where,
            "the sampler did not count its own time" if own is None else "of one core, over the whole run",
        )
    for gpu, samples_of in gpu_samples(text).items():
        _gpu(parsed, gpu, samples_of, where)
    return parsed


def _gpu(parsed: Parsed, gpu: str, rows: Sequence[Mapping[str, str]], where: str) -> None:
    """Slowdowns of the GPU while the node was watched, its lowest clock under load, and its temperature."""
    slowdowns = [row["slowdowns"] for row in rows if row["slowdowns"]]
    kinds = sorted({kind for text in slowdowns if text != "none" for kind in text.split("+")})
    slowed = sum(text != "none" for text in slowdowns)
    if slowdowns:
        words = f"in {slowed} of {len(slowdowns)} samples"
        parsed.saw("monitor.gpu.slowdown", gpu, ", ".join(kinds) or "none", "text", where, words)
    else:
        parsed.saw("monitor.gpu.slowdown", gpu, None, "text", where, "NVML did not say it in any sample")
    for quantity, column, unit, choose in (
        ("clock_min", "sm_mhz", "MHz", min),
        ("temp_max", "temp_c", "C", max),
    ):
        under_load = [
            row for row in rows if _NUMBER.fullmatch(row["percent"]) and float(row["percent"]) >= BUSY_PERCENT
        ]
        values = [float(row[column]) for row in under_load if _NUMBER.fullmatch(row[column])]
        why = f"while at least {BUSY_PERCENT} % busy" if values else f"in no sample was it {BUSY_PERCENT} % busy"
        parsed.saw(f"monitor.gpu.{quantity}", gpu, choose(values) if values else None, unit, where, why)


def cell(row: Sequence[str], column: int) -> float | None:
    """None: not measured, or the run is older than this column."""
    return float(row[column]) if len(row) > column and _NUMBER.fullmatch(row[column]) else None


def _coverage(parsed: Parsed, node: str, rows: Sequence[Sequence[str]], where: str, duration_s: float | None) -> None:
    """nccl.monitor.coverage: samples / (expected samples - 1). One fewer is expected, because the step's time begins
    before the sampler, and the first sample comes one period later."""
    if not duration_s:
        parsed.saw("nccl.monitor.coverage", node, None, "share", where, "the watched step left no duration")
        return
    arrived, expected = _apart([float(row[1]) for row in rows]), max(1.0, duration_s / PERIOD_S - 1)
    parsed.saw(
        "nccl.monitor.coverage",
        node,
        min(1.0, arrived / expected),
        "share",
        where,
        f"{arrived} samples in {duration_s:.0f} s",
    )


def _apart(moments: Sequence[float]) -> int:
    """Count the samples that are at least half a period after the previous one: a repeated sample counts once."""
    count, last = 0, float("-inf")
    for moment in sorted(moments):
        if moment - last >= PERIOD_S / 2:
            count, last = count + 1, moment
    return count


def _rdma_sent(parsed: Parsed, node: str, rows: Sequence[Sequence[str]], where: str) -> None:
    counts = [cell(row, RDMA_SENT) for row in rows]
    first, last = counts[0], counts[-1]
    if first is None or last is None:
        why = (
            "no active RDMA port counted its bytes"
            if len(rows[-1]) == len(COLUMNS)
            else "the sampler did not look at RDMA ports"
        )
        parsed.saw("monitor.rdma_sent", node, None, "GB", where, why)
    elif last < first:
        parsed.saw(
            "monitor.rdma_sent", node, None, "GB", where, f"the counter went back, from {first:.0f} to {last:.0f} bytes"
        )
    else:
        parsed.saw("monitor.rdma_sent", node, (last - first) / 1e9, "GB", where, "over all active RDMA ports")


def times(rows: Sequence[Sequence[str]], shift: clock.Shift | None) -> list[float]:
    """Times of the samples, unix s on the fleet's clock; on the node's own clock if that was not measured."""
    return [float(row[1]) + (shift.seconds if shift else 0.0) for row in rows]
