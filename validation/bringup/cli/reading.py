"""Verbs that read results folders. What one of them alone needs is imported there."""

import argparse
import json

from bringup.kernel import judge
from bringup.kernel.errors import BringupError, UsageError
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Outcome, worst
from bringup.report import explain, run_folders, terminal, text
from bringup.report.known_runs import listed
from bringup.verb import CANNOT_TELL, complain, named_profile


def do_runs(arguments: argparse.Namespace) -> int:
    known = listed()
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
    runs = run_folders.find(arguments.runs)
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


def _report_absent(runs: run_folders.NamedRuns) -> None:
    """Print what a playbook had planned and is not there: it counts."""
    for absent in runs.absent:
        title = PHASES[absent.phase].title if absent.phase in PHASES else absent.phase
        terminal.show(f"{'NOT RUN':<10} {title}: {text.plain(absent.why)}; not proven")


def do_explain(arguments: argparse.Namespace) -> int:
    """Explain runs, the worst first."""
    profile = named_profile(arguments.profile)
    runs = run_folders.find(arguments.runs)
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
