"""The answer of NCCL's RAS service as JSON -> lines that name ranks. The format: "RAS", "JSON Output" in the user guide
of NCCL 2.28.7 and later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pydantic import BaseModel, Field

_MOST_NAMED = 4  # ranks of one line
_INITIALISED = 0  # ncclSuccess
_IN_PROGRESS = 7  # ncclInProgress


class RankStatus(BaseModel):
    init_state: int = _INITIALISED
    async_error: int = 0
    abort_flag: bool = False


class MissingStatus(BaseModel):
    unresponsive: bool
    considered_dead: bool


class Rank(BaseModel):
    rank: int
    host: str = Field(max_length=64)  # an address
    cuda_dev: int
    status: RankStatus
    collective_counts: dict[str, int]

    def __str__(self) -> str:
        return f"rank {self.rank} (GPU {self.cuda_dev} of {self.host})"


class MissingRank(BaseModel):
    rank: int
    host: str = Field(max_length=64)
    cuda_dev: int
    status: MissingStatus

    def __str__(self) -> str:
        state = "is dead" if self.status.considered_dead else "does not answer"
        if not self.status.unresponsive and not self.status.considered_dead:
            state = "answers, but does not know the communicator"
        return f"rank {self.rank} (GPU {self.cuda_dev} of {self.host}) {state}"


class Communicator(BaseModel):
    hash: str = Field(pattern=r"^0x[0-9a-f]{1,16}$")
    size: int
    ranks: list[Rank]
    missing_ranks: list[MissingRank]


class Answer(BaseModel):
    communicators: list[Communicator]


def faults(text: str) -> tuple[int, list[str]]:
    """(number of communicators, what is wrong with them, a line each). Raises ValueError where it is not such JSON."""
    answer = Answer.model_validate_json(text)
    return len(answer.communicators), [
        f"communicator {communicator.hash} of {communicator.size} ranks: {fault}"
        for communicator in answer.communicators
        for fault in _faults(communicator)
    ]


def _faults(communicator: Communicator) -> Iterator[str]:
    if communicator.missing_ranks:
        yield _named([str(rank) for rank in communicator.missing_ranks])
    for word, ranks in (
        ("failed", [r for r in communicator.ranks if r.status.async_error not in (0, _IN_PROGRESS)]),
        ("aborted", [r for r in communicator.ranks if r.status.abort_flag]),
        ("not initialised", [r for r in communicator.ranks if r.status.init_state != _INITIALISED]),
    ):
        if ranks:
            yield f"{word}: {_named([str(rank) for rank in ranks])}"
    for operation in dict.fromkeys(name for rank in communicator.ranks for name in rank.collective_counts):
        yield from _different_counts(communicator.ranks, operation)


def _different_counts(ranks: list[Rank], operation: str) -> Iterator[str]:
    """The ranks that launched another number of this operation than most did. The ranks with the fewest are behind."""
    launched = [rank.collective_counts.get(operation, 0) for rank in ranks]
    (usual, many), *others = Counter(launched).most_common()
    if others:
        different = [f"{rank} {count}" for rank, count in zip(ranks, launched, strict=True) if count != usual]
        yield f"{operation[:40]}: {many} ranks launched {usual}, {_named(different)}"


def _named(ranks: list[str]) -> str:
    more = f" and {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else ""
    return ", ".join(ranks[:_MOST_NAMED]) + more
