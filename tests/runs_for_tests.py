"""A results folder as a healthy discovery of two nodes leaves it, for tests to damage."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bringup import judge
from bringup import results as runs
from bringup.derive.observed import derive
from bringup.evidence import reading
from bringup.evidence.parsed import Parsed, Seen
from bringup.plan import profile
from bringup.plan.phases import PHASES
from bringup.records import Closed, Run, Verdict, read_record, write_record
from bringup.run import open as opening
from factory import a_run

FIXTURES = Path(__file__).parent / "fixtures"
HEALTHY_NODES = "".join(
    f"NodeName={node} Arch=x86_64 Gres=gpu:placeholder:2 Version=22.05.8 State=IDLE Partitions=main Reason=none\n"
    for node in ("n0", "n1")
)


def opened(
    stem: str,
    results: Path,
    profile_name: str = "local-cpu",
    nodes: Sequence[str] = ("n0", "n1"),
    *,
    gpus: int = 2,
    ranks: int | None = None,
    **how: Any,
) -> Path:
    """The folder of a run, as `bringup open` makes it. how: of run.open.open_run."""
    return opening.open_run(
        PHASES[stem],
        nodes=list(nodes),
        gpus_per_node=gpus,
        ranks_per_node=gpus if ranks is None else ranks,
        profile=profile.load(profile_name),
        argv=["test"],
        results=results,
        **how,
    )


def discovery(results: Path, monkeypatch, *, close: bool = True, profile_name: str = "local-cpu") -> Path:
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    folder = opened("discovery", results, profile_name)
    raw = folder / "raw"
    shutil.copyfile(FIXTURES / "inventory-two-nodes.jsonl", raw / "inventory.jsonl")
    shutil.copyfile(FIXTURES / "clock-two-nodes.jsonl", raw / "clock.jsonl")
    shutil.copyfile(FIXTURES / "names-table-two-nodes.jsonl", raw / "names-table.jsonl")
    shutil.copyfile(FIXTURES / "names-two-nodes.jsonl", raw / "names.jsonl")
    shutil.copyfile(FIXTURES / "slurm/mpi-list.txt", raw / "mpi-list.txt")
    shutil.copyfile(FIXTURES / "slurm/config.txt", raw / "scontrol-config.txt")
    (raw / "scontrol-node.txt").write_text(HEALTHY_NODES)
    if close:
        opening.close_run(folder, 0)
    return folder


def reseal(folder: Path) -> Path:
    """What is in the folder now was there when the run was closed: evidence that was bad, and not tampered with."""
    closed = read_record(folder / runs.CLOSED, Closed)
    write_record(folder / runs.CLOSED, closed.model_copy(update={"files": runs.checksums(folder)}), replace=True)
    return folder


def as_read(parsed: Parsed) -> Parsed:
    """With the step and the round that the names of the files have, of what a test wrote down with its evidence."""
    for place, seen in enumerate(parsed.observations):
        names = (
            pattern.fullmatch(seen.evidence.removeprefix("raw/").partition(":")[0]) for pattern in reading.PATTERNS
        )
        for name in filter(None, names):
            parsed.observations[place : place + 1] = reading.with_source(Parsed([seen]), name).observations
    return parsed


def add_derived(parsed: Parsed, run: Run | None = None) -> Parsed:
    """What follows from what was read, in all rooms, is added."""
    seen = Seen(parsed.observations)
    parsed.add(derive(seen, gpu_run()[0] if run is None else run))
    return parsed


def about(gate: str, parsed: Parsed, run: Run, profile_name: str | None = None) -> dict[str, Verdict]:
    """Subject -> its verdict of this gate. Without a name: by the profile of the run."""
    verdicts = judge.judge(run, profile.load(profile_name or run.profile), parsed).verdicts
    return {verdict.subject: verdict for verdict in verdicts if verdict.gate == gate}


def values(parsed: Parsed, quantity: str) -> dict[str, Any]:
    """Subject -> what was seen of it."""
    return {seen.subject: seen.value for seen in parsed.observations if seen.quantity == quantity}


def gpu_run() -> tuple[Run, profile.Profile]:
    """A discovery of one node with two H100, and what is expected of it."""
    expected = profile.load("h100-8x400g")
    return a_run("discovery", ["n0"], name="gpus", profile=expected.name), expected
