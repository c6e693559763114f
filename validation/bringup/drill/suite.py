"""`bringup drill`: many drills, on as few clusters as they can share. It can be stopped and continued at any time."""

import queue
import re
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from rich.console import Console

from bringup.drill import catalogue as drills
from bringup.drill import environment, perform, result
from bringup.drill.catalogue import Drill, Shape
from bringup.drill.environment import Here, LocalCluster
from bringup.kernel import results as paths
from bringup.kernel.errors import CannotStart, DrillError, SlurmError
from bringup.kernel.plan import own
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.profile import Profile
from bringup.kernel.records import read_record, write_record, write_text
from bringup.readers.node_states import Node
from bringup.report import terminal
from bringup.report import text as report
from bringup.report.campaigns import DrillReport, DrillResult
from bringup.run import open as opening
from bringup.run import site_file, slurm
from bringup.run.launch import progress

DRILLS = environment.RESULTS / "drill"
Ended = queue.Queue[tuple[DrillResult, str | None] | Exception | None]
"""What lanes tell: a result, and what the drill left so that the cluster was replaced; an error; None: a lane ended."""
LEFT_TO_ITS_LANE = 4  # drills; see taken()


class Request(NamedTuple):
    drills: Sequence[Drill]
    anywhere: bool = False
    profile: Profile | None = None  # of the cluster, for anywhere
    resume: Path | None = None

    @property
    def place(self) -> Literal["local-cluster", "anywhere"]:
        return "anywhere" if self.anywhere else "local-cluster"


def of_site(checks: Path) -> list[Drill]:
    """Return drills of a site's own checks, copied with a site file to where all hosts see them. Raises FileError."""
    gates, folder = own.read(checks), DRILLS / "own-checks"
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "checks.yaml", checks.read_text(encoding="utf-8"), replace=True)
    site = site_file.Site(schema_version=1, name="own-checks", checks=str(folder / "checks.yaml"))
    write_text(folder / "own-checks.site.yaml", site_file.dump(site), replace=True)
    where = {"BRINGUP_SITE": str(folder / "own-checks.site.yaml")}
    at_home = [drill.at_home for drill in drills.read(checks, gates)]
    return [drill.model_copy(update={"environment": drill.environment | where}) for drill in at_home]


def run(request: Request) -> int:
    """Perform the drills, print and write the results. Exit code: 0 all found, 1 one was not, 2 could not tell."""
    nodes = usable_here() if request.anywhere else {}  # before anything is written: there may be no Slurm
    folder, done = _begin(request)
    console = terminal.console()
    catalogue = {drill.id: drill for drill in request.drills}
    kept_drills = {drill_result.drill for drill_result in done.results}
    before = f", {len(kept_drills)} performed before" if kept_drills else ""
    console.print(f"drills: {len(done.planned)} planned{before}; {report.shown_path(folder)}")
    waiting = [catalogue[name] for name in done.planned if name not in kept_drills]
    try:
        here = _anywhere(request, waiting, nodes, folder, console)
        with closing(here if request.anywhere else _on_local_clusters(waiting, folder, console)) as results:
            for performed in results:
                done = done.model_copy(update={"results": [*done.results, performed]})
                write_record(folder / paths.DRILLS, done, replace=True)
                write_text(folder / "report.md", result.markdown(done), replace=True)
                console.print(result.line(performed))
    except KeyboardInterrupt:
        where = "" if request.place == "local-cluster" else f"--{request.place} "
        console.print(f"{'STOPPED':<14} next: bringup drill {where}--resume {report.shown_path(folder)}")
        raise
    console.print(f"\nreport: {report.shown_path(folder / 'report.md')}")
    console.print(result.totals(done))
    return result.exit_code(done)


def _begin(request: Request) -> tuple[Path, DrillReport]:
    if request.resume is not None:
        done = read_record(request.resume / paths.DRILLS, DrillReport)
        if done.place != request.place:
            raise CannotStart(f"--resume {request.resume}: that run was {done.place}, and this one is {request.place}")
        known = {drill.id for drill in request.drills}
        # what could not be performed is tried again
        results = [result for result in done.results if result.performed and result.drill in known]
        done = done.model_copy(update={"results": results, "planned": [name for name in done.planned if name in known]})
        return request.resume.resolve(), done
    name = opening.default_name()
    folder = DRILLS / name
    folder.mkdir(parents=True)
    done = DrillReport(
        name=name,
        place=request.place,
        profile=request.profile.name if request.profile else None,
        git_commit=opening.git_commit(),
        opened_at=opening.now(),
        planned=[drill.id for drill in in_order(request.drills)],
        results=[],
    )
    write_record(folder / paths.DRILLS, done)
    return folder, done


def in_order(drills: Sequence[Drill]) -> list[Drill]:
    """Put those of one shape together; in the order of the phases inside."""

    def place(drill: Drill) -> tuple[bool, str, int, int, int]:
        shape, phase = drill.shape, list(PHASES).index(drill.phase)
        return shape.unconfined, shape.simulate or "", shape.nodes, shape.gpus_per_node, phase

    return sorted(drills, key=place)


@dataclass
class _Clusters:
    """One cluster at a time, of the requested shape."""

    state: Path
    up: LocalCluster | None = None

    def of(self, shape: Shape) -> LocalCluster:
        if self.up is None or self.up.shape != shape:
            self.close()
            self.up = LocalCluster(self.state, shape)
        self.up.start()
        return self.up

    def close(self) -> None:
        if self.up is not None:
            self.up.end()


