"""Output of nccl-tests (all_reduce_perf and the others) as the same observations that our own collectives make.

JSON (`-J FILE`, format version 3) or text. The average over sizes is never used: it depends on the requested sizes. The
environment in the JSON is never read; the phase script also removes it from the file.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bringup.evidence.parsed import Parsed, lines

BINARIES = {
    "all_reduce_perf": "all_reduce",
    "all_gather_perf": "all_gather",
    "reduce_scatter_perf": "reduce_scatter",
    "alltoall_perf": "all_to_all",
    "broadcast_perf": "broadcast",
    "sendrecv_perf": "sendrecv",
}
ROUNDED = 0.01  # of a size
UNCHECKED = "the results were not checked (-c 0)"
CUT_OFF = "the test did not finish"
_NOT_THIS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""Errors that bad text can raise while it is read as JSON: numbers of 5,000 digits, infinities, 100,000 brackets."""


def named(size: int) -> str:
    """Name the requested power of two. If the ranks do not divide it, nccl-tests measures a few bytes less."""
    meant = 2 ** round(math.log2(size))
    if abs(meant - size) <= ROUNDED * size:
        size = meant
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size % factor == 0 and size:
            return f"{size // factor}{unit}"
    return f"{size}B"


def parse(text: str, where: str, binary: str, subject: str) -> Parsed:
    """Parse JSON or text. Anything else is a problem, and the results of this scale are unchecked, because the test was
    requested."""
    name = BINARIES.get(binary)
    if name is None:
        return Parsed(problems=[f"{where}: no binary of nccl-tests that is known: {binary}"])
    if not text.strip():
        parsed = Parsed(problems=[f"{where}: empty; {binary} wrote nothing"])
    else:
        parsed = (
            _json(text, where, name, subject) if text.lstrip().startswith("{") else _text(text, where, name, subject)
        )
    if not any(observation.quantity == "nccl.wrong_values" for observation in parsed.observations):
        parsed.saw("nccl.wrong_values", subject, None, "count", where, parsed.problems[0])
    return parsed


def _row(
    parsed: Parsed,
    name: str,
    subject: str,
    size: int,
    halves: Sequence[tuple[float, float]],
    evidence: str,
    alone: bool,
) -> None:
    """One size. halves: (us, GB/s) out of place and in place; the slower one counts. A single rank has no busbw."""
    if size <= 0:
        return
    parsed.saw(f"nccl.{name}.time@{named(size)}", subject, max(us for us, _ in halves), "us", evidence, "nccl-tests")
    if not alone:
        parsed.saw(
            f"nccl.{name}.busbw@{named(size)}",
            subject,
            min(speed for _, speed in halves),
            "GB/s",
            evidence,
            "nccl-tests",
        )


def _of_size(halves: Sequence[int | None]) -> int | None:
    """Wrong values of one size; None if neither half was checked. alltoall_perf and sendrecv_perf do not check the
    in-place half, and print N/A (JSON: null) for it."""
    checked = [count for count in halves if count is not None]
    return sum(checked) if checked else None


def _wrong(parsed: Parsed, subject: str, counts: Sequence[int | None], evidence: str, ended: bool) -> None:
    """Sum the wrong values of all sizes. If a size was not checked or not reached, the test counts as unchecked, unless
    another size had wrong values."""
    wrong = sum(count for count in counts if count is not None)
    if not counts:
        parsed.saw("nccl.wrong_values", subject, None, "count", evidence, "no size was measured")
    elif wrong == 0 and not ended:
        parsed.saw("nccl.wrong_values", subject, None, "count", evidence, CUT_OFF)
    elif wrong == 0 and None in counts:
        parsed.saw("nccl.wrong_values", subject, None, "count", evidence, UNCHECKED)
    else:
        parsed.saw("nccl.wrong_values", subject, wrong, "count", evidence, "nccl-tests")


# --- JSON


def _json(text: str, where: str, name: str, subject: str) -> Parsed:
    parsed = Parsed()
    try:
        document = json.loads(text)
        devices = [
            _Device(str(device["hostname"]), int(device["rank"]), str(device.get("device")), str(device["device_hex"]))
            for device in document["config"]["devices"]
        ]
        results = list(document["results"])
    except _NOT_THIS as error:
        return Parsed(
            problems=[f"{where}: not the JSON of nccl-tests, or cut off: {type(error).__name__}: {str(error)[:80]}"]
        )
    if document.get("version") != 3:
        parsed.problems.append(f"{where}: format version {document.get('version')!r}, 3 is known")
    _members(parsed, subject, devices, f"{where}:config.devices")
    counts: list[int | None] = []
    for number, result in enumerate(results):
        evidence = f"{where}:results[{number}]"
        try:
            halves = [result[half] for half in ("out_of_place", "in_place") if isinstance(result.get(half), Mapping)]
            numbers = [(_number(half.get("time", half.get("cpu_time"))), _number(half["bus_bw"])) for half in halves]
            wrong = [None if half["nwrong"] is None else int(_number(half["nwrong"])) for half in halves]
            size = int(result["size"])
            if not numbers:
                raise ValueError("neither out of place nor in place")
        except _NOT_THIS as error:
            parsed.problems.append(f"{evidence}: not a result: {type(error).__name__}: {str(error)[:80]}")
            continue
        _row(parsed, name, subject, size, numbers, evidence, len(devices) == 1)
        counts.append(_of_size(wrong))
    ended = "end_time" in document
    _wrong(parsed, subject, counts, where, ended)
    bounds = document.get("out_of_bounds")
    if isinstance(bounds, Mapping) and bounds.get("okay") == "false":  # a text, not a boolean; "unchecked" says nothing
        parsed.saw(
            "nccl.wrong_values",
            subject,
            max(1, _count(bounds.get("count"))),
            "count",
            f"{where}:out_of_bounds",
            "nccl-tests",
        )
    if document.get("errors"):
        parsed.problems.append(f"{where}: nccl-tests says: {document['errors']!r:.160}")
    if not ended:
        parsed.problems.append(f"{where}: no end_time; {CUT_OFF}")
    return parsed


