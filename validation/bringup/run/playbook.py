"""`bringup run`: runs the script of every phase, one after the other. A phase that did not run is not proven."""

import os
import shlex
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from bringup.kernel import judge
from bringup.kernel import results as runs
from bringup.kernel.characters import many
from bringup.kernel.errors import CannotStart, RecordError, RunError
from bringup.kernel.facts.names import listed
from bringup.kernel.judge import Judged
from bringup.kernel.plan.phases import PHASES, Phase
from bringup.kernel.plan.profile import Profile
from bringup.kernel.records import Headline, Outcome, read_record, worst_of_run, write_record, write_text
from bringup.kernel.results import PLAYBOOK, REPOSITORY
from bringup.report import collection, document, links, next_steps, run_folders, terminal, view, write
from bringup.report import text as report
from bringup.report.campaigns import LeftOut, Playbook, Step
from bringup.run import at_work, partitions, slurm
from bringup.run import open as opening
from bringup.run import site as at_site
from bringup.run.healthy_rest import VARIABLE, lacking, unhealthy_nodes
from bringup.run.launch import Launch, Started, newest_attempt, progress, stoppable
from bringup.run.nodes import known_partitions, requested_nodes

GOOD = (Outcome.PASS, Outcome.WARN)  # a warning is not a reason to run a phase again: it would only be said again
Kept = dict[str, tuple[Step, Judged]]  # the steps of an earlier run that passed, by phase


@dataclass(frozen=True)
class Request:
    profile: Profile
    profile_name: str
    nodes: int | None = None
    nodelist: str | None = None
    phases: list[str] = field(default_factory=list)
    resume: Path | None = None
    strict: bool = False  # stop at any fault, also at one of a single node
    site: at_site.AtSite | None = None
    dry_run: bool = False  # say what would be submitted, and submit nothing


def run(request: Request) -> int:
    """Exit code: the worst outcome over the planned phases."""
    if request.resume is not None:  # options that are not given again keep their values
        earlier = earlier_run(request.resume)
        nodelist = request.nodelist or (None if request.nodes else ",".join(earlier.nodes))
        request = replace(request, phases=request.phases or earlier.planned, nodelist=nodelist)
    console = terminal.console()
    aside: list[str] = []
    with progress(console, "Slurm") as tell:
        partition = _one_partition(request)
        nodes = slurm.patiently(lambda: requested_nodes(request.nodes, request.nodelist, partition, aside.append), tell)
    names, gpus = list(nodes), max(node.gpus for node in nodes.values())
    planned, left_out, kept = _plan(request, names, gpus, console)
    if request.dry_run:
        console.print(dry_run(request, planned, left_out, list(kept), names))
        return 0
    playbook = Playbook(
        name=opening.default_name(),
        nodes=names,
        profile=request.profile.name,
        site=None if request.site is None else request.site.site.name,
        planned=planned,
        left_out=left_out,
        set_aside=list(dict.fromkeys(aside)),
        steps=[],
    )
    folder = REPOSITORY / runs.PLAYBOOKS / playbook.name
    folder.mkdir(parents=True)
    write_record(folder / PLAYBOOK, playbook)
    at = "" if request.site is None else f"; site {request.site.site.name} ({report.shown_path(request.site.file)})"
    where = f"{many(len(names), 'node')}: {', '.join(names)}"
    console.print(f"bringup: {many(len(planned), 'step')} on {where}; profile {request.profile.name}{at}")
    for line in [*playbook.set_aside, *_without_reference(planned)]:
        console.print(f"{'':<10} {report.plain(line)}")
    work = Work(request, console, gpus, kept, folder, playbook)
    with stoppable(console, f"bringup run --resume {report.shown_path(folder)}"):
        queue = deque(planned)
        while queue:
            work.do(PHASES[queue.popleft()], queue)
    return _conclude(work.playbook, work.judged, folder, console)


