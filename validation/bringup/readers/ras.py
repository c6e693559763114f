"""The answer of NCCL's RAS service about a job that hung (probes/ras.py), text or JSON -> a note. No gate judges it:
RAS reports busy ranks as missing, and has reported a hanging job as healthy.

The JSON: "RAS", "JSON Output" in the user guide of NCCL 2.28.7 and later.
"""

import re
from collections import Counter

from pydantic import BaseModel, Field

from bringup.kernel.characters import many
from bringup.kernel.facts import names
from bringup.kernel.facts.parser_result import Parsed, lines

_GROUP = re.compile(r"\s*\d+(?:\s+\d+(?:-\d+)?){5}\s+(?P<status>[A-Z]+)\s+(?P<errors>[A-Z,]+)\s*")
_MOST_LINES = 8  # of its answer


class _Status(BaseModel):
    init_state: int = 0  # ncclSuccess
    async_error: int = 0
    abort_flag: bool = False
    considered_dead: bool = False


class _Rank(BaseModel):
    rank: int
    host: str = Field(max_length=64)  # an address
    cuda_dev: int
    status: _Status
    collective_counts: dict[str, int] = {}

    def __str__(self) -> str:
        return f"rank {self.rank} (GPU {self.cuda_dev} of {self.host})"


class _Communicator(BaseModel):
    hash: str = Field(pattern=r"^0x[0-9a-f]{1,16}$")
    size: int
    ranks: list[_Rank]
    missing_ranks: list[_Rank]


class _Answer(BaseModel):
    communicators: list[_Communicator]


def parse(text: str, where: str) -> Parsed:
    """Read the state of the communicators, and what is wrong with them."""
    try:
        state, faults = _of_json(text) if text.startswith("{") else _of_text(text)
    except ValueError:
        return Parsed(problems=[f"{where}: not an answer of NCCL's RAS service: {text[:40]!r}"])
    summary = names.first_few(faults, _MOST_LINES) or "it reports no fault, which alone proves nothing"
    return Parsed(problems=[f"{where}: NCCL's RAS service: {state}: {summary}"])


def _of_json(text: str) -> tuple[str, list[str]]:
    communicators = _Answer.model_validate_json(text).communicators
    return many(len(communicators), "communicator"), [
        f"communicator {group.hash} of {many(group.size, 'rank')}: {word}: {names.the_first(ranks)}"
        for group in communicators
        for word, ranks in _different(group).items()
        if ranks
    ]


def _different(communicator: _Communicator) -> dict[str, list[str]]:
    """Return what is wrong -> its ranks. Those that launched an operation less often than most are behind."""
    missing, ranks = communicator.missing_ranks, communicator.ranks
    faults: dict[str, list[str]] = {
        "does not answer": [str(rank) for rank in missing if not rank.status.considered_dead],
        "dead": [str(rank) for rank in missing if rank.status.considered_dead],
        "failed": [str(rank) for rank in ranks if rank.status.async_error not in (0, 7)],  # ncclSuccess, ncclInProgress
        "aborted": [str(rank) for rank in ranks if rank.status.abort_flag],
        "not initialised": [str(rank) for rank in ranks if rank.status.init_state],
    }
    for operation in dict.fromkeys(name for rank in ranks for name in rank.collective_counts):
        launched = [(rank, rank.collective_counts.get(operation, 0)) for rank in ranks]
        ((usual, count),) = Counter(number for _, number in launched).most_common(1)
        others = [f"{rank} {number}" for rank, number in launched if number != usual]
        faults[f"{operation[:40]}, {usual} times on {many(count, 'rank')}"] = others
    return faults


def _of_text(text: str) -> tuple[str, list[str]]:
    groups = [f"{group['status']} {group['errors']}" for line in lines(text) if (group := _GROUP.fullmatch(line))]
    if not groups and "Job summary" not in text:
        raise ValueError("no job summary")
    return ", ".join(groups) or "no communicator", _listed(text)


def _listed(text: str) -> list[str]:
    """Return the lines under the headings Errors and Warnings."""
    listed, below, before = list[str](), False, ""
    for line in lines(text):
        if line and not line.strip("="):  # the line under a heading
            below = before.strip() in ("Errors", "Warnings")
            if listed and listed[-1] == before.strip():
                listed.pop()
        elif below and line.strip():
            listed.append(line.strip()[:120])
        before = line
    return listed
