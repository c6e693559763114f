"""The table of nccl-tests (all_reduce_perf and the others) as the same observations that our own collectives make.

The average over sizes is never used: it depends on the requested sizes. Their JSON (`-J`, since 2.17) is not asked for:
it says no more, and lists the whole environment.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from bringup.kernel.facts.parser_result import Parsed, lines

BINARIES = {
    "all_reduce_perf": "all_reduce",
    "all_gather_perf": "all_gather",
    "reduce_scatter_perf": "reduce_scatter",
    "alltoall_perf": "all_to_all",
    "broadcast_perf": "broadcast",
    "sendrecv_perf": "sendrecv",
}
ROUNDED = 0.01  # of a size
CUT_OFF = "the test did not finish"
_DEVICE = re.compile(r"#\s+Rank\s+([0-9]{1,9})\s+(?:Group\s+\d+\s+)?Pid\s+\d+ on\s+(\S+) device\s+(\d+) \[([^\]]+)\]")
_HALF = r"\s+time\s+algbw\s+busbw\s+(?:#?wrong|(error))"
_COLUMNS = re.compile(r"\s+size\s+count\s+type(?:\s+redop)?(?:\s+root)?" + _HALF * 2)
_BOUNDS = re.compile(r" Out of bounds values : (\d+) (OK|FAILED)")
_RELATIVE = re.compile(r"N/A|\de[+-]\d{2,3}")
_SIZE = re.compile(r"[0-9]{1,18}")
_BEFORE, _HALVES = 5, 8  # size count type redop root, then twice time algbw busbw #wrong; -I 1 appends more


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
    """Parse the table. Anything else is a problem, and the results of this scale are unchecked, because the test was
    requested."""
    parsed = Parsed()
    if binary not in BINARIES:
        parsed.note(f"{where}: no binary of nccl-tests that is known: {binary}")
    elif not text.strip():
        parsed.note(f"{where}: empty; {binary} wrote nothing")
    else:
        _table(parsed, text, where, BINARIES[binary], subject)
    if binary in BINARIES and all(seen.quantity != "nccl.wrong_values" for seen in parsed.observations):
        parsed.saw("nccl.wrong_values", subject, None, "count", where, parsed.problems[0])
    return parsed


def _table(parsed: Parsed, text: str, where: str, name: str, subject: str) -> None:
    """Of a size the slower one of out of place and in place counts. A single rank has no bus bandwidth."""
    devices = [_Device(host, int(rank), number, address) for rank, host, number, address in _DEVICE.findall(text)]
    _members(parsed, subject, devices, where)
    if (columns := _COLUMNS.search(text)) is None:
        parsed.note(f"{where}: holds no table of nccl-tests: {text.strip().splitlines()[0][:60]!r}")
        return
    is_old = columns[1] is not None  # before 2.11 the first columns varied, and a relative error stood for the count
    counts: list[int | None] = []
    for number, line in enumerate(lines(text), start=1):
        cells, evidence = line.split(), f"{where}:{number}"
        if not cells or not _SIZE.fullmatch(cells[0]):
            continue
        try:
            halves = cells[-_HALVES:] if is_old else cells[_BEFORE : _BEFORE + _HALVES]
            if len(halves) < _HALVES or (is_old and not all(map(_RELATIVE.fullmatch, halves[3::4]))):
                raise ValueError(f"{len(cells)} fields, {_BEFORE + _HALVES} are expected")
            us, speed = max(map(_number, halves[::4])), min(map(_number, halves[2::4]))
            # alltoall_perf and sendrecv_perf do not check the half in place
            checked = [0 if is_old else int(_number(cell)) for cell in halves[3::4] if cell != "N/A"]
        except ValueError as error:
            parsed.note(f"{evidence}: not a row of nccl-tests: {error}")
            continue
        counts.append(sum(checked) if checked else None)
        if size := int(cells[0]):
            parsed.saw(f"nccl.{name}.time@{named(size)}", subject, us, "us", evidence, "nccl-tests")
            if len(devices) != 1:
                parsed.saw(f"nccl.{name}.busbw@{named(size)}", subject, speed, "GB/s", evidence, "nccl-tests")
    bounds = _BOUNDS.search(text)
    if bounds is None or bounds[2] == "OK" or not is_old:
        _wrong(parsed, subject, counts, where, bounds is not None)
    if bounds is None:
        parsed.note(f"{where}: no 'Out of bounds values' line; {CUT_OFF}")
    elif bounds[2] == "FAILED":
        wrong = max(1, int(bounds[1][:18]))
        parsed.saw("nccl.wrong_values", subject, wrong, "count", where, "out of bounds, nccl-tests")


def _wrong(parsed: Parsed, subject: str, counts: Sequence[int | None], evidence: str, ended: bool) -> None:
    """Sum the wrong values of all sizes. If a size was not checked or not reached, the test counts as unchecked, unless
    another size had wrong values."""
    wrong, why = sum(count for count in counts if count is not None), "nccl-tests"
    if not counts:
        why = "no size was measured"
    elif wrong == 0 and not ended:
        why = CUT_OFF
    elif wrong == 0 and None in counts:
        why = "the results were not checked (-c 0)"
    parsed.saw("nccl.wrong_values", subject, wrong if why == "nccl-tests" else None, "count", evidence, why)


def _number(text: str) -> float:
    number = float(text)  # also of "nan"
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a measurement")
    return number


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
        parsed.note(f"{evidence}: names no device, so the ranks that took part are unknown")
        return
    groups, ranks = sum(device.rank == 0 for device in devices), len({device.rank for device in devices})
    of_groups = f": {groups} communicators (built without MPI, or a wrong --mpi)" if groups > 1 else ""
    remark = f"nccl-tests{of_groups}"
    parsed.saw("nccl.ranks", subject, ranks, "count", evidence, remark)
    parsed.saw("nccl.tests.ranks", subject, ranks, "count", evidence)
    hosts = len({device.host for device in devices}) if groups <= 1 else 1
    parsed.saw("nccl.hosts", subject, hosts, "count", evidence, remark)
    counted = Counter(device.identity for device in devices)
    number: int | None = len(counted)
    higher = {device.host for device in devices if device.number != "0"}
    if any(several > 1 and named[2:] == ("0",) and named[0] not in higher for named, several in counted.items()):
        number = None
        remark = "this nccl-tests prints the PCI bus alone; ranks of a host name one bus, and each may see one GPU only"
    parsed.saw("nccl.devices", subject, number, "count", evidence, remark)
