#!/usr/bin/env python3
"""Whether every strategy computes the same training, with Trainer and without it: on these GPUs, or on this CPU.

Each program is compared with the bare loop in the same strategy, and with the program of one GPU: the loss and the
gradient norm of every step. In float32 with TF32 off, and in bfloat16. What differs in float32 is the order of sums.
Exit code 1: a difference is above its limit. 2: a program failed.

    python training/benchmarks/equality.py [--ranks 2] [--strategies single,ddp,fsdp,hsdp] [--table FILE.md] [options]

Options that are not listed here go to the programs (train_single_gpu.py --help). HSDP needs --ranks x 2 GPUs; with
fewer, leave it out of --strategies. `single` is always run.
"""

import argparse
import datetime
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import launched
from launched import ProgramFailed, Trained

DEFAULTS = ["--model=tiny", "--steps=20", "--warmup-steps=4", "--global-batch=8", "--no-rehearse-resume"]
PRECISIONS = {"float32": "--no-bf16", "bfloat16": "--bf16"}
LIMITS = {"float32": (1e-5, 1e-5), "bfloat16": (2e-2, 5e-2)}
"""Precision -> the largest good difference of a loss (nats), and of a gradient norm (relative).

bfloat16: a value is rounded by up to 2^-9 of itself (8 bits of precision), and a path through the model rounds a few
dozen times, in another order in each strategy: 2^-9 x sqrt(30) is 1 % of a value. A loss of 6 nats is a mean over
thousands of tokens, whose errors cancel: 2e-2 nats is 0.3 % of it. A gradient norm has no such mean, and is rounded on
the way back too: 5 %. A strategy that trains something else (other rows, a lost reduction) is off by more than both.
"""


@dataclass(frozen=True)
class Difference:
    """Between two trainings: the largest of all steps."""

    precision: str
    strategy: str
    against: str
    loss_nats: float
    grad_norm: float  # relative to the other's

    @property
    def good(self) -> bool:
        """NaN is not."""
        loss_nats, grad_norm = LIMITS[self.precision]
        return self.loss_nats <= loss_nats and self.grad_norm <= grad_norm

    def row(self) -> str:
        loss_nats, grad_norm = LIMITS[self.precision]
        cells = [
            self.precision,
            self.strategy,
            self.against,
            f"{self.loss_nats:.1e} (limit {loss_nats:.0e})",
            f"{self.grad_norm:.1e} (limit {grad_norm:.0e})",
            "equal" if self.good else "NOT EQUAL",
        ]
        return f"| {' | '.join(cells)} |"


def difference(precision: str, strategy: str, trained: Trained, against: str, other: Trained) -> Difference:
    """ValueError when they did not do the same number of steps."""
    losses = [abs(loss - other_loss) for loss, other_loss in zip(trained.loss, other.loss, strict=True)]
    norms = [abs(norm - its) / its for norm, its in zip(trained.grad_norm, other.grad_norm, strict=True)]
    return Difference(precision, strategy, against, _largest(losses), _largest(norms))


def _largest(values: list[float]) -> float:
    """NaN when one of them is."""
    return math.nan if any(map(math.isnan, values)) else max(values)


def compare(precision: str, strategies: list[str], options: list[str], ranks: int) -> tuple[list[Difference], Trained]:
    """All strategies in one precision, and the run of one GPU. Raises ProgramFailed."""
    options = [*options, PRECISIONS[precision]]
    single, differences = launched.with_trainer("single", options, ranks), []
    for strategy in strategies:
        trained = single if strategy == "single" else launched.with_trainer(strategy, options, ranks)
        bare = launched.bare(strategy, options, ranks)
        differences.append(difference(precision, strategy, trained, "the bare loop", bare))
        if strategy != "single":
            differences.append(difference(precision, strategy, trained, "one GPU", single))
    return differences, single


def page(differences: list[Difference], options: list[str], ranks: int, gpu: str | None) -> str:
    """The result, with what is needed to repeat it."""
    today = datetime.datetime.now(datetime.UTC)
    lines = [
        "# Do all strategies compute the same training?",
        "",
        f"Written by `python training/benchmarks/equality.py --table FILE` ({today:%Y-%m-%d}, "
        f"commit {launched.commit()}), on {gpu or 'CPU cores'}.",
        f"Options of the programs: `{' '.join(options)}`; {ranks} ranks a node, TF32 off.",
        "",
        "The largest difference of all steps; the gradient norm's is relative.",
        "",
        "| precision | strategy | compared with | loss (nats) | gradient norm | |",
        "| --- | --- | --- | --- | --- | --- |",
        *(difference.row() for difference in differences),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--strategies", default=",".join(launched.PROGRAMS), help="default: %(default)s")
    parser.add_argument("--ranks", type=int, default=2, help="a node (default: %(default)s)")
    parser.add_argument("--precisions", default=",".join(PRECISIONS), help="default: %(default)s")
    parser.add_argument("--table", type=Path, help="write the result to this page too")
    arguments, options = parser.parse_known_args()
    if unknown := set(arguments.precisions.split(",")) - set(PRECISIONS):
        parser.error(f"--precisions {', '.join(sorted(unknown))}: expected some of {', '.join(PRECISIONS)}")
    try:
        strategies = launched.strategies(arguments.strategies)
    except ValueError as error:
        parser.error(str(error))
    options = [*DEFAULTS, *options]
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # some container images turn TF32 on, and cuBLAS takes it from here
    differences: list[Difference] = []
    try:
        for precision in arguments.precisions.split(","):
            of_precision, single = compare(precision, strategies, options, arguments.ranks)
            differences += of_precision
    except (ProgramFailed, ValueError) as error:  # ValueError: not as many steps
        print(f"equality: {error}", file=sys.stderr)
        return 2
    text = page(differences, options, arguments.ranks, single.gpu)
    print(text)
    if arguments.table is not None:
        arguments.table.write_text(text)
    return 0 if all(difference.good for difference in differences) else 1


if __name__ == "__main__":
    sys.exit(main())
