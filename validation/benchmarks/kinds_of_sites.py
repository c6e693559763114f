"""All phases on a healthy local cluster with the settings of a kind of site, then three drills.

    python validation/benchmarks/kinds_of_sites.py                    # all that cluster up --like knows; hours
    python validation/benchmarks/kinds_of_sites.py dgx --phases discovery smoke

What a site does not have is no false alarm: it is declared here, and the verdict stays what it is.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bringup.drill import environment as environments
from bringup.drill import perform, result
from bringup.drill.catalogue import DECLARED, Drill, Shape
from bringup.drill.environment import LocalCluster
from bringup.kernel import judge
from bringup.kernel import results as runs
from bringup.kernel.errors import DrillError, RecordError, RunError
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Outcome, Verdict, read_record, write_text
from bringup.report import terminal
from bringup.report import text as report
from bringup.report.campaigns import DrillResult, Playbook
from bringup.run import open as opening

DRILLED = ("gpu-missing", "two-tasks-one-gpu", "wrong-value")  # of discovery, smoke and the collectives


@dataclass(frozen=True)
class Site:
    """A file of local-cluster/sites. lacks: gates that fail there, rightly; unknown: gates without an answer there."""

    nodes: int
    about: str
    lacks: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


_LOG = ("discovery.kernel_log.xid", "discovery.kernel_log.nonfatal", "load.kernel_log")
SITES: Mapping[str, Site] = {
    "parallelcluster": Site(2, "cgroup.conf constrains cores alone, memory is not counted; jobs take whole nodes"),
    "dgx": Site(
        2,
        "prolog 20 s, epilog 10 s; TaskPlugin=task/cgroup; closed kernel log",
        lacks=("smoke.cpu.bound",),
        unknown=_LOG,
    ),
    "university": Site(
        4,
        "nodes without and with other GPUs; jobs without a GPU are refused; four jobs a user; closed kernel log",
        unknown=_LOG,
    ),
    "mig": Site(3, "the GPUs of one node are divided (MIG), and Slurm counts the parts"),
    "read-only": Site(2, "nodes see the checkout read-only, without the folders of results and logs"),
    "cloud-exclusive": Site(2, "OverSubscribe=EXCLUSIVE; prolog 20 s, epilog 10 s"),
}


@dataclass
class SiteResult:
    site: str
    exit_code: int | None = None
    minutes: float = 0
    nodes: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)  # phases
    verdicts: list[Verdict] = field(default_factory=list)
    drills: list[DrillResult] = field(default_factory=list)
    broken: str | None = None  # why it ended early

    @property
    def false_alarms(self) -> list[Verdict]:
        known = SITES[self.site]
        return [
            verdict
            for verdict in self.verdicts
            if verdict.outcome is not Outcome.PASS
            and not (verdict.outcome is not Outcome.INCOMPLETE and verdict.gate in known.lacks)
            and not (verdict.outcome is Outcome.INCOMPLETE and verdict.gate in known.unknown)
        ]

    @property
    def is_good(self) -> bool:
        are_found = all(result.mark(drill) == "FOUND" for drill in self.drills)
        return not (self.broken or self.not_run or self.false_alarms) and are_found


def run(sites: Sequence[str], phases: Sequence[str]) -> int:
    """phases: of a healthy run. Exit code: 0 each site passed and all drills were found, 1 not, 2 one was not tried"""
    name, console = opening.default_name(), terminal.console()
    folder = environments.RESULTS / "drill" / name
    folder.mkdir(parents=True)
    console.print(f"sites: {', '.join(sites)}; {report.shown_path(folder)}")
    done: list[SiteResult] = []
    for site in sites:
        done.append(trial := SiteResult(site))
        _try(trial, phases, folder, name, lambda text: console.print(f"{'…':<14} {report.plain(text)}"))
        write_text(folder / "sites.md", markdown(done), replace=True)
        console.print(f"{'PASS' if trial.is_good else 'NOT PASSED':<14} {site}: {_in_words(trial)}")
        for line in _lines(trial.false_alarms):
            console.print(f"{'':<14} false alarm: {report.plain(line)}")
        for drilled in trial.drills:
            console.print(result.line(drilled))
    console.print(f"\nreport: {report.shown_path(folder / 'sites.md')}")
    if any(trial.broken for trial in done):
        return 2
    return 0 if all(trial.is_good for trial in done) else 1


def _try(trial: SiteResult, phases: Sequence[str], folder: Path, name: str, tell: Callable[[str], None]) -> None:
    # a deeper folder is too long for munge's socket
    cluster = LocalCluster(Path("/tmp") / f"bringup-{name}", Shape(SITES[trial.site].nodes), trial.site)
    try:
        try:
            cluster.start()
            _healthy(trial, phases, cluster, folder / trial.site, f"{name}-{trial.site}")
            tell(f"{trial.site}: healthy, exit code {trial.exit_code}, {trial.minutes:.0f} minutes; now the drills")
            _drills(trial, cluster, folder / trial.site, f"{name}-{trial.site}")
        finally:
            cluster.end()
    except (DrillError, RunError, RecordError, OSError) as error:
        trial.broken = str(error)


def _healthy(trial: SiteResult, phases: Sequence[str], cluster: LocalCluster, place: Path, run_name: str) -> None:
    """`bringup run`, where all phases are asked without any argument."""
    begun, named = time.monotonic(), [] if set(phases) == set(PHASES) else phases
    try:
        done = cluster.bringup("run", *named, environment={"BRINGUP_RUN_NAME": run_name}, phases=len(PHASES))
        write_text(place.parent / f"{place.name}.txt", done.stdout + done.stderr, replace=True)
        trial.exit_code, trial.minutes = done.returncode, (time.monotonic() - begun) / 60
        playbook = read_record(runs.REPOSITORY / runs.PLAYBOOKS / run_name / runs.PLAYBOOK, Playbook)
        trial.nodes = playbook.nodes
        trial.not_run = [stem for stem in playbook.planned if not runs.attempts(PHASES[stem], run_name)]
        for stem in [stem for stem in playbook.planned if stem not in trial.not_run]:
            trial.verdicts += judge.judge_folder(runs.attempts(PHASES[stem], run_name)[-1]).verdicts.verdicts
    finally:
        environments.keep(run_name, (), place)
        for stem in PHASES:
            environments.keep(run_name, (stem,), place / stem)


def _drills(trial: SiteResult, cluster: LocalCluster, place: Path, name: str) -> None:
    cluster.is_well = False  # what does not pass here without a fault is no false alarm
    for drill in (_placed(DECLARED[drill_id], trial.nodes) for drill_id in DRILLED):
        cluster.heal()
        trial.drills.append(perform.perform(drill, cluster, place, name=name))


def _placed(drill: Drill, nodes: Sequence[str]) -> Drill:
    """On the nodes that a run takes on this site."""
    placed = drill.placed(nodes, drill.shape.gpus_per_node)
    return placed.model_copy(update={"silent": tuple(node for node in placed.silent if node in nodes)})


def _in_words(trial: SiteResult) -> str:
    if trial.broken:
        return report.plain(trial.broken)
    found_count = sum(result.mark(drill) == "FOUND" for drill in trial.drills)
    not_run = f"; not run: {', '.join(trial.not_run)}" if trial.not_run else ""
    drills = f"{found_count} of {len(trial.drills)} drills found"
    return f"exit code {trial.exit_code}, {_counted(trial)}, {trial.minutes:.0f} minutes; {drills}{not_run}"


def _counted(trial: SiteResult) -> str:
    counts = Counter(verdict.outcome for verdict in trial.verdicts)
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])


def _lines(verdicts: Sequence[Verdict]) -> list[str]:
    """One for a gate and an outcome, with what was observed first."""
    several: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        several.setdefault((verdict.gate, str(verdict.outcome)), []).append(verdict)
    lines = []
    for (gate, outcome), alike in several.items():
        subjects = ", ".join(dict.fromkeys(verdict.subject for verdict in alike))
        lines.append(f"{gate} {outcome} on {subjects}: {alike[0].cause or alike[0].observed}")
    return lines


def markdown(done: Sequence[SiteResult]) -> str:
    rows = [
        (
            trial.site,
            SITES[trial.site].about,
            "" if trial.exit_code is None else str(trial.exit_code),
            trial.broken or _counted(trial),
            "; ".join(_lines([v for v in trial.verdicts if v.outcome is not Outcome.PASS])) or "nothing",
            f"{trial.minutes:.0f}",
            ", ".join(f"{drill.drill} {result.mark(drill)}" for drill in trial.drills),
        )
        for trial in done
    ]
    head = ("site", "settings", "exit code", "verdicts", "did not pass", "minutes", "drills")
    return "\n".join([f"Commit {opening.git_commit()}.", "", *report.table(head, rows), ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sites", nargs="*", choices=[[], *SITES], metavar="SITE", help=f"default: {', '.join(SITES)}")
    parser.add_argument("--phases", nargs="+", choices=list(PHASES), metavar="PHASE", default=list(PHASES))
    arguments = parser.parse_args()
    sys.exit(run(arguments.sites or list(SITES), arguments.phases))
