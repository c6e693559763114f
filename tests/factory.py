"""Records for tests: a run, a verdict, a judged folder, each with what a test does not care about filled in."""

from pathlib import Path
from typing import Any

from bringup.drill.evidence import Drilled
from bringup.kernel import records
from bringup.kernel.judge import Judged
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan import scope
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Kind, Observation, Outcome, Run, Verdict, Verdicts
from bringup.kernel.results import RUN
from bringup.kernel.run_folder import RunFolder
from bringup.report.campaigns import DrillReport, DrillResult
from bringup.report.collection import Absent, Collection
from bringup.training.comparison.entries import Entry
from bringup.training.records.folder import TrainingRecords


def a_run(
    phase: str = "discovery",
    nodes: tuple[str, ...] | list[str] = ("n0", "n1"),
    *,
    gpus: int = 2,
    ranks: int | None = None,
    name: str = "run",
    profile: str = "local-cpu",
    plan: dict[str, list[str]] | None = None,
) -> Run:
    """Planned as `bringup open` plans it, without exclusions, unless a plan is given."""
    ranks = gpus if ranks is None else ranks
    run = Run(
        phase=phase,
        name=name,
        nodes=["n0"],
        gpus_per_node=gpus,
        ranks_per_node=ranks,
        profile=profile,
        profile_sha256="",
        planned=scope.plan(phase, list(nodes), ranks, set()) if plan is None else plan,
        not_applicable=[],
        argv=[],
        git_commit=None,
        git_dirty=None,
        slurm_job_id=None,
        slurm_restart_count=0,
        opened_at="2026-01-01T00:00:00Z",
    )
    return run.model_copy(update={"nodes": list(nodes)})  # also names that no record takes, for what shows them


def a_verdict(
    gate: str = "discovery.gpu.count",
    subject: str = "n1",
    outcome: Outcome = Outcome.FAIL,
    observed: str = "1",
    *,
    expected: str = "2",
    cause: str | None = None,
    kind: Kind | None = None,
    value: records.Value | None = None,
    limit: records.Limit | None = None,
    evidence: str = "raw/inventory.jsonl:1",
) -> Verdict:
    known = GATES.get(gate)
    if kind is None:
        kind = Kind.ABSENT if outcome is Outcome.INCOMPLETE else Kind.JUDGED
    return Verdict(
        gate=gate,
        subject=subject,
        outcome=outcome,
        kind=kind,
        value=value,
        unit="count" if known is None else known.unit,
        rule="equals" if known is None else known.rule,
        limit=limit,
        observed=observed,
        expected=expected,
        evidence=evidence,
        cause=cause,
        fix="docs/gates/run.md#unknown-gate" if known is None else known.fix,
    )


def observed(quantity, subject, value, unit="GB/s", evidence="raw/x:1") -> Observation:
    return Observation(quantity=quantity, subject=subject, value=value, unit=unit, evidence=evidence, why="w")


def judged_of(
    *verdicts: Verdict,
    run: Run | None = None,
    notes: tuple[str, ...] = (),
    observations: tuple[Observation, ...] = (),
    not_applicable: tuple[records.NotApplicable, ...] = (),
    profile: str = "local-cpu",
    training: TrainingRecords | None = None,
    folder: Path = Path("/nowhere"),
) -> Judged:
    """A judged folder with these verdicts, which is nowhere."""
    run = a_run(plan={}) if run is None else run
    return Judged(
        RunFolder(folder),
        run,
        profiles.load(profile),
        list(observations),
        [],
        Verdicts(
            phase=run.phase,
            run=run.name,
            profile=profile,
            outcome=records.worst([verdict.outcome for verdict in verdicts]),
            verdicts=list(verdicts),
            not_applicable=list(not_applicable),
            notes=list(notes),
        ),
        training,
    )


def gathered(*runs: Judged, absent: tuple[Absent, ...] = ()) -> Collection:
    """These runs, as a report has them, without drills."""
    return Collection(judged=list(runs), absent=list(absent))


