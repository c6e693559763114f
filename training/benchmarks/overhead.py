#!/usr/bin/env python3
"""What Trainer costs: its entrypoint against a bare loop. Model, rows, precision, optimizer and device are the same.

The two programs run in pairs, because a machine is not equally fast all the time. Each pair starts with the other
program. For each pair this prints the tokens/s of both (steady window) and their ratio. At the end it prints the median
ratio with its spread, and the ratio of the fastest steps, which other load on the machine disturbs least.
Exit code 1: the median is below --least.
Run:  python training/benchmarks/overhead.py [--pairs 5] [--least 0.97] [options of train_single_gpu.py]
The defaults take 100 ms and more per step on a CPU core: a step of 20 ms would measure Python.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TRAINING = Path(__file__).resolve().parent.parent
DEFAULTS = [
    "--steps",
    "22",
    "--warmup-steps",
    "4",
    "--sequence-length",
    "512",
    "--global-batch",
    "8",
    "--no-rehearse-resume",
]
STEP_FLOOR_S = 0.1


def run(program: Path, options: list[str]) -> dict[str, float]:
    """One run in a folder of its own. Raises CalledProcessError with what the program said."""
    with tempfile.TemporaryDirectory(prefix="bringup-overhead-") as name:
        folder = Path(name)
        (folder / "raw").mkdir()
        command = [sys.executable, str(program), "--run-dir", name, *options]
        environment = {"OMP_NUM_THREADS": "1"} | dict(os.environ)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"overhead: {program.name} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        if not (folder / "metrics.json").is_file():
            return dict(json.loads(done.stdout.splitlines()[-1]))
        metrics = json.loads((folder / "metrics.json").read_text())
        return {
            "tokens_per_s": metrics["tokens_per_s"],
            "step_p50_s": metrics["step_time_s"]["p50"],
            "fastest_step_s": min(metrics["steps_s"]),
            "first_loss": metrics["loss"][0],
            "last_loss": metrics["loss"][-1],
        }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument(
        "--least", type=float, default=0.97, help="smallest median ratio that is good (default: %(default)s)"
    )
    given, options = parser.parse_known_args()
    options = [*DEFAULTS, *options]
    programs = {
        "Trainer": TRAINING / "src" / "train_single_gpu.py",
        "bare loop": TRAINING / "benchmarks" / "bare_loop.py",
    }
    ratios: list[float] = []
    fastest_s: dict[str, list[float]] = {name: [] for name in programs}
    for pair in range(given.pairs):
        order = list(programs) if pair % 2 == 0 else list(programs)[::-1]
        seen = {name: run(programs[name], options) for name in order}
        trainer, bare = seen["Trainer"], seen["bare loop"]
        ratios.append(trainer["tokens_per_s"] / bare["tokens_per_s"])
        for name, one in seen.items():
            fastest_s[name].append(one["fastest_step_s"])
        print(
            f"pair {pair + 1}: Trainer {trainer['tokens_per_s']:,.0f} tokens/s, bare loop {bare['tokens_per_s']:,.0f}, "
            f"ratio {ratios[-1]:.3f}; "
            f"step {trainer['step_p50_s'] * 1e3:.0f} and {bare['step_p50_s'] * 1e3:.0f} ms; "
            f"first loss {trainer['first_loss']:.4f} and {bare['first_loss']:.4f}",
            flush=True,
        )
    median, best = statistics.median(ratios), {name: min(values) for name, values in fastest_s.items()}
    print(
        f"Trainer / bare loop, tokens/s: median {median:.3f}, {min(ratios):.3f} to {max(ratios):.3f} "
        f"over {len(ratios)} pairs"
    )
    print(
        f"fastest step of all: {best['Trainer'] * 1e3:.1f} and {best['bare loop'] * 1e3:.1f} ms, ratio "
        f"{best['bare loop'] / best['Trainer']:.3f}: what other load on the machine disturbs least"
        + ("" if best["bare loop"] >= STEP_FLOOR_S else f"; below {STEP_FLOOR_S * 1e3:.0f} ms this measures Python")
    )
    return 0 if median >= given.least else 1


if __name__ == "__main__":
    sys.exit(main())
