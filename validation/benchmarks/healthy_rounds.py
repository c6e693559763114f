"""How often a healthy cluster is accused: rounds of `bringup run` on a local cluster. Each verdict has to pass.

python validation/benchmarks/healthy_rounds.py 20                            # all phases; 5 minutes each
python validation/benchmarks/healthy_rounds.py 3 --nodes 6 --gpus 1 --phases discovery smoke
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bringup.drill import environment as environments
from bringup.drill import suite
from bringup.drill.catalogue import Shape
from bringup.drill.environment import Environment
from bringup.kernel import judge, results
from bringup.kernel.plan.phases import PHASES
from bringup.report.text import table
from bringup.run import open as opening


@dataclass
class Round:
    number: int
    verdicts: int = 0
    alarms: list[str] = field(default_factory=list)
    seconds: float = 0


def healthy_round(number: int, stems: Sequence[str], cluster: Environment, place: Path, *, name: str) -> Round:
    """Run these phases. What left no run, or a verdict that is not a pass, is a false alarm."""
    made, begun, folder = Round(number), time.monotonic(), place / f"round-{number}"
    run_name = f"{name}-round-{number}"
    try:
        done = cluster.bringup("run", *stems, environment={"BRINGUP_RUN_NAME": run_name}, phases=len(stems))
        for stem in stems:
            if not (attempts := results.attempts(PHASES[stem], run_name)):
                made.alarms.append(f"{stem} did not run: {environments.last_word(done)}"[:200])
                continue
            verdicts = judge.judge_folder(attempts[-1]).verdicts.verdicts
            made.verdicts += len(verdicts)
            made.alarms += [
                f"{stem}: {v.gate} [{v.subject}] {v.outcome}: {v.observed}"[:200]
                for v in verdicts
                if not v.outcome.is_quiet
            ]
    finally:
        environments.keep(run_name, (), folder)  # the playbook
        for stem in stems:  # a folder each: phases 1 to 3 call their runs by one name
            environments.keep(run_name, (stem,), folder / stem)
    made.seconds = time.monotonic() - begun
    return made


def main() -> int:
    """Exit code: 1 a false alarm, 0 none."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rounds", type=int)
    parser.add_argument("--nodes", type=int, default=4, help="comparisons of a fleet need more than two")
    parser.add_argument("--gpus", type=int, default=2, help="of each node")
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=list(PHASES))
    options = parser.parse_args()
    name = opening.default_name()
    place, rounds = suite.DRILLS / name, list[Round]()
    with suite.local_clusters(place, "healthy") as clusters:
        for number in range(1, options.rounds + 1):
            cluster = clusters.of(Shape(options.nodes, options.gpus))
            rounds.append(healthy_round(number, options.phases, cluster, place, name=name))
            print(f"round {number}: {'; '.join(rounds[-1].alarms) or 'no false alarm'}", flush=True)
    alarms, verdicts = sum(len(each.alarms) for each in rounds), sum(each.verdicts for each in rounds)
    rows = [(str(r.number), str(r.verdicts), f"{r.seconds:.0f}", "; ".join(r.alarms) or "none") for r in rounds]
    print(f"\n**{alarms} false alarms in {len(rounds)} healthy rounds ({verdicts} verdicts)**\n")
    print(f"Each round, on {options.nodes} nodes of {options.gpus} GPUs: {', '.join(options.phases)}.\n")
    print("\n".join(table(("healthy round", "verdicts", "seconds", "false alarms"), rows)))
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
