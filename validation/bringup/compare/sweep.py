"""`bringup sweep`: variants of one training, a job after the other, and a table of what each of them gives."""

import os
import shlex
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console

from bringup.compare import sweep_rows as table
from bringup.kernel import judge
from bringup.kernel import results as runs
from bringup.kernel.characters import many
from bringup.kernel.errors import BringupError, CannotStart, RecordError, RunError, UsageError
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.phases import NODES, PHASES, Phase
from bringup.kernel.records import Outcome, read_record, worst, write_record, write_text
from bringup.kernel.results import REPOSITORY
from bringup.report import run_folders, terminal, text
from bringup.report.campaigns import Sweep, SweepRow, SweepRun
from bringup.report.render import render
from bringup.run import open as opening
from bringup.run import partitions, slurm
from bringup.run import site as at_site
from bringup.run.launch import Launch, Started, newest_attempt, progress, stoppable
from bringup.run.nodes import known_partitions, requested_nodes
from bringup.training import fields as plan
from bringup.training.comparison import entries


def begin(
    phase: Phase,
    vary: dict[str, list[str]],
    profile: str,
    site: at_site.AtSite | None,
    *,
    nodes: int | None,
    nodelist: str | None,
    grid: bool,
    weak: bool,
    repeat: int,
) -> Path:
    """Make the folder of a new sweep, with its plan. profile: name or path. Raises CannotStart, UsageError."""
    known_workload = profiles.load(profile).workload
    environment = at_site.for_submission(site, phase.stem, os.environ)
    most = max(map(int, vary.get(NODES, [])), default=None)
    names, gpus = nodes_of(nodes or most, nodelist, phase, environment)
    if most is not None and len(names) < most:
        raise UsageError(f"--vary {NODES}: {most} are to be measured, and there are {len(names)}")
    if known := known_partitions():
        partitions.refuse(phase, names, environment, known)
    from_environment = os.environ.get("BRINGUP_TRAIN_ARGS")
    workload = "" if known_workload is None else known_workload.arguments
    options = shlex.split(workload if from_environment is None else from_environment)
    if most is not None:
        variants = plan.curve(vary[NODES], options, weak=weak)
    else:
        variants = plan.variants(vary, grid=grid, strategy=phase.strategy)
    for settings in variants:
        of_variant = plan.phase_of(phase, settings)
        if (lack := of_variant.lacks(int(settings.get(NODES, len(names))), gpus)) is not None:
            raise CannotStart(f"{of_variant.stem} {lack}")
    name = opening.default_name()
    sweep = Sweep(
        name=name,
        phase=phase.stem,
        nodes=names,
        profile=profiles.portable(profile),
        site=None if site is None else site.site.name,
        options=options,
        vary=vary,
        grid=grid,
        weak=weak,
        repeat=repeat,
        variants=variants,
        runs=[],
        rows=[],
    )
    folder = REPOSITORY / runs.SWEEPS / name
    folder.mkdir(parents=True)
    write_record(folder / runs.SWEEP, sweep)
    return folder


def run(folder: Path, site: at_site.AtSite | None) -> int:
    """Run all that have not finished. Exit code: the worst outcome of its variants."""
    sweep = _read(folder)
    phase, profile = PHASES[sweep.phase], profiles.load(sweep.profile)
    _, gpus = nodes_of(None, ",".join(sweep.nodes), phase, at_site.for_submission(site, phase.stem, os.environ))
    console = terminal.console()
    at = "" if site is None else f"; site {site.site.name}"
    variants = f"{many(len(sweep.variants), 'variant')} x {sweep.repeat} of {phase.stem} on {', '.join(sweep.nodes)}"
    console.print(f"bringup: {variants}; profile {profile.name}{at}")
    (REPOSITORY / phase.results).mkdir(parents=True, exist_ok=True)  # before a node looks for it (results.is_there)
    work = _Work(folder, sweep, phase, profile, site, gpus, console)
    with stoppable(console, f"bringup sweep --resume {text.shown_path(folder)}"):
        # each variant once, then each of them again: what drifts meets all of them
        for repetition in range(1, sweep.repeat + 1):
            for variant in range(len(sweep.variants)):
                work.run_job(variant, repetition)
    return work.conclude()