def local_clusters(folder: Path, lane: str) -> closing[_Clusters]:
    """Yield clusters of a lane, in /tmp: a deeper folder is too long for munge. --resume finds them by this name."""
    return closing(_Clusters(Path("/tmp") / f"bringup-drill-{folder.name}-{lane}"))


def _on_local_clusters(drills: Sequence[Drill], folder: Path, console: Console) -> Generator[DrillResult]:
    """Two lanes, each with a cluster of its own: drills that work, and beside them those that wait most of the time."""
    works, waits = (deque(drill for drill in drills if drill.waits is waiting) for waiting in (False, True))
    ended: Ended = queue.Queue()
    with progress(console, "now") as tell:
        now: dict[str, str] = {}

        def say(lane: str, words: str) -> None:
            now[lane] = words
            tell("; ".join(filter(None, now.values())))

        lanes = [
            threading.Thread(target=_lane, args=(name, taken(own, other), folder, ended, partial(say, name)))
            for name, own, other in (("works", works, waits), ("waits", waits, works))
            if own
        ]
        for lane in lanes:
            lane.start()
        try:
            for _ in lanes:  # each ends with None
                while (message := ended.get()) is not None:
                    if isinstance(message, Exception):
                        raise message
                    performed, broken = message
                    if broken:
                        console.print(f"{'':<14} a new cluster after {performed.drill}: {report.plain(broken)}")
                    yield performed
        except BaseException:
            environment.interrupt()
            raise
        finally:
            for lane in lanes:
                lane.join()


def taken(lane: deque[Drill], other_lane: deque[Drill]) -> Iterator[Drill]:
    """Yield what a lane performs: its own drills from the front, then those of the other lane from the end.

    The other lane keeps its last drills: a further cluster for one of them takes longer than it saves.
    """
    with suppress(IndexError):
        while True:  # both lanes take from both ends: an empty queue is seen here, and not before
            yield lane.popleft()
    with suppress(IndexError):
        while len(other_lane) > LEFT_TO_ITS_LANE:
            yield other_lane.pop()


def _lane(lane: str, drills: Iterator[Drill], folder: Path, ended: Ended, tell: Callable[[str], None]) -> None:
    """One thread: these drills, one after the other."""
    try:
        with local_clusters(folder, lane) as clusters:
            for drill in drills:
                if drill.needs_expected is not None:
                    why = "it is about InfiniBand or NVLink, which no local cluster has"
                    ended.put((perform.not_performed(drill, why, applicable=False), None))
                    continue
                tell(f"{drill.id}: {drill.fault}")
                broken: str | None = None
                try:
                    cluster = clusters.of(drill.shape)
                    broken = cluster.heal()  # whatever came before
                    performed = perform.perform(drill, cluster, folder, name=folder.name)
                    broken = (None if environment.INTERRUPTED.is_set() else cluster.heal()) or broken
                except DrillError as error:
                    performed = perform.not_performed(drill, str(error))
                if environment.INTERRUPTED.is_set():  # a further cluster would be started for the next drill
                    break
                ended.put((performed, broken))
    except Exception as error:  # noqa: BLE001  # raised again by the thread that waits for this one
        ended.put(error)
    tell("")
    ended.put(None)


def usable_here() -> dict[str, Node]:
    """Return nodes of this cluster that drills can use, in the order of the partition. Raises CannotStart."""
    try:
        names = slurm.partition_nodes(slurm.chosen_partition())
        nodes = slurm.nodes()
    except SlurmError as error:
        raise CannotStart(str(error)) from error
    usable = {name: nodes[name] for name in names if name in nodes and nodes[name].is_usable}
    if not usable:
        raise CannotStart(f"none of {', '.join(names[:4])} can be used; sinfo -N -l says why")
    return usable


def _anywhere(
    request: Request, drills: Sequence[Drill], nodes: dict[str, Node], folder: Path, console: Console
) -> Generator[DrillResult]:
    assert request.profile is not None
    usable = tuple(nodes)
    for drill in drills:
        gpus = min(nodes[name].gpus for name in usable[: drill.shape.nodes])
        if (reason := why_not(drill, request.profile, len(usable), gpus)) is not None:
            yield perform.not_performed(drill.at_home, reason, applicable=False)
            continue
        with progress(console, drill.id) as tell:
            tell(drill.fault)
            result_here = perform.perform(drill.placed(usable, gpus), Here(usable), folder, name=folder.name)
        yield result_here


def why_not(drill: Drill, profile: Profile, nodes: int, gpus: int) -> str | None:
    """Say why the drill would mean nothing on this cluster; None when it would."""
    if drill.where != "anywhere":
        return "it changes the cluster itself: on a local cluster only"
    if nodes < drill.shape.nodes:
        return f"it needs {drill.shape.nodes} nodes, {nodes} can be used"
    names_a_rank = any("{rank" in text for text in (drill.subject, *drill.environment.values()))
    if gpus < 2 <= drill.shape.gpus_per_node and names_a_rank:
        return f"it tells two ranks of one node apart, and the nodes have {gpus} GPU"
    if (excluded := profile.reason_not_applicable(drill.gate)) is not None:
        return f"profile {profile.name}: {drill.gate} is not applicable: {excluded}"
    if GATES[drill.gate].expect == "profile" and drill.gate not in profile.expect:
        return f"profile {profile.name} declares no {drill.gate}"
    if drill.needs_expected is not None:
        gate, pattern = drill.needs_expected
        entry = profile.expect.get(gate)
        if entry is None or not re.search(pattern, str(entry.expected)):
            expected = "nothing" if entry is None else entry.expected
            return f"profile {profile.name} expects {expected} of {gate}, not {pattern}"
    return None
