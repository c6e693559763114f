"""The newest discovery of some nodes, for the profile `auto`."""

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bringup.domains import auto
from bringup.kernel import results
from bringup.kernel.errors import FileError, RecordError, RunError
from bringup.kernel.judge import Judged, judge_folder
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.profile import Profile
from bringup.kernel.records import Run, read_record
from bringup.report.text import shown_path
from bringup.run import slurm


class Driver(NamedTuple):
    """From the newest run of discovery."""

    version: str
    gpu: str  # model
    run: str


def newest(nodes: Collection[str]) -> Judged | None:
    """Find the newest closed discovery of all of these nodes, of this cluster, whose evidence nobody changed. None:
    there is none. No nodes: of any. Where no Slurm answers, of any cluster."""
    here, runs = slurm.this_cluster(), list[tuple[str, Path]]()
    for path in (results.REPOSITORY / PHASES["discovery"].results).glob(f"*/{results.RUN}"):
        with suppress(RecordError):
            run, is_closed = read_record(path, Run), (path.parent / results.CLOSED).is_file()
            if is_closed and set(nodes) <= set(run.nodes) and not run.of_cluster.is_another(here):
                runs.append((run.opened_at, path.parent))
    for _, folder in sorted(runs, reverse=True):
        with suppress(RunError, RecordError, FileError):
            judged = judge_folder(folder)
            if judged.objection is None:
                return judged
    return None


def driver(discovery: Judged) -> Driver | None:
    """Return what discovery saw of driver and GPU."""
    values = {each.quantity: str(each.value) for each in reversed(discovery.observations) if each.value is not None}
    if (version := values.get("discovery.gpu.driver")) is None:
        return None
    return Driver(version, values.get("discovery.gpu.model", "a GPU of no known model"), shown_path(discovery.folder))


def profile(opened: Profile, nodes: Collection[str], discovery: Judged | None = None) -> Profile:
    """Return `opened`, or, where it is or extends `auto`, what the newest discovery makes. Raises FileError."""
    if not opened.is_open:
        return opened
    discovery = discovery or newest(nodes)
    if discovery is None:
        return opened
    seen = auto.seen(discovery.observations, nodes or discovery.run.nodes, discovery.run.cluster)
    made = auto.with_own(opened, auto.completed(seen, strict=True))
    return made.model_copy(update={"description": f"{made.recognised} (discovery {discovery.run.name})"})