def _read(folder: Path) -> Sweep:
    """Read a sweep. Raises RecordError when there is none, RunError when it lies in a copy of the repository."""
    sweep = read_record(folder / runs.SWEEP, Sweep)
    tree = run_folders.tree_of(folder, runs.SWEEPS)
    if tree is None or tree.resolve() != REPOSITORY.resolve():
        raise RunError(f"{folder}: is a copy; name the sweep in {REPOSITORY / runs.SWEEPS}")
    if sweep.phase not in PHASES:
        raise RecordError(f"{folder / runs.SWEEP}: phase {sweep.phase!r} is unknown to this version")
    return sweep


def nodes_of(count: int | None, named: str | None, phase: Phase, environment: dict[str, str]) -> tuple[list[str], int]:
    """Return the nodes of every run, and the most GPUs that one of them has. Raises CannotStart, UsageError."""
    partition = partitions.partition_of(phase, environment)
    nodes = slurm.patiently(partial(requested_nodes, count, named, partition), lambda words: None)
    names, gpus = list(nodes)[: phase.max_nodes], max(node.gpus for node in nodes.values())
    if (lack := phase.lacks(len(names), gpus)) is not None:
        raise CannotStart(f"{phase.stem} {lack}")
    return names, gpus


@dataclass
class _Work:
    """A sweep under way."""

    folder: Path
    sweep: Sweep
    phase: Phase
    profile: profiles.Profile
    site: at_site.AtSite | None
    gpus: int
    console: Console
    trained: dict[int, list[entries.Entry]] = field(default_factory=lambda: defaultdict(list))
    failures: dict[int, list[tuple[Outcome, str]]] = field(default_factory=lambda: defaultdict(list))
    runs: list[SweepRun] = field(default_factory=list)
    same_as_base: set[int] = field(default_factory=set)

    def run_job(self, variant: int, repetition: int) -> None:
        """Run one job, unless it has finished before, or has the values of the base."""
        settings = self.sweep.variants[variant]
        title = plan.label(settings)
        base = self.trained[0] if variant else []
        if variant in self.same_as_base or (base and table.is_base(settings, base[0])):
            if variant not in self.same_as_base:
                self.console.print(f"{'SAME':<10} {title}: the base has these values; its runs count")
            self.same_as_base.add(variant)
            return
        phase, name = plan.phase_of(self.phase, settings), f"{self.sweep.name}-v{variant}-k{repetition}"
        with progress(self.console, title) as tell:
            started = Started(phase, name, self.folder / "jobs" / name, tell)
            finished = self._finished(started)
            judged = finished or self._submit(started, settings)
        entry, outcome, why = assessed(judged, settings)
        if entry is not None:
            self.trained[variant].append(entry)
        if why is not None:
            self.failures[variant].append((outcome, why))
        shown = text.shown_path(judged.folder)
        self.runs.append(SweepRun(variant=variant, repetition=repetition, folder=shown, outcome=outcome, why=why))
        speed = "" if entry is None else f": {entry.metrics.tokens_per_s:,.0f} tokens/s"
        word = "KEPT" if finished else text.MARK[outcome]
        self.console.print(f"{word:<10} {title}{speed}" + (f": {text.plain(why)}" if why else ""))
        self._save()

    def _finished(self, started: Started) -> judge.Judged | None:
        """Find a run that an earlier start of this sweep has finished; what it left running is waited for."""
        if not started.folder.is_dir():
            return None
        started.wait_for_earlier()
        attempt = newest_attempt(started.phase, started.name)
        if attempt is None or not (attempt / runs.METRICS).is_file():
            return None
        try:
            judged = judge.judge_folder(attempt, self.profile.closed)
            entries.entry(judged)
        except BringupError:
            return None
        return judged

    def _submit(self, started: Started, settings: plan.Settings) -> judge.Judged:
        phase, again = started.phase, len(runs.attempts(started.phase, started.name))
        options = " ".join(plan.options(self.sweep.options, settings))
        environment = os.environ | {"BRINGUP_PROFILE": self.sweep.profile, "BRINGUP_TRAIN_ARGS": options}
        started.folder.mkdir(parents=True, exist_ok=True)
        nodes = self.sweep.nodes[: phase.max_nodes or int(settings.get(NODES, len(self.sweep.nodes)))]
        # what did not finish stays, and the next job has its own folder
        name = runs.attempt_name(started.name, again + 1)
        at = (nodes, self.gpus, environment, self.profile, self.site)
        return Launch(phase, name, started.folder, started.tell, *at).run()

    def _rows(self) -> list[SweepRow]:
        numbered = enumerate(self.sweep.variants)
        variants = [table.Variant(settings, self.trained[n], self.failures[n]) for n, settings in numbered]
        return table.rows([each for each in variants if each.is_reached]) if variants[0].is_reached else []

    def _save(self) -> None:
        self.sweep = self.sweep.model_copy(update={"runs": list(self.runs), "rows": self._rows()})
        write_record(self.folder / runs.SWEEP, self.sweep, replace=True)

    def conclude(self) -> int:
        self._save()
        rows = self.sweep.rows
        header, cells = table.table(rows)
        failed = [f"{text.MARK[row.outcome]} {row.label}: {text.plain(row.failed)}" for row in rows if row.failed]
        self.console.print("\n".join(["", text.columns(header, cells), "", *failed]), highlight=False)
        report = render("sweep.md.j2", sweep=self.sweep, header=header, rows=cells)
        write_text(self.folder / "report.md", report, replace=True)
        outcome = worst([row.outcome for row in rows])
        shown = text.shown_path(self.folder)
        self.console.print(f"\n{text.MARK[outcome]}: {_in_words(rows)}\nreport: {shown}/report.md")
        if self.sweep.repeat == 1 and len(rows) > 1:
            self.console.print("one run per variant: the spread between runs is not known; --repeat 5 tells most")
        if outcome is not Outcome.PASS:
            self.console.print(f"next: bringup explain {shown}; then bringup sweep --resume {shown}")
        return outcome.exit_code


