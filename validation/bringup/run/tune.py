"""Which strategy for this model on this machine: what fits is computed, and trained, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bringup.advise import answer as advising
from bringup.errors import BringupError, UsageError
from bringup.formulae.models import NAMES
from bringup.plan.profile import Profile
from bringup.records import Advice, PredictedStrategy
from bringup.run import train_here

PROGRAM = {"single": "single", "ddp": "ddp", "zero2": "fsdp", "fsdp": "fsdp"}  # of train_here; HSDP needs two nodes


OWN = (
    "--global-batch",
    "--rows-at-once",
    "--gradient-accumulation",
    "--activation-checkpointing",
    "--no-activation-checkpointing",
    "--bf16",
    "--no-bf16",
    "--reshard-after-forward",
    "--no-reshard-after-forward",
)
"""Options of the programs that are set for each strategy: another value would train what was not computed."""


@dataclass(frozen=True)
class Tried:
    """A strategy, and what became of it: a closed folder, or why it has none."""

    strategy: str
    folder: Path | None
    why_not: str = ""


def refuse_own(options: list[str]) -> None:
    """Raises UsageError."""
    for option in options:
        if option.split("=")[0] in OWN:
            raise UsageError(f"tune sets {option.split('=')[0]} itself: leave it out; bringup tune --help has its own")


def does_not_fit(advice: Advice, strategy: PredictedStrategy) -> str | None:
    """None: it fits, or it is not known, and then the program itself refuses what does not."""
    if strategy.fits is not False:
        return None
    return (
        f"does not fit: {strategy.peak_gib:.1f} GiB at the peak and {strategy.outside_gib:.1f} beside it, of "
        f"{advice.gpu_memory_gib or 0:.1f}"
    )


def trials(
    question: advising.Question, advice: Advice, profile: Profile, profile_name: str, options: list[str]
) -> Iterator[Tried]:
    """One after the other, the run on one GPU first: the others are compared with it. options: of all programs."""
    for strategy in advice.strategies:
        name = NAMES[strategy.strategy]
        why_not = does_not_fit(advice, strategy)
        if strategy.strategy not in PROGRAM:
            why_not = "it needs two nodes"
        if why_not is not None:
            yield Tried(name, None, why_not)
            continue
        request = train_here.Request(
            PROGRAM[strategy.strategy],
            strategy.ranks,
            profile,
            profile_name,
            [*advising.program_options(question, strategy), *options],
        )
        try:
            folder, _ = train_here.train(request)
        except BringupError as error:
            yield Tried(name, None, str(error))
            continue
        yield Tried(name, folder)
