"""`bringup drill --limits`: how small a fault is still found, how often it is missed, how often there is a false alarm.

A search with one trial a size shows where finding ends. The sizes on both sides of that are repeated, in turns with
runs without the fault, so that all meet the same load. Larger sizes follow until one is found each time, and smaller
ones until one is missed. Rates are of the repeats alone, because the trials of the search chose these sizes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bringup import results as paths
from bringup.drill import perform, suite
from bringup.drill.environment import Environment, Here, LocalCluster
from bringup.drill.suite import why_not
from bringup.errors import CannotStart, DrillError
from bringup.plan.drill import Drill
from bringup.records import FaultLimit, LimitsReport, LimitTrial, read_record, write_record, write_text
from bringup.report import limits as shown
from bringup.report import terminal
from bringup.report.text import plain, shown_path
from bringup.run import open as opening
from bringup.run import slurm

AGAIN = 2  # a trial that could not be performed is tried this often


def run(request: suite.Request, repeat: int) -> int:
    """Exit code: 0 each fault was found in its largest size each time, 1 one was not, 2 one could not be tried."""
    drills = [drill for drill in request.drills if drill.sizes is not None]
    if not drills:
        raise CannotStart("none of these drills has sizes; bringup drill --limits --list shows those that have")
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
                console.print(shown.trial(fault, trial))
                write_record(folder / paths.LIMITS, done, replace=True)
                write_text(folder / "limits.md", shown.markdown(done), replace=True)
            done = done.model_copy(update={"ended": True})
            write_record(folder / paths.LIMITS, done, replace=True)
            console.print(plain(shown.sentence(fault)))
    console.print(f"\n{shown.screen(done)}\nreport: {shown_path(folder / 'limits.md')}")
    if any(shown.never_tried(fault) for fault in done.faults):
        return 2
    return 0 if all(shown.smallest(fault) is not None for fault in done.faults) else 1


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
        done = read_record(request.resume / paths.LIMITS, LimitsReport)
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
        if first > 0 and not shown.always(fault, fault.sizes[first]):
            first -= 1
            sizes.append(fault.sizes[first])
        if last + 1 < len(fault.sizes) and shown.always(fault, fault.sizes[last]):
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