@dataclass
class Work:
    """A playbook under way."""

    request: Request
    console: Console
    gpus: int  # of a node
    kept: Kept
    folder: Path
    playbook: Playbook
    judged: list[Judged] = field(default_factory=list)
    title: str = ""  # in front of that of each step
    environment: Mapping[str, str] = field(default_factory=dict)  # of the scripts, where the user's own says nothing

    def do(self, phase: Phase, queue: deque[str]) -> None:
        """Do a step, or say why not. queue: the steps after it, which may become more."""
        names, steps, stem = self.playbook.nodes, self.playbook.steps, phase.stem
        latest = {step.phase: step for step in steps}
        # a needed phase that was not requested does not block this one
        blocking = [needed for needed in phase.needs if needed in latest and latest[needed].blocks]
        healthy = [name for name in names if name not in {entry.node for entry in self.playbook.unhealthy_nodes}]
        nodes = healthy[: phase.max_nodes]
        new: list[LeftOut] = []
        if stem in self.kept and self.kept[stem][1].run.nodes == nodes:
            step, judged = self.kept[stem]
            self.judged.append(judged)
            self.console.print(f"{'KEPT':<10} {phase.title}: passed before, {step.folder}")
        elif blocking or len(nodes) < phase.min_nodes:
            too_few = f"needs {phase.min_nodes} nodes, {len(nodes)} of {len(names)} left"
            why = f"needs {', '.join(blocking)}, which did not pass" if blocking else too_few
            step = Step(phase=stem, folder=None, outcome=Outcome.INCOMPLETE, blocks=True, why_not_run=why, seconds=0)
            self.console.print(f"{'NOT RUN':<10} {phase.title}: {why}; not proven")
        else:
            step = self._run(phase, nodes, len(healthy) * self.gpus, queue)
            may_exclude = phase.screens and step.blocks and not self.request.strict
            if may_exclude and (culprits := unhealthy_nodes(self.judged[-1])) is not None:
                new, step = culprits, step.model_copy(update={"blocks": False})
            if new:
                left = [node for node in nodes if node not in {entry.node for entry in new}]
                reasons = "; ".join(f"{entry.node}: {report.plain(entry.why)}" for entry in new)
                self.console.print(f"{'EXCLUDED':<10} {reasons}. Going on with {listed(left)}")
            if new and phase.localises in latest and latest[phase.localises].blocks:
                self.console.print(f"{'AGAIN':<10} {PHASES[phase.localises].title}, without what was excluded")
                queue.appendleft(phase.localises)
        unhealthy = [*self.playbook.unhealthy_nodes, *new]
        self.playbook = self.playbook.model_copy(update={"steps": [*steps, step], "unhealthy_nodes": unhealthy})
        write_record(self.folder / PLAYBOOK, self.playbook, replace=True)

    def _run(self, phase: Phase, nodes: list[str], most_ranks: int, queue: Collection[str]) -> Step:
        begun, request, steps = time.monotonic(), self.request, self.playbook.steps
        name = runs.attempt_name(self.playbook.name, sum(earlier.phase == phase.stem for earlier in steps) + 1)
        # made here: NFS caches a folder as missing if it was looked for before a node made it (results.is_there)
        runs.folder_of(phase, name).parent.mkdir(parents=True, exist_ok=True)
        # losses are compared only at the same batch, so every training gets the batch of the largest number of ranks
        environment = {"BRINGUP_TRAIN_RANKS": str(most_ranks), **self.environment} | os.environ
        environment |= {"BRINGUP_PROFILE": request.profile_name, VARIABLE: lacking(self.judged)}
        if request.profile.workload is not None:
            environment.setdefault("BRINGUP_TRAIN_ARGS", request.profile.workload.arguments)
        reference = runs.folder_of(PHASES["run_1gpu"], name)
        # this playbook's own reference, not the newest one
        if runs.is_there(reference.parent, f"{reference.name}/{runs.METRICS}"):
            environment["BRINGUP_REFERENCE"] = str(reference)
        rest = [PHASES[stem] for stem in queue if stem not in self.kept]
        rest_s = sum(_expected(request, later, self.playbook.nodes).most for later in rest)
        title = f"{self.title}step {len(steps) + 1} of {len(steps) + 1 + len(queue)}: {phase.title}"
        with progress(self.console, title, _expected(request, phase, nodes), rest_s) as tell:
            at = (nodes, self.gpus, environment, request.profile, request.site)
            judged = Launch(phase, name, self.folder, tell, *at).run()
        self.judged.append(judged)
        seconds, verdicts = time.monotonic() - begun, judged.verdicts
        self.show(view.in_short(judged), seconds)
        return Step(
            phase=phase.stem,
            folder=report.shown_path(judged.folder),
            outcome=verdicts.outcome,
            blocks=any(judge.stops(verdict) for verdict in verdicts.verdicts),
            seconds=round(seconds, 1),
        )

    def show(self, screen: str, seconds: float) -> None:
        """Show what a phase gave, in short."""
        self.console.print(f"{screen}  ({seconds:.0f} s)")


