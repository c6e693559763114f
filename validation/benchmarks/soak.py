"""Is a soak right? Rare faults at random times on a local cluster, a healthy soak, and its rules on made-up numbers.

    python validation/benchmarks/soak.py faults OUT.json SEED      # about half an hour
    python validation/benchmarks/soak.py page docs/results/soak.md HEALTHY OUT.json…

HEALTHY: the folder of a soak of a cluster that nobody disturbed. Faults are those of drills, by their own commands,
each on a node of its own; the time from one to the next is exponential, so that they come as a Poisson process does.
"""

from __future__ import annotations

import json
import math
import random
import re
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy
from bringup.domains.chance import most_events
from bringup.drill.catalogue import DRILLS, Shape
from bringup.drill.environment import LocalCluster
from bringup.kernel.records import read_record, write_text
from bringup.kernel.records.base import time_of
from bringup.kernel.results import REPOSITORY
from bringup.run import open as opening
from bringup.soak import drift
from bringup.soak.records import Soak
from bringup.soak.rotations import RECORD, SOAKS
from scipy import stats

FAULTS = {drill.id: drill for drill in DRILLS if drill.id in ("xid-79", "folder-read-only", "slow-sender", "node-off")}
PHASES = ("discovery", "nccl_pairwise")
PROFILE = """\
{schema_version: 1, name: busy, description: local-cpu on a machine that others use, extends: [local-cpu],
 expect: {nccl.pair.slowest: {at_least: 0.003, unit: GB/s, source: a tenth of that of local-nodes}}}
"""
SHAPE, MEAN_S, AFTER_S = Shape(5, 1), 300.0, 600  # of the cluster; from one fault to the next; behind the last one
TRIALS, HOURS, NODES, MEASURES, ROTATION_S = 200, 6, 8, 3, 900.0
KINDS = ("normal, 1 %", "heavy tails, 1 %", "one of ten 15 % slower")  # noise


def schedule(seed: int) -> list[tuple[float, str, str]]:
    """Return when (s), which drill, on which node. Each node has one fault at most, so that it is known whose it is."""
    chance, at = random.Random(seed), 0.0
    names, made = chance.sample(SHAPE.names, len(FAULTS)), []
    for drill, node in zip(chance.sample(sorted(FAULTS), len(FAULTS)), names, strict=True):
        at += chance.expovariate(1 / MEAN_S)
        made.append((at, drill, node))
    return made


def of_faults(out: Path, seed: int) -> None:
    """Soak a local cluster while faults are made; keep what was made, and what the soak said."""
    plan = schedule(seed)
    cluster = LocalCluster(Path(f"/tmp/bringup-soak-{seed}"), SHAPE)  # a short path: munge's socket
    made: list[dict[str, str]] = []
    cluster.start()

    def meanwhile() -> None:
        begun = time.monotonic()
        for at, drill, node in plan:
            time.sleep(max(0.0, at - (time.monotonic() - begun)))
            made.append({"at": opening.now(), "drill": drill, "node": node})
            cluster.make(tuple(tuple(re.sub(r"\bn1\b", node, word) for word in each) for each in FAULTS[drill].inject))

    try:
        write_text(out.with_suffix(".yaml"), PROFILE, replace=True)
        ends = ("--hours", f"{(plan[-1][0] + AFTER_S) / 3600:.3f}")
        words = ("soak", *PHASES, *ends, "--profile", str(out.with_suffix(".yaml").resolve()))
        done = cluster.bringup(*words, environment={}, meanwhile=meanwhile, phases=20)
    finally:
        cluster.end()
    (name,) = re.findall(rf"^report: {SOAKS}/(\S+)/", done.stdout, re.MULTILINE)
    kept = {"seed": seed, "made": made, "soak": (REPOSITORY / SOAKS / name / RECORD).read_text()}
    out.write_text(json.dumps(kept, indent=1) + "\n")


def of_seed(kept: dict[str, Any]) -> str:
    """Say of each fault that was made how many seconds later which kinds were found on its node; and what else was."""
    words, explained, soak = [], set[int](), Soak.model_validate_json(kept["soak"])
    for each in kept["made"]:
        own = [fault for fault in soak.faults if fault.place == each["node"] and fault.at >= each["at"]]
        explained.update(id(fault) for fault in own)
        seconds = [(time_of(fault.at) - time_of(each["at"])).total_seconds() for fault in own]
        kinds = "+".join(sorted({fault.kind for fault in own}))
        words.append(f"{each['drill']} {each['node']} " + (f"{min(seconds):.0f} s ({kinds})" if own else "not found"))
    besides = [f"{each.place} by {each.gate}" for each in soak.faults if id(each) not in explained]
    besides += [] if "are over" in (soak.ended or "") else [f"it ended: {soak.ended}"]
    return f"- seed {kept['seed']}: {'; '.join(words)}. Besides: {', '.join(besides) or 'nothing'}."


