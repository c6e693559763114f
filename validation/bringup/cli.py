"""The `bringup` command. Exit codes everywhere: 0 pass, 1 the cluster failed a gate, 2 we could not tell (bad input included)."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from bringup import compare, drills, figures, hostlist, judge, pipeline, plan, profiling, report, runs, slurm, tournament
from bringup import profile as profiles
from bringup.gates import GATES
from bringup.gates.discovery import USABLE_STATES
from bringup.parsers import pairwise
from bringup.phases import PHASES
from bringup.records import Outcome, RecordError, write_text

CANNOT_TELL = 2


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:  # argparse prints the usage first: two lines where one is enough
        self.exit(CANNOT_TELL, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _stop)
    try:
        verb: Callable[[argparse.Namespace], int] = arguments.verb
        return verb(arguments)
    except (profiles.ProfileError, runs.RunError, RecordError, compare.NotComparable, pipeline.PipelineError, ValueError) as error:
        print(f"bringup: {report.plain(str(error))}", file=sys.stderr)
    except OSError as error:
        print(f"bringup: {report.plain(str(error))}", file=sys.stderr)
    except KeyboardInterrupt:
        print("bringup: interrupted", file=sys.stderr)
    except Exception as error:  # a fault of ours must not read as exit code 1, "the cluster failed a gate"
        if os.environ.get("BRINGUP_TRACEBACK"):
            raise
        print(f"bringup: a fault of bringup itself: {report.plain(f'{type(error).__name__}: {error}')[:200]}; "
              "BRINGUP_TRACEBACK=1 shows where", file=sys.stderr)
    return CANNOT_TELL


def _stop(number: int, frame: object) -> NoReturn:
    """A closed terminal and a TERM end a run as Ctrl-C does: jobs are cancelled, nothing is left behind."""
    raise KeyboardInterrupt


def _profile(name: str) -> profiles.Profile:
    """Loaded and checked against the gates there are, before anything runs."""
    profile = profiles.load(name)
    profiles.check_units(profile, {gate.id: gate.unit for gate in GATES.values()})
    return profile


def _gates(arguments: argparse.Namespace) -> int:
    for gate in GATES.values():
        print(f"{gate.id:<32} per {gate.per:<10} {gate.rule:<12} {gate.unit:<6} {gate.proves}")
    return 0


def _open(arguments: argparse.Namespace) -> int:
    if arguments.phase not in PHASES:
        raise ValueError(f"no phase is called {arguments.phase!r}; there are {', '.join(PHASES)}")
    folder = runs.open_run(
        PHASES[arguments.phase], nodes=hostlist.expand(arguments.nodes), gpus_per_node=arguments.gpus_per_node,
        ranks_per_node=arguments.gpus_per_node if arguments.ranks_per_node is None else arguments.ranks_per_node,
        profile=_profile(arguments.profile), argv=[PHASES[arguments.phase].script, *arguments.argv], results=arguments.results)
    print(folder)
    return 0


def _close(arguments: argparse.Namespace) -> int:
    runs.close_run(arguments.run, arguments.exit_code)
    return _judge_and_show(arguments.run, None)


def _judge(arguments: argparse.Namespace) -> int:
    worst = 0
    for folder in arguments.runs:
        profile = None if arguments.profile is None else _profile(arguments.profile)
        try:
            code = _judge_and_show(folder, profile)
        except (profiles.ProfileError, runs.RunError, RecordError) as error:  # the other folders are judged all the same
            print(f"bringup: {report.plain(str(error))}", file=sys.stderr)
            code = CANNOT_TELL
        worst = 1 if 1 in (worst, code) else max(worst, code)
    return worst


def _judge_and_show(folder: Path, profile: profiles.Profile | None) -> int:
    observations, verdicts = judge.judge_folder(folder, profile)
    run = runs.load(folder)
    print(report.screen(folder, run, verdicts))
    try:
        drawn = figures.draw(folder, observations.observations, runs.load_profile(folder) if profile is None else profile)
        runs.save_judgement(folder, observations, verdicts, report.markdown(run, verdicts) + figures.markdown(drawn))
    except OSError as error:  # a read-only copy: the verdict stands, and it is said that no report was written
        print(f"bringup: {folder}: no report was written: {error.strerror}", file=sys.stderr)
    return verdicts.outcome.exit_code


def _compare(arguments: argparse.Namespace) -> int:
    if len(arguments.runs) < 2:
        raise ValueError("compare needs at least two training runs (training/results/…)")
    header, rows, note = compare.table(arguments.runs)
    text = "\n".join(report.table(header, rows)) if arguments.markdown else compare.as_text(header, rows)
    print(f"{text}\n\n{note}")
    wrong = compare.disagreements(rows)
    if wrong:
        print(f"bringup: the losses of {', '.join(wrong)} do not agree with the base run's: their speed means nothing yet",
              file=sys.stderr)
    return Outcome.FAIL.exit_code if wrong else 0


def _pairs(arguments: argparse.Namespace) -> int:
    """A round per line. To standard error: what is not exercised."""
    if arguments.again is not None:
        observations, _ = judge.judge_folder(arguments.again)
        for met in tournament.in_rounds(pairwise.suspects(observations.observations)):
            print(tournament.say(met))
        return 0
    nodes = hostlist.expand(arguments.nodes)
    here = set(hostlist.expand(arguments.here)) if arguments.here else set(nodes)
    planned = tournament.rounds(nodes, plan.pair_rounds(nodes))
    for met in planned:
        print(tournament.say([pair for pair in met if here.issuperset(pair)]))
    exercised, possible = sum(map(len, planned)), len(nodes) * (len(nodes) - 1) // 2
    print(f"{len(planned)} round(s), {exercised} of {possible} pairs; not exercised: {possible - exercised} "
          "(BRINGUP_PAIR_ROUNDS=all measures every pair)", file=sys.stderr)
    return 0


def _profile_from(arguments: argparse.Namespace) -> int:
    profile = profiling.measured(arguments.runs, arguments.name)
    profiles.check_units(profile, {gate.id: gate.unit for gate in GATES.values()})
    if arguments.output is None:
        print(profiles.dump(profile), end="")
    else:
        write_text(arguments.output, profiles.dump(profile))
        print(f"{arguments.output}: {len(profile.expect)} expectations; use it with --profile or BRINGUP_PROFILE")
    return 0


def _nodes(arguments: argparse.Namespace) -> int:
    try:
        names = pipeline.requested_nodes(arguments.nodes, arguments.nodelist)
        states, gpus = slurm.node_facts()
    except slurm.SlurmError as error:
        raise ValueError(str(error)) from error
    if arguments.gpus:
        print(max(gpus.get(name, 0) for name in names))
    else:
        print(",".join(name for name in names if not arguments.usable or states.get(name) in USABLE_STATES))
    return 0


def _why(arguments: argparse.Namespace) -> int:
    try:
        print(report.plain(slurm.why(arguments.job)))
    except slurm.SlurmError as error:
        raise ValueError(str(error)) from error
    return 0


def _run(arguments: argparse.Namespace) -> int:
    return pipeline.run(pipeline.Request(
        nodes=arguments.nodes, nodelist=arguments.nodelist, profile=_profile(arguments.profile),
        profile_name=profiles.portable(arguments.profile), phases=arguments.phases, resume=arguments.resume))


def _drill(arguments: argparse.Namespace) -> int:
    print(drills.listed())
    return 0


def _natural(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 or more")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="bringup", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB", parser_class=_Parser)
    default_profile = profiles.from_environment()

    one = verbs.add_parser("run", help="all phases, one after the other, with progress; or some of them")
    one.add_argument("phases", nargs="*", metavar="PHASE", help=f"default: all ({', '.join(PHASES)})")
    one.add_argument("--nodes", type=int, help="how many nodes (default: all nodes of the default partition)")
    one.add_argument("--nodelist", help="which nodes: n[0-3]")
    one.add_argument("--profile", default=default_profile, help="name or .yaml path (default: $BRINGUP_PROFILE, here %(default)s)")
    one.add_argument("--resume", type=Path, metavar="FOLDER", help="continue an earlier playbook run: what passed is not repeated")
    one.set_defaults(verb=_run)

    one = verbs.add_parser("judge", help="judge results folders again, here or on a copy; needs no Slurm and no torch")
    one.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    one.add_argument("--profile", help="judge against this profile instead of the one the run was opened with")
    one.set_defaults(verb=_judge)

    one = verbs.add_parser("compare", help="training runs side by side; refuses unlike ones")
    one.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    one.add_argument("--markdown", action="store_true", help="a Markdown table")
    one.set_defaults(verb=_compare)

    one = verbs.add_parser("why", help="why a job waits, or how it ended, in plain words")
    one.add_argument("job", metavar="JOBID")
    one.set_defaults(verb=_why)

    one = verbs.add_parser("gates", help="list the gates, with what a pass says")
    one.set_defaults(verb=_gates)

    one = verbs.add_parser("profile", help="write a profile from runs that passed: numbers with spread and source")
    one.add_argument("--from", dest="runs", nargs="+", type=Path, required=True, metavar="RUN", help="folders of runs")
    one.add_argument("--name", default="measured", help="of the profile (default: %(default)s)")
    one.add_argument("-o", "--output", type=Path, metavar="FILE", help="a new .yaml file (default: standard output)")
    one.set_defaults(verb=_profile_from)

    one = verbs.add_parser("drill", help="list the declared faults, each with the gate and subject that must fail")
    one.set_defaults(verb=_drill)

    one = verbs.add_parser("nodes", help="(phase scripts) which nodes were asked for")
    one.add_argument("--nodes", type=int)
    one.add_argument("--nodelist")
    one.add_argument("--usable", action="store_true", help="only those that Slurm would use now")
    one.add_argument("--gpus", action="store_true", help="GPUs per node that Slurm has configured, instead of names")
    one.set_defaults(verb=_nodes)

    one = verbs.add_parser("pairs", help="(phase scripts) which pairs of nodes to measure: a round per line")
    one.add_argument("--nodes", default="")
    one.add_argument("--here", help="nodes that are there now; pairs with others are left out")
    one.add_argument("--again", type=Path, help="instead: the pairs of this run that should be measured once more")
    one.set_defaults(verb=_pairs)

    one = verbs.add_parser("open", help="(phase scripts) create a run folder with its plan; prints its path")
    one.add_argument("phase")
    one.add_argument("--nodes", required=True, help="node list: n0,n1 or n[0-1]")
    one.add_argument("--gpus-per-node", type=_natural, required=True)
    one.add_argument("--ranks-per-node", type=_natural, help="default: one per GPU")
    one.add_argument("--profile", default=default_profile)
    one.add_argument("--results", type=Path, help="folder of the runs (default: the phase's own)")
    one.add_argument("--argv", nargs=argparse.REMAINDER, default=[], help="last: the script's own arguments, to be recorded")
    one.set_defaults(verb=_open)

    one = verbs.add_parser("close", help="(phase scripts) close a run, judge it, write report.md")
    one.add_argument("run", type=Path)
    one.add_argument("--exit-code", type=int, required=True)
    one.set_defaults(verb=_close)
    return parser