def _one_partition(request: Request) -> str | None:
    """Return the partition of all requested phases. None: they have several; the general one then gives the nodes."""
    submitted = [(stem, at_site.for_submission(request.site, stem, os.environ)) for stem in request.phases or PHASES]
    chosen = {partitions.partition_of(PHASES[stem], given) for stem, given in submitted if stem in PHASES}
    return chosen.pop() if len(chosen) == 1 else None


def _without_reference(planned: Sequence[str]) -> list[str]:
    strategies = [PHASES[stem].strategy for stem in planned if PHASES[stem].is_training]
    if not strategies or "single" in strategies or os.environ.get("BRINGUP_REFERENCE"):
        return []
    return ["NOTE: without the step run_1gpu, losses and scaling are compared with its newest run, or stay unknown"]


def _plan(request: Request, names: list[str], gpus: int, console: Console) -> tuple[list[str], list[str], Kept]:
    """Phases, what these nodes cannot run and why, and the steps of an earlier run that passed and are kept."""
    if unknown := [stem for stem in request.phases if stem not in PHASES]:
        raise CannotStart(f"no phase is called {', '.join(unknown)}; there are {', '.join(PHASES)}")
    requested = [stem for stem in PHASES if stem in (request.phases or PHASES)]
    lacking = {stem: PHASES[stem].lacks(len(names), gpus) for stem in requested}
    planned = [stem for stem, lack in lacking.items() if lack is None]
    left_out = [f"{stem}: {lack}" for stem, lack in lacking.items() if lack is not None]
    if not planned:
        raise CannotStart(f"nothing to run: {'; '.join(left_out)}")
    kept_steps: Kept = {}
    if request.resume is not None:
        earlier, was = earlier_run(request.resume), f"--resume {request.resume}: that run was on"
        if earlier.nodes != names:
            raise CannotStart(f"{was} {', '.join(earlier.nodes)}, this one on {', '.join(names)}")
        kept_steps = passed_before(request.resume, earlier, planned, request.profile.closed, console)
        here = slurm.this_cluster()
        for _, judged in kept_steps.values():
            if judged.run.of_cluster.is_another(here):
                raise CannotStart(f"{was} {judged.run.of_cluster}, this is {here}")
    if known := known_partitions():
        for stem in planned:
            if stem not in kept_steps:
                given = at_site.for_submission(request.site, stem, os.environ)
                partitions.refuse(PHASES[stem], names, given, known)
    return planned, left_out, kept_steps


def _expected(request: Request, phase: Phase, nodes: Sequence[str]) -> at_work.Expected:
    known = request.profile.workload
    workload = "--model is-not-known-yet" if request.profile.is_open else "" if known is None else known.arguments
    return at_work.expected(phase, nodes, os.environ.get("BRINGUP_TRAIN_ARGS", workload))


def _conclude(playbook: Playbook, judged: list[Judged], folder: Path, console: Console) -> int:
    """Show the six questions, and what to do next."""
    verdicts = [verdict for phase in judged for verdict in phase.verdicts.verdicts]
    outcome = worst_of_run([*(step.outcome for step in playbook.steps), *(verdict.outcome for verdict in verdicts)])
    playbook, headline = answered(playbook, judged, folder)
    console.print()
    if outcome is not Outcome.PASS:  # else each of them was one line
        for step in playbook.steps:
            mark = report.MARK[step.outcome] if step.folder is not None else "NOT RUN"
            console.print(f"{mark:<10} {step.seconds:>5.0f} s  {PHASES[step.phase].title}")
        console.print()
    for answer in playbook.answers:
        console.print(report.answered(answer))
    for reason in playbook.left_out:
        console.print(f"{'NOT ASKED':<10} {reason}")
    if not_known := view.not_known(verdicts).rstrip():
        console.print(not_known)
    console.print(f"\n{report.headline(headline)}")
    console.print(f"decision: {headline.decision}: {report.plain(headline.because)}")
    console.print(f"{next_steps.counted(judged)}\nreport: {report.shown_path(folder / 'report.md')}")
    trained = [step.folder for step in playbook.steps if step.folder is not None and PHASES[step.phase].is_training]
    if len(trained) > 1 and outcome in GOOD:
        console.print(f"next: bringup compare {playbook.name}")
    elif outcome is Outcome.WARN:
        console.print("next: nothing stops; the report says what the warnings are about")
    elif outcome is Outcome.INCOMPLETE:
        again = f"bringup run --resume {playbook.name}"
        console.print(f"next: nothing failed; each line NOT KNOWN says what to do; then {again}")
    elif outcome is not Outcome.PASS:
        console.print("")
        for line in next_steps.repairs(judged):
            console.print(line)
        console.print(f"next: bringup explain {playbook.name}        causes, signs, commands")
        console.print(f"      bringup report {playbook.name}         one page; drain lines")
        console.print(f"      bringup run --resume {playbook.name}   when it is repaired")
    return outcome.exit_code


