"""The monitor's samples: a line a period, with the cells of COLUMNS; and after it one for each GPU, with GPU_COLUMNS.

own_cpu_percent is the sampler's own share of one core since it began. unix_s is the node's own time: `derive` says how
far that can be put right. Before them comes `#every,node,seconds`, the period. `#nics,node,unix_s,eth0=sent/received,…`
are the bytes that each network interface and RDMA device has counted, and are not judged.
"""

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bringup.kernel.facts.parser_result import Parsed, lines
from bringup.kernel.facts.reading import Windows
from bringup.kernel.run_folder import RunFolder
from bringup.readers import clock

FILE = "raw/monitor.csv"
COLUMNS = (
    *("node", "unix_s", "cpu_percent", "memory_used_gib", "tx_bytes", "rx_bytes", "gpu_percent", "gpu_power_w"),
    *("gpu_temp_c", "own_cpu_percent", "rdma_tx_bytes", "rdma_rx_bytes"),
)
GPU = "#gpu"  # begins the line of a GPU
# reasons: nvmlDeviceGetCurrentClocksEventReasons, all bits; 0x4 is the power cap. NVLinks: since the driver was loaded
GPU_COLUMNS = (
    *(GPU, "node", "unix_s", "uuid", "percent", "power_w", "temp_c", "sm_mhz", "slowdowns", "memory_mhz", "reasons"),
    *("memory_gib", "nvlink_tx_kib", "nvlink_rx_kib", "pcie_tx_bytes", "pcie_rx_bytes"),
)
NICS, EVERY = "#nics", "#every"
BUSY_PERCENT = 50  # below, a low clock is what an idle GPU has
FEWEST_BUSY = 3  # samples that make a median
PERIOD_S = 1.0
_DECIMAL, _COUNT = r"[0-9]{1,12}\.[0-9]{1,12}", r"[0-9]{1,20}"
_SAMPLE = re.compile(rf"{_DECIMAL},{_DECIMAL},{_DECIMAL},{_COUNT},{_COUNT}")  # the cells that every node can measure
_LABEL = re.compile(r"^\s*\d+: ")
_NUMBER = re.compile(rf"{_COUNT}|{_DECIMAL}")
_PERIOD = re.compile(r"[1-9][0-9]{0,3}(\.[0-9]{1,3})?")

Row = Mapping[str, str]
"""Column -> cell."""


@dataclass
class Samples:
    """Rows in the order of arrival, of each node and of each GPU (`n0/GPU-…`); and what is not a sample."""

    nodes: dict[str, list[Row]] = field(default_factory=dict)
    gpus: dict[str, list[Row]] = field(default_factory=dict)
    period_s: float = PERIOD_S
    problems: list[str] = field(default_factory=list)


def of_run(folder: RunFolder) -> Samples:
    """Read samples. Empty if there are none, or they cannot be read, which the judge has said in its notes."""
    try:
        return read(folder.read(FILE).text, FILE)
    except OSError:
        return Samples()


def read(text: str, where: str) -> Samples:
    samples = Samples()
    periods: list[float] = []
    for number, raw in enumerate(lines(text), start=1):
        cells = _LABEL.sub("", raw.rstrip("\r")).split(",")
        if cells[0] == GPU and len(cells) == len(GPU_COLUMNS):
            row = dict(zip(GPU_COLUMNS, cells, strict=True))
            samples.gpus.setdefault(f"{row['node']}/{row['uuid']}", []).append(row)
        elif cells[0] in (NICS, EVERY) and len(cells) > 2:
            if cells[0] == EVERY and len(cells) == 3 and _PERIOD.fullmatch(cells[2]):
                periods.append(float(cells[2]))
        elif len(cells) == len(COLUMNS) and _SAMPLE.fullmatch(",".join(cells[1:6])):
            samples.nodes.setdefault(cells[0], []).append(dict(zip(COLUMNS, cells, strict=True)))
        elif cells != [""] and tuple(cells) != COLUMNS:
            samples.problems.append(f"{where}:{number}: not a sample: {raw[:60]!r}")
    if periods:
        samples.period_s = periods[0]  # all nodes have the same
    if not samples.nodes:
        samples.problems.append(f"{where}: holds no sample")
    return samples


