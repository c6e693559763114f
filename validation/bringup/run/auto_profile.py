"""The newest discovery of some nodes, for the profile `auto`."""

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from bringup.domains import auto
from bringup.kernel import results
from bringup.kernel.errors import FileError, RecordError, RunError
from bringup.kernel.judge import Judged, judge_folder
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.profile import Profile
from bringup.kernel.records import Run, SlurmCluster, read_record
from bringup.run import slurm

_SIGNS_OF_A_GPU = ("/dev/nvidia0", "/dev/nvidiactl", "/proc/driver/nvidia")
_PCI = Path("/sys/bus/pci/devices")
_NVIDIA = "0x10de"
_PROMISED = ("SLURM_JOB_GPUS", "SLURM_GPUS", "SLURM_GPUS_ON_NODE", "CUDA_VISIBLE_DEVICES")


def newest(nodes: Collection[str]) -> Judged | None:
    """Find the newest closed discovery of all of these nodes, of this cluster, whose evidence nobody changed. None:
    there is none. No nodes: of any. Where no Slurm answers, of any cluster."""
    for folder in _folders(set(nodes), slurm.this_cluster()):
        try:
            judged = judge_folder(folder)
        except (RunError, RecordError, FileError):
            continue
        if judged.objection is None:
            return judged
    return None


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


def here(opened: Profile, nodes: Collection[str], gpus: Sequence[str]) -> Profile:
    """Return the same for a training on this machine, which may never have had a discovery. gpus: names, as in torch.
    Raises FileError."""
    made = profile(opened, nodes)
    if not made.is_open:
        return made
    if gpus:
        seen = auto.Nodes(Counter(gpus).most_common(1)[0][0], len(gpus))
        return auto.with_own(opened, auto.completed(seen, strict=True))
    return made if _has_a_gpu() else auto.with_own(opened, auto.without_gpus())


def _has_a_gpu() -> bool:
    """Whether something says that there is one: a machine whose driver is gone is no machine without a GPU."""
    if any(map(os.path.exists, _SIGNS_OF_A_GPU)) or any(map(os.environ.get, _PROMISED)):
        return True
    return any(_NVIDIA in file.read_text() for file in _PCI.glob("*/vendor"))


def _folders(nodes: set[str], cluster: SlurmCluster) -> Iterator[Path]:
    """Yield closed discoveries, the newest first."""
    runs: list[tuple[str, Path]] = []
    for path in (results.REPOSITORY / PHASES["discovery"].results).glob(f"*/{results.RUN}"):
        try:
            run = read_record(path, Run)
        except RecordError:
            continue
        is_here = not run.of_cluster.is_another(cluster)
        if is_here and nodes <= set(run.nodes) and (path.parent / results.CLOSED).is_file():
            runs.append((run.opened_at, path.parent))
    yield from (folder for _, folder in sorted(runs, reverse=True))