def noise(chance: random.Random, kind: str) -> float:
    """Return a logarithm of a speed."""
    fresh = chance.gauss(0, 1)
    if kind.startswith("heavy"):
        fresh /= math.sqrt(chance.gammavariate(1.5, 2) / 3)
    return 0.01 * fresh + (math.log1p(-0.15) if kind.startswith("one") and chance.random() < 0.1 else 0.0)


def accused(speeds: dict[str, list[tuple[float, float]]]) -> set[str]:
    """Return who drifts by the rule, at any rotation of a soak."""
    turns = range(2 * drift.in_a_row(len(speeds)), max(map(len, speeds.values())) + 1)
    return {who for turn in turns for _, who in drift.changes({name: line[:turn] for name, line in speeds.items()})}


def made_up(seed: int, kind: str, lost: float) -> dict[str, list[tuple[float, float]]]:
    """A soak; its first node loses so much after half of the time."""
    chance, turns = random.Random(seed), int(HOURS * 3600 / ROTATION_S)
    return {
        f"m{measure} n{node}": [
            (turn * ROTATION_S, math.exp(noise(chance, kind)) * (1 - lost * (node == 0 and turn >= turns // 2)))
            for turn in range(turns)
        ]
        for measure in range(MEASURES)
        for node in range(NODES)
    }


def resampled(seed: int, soak: Soak) -> dict[str, list[tuple[float, float]]]:
    """Six hours made of the rotations of a real soak, drawn with repetition; speeds of one rotation stay together."""
    chance, every_s = random.Random(seed), soak.seconds / len(soak.rotations)
    times = sorted({at for line in soak.speeds.values() for at, _ in line})
    drawn = [chance.choice(times) for _ in range(int(HOURS * 3600 / every_s))]
    return {
        name: [(turn * every_s, dict(line)[at]) for turn, at in enumerate(drawn) if at in dict(line)]
        for name, line in soak.speeds.items()
    }


def of_drift() -> Iterator[str]:
    for kind in KINDS:
        alarms = sum(bool(accused(made_up(seed, kind, 0.0))) for seed in range(TRIALS))
        right = sum("n0" in accused(made_up(seed, kind, 0.08)) for seed in range(TRIALS))
        yield f"{alarms} and {right} ({kind})"


def of_stopping(most: int) -> list[float]:
    """Return how often a soak ends at its bound with at most 0, 1, … faults, though faults come as often as it denies:
    exact, by the distribution of faults between one end and the next."""
    chances, counts, ended = numpy.eye(1, 200)[0], numpy.arange(200), [0.0]
    for faults, (before, now) in enumerate(pairwise([0.0, *map(most_events, range(most))])):
        chances = numpy.convolve(chances, stats.poisson.pmf(counts, now - before))[:200]
        ended.append(ended[-1] + chances[: faults + 1].sum())
        chances[: faults + 1] = 0
    return ended[1:]


def page(healthy: Soak, several: Sequence[dict[str, Any]]) -> str:
    alarms = sum(bool(accused(resampled(seed, healthy)) - {drift.ALL}) for seed in range(TRIALS))
    return f"""\
# Soaks with and without faults

Placeholders for GPUs, on a busy machine of two cores: nothing is about hardware.

**Rare faults** of {SHAPE.nodes} nodes, a Poisson process of one in {MEAN_S:g} s, by drills; found after:

{chr(10).join(map(of_seed, several))}

**Healthy**: {healthy.seconds / 3600:.2f} hours, {len(healthy.rotations)} rotations of all phases on
{len(healthy.nodes)} nodes: {len(healthy.faults)} faults. {HOURS} hours drawn from these rotations, {TRIALS} times:
drift accused a part in {alarms}.

**Drift**, made up: {HOURS} hours, {NODES} nodes. Of {TRIALS} healthy soaks and {TRIALS} with a node 8 % slower in the
second half were accused: {"; ".join(of_drift())}.

**`--until`**, where faults come as often as it denies: it ends with at most 0, 1, 2, 3 faults in
{", ".join(f"{each:.1%}" for each in of_stopping(4))} of soaks.
"""


def main() -> None:
    what, out, *more = sys.argv[1:]
    if what == "faults":
        of_faults(Path(out), int(more[0]))
    else:
        healthy, *kept = map(Path, more)
        several = [json.loads(path.read_text()) for path in kept]
        Path(out).write_text(page(read_record(healthy / RECORD, Soak), several))


if __name__ == "__main__":
    main()
