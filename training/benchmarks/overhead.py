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

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TRAINING = Path(__file__).resolve().parent.parent
DEFAULTS = ["--steps=22", "--warmup-steps=4", "--sequence-length=512", "--global-batch=8", "--no-rehearse-resume"]
STEP_FLOOR_S = 0.1
SAME_LOSS_NATS = {False: 1e-3, True: 2e-2}  # by bf16; a test holds float32 to 1e-5
BARE = TRAINING / "benchmarks/bare_loop.py"
PROGRAMS = {
    "single": ["train_single_gpu.py"],
    "ddp": ["train_ddp_single_node.py"],
    "fsdp": ["train_fsdp_single_node.py"],
    "hsdp": ["train_fsdp_multi_node.py", "--hsdp"],
}


class ProgramFailed(RuntimeError):
    """One of the two programs did not train, or trained something else than the other one."""


@dataclass(frozen=True)
class Measured:
    """One run of one program."""

    tokens_per_s: float
    fastest_step_s: float
    loss: list[float]


@dataclass
class Pairs:
    """All pairs of one strategy so far."""

    strategy: str
    trainer: list[Measured] = field(default_factory=list)
    bare: list[Measured] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return [ours.tokens_per_s / bare.tokens_per_s for ours, bare in zip(self.trainer, self.bare, strict=True)]

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def fastest_s(self) -> tuple[float, float]:
        """(Trainer, bare loop)"""
        return min(one.fastest_step_s for one in self.trainer), min(one.fastest_step_s for one in self.bare)

    def row(self) -> str:
        ours, bare = self.fastest_s
        cells = [
            self.strategy,
            str(len(self.ratios)),
            f"{self.median:.3f}",
            f"{min(self.ratios):.3f} to {max(self.ratios):.3f}",
            f"{ours * 1e3:.1f}",
            f"{bare * 1e3:.1f}",
            f"{bare / ours:.3f}" + ("" if bare >= STEP_FLOOR_S else f" (below {STEP_FLOOR_S * 1e3:.0f} ms: Python)"),
        ]
        return f"| {' | '.join(cells)} |"


def commands(strategy: str, program: list[str], ranks: int) -> list[list[str]]:
    """A launcher per node: torchrun, or Python alone for one process."""
    if strategy == "single":
        return [[sys.executable, *program]]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    if strategy != "hsdp":
        return [[*torchrun, "--standalone", *program]]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        meet = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(probe.getsockname()[1])]
    return [[*torchrun, *meet, "--node-rank", str(node), *program] for node in range(2)]


def run(strategy: str, program: list[str], options: list[str], ranks: int) -> Measured:
    """One run in a folder of its own. Raises ProgramFailed with what the program printed last."""
    with tempfile.TemporaryDirectory(prefix="bringup-overhead-") as name:
        folder = Path(name)
        (folder / "raw").mkdir()
        launchers = []
        for node, command in enumerate(commands(strategy, program, ranks)):
            environment = {"OMP_NUM_THREADS": "1"} | dict(os.environ)
            if strategy == "hsdp":
                gpus = range(node * ranks, (node + 1) * ranks)
                environment |= {"SLURMD_NODENAME": f"n{node}", "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))}
            arguments = [*command, "--run-dir", name, *options]
            pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            launchers.append(subprocess.Popen(arguments, env=environment, **pipes))
        output = [launcher.communicate()[0] for launcher in launchers]
        codes = [launcher.returncode for launcher in launchers]
        if any(codes):
            raise ProgramFailed(f"{Path(program[0]).name} ({strategy}) ended with {codes}: {output[0].strip()[-500:]}")
        bare = folder / "bare_loop.json"
        record = json.loads((bare if bare.is_file() else folder / "metrics.json").read_text())
        fastest = record.get("fastest_step_s") or min(record["steps_s"])
        return Measured(record["tokens_per_s"], fastest, record["loss"])


def one_pair(pairs: Pairs, options: list[str], ranks: int) -> None:
    """Run both programs, the other one first each time. Raises ProgramFailed."""
    ours = [str(TRAINING / "src" / PROGRAMS[pairs.strategy][0]), *PROGRAMS[pairs.strategy][1:]]
    programs = [(pairs.trainer, ours), (pairs.bare, [str(BARE), "--strategy", pairs.strategy])]
    for measured, program in programs if len(pairs.bare) % 2 == 0 else programs[::-1]:
        measured.append(run(pairs.strategy, program, options, ranks))
    apart = max(abs(a - b) for a, b in zip(pairs.trainer[-1].loss, pairs.bare[-1].loss, strict=True))
    if not apart <= SAME_LOSS_NATS["--bf16" in options]:
        raise ProgramFailed(f"{pairs.strategy}: the losses of the two programs are {apart:.2g} nats apart")
    print(
        f"{pairs.strategy}, pair {len(pairs.ratios)}: Trainer {pairs.trainer[-1].tokens_per_s:,.0f} tokens/s, "
        f"bare loop {pairs.bare[-1].tokens_per_s:,.0f}, ratio {pairs.ratios[-1]:.3f}; losses within {apart:.1e}",
        flush=True,
    )


def table(measured: list[Pairs], options: list[str], ranks: int, begun_load: float) -> str:
    """The result as a page, with what is needed to repeat it."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=TRAINING, capture_output=True, text=True, check=False
    ).stdout.strip()
    load = f"{begun_load:.1f} at its begin, {os.getloadavg()[0]:.1f} at its end"
    lines = [
        "# What Trainer costs, by strategy",
        "",
        f"Written by `python training/benchmarks/overhead.py --pairs {max(len(one.ratios) for one in measured)} "
        f"--table FILE` ({datetime.datetime.now(datetime.UTC):%Y-%m-%d}, commit {commit}).",
        f"Options of the programs: `{' '.join(options)}`; {ranks} ranks a node, {os.cpu_count()} cores, load {load}.",
        "",
        "Ratio: tokens/s of the program with Trainer, divided by those of the bare loop, in a pair of runs.",
        "The fastest step is that of all runs: other load on the machine disturbs it least.",
        "",
        "| strategy | pairs | median ratio | lowest to highest | Trainer, fastest step (ms) | bare loop (ms) | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(one.row() for one in measured),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--pairs", type=int, default=7, help="of each strategy (default: %(default)s)")
    parser.add_argument("--strategies", default=",".join(PROGRAMS), help="default: %(default)s")
    parser.add_argument("--ranks", type=int, default=2, help="a node (default: %(default)s)")
    parser.add_argument("--least", type=float, default=0.97, help="good median ratio (default: %(default)s)")
    parser.add_argument("--table", type=Path, help="write the result to this page, after every round of pairs")
    given, options = parser.parse_known_args()
    strategies = given.strategies.split(",")
    if unknown := set(strategies) - set(PROGRAMS):
        parser.error(f"--strategies {', '.join(sorted(unknown))}: expected some of {', '.join(PROGRAMS)}")
    options, begun_load = [*DEFAULTS, *options], os.getloadavg()[0]
    measured = [Pairs(strategy) for strategy in strategies]
    try:
        for _ in range(given.pairs):
            for pairs in measured:
                one_pair(pairs, options, given.ranks)
            page = table(measured, options, given.ranks, begun_load)
            if given.table is not None:
                given.table.write_text(page)
    except ProgramFailed as error:
        print(f"overhead: {error}", file=sys.stderr)
        return 2
    print(page)
    return 0 if min((pairs.median for pairs in measured), default=math.nan) >= given.least else 1


if __name__ == "__main__":
    sys.exit(main())
