"""What known faults leave behind: a line or an exit code -> its cause -> the next command. The lines are data: a file
per area in validation/known_faults/.

The first match of a line counts. Exact signatures are tried first, in the order of the areas and then of the file;
then those that know only the program; then errno words; last the class of an exception. So NCCL's own words explain a
line of NCCL, and the subject of a line (shared memory, a queue pair) comes before the errno at its end. Why a job waits
is in pending.py, what a message of the driver asks for in xid.py; docs/07-failure-modes.md and docs/gates/log-signs.md
are made of them.
"""

from collections.abc import Iterator
from typing import Literal

from bringup.kernel.records import Record
from bringup.readers.known.tables import entries

_AREAS = ("slurm", "gpu", "nccl", "pytorch", "kernel", "node", "data")


class Signature(Record):
    """A line that a known fault leaves in a log, with its cause and the next command."""

    id: str
    area: str
    patterns: tuple[str, ...]  # regular expressions, each searched in a line: one that begins with a word is found fast
    cause: str
    do: str
    source: str  # program or document that the line is from
    example: str  # a line as the program prints it; a test matches it
    # whether the line names a first cause, may name one, or only follows from another fault
    role: Literal["root", "either", "consequence"] = "root"
    # how specific the pattern is: one fault; one program (any warning of NCCL, any failed launch); or the words of an
    # errno, which many programs print for many reasons; or the class of an exception, whose message says more
    breadth: Literal["exact", "program", "errno", "class"] = "exact"
    # a pattern that another line of the same log must match; without it, the signature does not count
    beside: str | None = None
    not_after: str | None = None  # a pattern of an earlier line of the same log, after which the words are usual
    subject: str | None = None  # what the line must also name, where many programs print the same words
    as_warning: bool = False  # the program that stumbles over the fault only warns of it
    telling: str | None = None  # of several lines, the first with this pattern is shown: it says why
    frames: str | None = None  # of an exception: a pattern that a function in its traceback must match
    harmless: str = ""  # when nothing is to be done
    # of a line of the kernel: whose it may be, what stands before it, a later line after which it is over
    of: Literal["adapter", "node", "disk", "storage", "link", "corrected", "program"] | None = None
    begin: str | None = None
    over: str | None = None


def _of_area(name: str) -> Iterator[Signature]:
    data = entries(name)
    for id, fields in data["signatures"].items():
        patterns = [words for pattern in fields["patterns"] for words in _spelled(pattern)]
        do = f"{fields['do']}; nothing, where {fields['harmless']}" if "harmless" in fields else fields["do"]
        more = {"id": id, "area": data["area"], "patterns": tuple(patterns), "do": do}
        if "begin" in fields:
            more["begin"] = fields["begin"].replace("DEVICE", data["device"])
        yield Signature.model_validate({**fields, **more})


def _spelled(pattern: str | dict[str, list[str]]) -> tuple[str, ...]:
    """Spell `cuda: [number, name, words]`, an error of CUDA wherever it stands: by its number (cudaError_t), its name,
    or its words. NCCL prints `Cuda failure 2 'out of memory'`, older ones `Cuda failure 'out of memory'`; torch prints
    `CUDA error: out of memory`, or `Error 802: …`. And `nvml: [name, words]`, an error of NVML (nvmlReturn_t)."""
    if isinstance(pattern, str):
        return (pattern,)
    if "nvml" in pattern:
        name, words = pattern["nvml"]
        return rf"NVMLError_({name})\b", rf"NVML.*: ({words})", rf"nvml\w.*: ({words})"
    number, name, words = pattern["cuda"]
    return (
        rf"Cuda failure (?:({number})\b|'({words}))",
        rf"CUDA error:? (?:({number})\b|'?({words}))",
        rf"CUDA_ERROR_({name})\b",
        rf"Triton Error \[CUDA\]: ({words})",
        rf"cudaGetDeviceCount\(\).* Error ({number}): ",
    )


SIGNATURES = {signature.id: signature for name in _AREAS for signature in _of_area(name)}
"""By area, as a reader looks them up."""

_BREADTHS = ("exact", "program", "errno", "class")
IN_ORDER = sorted(SIGNATURES.values(), key=lambda signature: _BREADTHS.index(signature.breadth))
"""As a line is matched."""
