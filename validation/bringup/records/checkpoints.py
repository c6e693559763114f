"""What is known of checkpoints: their files, their times, the room that they need."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from bringup.records.base import Record, Versioned


class CheckpointFile(Record):
    """A file of a checkpoint as it was when it was written."""

    name: str
    rank: int = Field(ge=0)  # that wrote it
    bytes: int = Field(ge=0)
    crc32: int = Field(ge=0)


class Checkpoint(Versioned):
    """`checkpoint.json`, the last file of a checkpoint: a folder without it is an unfinished save, not a checkpoint."""

    run: str  # folder name of the run that wrote it
    step: int = Field(ge=1)
    world_size: int = Field(ge=1)
    strategy: str
    recipe: dict[str, Any]  # RunArgs without what may differ between strategies: who resumes has to have the same
    files: list[CheckpointFile]
    fingerprints: dict[
        str, int
    ]  # parameter or optimizer tensor -> its bits, summed so that sharding makes no difference
    scheduler: dict[str, Any]
    loss: list[float]  # of every step so far
    grad_norm: list[float]
    written_at: str

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class CheckpointTimes(Record):
    """What checkpoints cost this run, and what was read back. Seconds of the slowest rank; bytes of all files.

    Under DDP one copy is written and every rank reads all of it; the read rate is the bytes of one copy per second.
    """

    written: int = Field(ge=0)  # complete checkpoints
    bytes: int = Field(gt=0)  # of one
    write_s: float | None  # of the last; null when none was written
    write_gib_per_s: float | None
    read_s: float | None  # null when none was read
    read_gib_per_s: float | None
    compared: int | None = Field(
        ge=0
    )  # tensors that were compared with what was saved, over all ranks; null when none was read
    differing: int | None = Field(ge=0)
    after_steps: list[int]  # after which one was written
    files: int | None = Field(ge=1)  # of one, without its record; null when none was written
    checksum_s: float | None  # of the last that was written: CRC-32 and fingerprints, in no other time here
    predicted_bytes: int | None = Field(gt=0)  # of one, before step 1
    predicted_reason: str | None  # why null


class CheckpointRoom(Record):
    """What was known of the folder of checkpoints before step 1."""

    predicted_bytes: int = Field(gt=0)  # of one checkpoint, the largest of this run
    predicted_files: int = Field(ge=1)
    at_once: int = Field(ge=0)  # that lie there at the same time, the one in writing among them; 0: none is sure
    free_bytes: int | None = None  # for this user: what the filesystem or a quota leaves; null: not known
    free_files: int | None = None  # null: not known, or not limited
    limited_by: Literal["filesystem", "quota"] | None = None  # what ends first; null: nothing was looked at
    quota: str | None = None  # why no quota is known; null: a tool reported one, or nothing was looked at
    stop_lead_s: float | None = None  # before the time limit, at the end of the run; null: the limit was not known
    stop_lead_source: str | None = None


class Resumed(Record):
    """Where this run began: not at step 1."""

    run: str  # folder name of the run that wrote the checkpoint
    step: int = Field(ge=1)  # last step before this run's own
    world_size: int = Field(ge=1)
    random_state: bool  # restored; with another number of ranks there is nothing to restore it from
    passed_over: list[str]  # newer checkpoints that were damaged, and how
