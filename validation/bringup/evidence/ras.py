"""The answer of NCCL's RAS service about a job that hung (probes/ras.py), as JSON or text -> a note. No gate judges it:
RAS reports busy ranks as missing, and has reported a hanging job as healthy.

The JSON: "RAS", "JSON Output" in the user guide of NCCL 2.28.7 and later.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from pydantic import BaseModel, Field

from bringup.characters import many
from bringup.evidence import names
from bringup.evidence.parsed import Parsed, lines

_GROUP = re.compile(r"\s*\d+(?:\s+\d+(?:-\d+)?){5}\s+(?P<status>[A-Z]+)\s+(?P<errors>[A-Z,]+)\s*")
_MOST_LINES = 8  # of its answer
_MOST_NAMED = 4  # ranks of one line
_INITIALISED = 0  # ncclSuccess
_IN_PROGRESS = 7  # ncclInProgress


class _RankStatus(BaseModel):
    init_state: int = _INITIALISED
    async_error: int = 0
    abort_flag: bool = False


class _MissingStatus(BaseModel):
    unresponsive: bool
    considered_dead: bool


class _Rank(BaseModel):
    rank: int
    host: str = Field(max_length=64)  # an address
    cuda_dev: int
    status: _RankStatus
    collective_counts: dict[str, int]

    def __str__(self) -> str:
        return f"rank {self.rank} (GPU {self.cuda_dev} of {self.host})"


class _MissingRank(BaseModel):
    rank: int
    host: str = Field(max_length=64)
    cuda_dev: int
    status: _MissingStatus

    def __str__(self) -> str:
        state = "is dead" if self.status.considered_dead else "does not answer"
        if not self.status.unresponsive and not self.status.considered_dead:
            state = "answers, but does not know the communicator"
        return f"rank {self.rank} (GPU {self.cuda_dev} of {self.host}) {state}"


class _Communicator(BaseModel):
    hash: str = Field(pattern=r"^0x[0-9a-f]{1,16}$")
    size: int
    ranks: list[_Rank]
    missing_ranks: list[_MissingRank]


class _Answer(BaseModel):
    communicators: list[_Communicator]


def parse(text: str, where: str) -> Parsed:
    parsed = Parsed()
    try:
        communicators, faults = _of_json(text) if text.startswith("{") else _of_text(text)
    except ValueError:
        parsed.problems.append(f"{where}: not an answer of NCCL's RAS service: {text[:40]!r}")
        return parsed
    summary = names.first_few(faults, _MOST_LINES) or "it reports no fault, which alone proves nothing"
    parsed.problems.append(f"{where}: NCCL's RAS service: {communicators}: {summary}")
    return parsed


def _of_json(text: str) -> tuple[str, list[str]]:
    """Read (how many communicators, what is wrong with them, a line each). Raises ValueError if it is not such JSON."""
    communicators = _Answer.model_validate_json(text).communicators
    return f"{many(len(communicators), 'communicator')}", [
        f"communicator {communicator.hash} of {communicator.size} ranks: {fault}"
        for communicator in communicators
        for fault in _faults(communicator)
    ]


def _of_text(text: str) -> tuple[str, list[str]]:
    """Return (state of the communicators, faults). Raises ValueError where it is not such a text."""
    groups = [f"{group['status']} {group['errors']}" for line in lines(text) if (group := _GROUP.fullmatch(line))]
    if not groups and "Job summary" not in text:
        raise ValueError("no job summary")
    return ", ".join(groups) or "no communicator", _listed(text)


def _listed(text: str) -> list[str]:
    """Return the lines under the headings Errors and Warnings."""
    listed: list[str] = []
    below = False
    before = ""
    for line in lines(text):
        if line and not line.strip("="):  # the line under a heading
            below = before.strip() in ("Errors", "Warnings")
            if listed and listed[-1] == before.strip():
                listed.pop()
        elif below and line.strip():
            listed.append(line.strip()[:120])
        before = line
    return listed


def _faults(communicator: _Communicator) -> Iterator[str]:
    if communicator.missing_ranks:
        yield names.the_first([str(rank) for rank in communicator.missing_ranks], _MOST_NAMED)
    for word, ranks in (
        ("failed", [r for r in communicator.ranks if r.status.async_error not in (0, _IN_PROGRESS)]),
        ("aborted", [r for r in communicator.ranks if r.status.abort_flag]),
        ("not initialised", [r for r in communicator.ranks if r.status.init_state != _INITIALISED]),
    ):
        if ranks:
            yield f"{word}: {names.the_first([str(rank) for rank in ranks], _MOST_NAMED)}"
    for operation in dict.fromkeys(name for rank in communicator.ranks for name in rank.collective_counts):
        yield from _different_counts(communicator.ranks, operation)


def _different_counts(ranks: list[_Rank], operation: str) -> Iterator[str]:
    """Yield ranks that launched another number of this operation than most. Those with the fewest are behind."""
    launched = [rank.collective_counts.get(operation, 0) for rank in ranks]
    (usual, many), *others = Counter(launched).most_common()
    if others:
        different = [f"{rank} {count}" for rank, count in zip(ranks, launched, strict=True) if count != usual]
        yield f"{operation[:40]}: {many} ranks launched {usual}, {names.the_first(different, _MOST_NAMED)}"
