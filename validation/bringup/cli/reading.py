"""Verbs that read results folders. What one of them alone needs is imported there."""

import argparse
import json
import sys
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from bringup import registry
from bringup.kernel import judge, results
from bringup.kernel.errors import BringupError, UsageError
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Mark, Outcome, worst
from bringup.report import collection, explain, links, outputs, terminal, text
from bringup.report.known_runs import newest_first
from bringup.report.next_steps import counted
from bringup.run import node_lines
from bringup.verb import CANNOT_TELL, complain, named_profile

PAGE = "report.html"
_RENDERERS = {
    "markdown": "document:playbook",
    "zip": "bundle:pack",
    "junit": "junit:junit",
    "prometheus": "prometheus:prometheus",
}
_LINKED = ("page:render", "document:playbook")


def do_runs(arguments: argparse.Namespace) -> int:
    known = newest_first()
    if not known:
        raise UsageError("no run is here yet: bringup run starts one")
    print(text.columns(("run", "when (UTC)", "what", "nodes", "verdict"), [k.row for k in known[: arguments.newest]]))
    if len(known) > arguments.newest:
        print(f"and {len(known) - arguments.newest} older ones (--newest N)")
    return 0


def do_judge(arguments: argparse.Namespace) -> int:
    from bringup.report import write
    from bringup.run import signature

    signers, unsigned = signature.signers(arguments.signers), 0
    profile = named_profile(arguments.profile)
    runs = results.find(arguments.runs)
    _report_absent(runs)
    outcomes = [Outcome.INCOMPLETE] * len(runs.absent)
    for folder in runs.once:
        try:
            judged = write.judge_and_save(folder, profile)
        except BringupError as error:  # the other folders are judged all the same
            complain(str(error))
            outcomes.append(Outcome.INCOMPLETE)
            continue
        write.show(judged)
        outcomes.append(judged.verdicts.outcome)
        if signers is not None:
            try:
                print(f"  signed by {text.plain(signature.signer(judged, signers))}")
            except BringupError as error:
                complain(str(error))
                unsigned += 1
    if len(outcomes) > 1:
        counts = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in Outcome if outcome in outcomes)
        terminal.show(f"{text.MARK[worst(outcomes)]}: {len(outcomes)} runs: {counts}")
    return CANNOT_TELL if unsigned else worst(outcomes).exit_code


def _report_absent(runs: results.RunFolders) -> None:
    """Print what a playbook had planned and is not there: it counts."""
    for absent in runs.absent:
        title = PHASES[absent.phase].title if absent.phase in PHASES else absent.phase
        terminal.show(f"{'NOT RUN':<10} {title}: {text.plain(absent.why)}; not proven")


def do_explain(arguments: argparse.Namespace) -> int:
    """Explain runs, the worst first."""
    profile = named_profile(arguments.profile)
    runs = results.find(arguments.runs)
    judged, unread = [], 0
    for folder in runs.once:
        try:
            judged.append(judge.judge_folder(folder, profile))
        except BringupError as error:
            complain(str(error))
            unread += 1
    worst_first = sorted(judged, key=lambda run: -run.verdicts.outcome.rank)
    if arguments.json:
        print(json.dumps([explain.as_data(run) for run in worst_first], indent=1))
    else:
        if worst_first:
            terminal.show(explain.screens(worst_first))
        _report_absent(runs)
    outcomes = [run.verdicts.outcome for run in judged] + [Outcome.INCOMPLETE] * (unread + len(runs.absent))
    return worst(outcomes).exit_code


def do_report(arguments: argparse.Namespace) -> int:
    if arguments.output is None and len(arguments.runs) > 1:
        raise UsageError("report of several folders: say where to write the page, -o FILE.html")
    profile = named_profile(arguments.profile)
    if arguments.output is None:  # beside the run, and made from it: it is made again
        at = outputs.Output("-o", arguments.runs[0] / PAGE, force=True)
    else:
        at = outputs.Output("-o", arguments.output, arguments.force)
    asked = [("page:render", at)]
    for option, renderer in _RENDERERS.items():
        if (path := getattr(arguments, option)) is not None:
            asked.append((renderer, outputs.Output(f"--{option}", path, arguments.force)))
    outputs.check([output for _, output in asked])
    # what is said about the files must not stand between the lines of one of them
    stream = sys.stderr if any(output.is_standard_output for _, output in asked) else sys.stdout
    gathered = collection.gather(arguments.runs, profile)
    for name, output in asked:
        render = partial(registry.called(f"bringup.report.{name}"), gathered)
        outputs.write(output, render(_links_from(output.path)) if name in _LINKED else render())
        if not output.is_standard_output:
            print(f"written: {text.shown_path(output.path)}", file=stream)
    for line in node_lines.lines(gathered.judged, node_lines.ask(), datetime.now(timezone.utc)):
        print(line, file=stream)
    not_run = f"; not run: {', '.join(absent.phase for absent in gathered.absent)}" if gathered.absent else ""
    print(text.wrapped(f"{text.headline(gathered.headline)}; {counted(gathered.judged)}{not_run}"), file=stream)
    return Outcome.FAIL.exit_code if gathered.headline.mark is Mark.FAIL else gathered.outcome.exit_code


def _links_from(document: Path) -> links.Links:
    """To the folders of the runs; from standard output, of which nobody knows where it will lie, to none."""
    return links.nowhere if str(document) == "-" else links.beside(document)


def do_ticket(arguments: argparse.Namespace) -> int:
    """Exit code: that of a report of these runs."""
    output = outputs.Output("-o", arguments.output or Path("-"), arguments.force)
    outputs.check([output])
    gathered = collection.gather(arguments.runs)
    if arguments.folder is not None:
        content = registry.called("bringup.report.ticket:in_folder")(arguments.node, gathered.judged)
        outputs.make_folder("--folder", arguments.folder)
        if any(arguments.folder.iterdir()):
            raise UsageError(f"--folder {arguments.folder}: is not empty; name a new one")
        for name, data in content.items():
            outputs.write_in(arguments.folder, name, data)
        print(f"written: {text.shown_path(arguments.folder)}: {', '.join(content)}")
        return gathered.outcome.exit_code
    outputs.write(output, registry.called("bringup.report.ticket:text")(arguments.node, gathered.judged))
    if not output.is_standard_output:
        print(f"written: {text.shown_path(output.path)}")
    return gathered.outcome.exit_code