def an_entry(folder: Path, outcome: Outcome = Outcome.PASS) -> Entry:
    """The entry of a folder that holds the records of a training and no evidence for them."""
    kept = records_in(folder)
    run = a_run("run_1gpu", ["n0"], name=folder.name, plan={})
    return Entry(folder, run, outcome, kept.args, kept.metrics)


def records_in(folder: Path) -> TrainingRecords:
    return TrainingRecords(RunFolder(folder))


def the_folder(folder: Path, run: Run) -> RunFolder:
    """This folder, as that of the run."""
    records.write_record(folder / RUN, run, replace=True)
    return RunFolder(folder)


def a_drill_result(**change: Any) -> DrillResult:
    """A drill that was performed and found."""
    made = {"drill": "gpu-missing", "fault": "f", "phase": "discovery", "gate": "discovery.gpu.count", "subject": "n1"}
    made |= {"outcome": Outcome.FAIL, "observed": "1", "seconds_to_detect": 2.0, "seconds": 3.0}
    made |= dict.fromkeys(("performed", "detected", "right_subject", "right_cause"), True)
    return DrillResult(**made | change)


def drilled(*results, runs=None, run=None, **change) -> Drilled:
    """Drills inside one's own job, and the runs that show them. run: fields that those have otherwise."""
    shown = {}
    for each in results:
        of_it = a_run(each.phase, name=f"r-{each.drill}").model_copy(update=run or {})
        shown[each.drill] = judged_of(a_verdict("discovery.gpu.count", "n1"), run=of_it)
    return Drilled(a_drill_report(*results, **{"place": "anywhere", **change}), shown if runs is None else runs)


def a_drill_report(*results: DrillResult, **change: Any) -> DrillReport:
    made = {"name": "r", "place": "local-cluster", "profile": None, "git_commit": None, "opened_at": "now"}
    made |= {"planned": [result.drill for result in results], "results": list(results)}
    return DrillReport(**made | change)


# ---- runs in which all that was planned passed, on a cluster with GPUs and on the local one

GPU_CLUSTER = {  # quantity -> value: what a run shows of real GPUs, NCCL and a fabric
    "discovery": {"discovery.gpu.driver": "580.95"},
    "smoke": {"smoke.binding.gpu": "GPU-1234"},
    "node_sweep": {"sweep.device": "cuda", "sweep.backend": "nccl"},
    "nccl": {"nccl.backend": "nccl", "nccl.transport": "rdma-verbs"},
    "run_": {"train.device": "cuda", "train.transport": "rdma-verbs"},
}
LOCAL_CLUSTER = {
    "smoke": {"smoke.binding.gpu": "nvidia0"},
    "node_sweep": {"sweep.device": "cpu", "sweep.backend": "gloo"},
    "nccl": {"nccl.backend": "gloo", "nccl.transport": "tcp:eth0"},
    "run_": {"train.device": "cpu", "train.transport": "tcp:eth0"},
}


def healthy(phase: str, nodes: int, shows: dict[str, dict[str, str]], profile: str = "generic") -> Judged:
    """A run of this phase in which all that was planned passed."""
    names = [f"n{number}" for number in range(nodes)]
    excluded = scope.excluded_here(phase, profiles.load(profile).not_applicable)
    plan = scope.plan(phase, names, 2, {entry.gate for entry in excluded})
    facts = next((facts for prefix, facts in shows.items() if phase.startswith(prefix)), {})
    return judged_of(
        *(
            a_verdict(gate, subject, Outcome.PASS, "1", value=392.0 if gate.endswith("busbw") else 1)
            for gate, subjects in plan.items()
            for subject in subjects
        ),
        run=a_run(phase, names, plan=plan),
        observations=tuple(
            Observation(
                quantity=name, subject="job", value=value, unit="text", evidence="e", why=None if value else "not seen"
            )
            for name, value in facts.items()
        ),
        not_applicable=tuple(excluded),
        profile=profile,
    )


def playbook(nodes: int, shows: dict[str, dict[str, str]], profile: str = "generic") -> list[Judged]:
    return [healthy(stem, nodes, shows, profile) for stem, phase in PHASES.items() if phase.min_nodes <= nodes]
