"""Verbs that read results folders: judge, explain, report, and a profile made of them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bringup.cli.command_line import CANNOT_TELL, complain, most_drained, natural, signers_of_the_site
from bringup.errors import BringupError, NotHealthy, UsageError
from bringup.plan import profile as profiles
from bringup.plan.phases import PHASES
from bringup.records import Outcome, worst

if TYPE_CHECKING:
    from bringup import results
    from bringup.cli.command_line import Verbs


PAGE = "report.html"


def add(verbs: Verbs) -> None:
    verb = verbs.add_parser("judge", help="judge results folders again, here or on a copy; needs no Slurm and no torch")
    verb.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    verb.add_argument("--profile", help="judge against this profile instead of the one the run was opened with")
    signers_of_the_site(verb)
    verb.set_defaults(verb=_judge)

    verb = verbs.add_parser(
        "explain", help="what went wrong in a run: first causes, signs in the logs, what to run next"
    )
    verb.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="results folders, of a phase or of a whole playbook"
    )
    verb.add_argument("--json", action="store_true", help="one JSON array instead of the screen")
    verb.set_defaults(verb=_explain)

    verb = verbs.add_parser("report", help="one HTML page of a playbook or of runs; JUnit, Prometheus, drain commands")
    verb.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a playbook's folder, or folders of runs")
    verb.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help=f"the page (default: {PAGE} in the folder, when it is one; -: standard output)",
    )
    verb.add_argument("--zip", type=Path, metavar="FILE", help="also one file to send: the page with the evidence")
    verb.add_argument("--junit", type=Path, metavar="FILE", help="also JUnit XML, a test case per verdict")
    verb.add_argument("--ctrf", type=Path, metavar="FILE", help="also JSON in the Common Test Report Format")
    verb.add_argument(
        "--prometheus", type=Path, metavar="FILE", help="also gauges for node_exporter's textfile collector (.prom)"
    )
    verb.add_argument("--profile", help="judge against this profile instead of the one that each run was opened with")
    verb.add_argument("--apply", action="store_true", help="drain the nodes of the printed scontrol commands")
    most_drained(verb)
    signers_of_the_site(verb)
    verb.add_argument(
        "--older",
        type=natural,
        default=24,
        metavar="H",
        help="hours that evidence for --apply may be old (default: 24)",
    )
    verb.set_defaults(verb=_report)

    verb = verbs.add_parser(
        "history", help="all runs over time: bandwidth, storage, GPUs, tokens/s; is the newest slower?"
    )
    verb.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="default: every closed run of this checkout")
    verb.add_argument("--plot", type=Path, metavar="FOLDER", help="draw: a picture per measure")
    verb.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    verb.set_defaults(verb=_history)

    verb = verbs.add_parser("profile", help="write a profile from runs that passed: numbers with spread and source")
    verb.add_argument("--from", dest="runs", nargs="+", type=Path, required=True, metavar="RUN", help="folders of runs")
    verb.add_argument("--name", default="measured", help="of the profile (default: %(default)s)")
    verb.add_argument("-o", "--output", type=Path, metavar="FILE", help="a new .yaml file (default: standard output)")
    verb.set_defaults(verb=_profile_from)


def _judge(arguments: argparse.Namespace) -> int:
    from bringup import results
    from bringup.checks import catalogue
    from bringup.report import text, write
    from bringup.run import signature

    signers, unsigned = signature.signers(arguments.signers), 0
    profile = None if arguments.profile is None else catalogue.load_profile(arguments.profile)
    runs = results.find(arguments.runs)
    outcomes = [Outcome.INCOMPLETE for _ in _report_absent(runs)]
    for folder in runs.once:
        try:
            outcomes.append(write.judge_and_show(folder, profile))
        except BringupError as error:  # the other folders are judged all the same
            complain(str(error))
            outcomes.append(Outcome.INCOMPLETE)
            continue
        if signers is not None:
            try:
                print(f"  signed by {text.plain(signature.signer(folder / results.CLOSED, signers))}")
            except BringupError as error:
                complain(str(error))
                unsigned += 1
    if len(outcomes) > 1:
        counts = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in Outcome if outcome in outcomes)
        print(f"{text.MARK[worst(outcomes)]}: {len(outcomes)} runs: {counts}")
    return CANNOT_TELL if unsigned else worst(outcomes).exit_code


def _report_absent(runs: results.RunFolders) -> list[results.Absent]:
    """What a playbook had planned and is not there is said, and counts."""
    from bringup.report import text

    for absent in runs.absent:
        title = PHASES[absent.phase].title if absent.phase in PHASES else absent.phase
        print(f"{'NOT RUN':<10} {title}: {text.plain(absent.why)}; not proven")
    return runs.absent


def _explain(arguments: argparse.Namespace) -> int:
    """The worst runs first."""
    from bringup import judge, results
    from bringup.report import explain

    runs = results.find(arguments.runs)
    judged, unread = [], 0
    for folder in runs.once:
        try:
            judged.append(judge.judge_folder(folder))
        except BringupError as error:
            complain(str(error))
            unread += 1
    worst_first = sorted(judged, key=lambda run: -run.verdicts.outcome.rank)
    if arguments.json:
        print(json.dumps([explain.as_data(run) for run in worst_first], indent=1))
        absent = runs.absent
    else:
        for run in worst_first:
            print(explain.screen(run), end="\n\n")
        absent = _report_absent(runs)
    outcomes = [run.verdicts.outcome for run in judged] + [Outcome.INCOMPLETE] * (unread + len(absent))
    return worst(outcomes).exit_code


def _report(arguments: argparse.Namespace) -> int:
    from bringup.checks import catalogue
    from bringup.report import bundle, collection, drain, exports, links, outputs, page, text

    if arguments.output is None and len(arguments.runs) > 1:
        raise UsageError("report of several folders: say where to write the page, -o FILE.html")
    profile = None if arguments.profile is None else catalogue.load_profile(arguments.profile)
    at = outputs.Output("-o", arguments.output or arguments.runs[0] / PAGE, outputs.PAGE)
    to_files = links.nowhere if at.is_standard_output else links.beside(at.path)
    renderers: list[tuple[outputs.Output, Callable[[collection.Collection], str | bytes]]] = [
        (at, partial(page.render, links=to_files))
    ]
    if arguments.zip is not None:
        renderers.append((outputs.Output("--zip", arguments.zip, outputs.ARCHIVE), bundle.pack))
    if arguments.junit is not None:
        renderers.append((outputs.Output("--junit", arguments.junit, outputs.JUNIT), exports.junit))
    if arguments.ctrf is not None:
        renderers.append((outputs.Output("--ctrf", arguments.ctrf, outputs.CTRF), exports.ctrf))
    if arguments.prometheus is not None:
        renderers.append((outputs.Output("--prometheus", arguments.prometheus, outputs.PROMETHEUS), exports.prometheus))
    outputs.check([output for output, _ in renderers])
    # what is said about the files must not stand between the lines of one of them
    stream = sys.stderr if any(output.is_standard_output for output, _ in renderers) else sys.stdout
    gathered = collection.gather(arguments.runs, profile)
    for output, render in renderers:
        outputs.write(output, render(gathered))
        if not output.is_standard_output:
            print(f"written: {text.shown_path(output.path)}", file=stream)
    proposed = drain.proposals(gathered.judged)
    for proposal in proposed:
        print(proposal.line, file=stream)
    not_run = f"; not run: {', '.join(absent.phase for absent in gathered.absent)}" if gathered.absent else ""
    print(f"{text.MARK[gathered.outcome]}: {text.counted(gathered.verdicts)}{not_run}", file=stream)
    if arguments.apply:
        from bringup.run import signature, take_out

        rule = take_out.Rule(arguments.most_drained, arguments.older, signature.signers(arguments.signers))
        if not take_out.apply(gathered.judged, rule, lambda line: print(line, file=stream)):
            return CANNOT_TELL
    return gathered.outcome.exit_code


def _history(arguments: argparse.Namespace) -> int:
    """Exit code: 1 something became slower, 0 nothing did, 2 of no measure are there enough runs."""
    from bringup import judge, results
    from bringup.compare import history
    from bringup.report import history as report
    from bringup.report import text

    judged = []
    for folder in results.find(arguments.runs).once if arguments.runs else results.every_run():
        try:
            judged.append(judge.judge_folder(folder))
        except (BringupError, OSError) as error:
            complain(str(error))
    results.refuse_repeated([(run.folder, run.run) for run in judged])
    findings = history.judge(history.series(judged))
    print(report.as_json(findings) if arguments.json else report.screen(findings, len(judged)))
    if arguments.plot is not None:
        for path in report.draw(findings, arguments.plot):
            print(f"drawn: {text.shown_path(path)}", file=sys.stderr if arguments.json else sys.stdout)
    return history.exit_code(findings)


def _profile_from(arguments: argparse.Namespace) -> int:
    from bringup import judge, results
    from bringup.checks import catalogue
    from bringup.compare import learn
    from bringup.report import outputs

    output = outputs.Output("-o", arguments.output or Path("-"), outputs.PROFILE)
    outputs.check([output])
    runs = results.find(arguments.runs)
    if runs.absent:
        raise NotHealthy(
            f"{runs.playbooks[0]}: {runs.absent[0].phase}: {runs.absent[0].why}; "
            "a profile is made of runs that passed: name those"
        )
    profile = learn.measured([judge.judge_folder(folder) for folder in runs.folders], arguments.name)
    catalogue.check(profile)
    outputs.write(output, profiles.dump(profile))
    if not output.is_standard_output:
        print(f"{arguments.output}: {len(profile.expect)} expectations; use it with --profile or BRINGUP_PROFILE")
    return 0