def _in_words(rows: list[SweepRow]) -> str:
    """Say how it scales, where the number of nodes varies; else which variant is the fastest."""
    if points := [f"{row.efficiency:.1%} at {row.label}" for row in rows if row.efficiency is not None]:
        return f"tokens/s of a rank, against the fewest nodes: {', '.join(points)}"
    faster = [row for row in rows if row.against_base == "faster"]
    best = max(faster, key=lambda row: row.change or 0, default=None)
    return "no variant was shown to be faster than the base" if best is None else f"fastest: {best.label}"


def assessed(judged: judge.Judged, settings: plan.Settings) -> tuple[entries.Entry | None, Outcome, str | None]:
    """Return (its numbers, outcome, why it did not pass). Gates about speed decide nothing here: a variant may be slow.
    Nor do open ones, if it has numbers: a variant has no run on one GPU to be compared with."""
    verdicts = judged.verdicts.verdicts
    failed = [verdict for verdict in verdicts if verdict.outcome is Outcome.FAIL and judge.stops(verdict)]
    try:
        entry = entries.entry(judged)
    except BringupError as error:
        worse = failed or [verdict for verdict in text.not_passed(verdicts) if verdict.cause]
        why = (worse[0].cause or text.sentence(worse[0])) if worse else str(error)
        return None, Outcome.FAIL if failed else Outcome.INCOMPLETE, " ".join(why.split())
    if failed:
        return entry, Outcome.FAIL, " ".join(text.sentence(failed[0]).split())
    other = table.not_applied(settings, entry)
    return entry, Outcome.PASS if other is None else Outcome.INCOMPLETE, other