def node_of(line: str) -> str | None:
    """Return the node of a line of the sampler, which has no label any more. None: the headline, or no line of it."""
    first, *cells = line.split(",", 2)
    if not cells or first == COLUMNS[0]:
        return None
    return cells[0] if first.startswith("#") else first


def parse(text: str, where: str, duration_s: float | None, room: str = "nccl", steps: Windows | None = None) -> Parsed:
    """Read what was sampled of each node, how completely, and at what cost. duration_s: of the watched step. room:
    begins the ids of the gates on the sampler. steps: of a training, to which what GPUs do under load is restricted."""
    samples = read(text, where)
    parsed = Parsed(problems=samples.problems)
    for node, rows in samples.nodes.items():
        share, words = _coverage(times(rows), duration_s, samples.period_s)
        parsed.saw(f"{room}.monitor.coverage", node, share, "share", where, words)
        own_share, why = cell(rows[-1], "own_cpu_percent"), "of one core, over the whole run"
        why = "the sampler did not count its own time" if own_share is None else why
        parsed.saw(f"{room}.monitor.overhead", node, own_share, "%", where, why)
    for gpu, rows in samples.gpus.items():
        _gpu(parsed, gpu, rows, where, None if steps is None else steps.get(rows[0]["node"], (0.0, 0.0)))
    return parsed


def _gpu(parsed: Parsed, gpu: str, rows: Sequence[Row], where: str, window: tuple[float, float] | None) -> None:
    """Read what the hardware did to protect itself while the node was watched; its clock under load. window: only what
    lies in it counts for the clock. (0, 0): nothing does."""
    slowdowns = [row["slowdowns"] for row in rows if row["slowdowns"]]
    slow = [text for text in slowdowns if text != "none"]
    value, words = None, "NVML did not say it in any sample"
    if slowdowns:
        value = ", ".join(sorted({kind for text in slow for kind in text.split("+")})) or "none"
        words = f"in {len(slow)} of {len(slowdowns)} samples"
    parsed.saw("monitor.gpu.slowdown", gpu, value, "text", where, words)
    when = "" if window is None else " in the measured steps"
    if window is not None:
        rows = [row for row in rows if window[0] <= float(row["unix_s"]) <= window[1]]
    busy = [row for row in rows if _NUMBER.fullmatch(row["percent"]) and float(row["percent"]) >= BUSY_PERCENT]
    clocks = [float(row["sm_mhz"]) for row in busy if _NUMBER.fullmatch(row["sm_mhz"])]
    median = statistics.median(clocks) if len(clocks) >= FEWEST_BUSY else None
    why = f"while at least {BUSY_PERCENT} % busy{when}"
    if not clocks:
        why = f"in no sample{when} was it {BUSY_PERCENT} % busy"
    elif median is None:
        why = f"in {len(clocks)} samples{when} was it {BUSY_PERCENT} % busy, in fewer than {FEWEST_BUSY}"
    parsed.saw("monitor.gpu.clock_median", gpu, median, "MHz", where, why)


def cell(row: Row, column: str) -> float | None:
    """Read a number. None where it was not measured."""
    return float(row[column]) if _NUMBER.fullmatch(row[column]) else None


def _coverage(moments: Sequence[float], duration_s: float | None, period_s: float) -> tuple[float | None, str]:
    """Divide samples seen by those that the watched step wants, less one: its time begins before the sampler does,
    whose first sample comes a period later."""
    if not duration_s:
        return None, "the watched step left no duration"
    arrived, expected = _apart(moments, period_s), max(1.0, duration_s / period_s - 1)
    every = f", one every {period_s:g} s" if period_s != PERIOD_S else ""
    return min(1.0, arrived / expected), f"{arrived} samples in {duration_s:.0f} s{every}"


def _apart(moments: Sequence[float], period_s: float) -> int:
    """How many lie half a period or more after the one before: a sample repeated is not a second sample."""
    count, last = 0, float("-inf")
    for moment in sorted(moments):
        if moment - last >= period_s / 2:
            count, last = count + 1, moment
    return count


def times(rows: Sequence[Row], shift: clock.Shift | None = None) -> list[float]:
    """Return when samples were taken, unix s on the fleet's clock; on the node's own where they were not compared."""
    return [float(row["unix_s"]) + (shift.seconds if shift else 0.0) for row in rows]
