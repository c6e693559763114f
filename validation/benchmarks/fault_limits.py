"""How small a fault is still found, how often it is missed, how often there is a false alarm.

    python validation/benchmarks/fault_limits.py --repeat 20 [--only slow-pair] [--anywhere --profile NAME]

A search with one trial a size shows where finding ends. The sizes on both sides of that are repeated, in turns with
runs without the fault, so that all meet the same load. Larger sizes follow until one is found each time, and smaller
ones until one is missed. Rates are of the repeats alone, because the trials of the search chose these sizes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from bringup.drill import perform, suite
from bringup.drill.environment import Environment, Here, LocalCluster
from bringup.drill.suite import why_not
from bringup.errors import BringupError, CannotStart, DrillError
from bringup.formulae.chance import share_within
from bringup.plan.catalogue import DECLARED, load_profile
from bringup.plan.drill import Drill
from bringup.records import Record, Versioned, read_record, write_record, write_text
from bringup.records.base import NonNegative
from bringup.report import terminal
from bringup.report.text import columns, plain, shown_path, table
from bringup.run import discovered, slurm
from bringup.run import open as opening
from bringup.run import site as at_site
from pydantic import Field

LIMITS = "limits.json"
AGAIN = 2  # a trial that could not be performed is tried this often


class LimitTrial(Record):
    """One run of a phase. size null: without the fault."""

    size: float | None
    found: bool | None  # the gate named the subject and no other; without the fault: it named anything. null: no run
    alarms: list[str]  # what else was accused, or why there was no run
    seconds: NonNegative
    load: NonNegative  # runnable processes of this machine when the trial began (1 minute)


class FaultLimit(Record):
    """One fault in several sizes. Rates come from `trials` alone: `searched` chose their sizes."""

    drill: str
    fault: str  # {size} stands for its size
    unit: str
    sizes: list[float] = Field(min_length=2)  # from the largest fault to the smallest
    phase: str
    gate: str
    subject: str
    nodes: int = Field(ge=1)
    searched: list[LimitTrial] = Field(default_factory=list)
    trials: list[LimitTrial] = Field(default_factory=list)


class LimitsReport(Versioned):
    """`limits.json`: what validation/benchmarks/fault_limits.py did, rewritten after every trial."""

    name: str
    place: Literal["local-cluster", "anywhere"]
    profile: str | None  # anywhere: of the cluster
    cluster: str | None  # anywhere: as Slurm calls it
    cores: int = Field(ge=1)  # of the machine on which the command ran; of all nodes on a local cluster
    git_commit: str | None
    opened_at: str
    repeat: int = Field(ge=1)
    faults: list[FaultLimit]
    ended: bool = False  # false: the last of its faults was not tried to the end

    @property
    def whole(self) -> list[FaultLimit]:
        """The faults that were tried to the end."""
        return self.faults if self.ended else self.faults[:-1]


_HEAD = ("fault", "gate", "smallest found", "found", "next smaller", "found there", "without the fault", "load")


def of(fault: FaultLimit, size: float | None) -> list[LimitTrial]:
    """The repeats of a size that were performed; null: without the fault."""
    return [trial for trial in fault.trials if trial.size == size and trial.found is not None]


def always(fault: FaultLimit, size: float) -> bool:
    trials = of(fault, size)
    return bool(trials) and all(trial.found for trial in trials)


def smallest(fault: FaultLimit) -> float | None:
    """The smallest size found each time, below no size that was missed. null: none was."""
    best = None
    for size in fault.sizes:
        if of(fault, size):
            if not always(fault, size):
                break
            best = size
    return best


def never_tried(fault: FaultLimit) -> bool:
    """Neither its largest sizes nor its absence could be judged."""
    return not any(trial.found is not None for trial in fault.trials if trial.size is not None) or not of(fault, None)


def counted(trials: Sequence[LimitTrial]) -> str:
    """`3 of 10`, with the bounds of the share (95 %)."""
    if not trials:
        return "not tried"
    hits = sum(bool(trial.found) for trial in trials)
    low, high = share_within(hits, len(trials))
    return f"{hits} of {len(trials)} ({100 * low:.0f} to {100 * high:.0f} %)"


def _size(fault: FaultLimit, size: float | None) -> str:
    return "none" if size is None else f"{size:g} {fault.unit}"


def _below(fault: FaultLimit) -> float | None:
    """The next smaller size than the smallest found that was repeated."""
    best = smallest(fault)
    later = fault.sizes if best is None else fault.sizes[fault.sizes.index(best) + 1 :]
    return next((size for size in later if of(fault, size)), None)


def of_a_trial(fault: FaultLimit, of_it: LimitTrial) -> str:
    words = {None: "NOT PERFORMED", True: "FOUND", False: "not found"}[of_it.found]
    if of_it.size is None and of_it.found is not None:
        words = "FALSE ALARM" if of_it.found else "quiet"
    what = "without the fault" if of_it.size is None else _size(fault, of_it.size)
    return f"{words:<14} {fault.drill} {what} ({of_it.seconds:.0f} s, load {of_it.load:g})"


def sentence(fault: FaultLimit) -> str:
    best, below = smallest(fault), _below(fault)
    if never_tried(fault):
        return f"{fault.drill}: could not be tried"
    at_best = (
        f"found each time at {_size(fault, best)}: {counted(of(fault, best))}"
        if best is not None
        else "in no size found each time"
    )
    smaller = f"; at {_size(fault, below)}: {counted(of(fault, below))}" if below is not None else ""
    performed = sum(trial.found is not None for trial in fault.trials)
    return (
        f"{fault.fault.replace('{size}', 'SIZE')}: {at_best}{smaller}; false alarms: {counted(of(fault, None))}; "
        f"{performed} of {len(fault.trials)} runs performed"
    )


def _load(fault: FaultLimit, done: LimitsReport) -> str:
    loads = [trial.load for trial in fault.trials]
    return f"load {min(loads):.1f} to {max(loads):.1f} on {done.cores} cores" if loads else "no load noted"


def _row(fault: FaultLimit, done: LimitsReport) -> tuple[str, ...]:
    best, below = smallest(fault), _below(fault)
    return (
        fault.fault.replace("{size}", "SIZE"),
        f"{fault.gate} [{fault.subject}]",
        ("could not be tried" if never_tried(fault) else "not found each time in any size")
        if best is None
        else _size(fault, best),
        "" if best is None else counted(of(fault, best)),
        "" if below is None else _size(fault, below),
        "" if below is None else counted(of(fault, below)),
        counted(of(fault, None)),
        _load(fault, done),
    )


def screen(done: LimitsReport) -> str:
    return columns((_HEAD[0], *_HEAD[2:7]), [(f.drill, *_row(f, done)[2:7]) for f in done.faults])


def markdown(done: LimitsReport) -> str:
    elsewhere = [
        (fault.drill, _size(fault, trial.size), alarm)
        for fault in done.faults
        for trial in (*fault.searched, *fault.trials)
        for alarm in trial.alarms
    ]
    where = "a local cluster made for it" if done.place == "local-cluster" else f"{done.cluster}, {done.profile}"
    return "\n".join(
        [
            "# How small a fault is found",
            "",
            f"`python validation/benchmarks/fault_limits.py --repeat {done.repeat} "
            f"--only {' '.join(fault.drill for fault in done.faults)}`, "
            f"on {where}, begun {done.opened_at}, "
            f"commit {(done.git_commit or 'unknown')[:12]}, {done.cores} cores.",
            "",
            "Found: the gate names the subject of the fault, and no other. Behind a share are its bounds (95 %,",
            "Clopper and Pearson). Nothing here speaks of another cluster or another load.",
            "",
            *table(_HEAD, (_row(fault, done) for fault in done.faults)),
            "",
            "Searched first, with one trial a size:",
            "",
            *(f"- {fault.drill}: {_searched(fault)}" for fault in done.faults),
            "",
            *(
                ["Accused besides, or not performed:", "", *table(("drill", "size", "what"), elsewhere), ""]
                if elsewhere
                else ["Nothing else was accused in any trial.", ""]
            ),
        ]
    )


def _searched(fault: FaultLimit) -> str:
    words = {None: "not performed", True: "found", False: "not found"}
    return ", ".join(f"{_size(fault, trial.size)} {words[trial.found]}" for trial in fault.searched)


def run(request: suite.Request, repeat: int) -> int:
    """Exit code: 0 each fault was found in its largest size each time, 1 one was not, 2 one could not be tried."""
    drills = [drill for drill in request.drills if drill.sizes is not None]
    if not drills:
        raise CannotStart("none of these drills has sizes; bringup drill --list and the catalogue say which have")
    nodes = suite.usable_here() if request.anywhere else {}
    usable = tuple(nodes)
    if request.anywhere:  # before anything is made: a fault of the cluster itself must not reach one that is not ours
        drills = meaningful_here(drills, request, nodes)
    folder, done = _begin(request, repeat)
    known = {fault.drill for fault in done.faults}
    drills = [drill for drill in drills if drill.id not in known]
    console = terminal.console()
    console.print(f"limits: {len(drills)} faults, {done.repeat} trials of a size; {shown_path(folder)}")
    with suite.local_clusters(folder, "limits") as clusters:
        for drill in suite.in_order(drills):
            fault = _fault(drill, usable)
            done = done.model_copy(update={"faults": [*done.faults, fault], "ended": False})

            def well(drill: Drill = drill) -> Environment:
                return Here(usable) if usable else clusters.of(drill.shape)

            for trial in _trials(fault, done.repeat, _Trials(drill, well, usable, folder)):
                console.print(of_a_trial(fault, trial))
                write_record(folder / LIMITS, done, replace=True)
                write_text(folder / "limits.md", markdown(done), replace=True)
            done = done.model_copy(update={"ended": True})
            write_record(folder / LIMITS, done, replace=True)
            console.print(plain(sentence(fault)))
    console.print(f"\n{screen(done)}\nreport: {shown_path(folder / 'limits.md')}")
    if any(never_tried(fault) for fault in done.faults):
        return 2
    return 0 if all(smallest(fault) is not None for fault in done.faults) else 1


def meaningful_here(drills: Sequence[Drill], request: suite.Request, nodes: Mapping[str, slurm.Node]) -> list[Drill]:
    """Those that can be made on the cluster that the user is on. Raises CannotStart when it is none of them."""
    assert request.profile is not None
    reasons = {}
    for drill in drills:
        gpus = min(node.gpus for node in list(nodes.values())[: drill.shape.nodes])
        reasons[drill.id] = why_not(drill, request.profile, len(nodes), gpus)
    if all(reasons.values()):
        raise CannotStart("; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
    return [drill for drill in drills if reasons[drill.id] is None]


def _begin(request: suite.Request, repeat: int) -> tuple[Path, LimitsReport]:
    """A new record, or the one that is continued, without the fault that was not tried to the end."""
    if request.resume is not None:
        done = read_record(request.resume / LIMITS, LimitsReport)
        if (done.place == "anywhere") is not request.anywhere:
            raise CannotStart(f"--resume {request.resume}: that run was {done.place}")
        return request.resume.resolve(), done.model_copy(update={"faults": done.whole, "ended": False})
    done = LimitsReport(
        name=opening.default_name(),
        place="anywhere" if request.anywhere else "local-cluster",
        profile=request.profile.name if request.profile else None,
        cluster=slurm.cluster().name if request.anywhere else None,
        cores=os.cpu_count() or 1,
        git_commit=opening.git_commit(),
        opened_at=opening.now(),
        repeat=repeat,
        faults=[],
    )
    folder = suite.DRILLS / done.name
    folder.mkdir(parents=True)
    return folder, done


def _fault(drill: Drill, usable: Sequence[str]) -> FaultLimit:
    assert drill.sizes is not None
    placed = drill.placed(usable or drill.shape.names, drill.shape.gpus_per_node)
    return FaultLimit(
        drill=drill.id,
        fault=drill.fault,
        unit=drill.sizes.unit,
        sizes=list(drill.sizes.of),
        phase=drill.phase,
        gate=drill.gate,
        subject=placed.subject,
        nodes=drill.shape.nodes,
    )


Once = Callable[[float | None], LimitTrial]


def _trials(fault: FaultLimit, repeat: int, once: Once) -> Iterator[LimitTrial]:
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
        if first > 0 and not always(fault, fault.sizes[first]):
            first -= 1
            sizes.append(fault.sizes[first])
        if last + 1 < len(fault.sizes) and always(fault, fault.sizes[last]):
            last += 1
            sizes.append(fault.sizes[last])


class _Trials:
    """Trials of one drill. Evidence is kept of those that a person may want to look at: missed, and false alarms."""

    def __init__(self, drill: Drill, well: Callable[[], Environment], usable: Sequence[str], folder: Path) -> None:
        self._drill, self._well, self._usable, self._folder, self._count = drill, well, usable, folder, 0

    def __call__(self, size: float | None) -> LimitTrial:
        self._count += 1
        sized = self._drill.without_fault() if size is None else self._drill.sized(size)
        sized = sized.placed(self._usable or sized.shape.names, sized.shape.gpus_per_node)
        sized = sized.model_copy(update={"id": f"{sized.id}-{self._count}"})
        load = round(os.getloadavg()[0], 2)
        for _ in range(AGAIN):
            try:
                cluster = self._well()
                if isinstance(cluster, LocalCluster):
                    cluster.heal()
                result = perform.perform(sized, cluster, self._folder, name=self._folder.name)
            except DrillError as error:
                result = perform.not_performed(sized, str(error))
            if result.performed:
                break
        named = bool(result.detected and (size is None or result.right_subject))
        if named is (size is not None) and not result.false_alarms:
            shutil.rmtree(self._folder / sized.id, ignore_errors=True)
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
    parser.add_argument("--anywhere", action="store_true", help="on the cluster that you are on")
    parser.add_argument("--profile", default="auto", help="with --anywhere: of this cluster")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="continue an earlier run")
    arguments = parser.parse_args()
    try:
        profile = None
        if arguments.anywhere:
            at_site.entered()
            profile = discovered.profile(load_profile(arguments.profile), [])
        chosen = [drill for drill in DECLARED.values() if not arguments.only or drill.id in arguments.only]
        request = suite.Request(chosen, anywhere=arguments.anywhere, profile=profile, resume=arguments.resume)
        return run(request, arguments.repeat)
    except BringupError as error:
        print(f"fault_limits: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
