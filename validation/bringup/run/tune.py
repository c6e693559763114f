"""Which strategy for this model, here or on a cluster: what fits is computed, and trained, one after the other."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bringup import results as runs
from bringup.advise import answer as advising
from bringup.errors import BringupError, UsageError
from bringup.formulae.models import NAMES
from bringup.plan.phases import PHASES
from bringup.plan.profile import Profile
from bringup.records import Advice, PredictedStrategy
from bringup.report import terminal
from bringup.results import REPOSITORY
from bringup.run import open as opening
from bringup.run import site as at_site
from bringup.run import sweep, train_here
from bringup.run.launch import progress
from bringup.run.one_phase import run_phase

Start = Callable[[PredictedStrategy, list[str]], Path]
"""Trains a strategy with these options of its program; the closed folder. Raises BringupError."""

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


def here(profile: Profile, profile_name: str) -> Start:
    def start(strategy: PredictedStrategy, options: list[str]) -> Path:
        if strategy.strategy not in PROGRAM:
            raise UsageError("it needs two nodes")
        program = PROGRAM[strategy.strategy]
        return train_here.train(train_here.Request(program, strategy.ranks, profile, profile_name, options))[0]

    return start


def as_jobs(count: int, profile: Profile, profile_name: str) -> tuple[Start, int]:
    """(each a job on these nodes, the run on one GPU on the first of them; GPUs of a node). Raises BringupError."""
    site, tuned, at = at_site.entered(), opening.default_name(), "1node" if count == 1 else "2node"
    largest = PHASES[f"run_fsdp_{at}"]
    nodes, gpus = sweep.nodes_of(count, None, largest, at_site.for_submission(site, largest.stem, os.environ))
    workload = [] if profile.workload is None else shlex.split(profile.workload.arguments)

    def start(strategy: PredictedStrategy, options: list[str]) -> Path:
        kind = PROGRAM.get(strategy.strategy, strategy.strategy)
        phase = PHASES["run_1gpu" if kind == "single" else f"run_{kind}_{at}"]
        name = f"{tuned}-{strategy.strategy}"
        environment = os.environ | {
            "BRINGUP_RUN_NAME": name,
            "BRINGUP_PROFILE": profile_name,
            "BRINGUP_TRAIN_ARGS": " ".join([*workload, *options]),
            "BRINGUP_JUDGE_LATER": "1",
        }
        notes = REPOSITORY / runs.SWEEPS / tuned / "jobs" / name
        notes.mkdir(parents=True)
        (REPOSITORY / phase.results).mkdir(parents=True, exist_ok=True)
        with progress(terminal.console(), NAMES[strategy.strategy]) as tell:
            places = nodes[: phase.max_nodes]
            judged = run_phase(phase, places, gpus, environment, profile, site, name=name, folder=notes, tell=tell)
        return judged.folder

    return start, gpus


def trials(question: advising.Question, advice: Advice, options: list[str], start: Start) -> Iterator[Tried]:
    """One after the other, the run on one GPU first: the others are compared with it. options: of all programs."""
    for strategy in advice.strategies:
        name = NAMES[strategy.strategy]
        why_not = does_not_fit(advice, strategy)
        if why_not is not None:
            yield Tried(name, None, why_not)
            continue
        try:
            folder = start(strategy, [*advising.program_options(question, strategy), *options])
        except BringupError as error:
            yield Tried(name, None, str(error))
            continue
        yield Tried(name, folder)
