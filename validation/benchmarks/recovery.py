"""How long a training stands after a fault, and what failures at that pace leave of the time on many nodes.

    python validation/benchmarks/recovery.py FILE [CASE…] >docs/results/recovery.md

FILE: as of preflight_cases.py, whose cases these are: `bringup preflight` starts a user's command on healthy nodes, and
a fault comes in its 7th step. Those of recovery_own.py are our own trainers. The times are measured; the last table is
computed from the median of the first.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from pathlib import Path

import cases
import preflight_cases as preflight
import recovery_own as own
from bringup.report import text
from bringup.training.advise.interval import SIZES, best_interval_s, between_failures_s, goodput

RATE = 0.0038  # failures per node-day: 419 unexpected interruptions, 54 days, 2,048 nodes (Llama 3, arXiv 2407.21783)
SAVE_S = 30.0  # assumed: a checkpoint of this training costs nothing
BY_HAND_S = 1800.0  # assumed: somebody is called, looks, and starts it again


HEADER = ("case", "fault", "noticed, s", "named, s", "new step, s", "steps lost", "load")


def main() -> None:
    results, names = Path(sys.argv[1]), sys.argv[2:]
    for known, perform in ((preflight.CASES, preflight.perform), (own.CASES, own.perform)):
        cases.perform_some([case for case in known if case.name in names], results, perform)
    print(page(cases.read(results, preflight.Score)))


def page(scores: Mapping[str, preflight.Score]) -> str:
    timed = [(case, scores[case.name]) for case in preflight.CASES if case.name in scores]
    timed = [(case, score) for case, score in timed if score.noticed_s is not None]
    rows = [_row(case.name, case.fault, score) for case, score in timed]
    own_rows = [_row(case.name, case.fault, scores[case.name]) for case in own.CASES if case.name in scores]
    went_on = sorted(score.goes_on_s for _, score in timed if score.goes_on_s is not None)
    lines = [
        "# Recovery",
        "",
        "Made by `python validation/benchmarks/recovery.py FILE CASE…`: a user's command on two of three nodes of "
        "a local",
        "cluster, or under torchrun on four of five (-of-5), with a checkpoint every fifth step. Seconds (± 1) from",
        "the fault on: until the command had ended or was ended (noticed), until the checks had named the culprit, and",
        "until a step was done that was new. No gate judges them: no source has a limit.",
        "A command that fails by itself, with no node to blame, is not started again. A node that is only slow was",
        "not noticed. Load: of this machine (2 cores), in the last minute of the case. Others worked on it, and torch",
        "starts slowly then.",
        "",
        *text.table(HEADER, rows),
        "",
        "## Our own trainers",
        "",
        f"`training/slurm/{own.PHASE}.sbatch` on two of three nodes, with --save-steps {own.EVERY}, without preflight.",
        "Named: the verdicts of the run name the rank. Slurm holds a requeued job back: here for 20 s (`cred_expire`),",
        "by default for 120 s. After the fault of a rank the program submits the job again at once, with `--resume`:",
        "no person is in these seconds.",
        "",
        *text.table(HEADER, own_rows),
        "",
    ]
    if not went_on:
        return "\n".join(lines)
    restart_s = statistics.median(went_on)
    lines += [
        f"## What failures leave, if every restart takes {restart_s:.0f} s",
        "",
        f"Computed (Daly 2006, `formulae/goodput.py`): {RATE:g} failures per node and day (Llama 3, arXiv 2407.21783),",
        f"a save takes {SAVE_S:.0f} s (assumed), a restart the median of the {len(went_on)} with preflight; beside it",
        f"{BY_HAND_S / 60:.0f} minutes, as if a person did it. On more nodes the checks before a restart take longer.",
        "",
        *text.table(
            (
                "nodes",
                "a failure every",
                "save after",
                f"goodput, {restart_s:.0f} s",
                "goodput by hand",
                "at 1 h between saves",
            ),
            (_at(nodes, restart_s) for nodes in SIZES),
        ),
    ]
    return "\n".join(lines)


def _row(name: str, fault: str, score: preflight.Score) -> tuple[str, ...]:
    is_noticed = score.is_right  # else it ended well, only slower
    return (
        name,
        fault,
        *map(_seconds, (score.noticed_s if is_noticed else None, score.named_s, score.goes_on_s)),
        _lost(score),
        f"{score.load or ''}",
    )


def _at(nodes: int, restart_s: float) -> tuple[str, ...]:
    failure_s = between_failures_s(RATE, nodes)
    best_s = best_interval_s(SAVE_S, failure_s)
    shares = [
        goodput(interval_s, SAVE_S, after_s, failure_s)
        for interval_s, after_s in ((best_s, restart_s), (best_s, BY_HAND_S), (3600, restart_s))
    ]
    return (
        f"{nodes:,}",
        f"{failure_s / 3600:.1f} h",
        f"{best_s / 60:.1f} min",
        *(f"{100 * share:.1f} %" for share in shares),
    )


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{max(0.0, value):.0f}"


def _lost(score: preflight.Score) -> str:
    return "" if score.lost is None or score.goes_on_s is None else str(score.lost)


if __name__ == "__main__":
    main()
