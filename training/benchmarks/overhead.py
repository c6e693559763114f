#!/usr/bin/env python3
"""What Trainer costs: each program against the bare loop in the same strategy. All else is the same, losses included.

The two programs run in pairs, because a machine is not equally fast all the time, and each pair starts with the other
program. A pair gives one ratio of their tokens/s (steady window). Printed at the end, for each strategy: the median
ratio with its spread, and the ratio of the fastest steps, which other load on the machine disturbs least.
Exit code 1: a median is below --least. 2: a program failed, or the two did not train the same.

    python training/benchmarks/overhead.py [--pairs 7] [--strategies single,ddp,fsdp,hsdp] [--table FILE.md] [options]

Options that are not listed here go to the programs (train_single_gpu.py --help). HSDP needs two nodes: two launchers on
this machine stand for them, each with --ranks ranks and as many GPUs. A step of the defaults takes 100 ms and more on
a CPU core: a step of 20 ms would measure Python.
"""

import argparse
import datetime
import math
import os
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path

import launched
from launched import ProgramFailed, Trained

DEFAULTS = ["--steps=22", "--warmup-steps=4", "--sequence-length=512", "--global-batch=8", "--no-rehearse-resume"]
STEP_FLOOR_S = 0.1
SAME_LOSS_NATS = {False: 1e-3, True: 2e-2}  # by bf16; equality.py holds float32 to 1e-5


@dataclass
class Pairs:
    """All pairs of one strategy so far."""

    strategy: str
    trainer: list[Trained] = field(default_factory=list)
    bare: list[Trained] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return [trainer.tokens_per_s / bare.tokens_per_s for trainer, bare in zip(self.trainer, self.bare, strict=True)]

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def fastest_s(self) -> tuple[float, float]:
        """(Trainer, bare loop)"""
        return min(run.fastest_step_s for run in self.trainer), min(run.fastest_step_s for run in self.bare)

    def row(self) -> str:
        trainer_s, bare_s = self.fastest_s
        cells = [
            self.strategy,
            str(len(self.ratios)),
            f"{self.median:.3f}",
            f"{min(self.ratios):.3f} to {max(self.ratios):.3f}",
            f"{trainer_s * 1e3:.1f}",
            f"{bare_s * 1e3:.1f}",
            f"{bare_s / trainer_s:.3f}"
            + ("" if bare_s >= STEP_FLOOR_S else f" (below {STEP_FLOOR_S * 1e3:.0f} ms: Python)"),
        ]
        return f"| {' | '.join(cells)} |"


def one_pair(pairs: Pairs, options: list[str], ranks: int) -> None:
    """Run both programs, the other one first each time. Raises ProgramFailed."""
    programs = [(pairs.trainer, launched.with_trainer), (pairs.bare, launched.bare)]
    for trained, run in programs if len(pairs.bare) % 2 == 0 else programs[::-1]:
        trained.append(run(pairs.strategy, options, ranks))
    difference = max(abs(a - b) for a, b in zip(pairs.trainer[-1].loss, pairs.bare[-1].loss, strict=True))
    bf16 = "--bf16" in options or (pairs.trainer[-1].gpu is not None and "--no-bf16" not in options)
    if not difference <= SAME_LOSS_NATS[bf16]:
        raise ProgramFailed(f"{pairs.strategy}: the losses of the two programs are {difference:.2g} nats apart")
    print(
        f"{pairs.strategy}, pair {len(pairs.ratios)}: Trainer {pairs.trainer[-1].tokens_per_s:,.0f} tokens/s, "
        f"bare loop {pairs.bare[-1].tokens_per_s:,.0f}, ratio {pairs.ratios[-1]:.3f}; losses within {difference:.1e}",
        flush=True,
    )


def table(measured: list[Pairs], options: list[str], ranks: int, begun_load: float) -> str:
    """The result as a page, with what is needed to repeat it."""
    load = f"{begun_load:.1f} at its start, {os.getloadavg()[0]:.1f} at its end"
    lines = [
        "# What Trainer costs, by strategy",
        "",
        f"Written by `python training/benchmarks/overhead.py --pairs {max(len(pairs.ratios) for pairs in measured)} "
        f"--table FILE` ({datetime.datetime.now(datetime.UTC):%Y-%m-%d}, commit {launched.commit()}).",
        f"Options of the programs: `{' '.join(options)}`; {ranks} ranks a node, {os.cpu_count()} cores, load {load}.",
        "",
        "Ratio: tokens/s of the program with Trainer, divided by those of the bare loop, in a pair of runs.",
        "The fastest step is that of all runs: other load on the machine disturbs it least.",
        "",
        "| strategy | pairs | median ratio | lowest to highest | Trainer, fastest step (ms) | bare loop (ms) | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(pairs.row() for pairs in measured),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--pairs", type=int, default=7, help="of each strategy (default: %(default)s)")
    parser.add_argument("--strategies", default=",".join(launched.PROGRAMS), help="default: %(default)s")
    parser.add_argument("--ranks", type=int, default=2, help="a node (default: %(default)s)")
    parser.add_argument("--least", type=float, default=0.97, help="good median ratio (default: %(default)s)")
    parser.add_argument("--table", type=Path, help="write the result to this page, after every round of pairs")
    arguments, options = parser.parse_known_args()
    try:
        measured = [Pairs(strategy) for strategy in launched.strategies(arguments.strategies)]
    except ValueError as error:
        parser.error(str(error))
    options, begun_load = [*DEFAULTS, *options], os.getloadavg()[0]
    try:
        for _ in range(arguments.pairs):
            for pairs in measured:
                one_pair(pairs, options, arguments.ranks)
            page = table(measured, options, arguments.ranks, begun_load)
            if arguments.table is not None:
                arguments.table.write_text(page)
    except ProgramFailed as error:
        print(f"overhead: {error}", file=sys.stderr)
        return 2
    print(page)
    return 0 if min((pairs.median for pairs in measured), default=math.nan) >= arguments.least else 1


if __name__ == "__main__":
    sys.exit(main())
