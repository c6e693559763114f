"""How small a fault is still found, how often it is missed, how often there is a false alarm.

    python validation/benchmarks/fault_limits.py --repeat 20 [--only slow-pair]

On local clusters that are made for it. A search with one trial a size shows where finding ends. The sizes on both sides
of that are repeated, in turns with runs without the fault, so that all meet the same load. Larger sizes follow until
one is found each time, and smaller ones until one is missed. Rates are of the repeats alone, because the trials of the
search chose these sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from bringup.drill import perform, suite
from bringup.drill.catalogue import DECLARED, Drill
from bringup.drill.environment import LocalCluster
from bringup.kernel.errors import BringupError, CannotStart, DrillError
from bringup.kernel.records import grouped, write_text
from bringup.report import terminal
from bringup.report.text import columns, plain, shown_path, table
from bringup.run import open as opening
from scipy import stats

AGAIN = 2  # a trial that could not be performed is tried this often
WORDS = {None: "not performed", True: "found", False: "not found"}
_HEAD = ("fault", "gate", "smallest found", "found", "next smaller", "found there", "without the fault", "load")


def sized(drill: Drill, size: float) -> Drill:
    """Return the fault in this size. How large its gate says it to be is not declared, so it is not compared."""
    unknown = {"says": "", "value": None, "between": None, "also": ()}
    return drill.of_size(size).model_copy(update={**unknown, "consequences": (*drill.consequences, *drill.also)})


def without_fault(drill: Drill) -> Drill:
    """Return the same run of the same phase, and no fault."""
    ours = ("BRINGUP_DRILL", "BRINGUP_DRILL_SIZE")
    environment = {name: value for name, value in drill.environment.items() if name not in ours}
    nothing = dict.fromkeys(("inject", "during", "undo", "consequences", "silent"), ())
    return sized(drill, 0).model_copy(update={**nothing, "environment": environment})


@dataclass
class LimitTrial:
    """One run of a phase. size None: without the fault."""

    size: float | None
    found: bool | None  # the gate named the subject and no other; without the fault: it named anything. None: no run
    alarms: list[str]  # what else was accused, or why there was no run
    seconds: float
    load: float  # runnable processes of this machine when the trial began (1 minute)


@dataclass
class FaultLimit:
    """One fault in several sizes, from the largest to the smallest. Rates come from `trials` alone: `searched` chose
    their sizes."""

    drill: Drill  # {size} of its fault stands for its size
    sizes: Sequence[float]
    searched: list[LimitTrial] = field(default_factory=list)
    trials: list[LimitTrial] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.drill.fault.replace("{size}", "SIZE")

    def of(self, size: float | None) -> list[LimitTrial]:
        """The repeats of a size that were performed; None: without the fault."""
        return [trial for trial in self.trials if trial.size == size and trial.found is not None]

    def always(self, size: float) -> bool:
        trials = self.of(size)
        return bool(trials) and all(trial.found for trial in trials)

    def smallest(self) -> float | None:
        """The smallest size found each time, below no size that was missed. None: none was."""
        best = None
        for size in self.sizes:
            if self.of(size):
                if not self.always(size):
                    break
                best = size
        return best

    def below(self) -> float | None:
        """The next smaller size than the smallest found that was repeated."""
        best = self.smallest()
        later = self.sizes if best is None else self.sizes[self.sizes.index(best) + 1 :]
        return next((size for size in later if self.of(size)), None)

    def never_tried(self) -> bool:
        """Neither its largest sizes nor its absence could be judged."""
        return not any(self.of(size) for size in self.sizes) or not self.of(None)

    def in_words(self, size: float | None) -> str:
        unit = self.drill.sizes.unit if self.drill.sizes else ""
        return "none" if size is None else f"{size:g} {unit}"


def _placed(drill: Drill) -> Drill:
    return drill.placed(drill.shape.names, drill.shape.gpus_per_node)


def counted(trials: Sequence[LimitTrial]) -> str:
    """`3 of 10`, with the bounds of the share (95 %)."""
    if not trials:
        return "not tried"
    hits = sum(bool(trial.found) for trial in trials)
    low, high = stats.binomtest(hits, len(trials)).proportion_ci(0.95, method="exact")
    return f"{hits} of {len(trials)} ({100 * low:.0f} to {100 * high:.0f} %)"


def of_a_trial(fault: FaultLimit, of_it: LimitTrial) -> str:
    words = WORDS[of_it.found].upper() if of_it.found is not False else WORDS[False]
    if of_it.size is None and of_it.found is not None:
        words = "FALSE ALARM" if of_it.found else "quiet"
    what = "without the fault" if of_it.size is None else fault.in_words(of_it.size)
    return f"{words:<14} {fault.drill.id} {what} ({of_it.seconds:.0f} s, load {of_it.load:g})"


def sentence(fault: FaultLimit) -> str:
    best, below = fault.smallest(), fault.below()
    if fault.never_tried():
        return f"{fault.drill.id}: could not be tried"
    at_best = (
        f"found each time at {fault.in_words(best)}: {counted(fault.of(best))}"
        if best is not None
        else "in no size found each time"
    )
    smaller = f"; at {fault.in_words(below)}: {counted(fault.of(below))}" if below is not None else ""
    performed = sum(trial.found is not None for trial in fault.trials)
    return (
        f"{fault.name}: {at_best}{smaller}; false alarms: {counted(fault.of(None))}; "
        f"{performed} of {len(fault.trials)} runs performed"
    )


def of_gates(faults: Sequence[FaultLimit]) -> dict[str, str]:
    """What `bringup accept --limits` reads: check -> how small its faults were found."""
    known = grouped((each.drill.gate, sentence(each)) for each in faults if each.smallest() is not None)
    return {gate: "; and ".join(several) for gate, several in known.items()}


def _row(fault: FaultLimit) -> tuple[str, ...]:
    best, below = fault.smallest(), fault.below()
    loads = [trial.load for trial in fault.trials]
    none = "could not be tried" if fault.never_tried() else "not found each time in any size"
    return (
        fault.name,
        f"{fault.drill.gate} [{_placed(fault.drill).subject}]",
        none if best is None else fault.in_words(best),
        "" if best is None else counted(fault.of(best)),
        "" if below is None else fault.in_words(below),
        "" if below is None else counted(fault.of(below)),
        counted(fault.of(None)),
        f"load {min(loads):.1f} to {max(loads):.1f} on {os.cpu_count()} cores" if loads else "no load noted",
    )


def markdown(faults: Sequence[FaultLimit], repeat: int, opened_at: str) -> str:
    searched = [
        ", ".join(f"{fault.in_words(trial.size)} {WORDS[trial.found]}" for trial in fault.searched) for fault in faults
    ]
    elsewhere = [
        (fault.drill.id, fault.in_words(trial.size), alarm)
        for fault in faults
        for trial in (*fault.searched, *fault.trials)
        for alarm in trial.alarms
    ]
    besides = ["Accused besides, or not performed:", "", *table(("drill", "size", "what"), elsewhere), ""]
    return "\n".join(
        [
            "# How small a fault is found",
            "",
            f"`python validation/benchmarks/fault_limits.py --repeat {repeat} "
            f"--only {' '.join(fault.drill.id for fault in faults)}`, on a local cluster made for it, "
            f"begun {opened_at}, commit {(opening.git_commit() or 'unknown')[:12]}, {os.cpu_count()} cores.",
            "",
            "Found: the gate names the place of the fault, and no other. Behind a share are its bounds (95 %,",
            "Clopper and Pearson). Nothing here speaks of another cluster or another load.",
            "",
            *table(_HEAD, map(_row, faults)),
            "",
            "Searched first, with one trial a size:",
            "",
            *(f"- {fault.drill.id}: {words}" for fault, words in zip(faults, searched, strict=True)),
            "",
            *(besides if elsewhere else ["Nothing else was accused in any trial.", ""]),
        ]
    )


def run(drills: Sequence[Drill], repeat: int) -> int:
    """Exit code: 0 each fault was found in its largest size each time, 1 one was not, 2 one could not be tried."""
    faults: list[FaultLimit] = []
    folder, opened_at, console = suite.DRILLS / opening.default_name(), opening.now(), terminal.console()
    folder.mkdir(parents=True)
    console.print(f"limits: {len(drills)} faults, {repeat} trials of a size; {shown_path(folder)}")
    with suite.local_clusters(folder, "limits") as clusters, (folder / "trials.jsonl").open("w") as raw:
        for drill in suite.in_order(drills):
            assert drill.sizes is not None
            faults.append(fault := FaultLimit(drill, drill.sizes.of))
            once = _Trials(drill, partial(clusters.of, drill.shape), folder)
            for trial in _trials(fault, repeat, once):
                console.print(of_a_trial(fault, trial))
                print(json.dumps({"drill": drill.id, **asdict(trial)}), file=raw, flush=True)
                write_text(folder / "limits.md", markdown(faults, repeat, opened_at), replace=True)
            console.print(plain(sentence(fault)))
            write_text(folder / "limits.json", json.dumps(of_gates(faults), indent=1) + "\n", replace=True)
    table_of_all = columns((_HEAD[0], *_HEAD[2:7]), [(each.drill.id, *_row(each)[2:7]) for each in faults])
    console.print(f"\n{table_of_all}\nreport: {shown_path(folder / 'limits.md')}")
    if any(fault.never_tried() for fault in faults):
        return 2
    return 0 if all(fault.smallest() is not None for fault in faults) else 1


def _trials(fault: FaultLimit, repeat: int, once: Callable[[float | None], LimitTrial]) -> Iterator[LimitTrial]:
    """Each trial, added to the record of the fault."""

    def kept(trials: list[LimitTrial], size: float | None) -> LimitTrial:
        trials.append(trial := once(size))
        return trial

    low, high = -1, len(fault.sizes)  # found at low, not found at high
    while high - low > 1:
        middle = (low + high) // 2
        yield (trial := kept(fault.searched, fault.sizes[middle]))
        low, high = (middle, high) if trial.found else (low, middle)
    edge = [index for index in (low, low + 1) if 0 <= index < len(fault.sizes)]
    sizes: list[float | None] = [*(fault.sizes[index] for index in edge), None]
    first, last = edge[0], edge[-1]
    while sizes:
        for size in sizes * repeat:
            yield kept(fault.trials, size)
        sizes = []
        if first > 0 and not fault.always(fault.sizes[first]):
            first -= 1
            sizes.append(fault.sizes[first])
        if last + 1 < len(fault.sizes) and fault.always(fault.sizes[last]):
            last += 1
            sizes.append(fault.sizes[last])


class _Trials:
    """Trials of one drill. Evidence is kept of those that a person may want to look at: missed, and false alarms."""

    def __init__(self, drill: Drill, well: Callable[[], LocalCluster], folder: Path) -> None:
        self._drill, self._well, self._folder, self._count = drill, well, folder, 0

    def __call__(self, size: float | None) -> LimitTrial:
        self._count += 1
        drill = without_fault(self._drill) if size is None else sized(self._drill, size)
        drill = _placed(drill)
        drill = drill.model_copy(update={"id": f"{drill.id}-{self._count}"})
        load = round(os.getloadavg()[0], 2)
        for _ in range(AGAIN):
            try:
                cluster = self._well()
                cluster.heal()
                result = perform.perform(drill, cluster, self._folder, name=self._folder.name)
            except DrillError as error:
                result = perform.not_performed(drill, str(error))
            if result.performed:
                break
        named = bool(result.detected and (size is None or result.right_subject))
        if named is (size is not None) and not result.false_alarms:
            shutil.rmtree(self._folder / drill.id, ignore_errors=True)
        return LimitTrial(
            size=size,
            found=(named or (size is None and bool(result.false_alarms))) if result.performed else None,
            alarms=result.false_alarms if result.performed else [result.why or ""],
            seconds=result.seconds,
            load=load,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="these drills of those that have sizes")
    parser.add_argument("--repeat", type=int, default=10, help="trials of a size")
    arguments = parser.parse_args()
    in_sizes = [drill for drill in DECLARED.values() if drill.sizes is not None]
    chosen = [drill for drill in in_sizes if not arguments.only or drill.id in arguments.only]
    try:
        if not chosen:
            raise CannotStart("none of these drills has sizes; bringup drill --list and the catalogue say which have")
        return run(chosen, arguments.repeat)
    except BringupError as error:
        print(f"fault_limits: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