def answered(playbook: Playbook, judged: list[Judged], folder: Path) -> tuple[Playbook, Headline]:
    """Answer the six questions: in the record, and in report.md beside it."""
    gathered = collection.of_playbook(playbook, judged, folder)
    playbook = playbook.model_copy(update={"answers": gathered.answers, "headline": gathered.headline})
    write_record(folder / PLAYBOOK, playbook, replace=True)
    report_md = folder / runs.REPORT
    write_text(report_md, document.playbook(gathered, links.beside(report_md)), replace=True)
    return playbook, gathered.headline


def dry_run(
    request: Request, planned: Sequence[str], left_out: Sequence[str], kept: Collection[str], nodes: Sequence[str]
) -> str:
    """Write what would be submitted, on which nodes, and for how long. kept: steps of an earlier run, not repeated."""
    left = [PHASES[stem] for stem in planned if stem not in kept]
    options = [] if request.site is None else request.site.site.sbatch
    expects = {phase.stem: _expected(request, phase, nodes) for phase in left}
    rows = []
    for phase in left:
        command = ["sbatch", *options, phase.script] if phase.submit else ["bash", phase.script]
        rows.append((phase.stem, listed(nodes[: phase.max_nodes]), expects[phase.stem].words, shlex.join(command)))
    least, most = (sum(getattr(each, end) for each in expects.values()) / 60 for end in ("least", "most"))
    return "\n".join(
        [
            *([report.columns(("step", "nodes", "expected", "command"), rows), ""] if rows else []),
            *(f"{'KEPT':<10} {PHASES[stem].title}: passed before" for stem in planned if stem in kept),
            *(f"{'NOT ASKED':<10} {reason}" for reason in left_out),
            *_without_reference(planned),
            f"{len(left)} steps, {least:.0f} to {most:.0f} minutes and the queue. Nothing was submitted.",
        ]
    )


# --- what an earlier run finished is kept, also what it did not live to see finish


def earlier_run(folder: Path) -> Playbook:
    """Read the earlier playbook. Raises RecordError if it cannot be read, RunError in a copy of the repository."""
    playbook = read_record(folder / PLAYBOOK, Playbook)
    tree = run_folders.tree_of(folder)
    if tree is None or tree.resolve() != runs.REPOSITORY.resolve():
        raise RunError(f"--resume {folder}: is a copy; name the playbook in {runs.REPOSITORY / runs.PLAYBOOKS}")
    return playbook


def passed_before(
    folder: Path, playbook: Playbook, planned: list[str], profile: Profile | None, console: Console
) -> Kept:
    """Return the phases of the earlier playbook in `folder` that need not run again, judged again.

    A phase without a step was under way when that run was killed: its job or script may have finished unseen. When it
    is still running, it is waited for.
    """
    recorded = {step.phase: step for step in playbook.steps}
    steps: Kept = {}
    for stem in planned:
        if (step := recorded.get(stem)) is None:
            step = _unseen(PHASES[stem], folder, playbook.name, console)
        judged = None if step is None else _judged_now(folder, step, profile)
        if step is not None and judged is not None:
            steps[stem] = step.model_copy(update={"outcome": judged.verdicts.outcome}), judged
    return steps


def _unseen(phase: Phase, folder: Path, name: str, console: Console) -> Step | None:
    with progress(console, phase.title) as tell:
        Started(phase, name, folder, tell).wait_for_earlier()
    run_folder = newest_attempt(phase, name)
    if run_folder is None or not runs.is_there(run_folder, runs.CLOSED):
        return None
    # judged by the caller
    return Step(phase=phase.stem, folder=report.shown_path(run_folder), outcome=Outcome.PASS, blocks=False, seconds=0)


def _judged_now(folder: Path, step: Step, profile: Profile | None) -> Judged | None:
    """Judge an earlier step with today's gates, and this run's profile or its own. None: the phase runs again."""
    if step.outcome not in GOOD:
        return None
    try:
        run_folder = run_folders.step_folder(folder, step)
        # a run that ended after `bringup run` was killed has no verdicts yet
        judge_now = judge.judge_folder if (run_folder / runs.VERDICTS).exists() else write.judge_and_save
        judged = judge_now(run_folder, profile)
    except (RunError, RecordError):
        return None  # removed or damaged
    return judged if judged.verdicts.outcome in GOOD else None
