"""What NCCL's Inspector plugin wrote while a job ran -> the bus bandwidth of each kind of collective in it.

Each process writes a file: a line with a JSON object for each collective of each of its communicators. The format:
"Output Example" of ext-profiler/inspector/README.md in NCCL's source. The time of a rank includes its wait for ranks
that come later. So of one call the fastest rank counts, and of all calls the median.
"""

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable

from pydantic import BaseModel, Field, ValidationError

from bringup.kernel.characters import many
from bringup.kernel.facts.parser_result import Parsed, lines
from bringup.kernel.run_folder import RunFolder

FOLDER = "raw/inspector"  # training/env.sh
_MOST_FILES = 16
_MOST_BYTES = 8 * 2**20  # of a file: some 20,000 collectives
_MOST_KINDS = 12
_MIB = 2**20


class _Header(BaseModel):
    id: str = Field(max_length=64)  # of the communicator
    n_ranks: int = Field(ge=1)
    nnodes: int = Field(ge=1)


class _Collective(BaseModel):
    coll: str = Field(pattern=r"^[A-Za-z]{1,32}$")
    coll_sn: int
    coll_msg_size_bytes: int = Field(gt=0)
    coll_busbw_gbs: float = Field(ge=0, allow_inf_nan=False)  # 0: its clock measured no time


class _Line(BaseModel):
    header: _Header
    coll_perf: _Collective | None = None  # a line of point-to-point traffic has none


_Kind = tuple[str, int, int, int]  # collective, bytes, ranks, nodes
_Call = tuple[str, int]  # communicator, number of the collective in it


def of_job(parsed: Parsed, folder: RunFolder) -> None:
    """Read some of the processes' files, evenly chosen, and of each the start: a long training writes gigabytes."""
    names, texts = [name for name in folder.raw.files if name.startswith(f"{FOLDER}/")], []
    for name in names[:: max(1, math.ceil(len(names) / _MOST_FILES))]:
        try:
            texts.append((name, folder.read(name, _MOST_BYTES).text))
        except OSError as error:
            parsed.note(f"{name}: cannot be read: {error.strerror}")
    parsed.add(parse(texts))


def parse(texts: Iterable[tuple[str, str]]) -> Parsed:
    """Read files: (path as shown, text). A last line that was cut off is passed over: the job may end in it."""
    parsed = Parsed()
    fastest: dict[_Kind, dict[_Call, float]] = defaultdict(dict)
    for where, text in texts:
        unread = 0
        for line in lines(text)[:-1]:
            try:
                read = _Line.model_validate_json(line)
            except ValidationError:
                unread += 1
                continue
            if (done := read.coll_perf) is not None and done.coll_busbw_gbs and read.header.n_ranks > 1:
                kind = (done.coll, done.coll_msg_size_bytes, read.header.n_ranks, read.header.nnodes)
                call = (read.header.id, done.coll_sn)
                fastest[kind][call] = max(done.coll_busbw_gbs, fastest[kind].get(call, 0.0))
        if unread:
            parsed.note(f"{where}: {many(unread, 'line')} are not as NCCL's Inspector writes them")
    by_bytes = sorted(fastest, key=lambda kind: (-kind[1] * len(fastest[kind]), kind))
    for collective, size, ranks, nodes in by_bytes[:_MOST_KINDS]:
        calls = fastest[collective, size, ranks, nodes]
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", collective).lower()  # ReduceScatter -> reduce_scatter
        quantity, subject = f"inspector.{name}.busbw", f"{many(ranks, 'rank')} on {many(nodes, 'node')}"
        mib = f"{size / _MIB:,.0f}" if size >= _MIB else f"{size / _MIB:.3g}"
        speed, words = statistics.median(calls.values()), f"{mib} MiB, {many(len(calls), 'call')}"
        parsed.saw(quantity, subject, round(speed, 3), "GB/s", FOLDER, words)
    return parsed
