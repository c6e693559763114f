"""Record the runs that golden_verdicts.py judges: healthy and with faults, on local clusters; and a made-up fleet.

    /tmp/bringup-golden/.venv/bin/python validation/benchmarks/record_golden.py    # half an hour; it can be continued

Paths are in the evidence. So this is called with the Python of a clone in a neutral place: that one's cluster runs,
and the archives are written here.
"""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import judge_and_report
from bringup.drill import suite
from bringup.drill.catalogue import DRILLS, Drill, Shape
from bringup.drill.perform import perform
from bringup.kernel import results
from bringup.kernel.errors import DrillError
from bringup.kernel.plan.phases import PHASES
from healthy_rounds import healthy_round

RECORDINGS = Path(__file__).resolve().parents[2] / "tests/golden/recordings"
PLACE = suite.DRILLS / "golden"
HEALTHY = {  # recording: shape, phases
    "local-healthy": (Shape(), tuple(PHASES)),
    "h100-healthy": (
        Shape(3, 2, simulate="h100"),
        ("discovery", "smoke", "node_sweep", "nccl_scaling", "nccl_pairwise"),
    ),
}
IN_HSDP = "rank-killed-in-hsdp"  # a phase without a drill of its own
# of the catalogue; together they fail every phase and every module of derive/, with every kind of verdict
FAULTS = """
    evidence-edited evidence-removed not-closed evidence-missing evidence-truncated
    shm-small gpu-missing kernel-log-unreadable xid-79 hostname-twice devices-unconfined cores-unconfined
    folder-read-only
    cpu-drift name-slow clock-off node-drained mtu-drift
    gpu-lost gpu-ecc gpu-hot gpu-other-model gpu-twice driver-does-not-start gpu-replaced-rows xid-nonfatal
    nvlink-down nvlink-replays rdma-port-slow rdma-flaps topology-drift
    two-tasks-one-gpu wrong-matmul no-room local-locks exit-code-lost path-not-shared gpu-far-from-cpus
    flipped-bit exit-sweep memory-fault-under-load dcgm-without-engine slow-pair rail-slow job-cancelled
    separate-communicators rank-exits curve-dip wrong-value
    loss-flat results-truncated rows-twice rank-killed checkpoint-changed fsdp-not-applied results-read-only
    rank-killed-in-hsdp
"""
KEPT = (  # beside raw/
    *("playbook.json", "run.json", "profile.yaml", "site.yaml", "closed.json", "continued.json"),
    *("run_args.json", "metrics.json"),
)


def main() -> None:
    if sys.argv[1:] != ["--seal"]:
        record()
        make_up_a_fleet()
    seal()


def record() -> None:
    with suite.local_clusters(PLACE, "golden") as clusters:
        for name, (shape, phases) in HEALTHY.items():
            if not (PLACE / name).exists():
                healthy = healthy_round(1, phases, clusters.of(shape), PLACE, name=name)
                print(name, "; ".join(healthy.alarms) or "passed", flush=True)
                (PLACE / "round-1").rename(PLACE / name)
        for drill in faults():
            if (PLACE / drill.id).exists():
                continue
            cluster = clusters.of(drill.shape)
            try:
                cluster.heal()
                done = perform(drill, cluster, PLACE, name="golden")
                print(suite.result.line(done), flush=True)
            except DrillError as error:
                print(drill.id, error, flush=True)


def faults() -> list[Drill]:
    declared = {drill.id: drill for drill in DRILLS}
    declared[IN_HSDP] = declared["rank-killed"].model_copy(update={"id": IN_HSDP, "phase": "run_hsdp_2node"})
    return [declared[name] for name in FAULTS.split()]


def make_up_a_fleet() -> None:
    if not (PLACE / "fleet").exists():
        judge_and_report.made_up_run(64, PLACE / "fleet")


def seal() -> None:
    """An archive per group of recordings, of what is judged. What is derived and checkpoints stay out."""
    RECORDINGS.mkdir(exist_ok=True)
    shapes = {drill.id: "h100-faults" if drill.shape.simulate else "local-faults" for drill in faults()}
    groups: dict[str, list[Path]] = {}
    for folder in sorted(path for path in PLACE.iterdir() if path.is_dir() and path.name != "healthy"):
        groups.setdefault(shapes.get(folder.name, folder.name), []).append(folder)
    for group, folders in groups.items():
        target = RECORDINGS / f"{group}.tar.xz"
        with tarfile.open(target, "w:xz", format=tarfile.PAX_FORMAT, preset=9) as archive:
            for path in (path for folder in folders for path in sorted(folder.rglob("*")) if is_kept(path)):
                archive.add(path, path.relative_to(PLACE).as_posix(), recursive=False, filter=without_owner)
        print(f"{target.name}: {target.stat().st_size / 1024:.0f} KiB")


def is_kept(path: Path) -> bool:
    """Evidence: what is below raw/ of a run, and its records. An empty folder is no evidence."""
    if path.is_dir():
        return False
    run = next((folder for folder in path.parents if (folder / results.RUN).exists()), path.parent)
    return (path.parent == run and path.name in KEPT) or path.relative_to(run).parts[0] == "raw"


def without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    main()
