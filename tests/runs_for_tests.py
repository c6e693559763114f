"""A results folder as a healthy discovery of two nodes leaves it, for tests to damage."""

import shutil
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bringup.kernel import judge
from bringup.kernel import results as runs
from bringup.kernel.facts import reading
from bringup.kernel.facts.observations import derive
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.plan import profile
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Closed, Outcome, Run, Verdict, read_record, write_record
from bringup.kernel.run_folder import RunFolder
from bringup.run import open as opening
from factory import a_run

Fact = tuple[Any, ...]  # quantity, subject, value, and why and the evidence, where a test cares
PASS, WARN, FAIL, OPEN = Outcome.PASS, Outcome.WARN, Outcome.FAIL, Outcome.INCOMPLETE
H100 = "h100-8x400g"
SAME_UNIT = ("as-is", "each", "worst", "alike")  # what the gate judges is one of the facts
UNITS = {fact: gate.unit for gate in GATES.values() if gate.fold.how in SAME_UNIT for fact in gate.fold.facts}
UNITS |= {gate.id: gate.unit for gate in GATES.values()}
UNITS |= dict.fromkeys(("rail.together", "rail.crossed"), "share")
UNITS |= {"smoke.compute.gpu.tflops": "TFLOP/s", "rail.latency": "us"}
FIXTURES = Path(__file__).parent / "fixtures"
HEALTHY_NODE = (
    "NodeName={} Arch=x86_64 CPUTot=2 Gres=gpu:placeholder:2 Version=22.05.8 RealMemory=8000 State=IDLE "
    "Partitions=main Reason=none\n"
)
HEALTHY_NODES = HEALTHY_NODE.format("n0") + HEALTHY_NODE.format("n1")


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
    write_record(folder / runs.CLOSED, closed.model_copy(update={"files": RunFolder(folder).checksums()}), replace=True)
    return folder


def unpacked(name: str, to: Path, under: str = "") -> Path:
    """A stored recording, or the part of it below a folder."""
    with tarfile.open(FIXTURES.parent / f"golden/recordings/{name}.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(to, [each for each in archive if each.name.startswith(under)])
    return to / under


def lose_a_gpu(folder: Path) -> Path:
    """n1 counts one GPU of two, and the evidence holds."""
    inventory, count = folder / "raw/inventory.jsonl", '"subject": "n1", "quantity": "discovery.gpu.count", "value": '
    before, at, after = inventory.read_text().partition(f"{count}2")
    assert at
    inventory.write_text(f"{before}{count}1{after}")
    return reseal(folder)


def as_read(parsed: Parsed) -> Parsed:
    """With the step and the round that the names of the files have, of what a test wrote down with its evidence."""
    for place, seen in enumerate(parsed.observations):
        file = seen.evidence.removeprefix("raw/").partition(":")[0]
        for name in filter(None, (pattern.fullmatch(file) for pattern in reading.patterns())):
            parsed.observations[place : place + 1] = reading.with_source(Parsed([seen]), name).observations
    return parsed


def add_derived(parsed: Parsed, run: Run | None = None) -> Parsed:
    """What follows from what was read, in all rooms, is added."""
    parsed.add(derive(Seen(parsed.observations), gpu_run()[0] if run is None else run))
    return parsed


def about(gate: str, parsed: Parsed, run: Run, profile_name: str | None = None) -> dict[str, Verdict]:
    """Subject -> its verdict of this gate. Without a name: by the profile of the run."""
    verdicts = judge.judge(run, profile.load(profile_name or run.profile), parsed).verdicts
    return {verdict.subject: verdict for verdict in verdicts if verdict.gate == gate}


def values(parsed: Parsed, quantity: str) -> dict[str, Any]:
    """Subject -> what was seen of it."""
    return {seen.subject: seen.value for seen in parsed.observations if seen.quantity == quantity}


def parsed_of(facts: Iterable[Fact]) -> Parsed:
    """Write facts down as a probe does, each in the unit of the gate that reads it."""
    parsed = Parsed()
    for quantity, subject, value, *more in facts:
        why, evidence = (*more, *(None, "raw/x.jsonl:1")[len(more) :])
        unit = UNITS.get(quantity.partition("@")[0], "count")
        parsed.saw(quantity, subject, value, unit, evidence, why or ("not read" if value is None else None))
    return parsed


def judged(
    facts: Parsed | Iterable[Fact],
    phase: str = "discovery",
    nodes: Sequence[str] = ("n0", "n1", "n2"),
    *,
    gpus: int = 2,
    profile_name: str = H100,
) -> dict[str, Verdict]:
    """Return `gate subject` -> verdict, of evidence and of what follows from it."""
    run = a_run(phase, list(nodes), gpus=gpus, profile=profile_name)
    parsed = add_derived(facts if isinstance(facts, Parsed) else parsed_of(facts), run)
    verdicts = judge.judge(run, profile.load(profile_name), parsed).verdicts
    return {f"{verdict.gate} {verdict.subject}": verdict for verdict in verdicts}


def in_words(verdict: Verdict) -> tuple[Outcome, str]:
    """Return the outcome, and what was observed; why nothing was, where it is incomplete."""
    return verdict.outcome, (verdict.cause or "") if verdict.outcome is OPEN else verdict.observed


def failing(rows: Iterable[tuple[Any, ...]], prefix: str = "") -> set[str]:
    """Return the gates that these rows, which begin with `gate subject` and an outcome, show at their worst."""
    known = [(prefix + str(row[0]).partition(" ")[0], row[1]) for row in rows]
    return {gate for gate, outcome in known if GATES[gate].severity is outcome}


def gpu_run() -> tuple[Run, profile.Profile]:
    """A discovery of one node with two H100, and what is expected of it."""
    expected = profile.load("h100-8x400g")
    return a_run("discovery", ["n0"], name="gpus", profile=expected.name), expected
