"""A results folder as a healthy discovery of two nodes leaves it, for tests to damage."""

import shutil
from pathlib import Path

from bringup import plan, profile, runs
from bringup.phases import PHASES
from bringup.records import Closed, Run, read_record, write_record

FIXTURES = Path(__file__).parent / "fixtures"
HEALTHY_NODES = "".join(
    f"NodeName={node} Arch=x86_64 Gres=gpu:placeholder:2 Version=22.05.8 State=IDLE Partitions=main Reason=none\n"
    for node in ("n0", "n1")
)


def discovery(results: Path, monkeypatch, *, close: bool = True, profile_name: str = "local-cpu") -> Path:
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    folder = runs.open_run(
        PHASES["discovery"],
        nodes=["n0", "n1"],
        gpus_per_node=2,
        ranks_per_node=2,
        profile=profile.load(profile_name),
        argv=["test"],
        results=results,
    )
    raw = folder / "raw"
    shutil.copyfile(FIXTURES / "inventory-two-nodes.jsonl", raw / "inventory.jsonl")
    shutil.copyfile(FIXTURES / "clock-two-nodes.jsonl", raw / "clock.jsonl")
    shutil.copyfile(FIXTURES / "slurm/mpi-list.txt", raw / "mpi-list.txt")
    shutil.copyfile(FIXTURES / "slurm/config.txt", raw / "scontrol-config.txt")
    (raw / "scontrol-node.txt").write_text(HEALTHY_NODES)
    if close:
        runs.close_run(folder, 0)
    return folder


def reseal(folder: Path) -> Path:
    """What is in the folder now was there when the run was closed: evidence that was bad, and not tampered with."""
    closed = read_record(folder / runs.CLOSED, Closed)
    write_record(folder / runs.CLOSED, closed.model_copy(update={"files": runs.checksums(folder)}), replace=True)
    return folder


def gpu_run() -> tuple[Run, profile.Profile]:
    """A discovery of one node with two H100, and what is expected of it."""
    expected = profile.load("h100-8x400g")
    return Run(
        phase="discovery",
        name="gpus",
        profile_sha256="",
        nodes=["n0"],
        gpus_per_node=2,
        ranks_per_node=2,
        profile=expected.name,
        planned=plan.plan("discovery", ["n0"], 2, set()),
        not_applicable=[],
        argv=[],
        git_commit=None,
        git_dirty=None,
        slurm_job_id=None,
        slurm_restart_count=0,
        opened_at="2026-01-01T00:00:00Z",
    ), expected