def _number(value: Any) -> float:
    number = float(value)  # "nan" is a text there
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a measurement")
    return number


def _count(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return 0


# --- text

_DEVICE = re.compile(
    r"#\s+Rank\s+([0-9]{1,9})\s+(?:Group\s+\d+\s+)?Pid\s+\d+ on\s+(?P<host>\S+) "
    r"device\s+(?P<number>\d+) \[(?P<address>[^\]]+)\]"
)
_COLUMNS = re.compile(
    r"#\s+size\s+count\s+type\s+redop\s+root\s+time\s+algbw\s+busbw\s+#?wrong\s+time\s+algbw\s+busbw\s+#?wrong"
)
_BOUNDS = re.compile(r"# Out of bounds values : (\d+) (OK|FAILED)")
_SIZE = re.compile(r"[0-9]{1,18}")
_FIELDS = 13  # size count type redop root, then twice time algbw busbw #wrong; -I 1 appends more


def _text(text: str, where: str, name: str, subject: str) -> Parsed:
    parsed = Parsed()
    devices = [
        _Device(match["host"], int(match[1]), match["number"], match["address"]) for match in _DEVICE.finditer(text)
    ]
    _members(parsed, subject, devices, where)
    if not _COLUMNS.search(text):
        parsed.problems.append(f"{where}: holds no table of nccl-tests: {text.strip().splitlines()[0][:60]!r}")
        return parsed
    counts: list[int | None] = []
    for number, line in enumerate(lines(text), start=1):
        cells = line.split()
        if not cells or not _SIZE.fullmatch(cells[0]):
            continue
        try:
            if len(cells) < _FIELDS:
                raise ValueError(f"{len(cells)} fields, {_FIELDS} are expected")
            halves = [(_number(cells[5]), _number(cells[7])), (_number(cells[9]), _number(cells[11]))]
            wrong = [None if cell == "N/A" else int(_number(cell)) for cell in (cells[8], cells[12])]
        except ValueError as error:
            parsed.problems.append(f"{where}:{number}: not a row of nccl-tests: {error}")
            continue
        _row(parsed, name, subject, int(cells[0]), halves, f"{where}:{number}", len(devices) == 1)
        counts.append(_of_size(wrong))
    bounds = _BOUNDS.search(text)
    _wrong(parsed, subject, counts, where, bounds is not None)
    if bounds is None:
        parsed.problems.append(f"{where}: no 'Out of bounds values' line; {CUT_OFF}")
    elif bounds[2] == "FAILED":
        parsed.saw("nccl.wrong_values", subject, max(1, _count(bounds[1])), "count", where, "out of bounds, nccl-tests")
    return parsed


class _Device(NamedTuple):
    host: str
    rank: int
    number: str  # as its process counts the GPUs that it sees
    address: str  # on PCI; before nccl-tests 2.17 only the bus ([0x34])

    @property
    def identity(self) -> tuple[str, ...]:
        """Identify a GPU. Guests and GB200 give one bus to several GPUs, which differ in the domain."""
        return (self.host, self.address) if ":" in self.address else (self.host, self.address, self.number)


def _members(parsed: Parsed, subject: str, devices: Sequence[_Device], evidence: str) -> None:
    """Several ranks 0 are several programs, each with its own communicator."""
    if not devices:
        parsed.problems.append(f"{evidence}: names no device, so the ranks that took part are unknown")
        return
    groups = sum(device.rank == 0 for device in devices)
    ranks = len({device.rank for device in devices})
    remark = (
        "nccl-tests" if groups <= 1 else f"nccl-tests: {groups} communicators (built without MPI, or a wrong --mpi)"
    )
    parsed.saw("nccl.ranks", subject, ranks, "count", evidence, remark)
    parsed.saw("nccl.tests.ranks", subject, ranks, "count", evidence)
    hosts = len({device.host for device in devices}) if groups <= 1 else 1
    parsed.saw("nccl.hosts", subject, hosts, "count", evidence, remark)
    counted = Counter(device.identity for device in devices)
    higher = {device.host for device in devices if device.number != "0"}
    if any(several > 1 and named[2:] == ("0",) and named[0] not in higher for named, several in counted.items()):
        why = "this nccl-tests prints the PCI bus alone; ranks of a host name one bus, and each may see one GPU only"
        parsed.saw("nccl.devices", subject, None, "count", evidence, why)
    else:
        parsed.saw("nccl.devices", subject, len(counted), "count", evidence, remark)
