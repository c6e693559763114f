"""What `bringup sweep` did: variants of one training, and what each of them gave."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bringup.records.base import NonNegative, Outcome, Record, Versioned


class SweepRun(Record):
    """One job of a sweep."""

    variant: int = Field(ge=0)  # index among the variants
    repetition: int = Field(ge=1)
    folder: str  # from the repository root
    outcome: Outcome
    why: str | None = None  # in one line, where it did not pass


class SweepRow(Record):
    """One variant, over its runs that finished: medians. Null: not known, or none finished."""

    label: str  # base, or field=value
    ran: str | None  # what was observed: ZeRO-2, accumulation 2
    runs: int = Field(ge=0)  # that finished
    tokens_per_s: float | None  # all ranks, steady window
    change: float | None  # of tokens/s against the base, relative
    low: float | None  # bounds of the change; null without repetitions
    high: float | None
    against_base: Literal["faster", "slower", "within noise", "cannot tell"] | None
    step_p50_s: float | None
    peak_gib: NonNegative | None  # per rank, the largest: of the device where there is one, else of the host
    peak_of: Literal["device", "host"] | None
    mfu: NonNegative | None
    cost_per_billion_tokens: NonNegative | None  # in the currency of the price
    loss_gap: str | None  # against the base
    outcome: Outcome
    failed: str | None  # why, in one line


class Sweep(Versioned):
    """`sweep.json`: what `bringup sweep` did, rewritten after every run."""

    name: str
    phase: str
    nodes: list[str] = Field(min_length=1)
    profile: str  # by name, or the path of its file
    site: str | None  # the name of the site file; null: none was used
    price_per_gpu_hour: str | None  # as the site file says it: 2.50 USD
    options: list[str]  # of the base
    vary: dict[str, list[str]]  # field -> values
    grid: bool
    repeat: int = Field(ge=1)
    variants: list[dict[str, str]]  # field -> value; the base first
    runs: list[SweepRun]
    rows: list[SweepRow]  # derived from the runs
