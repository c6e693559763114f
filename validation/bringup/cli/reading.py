"""Verbs that read results folders: judge, explain, report, and a profile made of them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bringup.characters import many
from bringup.cli.arguments import CANNOT_TELL, complain, named_profile
from bringup.errors import BringupError, RunError, UsageError
from bringup.plan import profile as profiles
from bringup.plan.phases import PHASES
from bringup.records import Mark, Outcome, worst

if TYPE_CHECKING:
    from bringup import results
    from bringup.compare import lemons
    from bringup.report import links


PAGE = "report.html"


def do_runs(arguments: argparse.Namespace) -> int:
    from bringup.report import known_runs, text

    known = known_runs.newest_first()
    if not known:
        raise UsageError("no run is here yet: bringup run starts one")
    print(text.columns(("run", "when (UTC)", "what", "nodes", "verdict"), [k.row for k in known[: arguments.newest]]))
    if len(known) > arguments.newest:
        print(f"and {len(known) - arguments.newest} older ones (--newest N)")
    return 0


def do_judge(arguments: argparse.Namespace) -> int:
    from bringup import results
    from bringup.report import terminal, text, write
    from bringup.run import signature

    signers, unsigned = signature.signers(arguments.signers), 0
    profile = named_profile(arguments.profile)
    runs = results.find(arguments.runs)
    outcomes = [Outcome.INCOMPLETE for _ in _report_absent(runs)]
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


def _report_absent(runs: results.RunFolders) -> list[results.Absent]:
    """Print what a playbook had planned and is not there: it counts."""
    from bringup.report import terminal, text

    for absent in runs.absent:
        title = PHASES[absent.phase].title if absent.phase in PHASES else absent.phase
        terminal.show(f"{'NOT RUN':<10} {title}: {text.plain(absent.why)}; not proven")
    return runs.absent


def do_explain(arguments: argparse.Namespace) -> int:
    """Explain runs, the worst first."""
    from bringup import judge, results
    from bringup.report import explain, terminal

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
        absent = runs.absent
    else:
        if worst_first:
            terminal.show(explain.screens(worst_first))
        absent = _report_absent(runs)
    outcomes = [run.verdicts.outcome for run in judged] + [Outcome.INCOMPLETE] * (unread + len(absent))
    return worst(outcomes).exit_code


def do_report(arguments: argparse.Namespace) -> int:
    from bringup.report import bundle, collection, document, exports, next_steps, outputs, page, text
    from bringup.run import node_lines

    if arguments.output is None and len(arguments.runs) > 1:
        raise UsageError("report of several folders: say where to write the page, -o FILE.html")
    profile = named_profile(arguments.profile)
    if arguments.output is None:  # beside the run, and made from it: it is made again
        at = outputs.Output("-o", arguments.runs[0] / PAGE, force=True)
    else:
        at = outputs.Output("-o", arguments.output, arguments.force)
    Renderer = Callable[[collection.Collection], str | bytes]
    also: dict[str, Renderer] = {
        "markdown": lambda gathered: document.playbook(gathered, _links_from(arguments.markdown)),
        "zip": bundle.pack,
        "junit": exports.junit,
        "prometheus": exports.prometheus,
    }
    renderers: list[tuple[outputs.Output, Renderer]] = [
        (at, partial(page.render, links=_links_from(at.path))),
        *(
            (outputs.Output(f"--{option}", path, arguments.force), render)
            for option, render in also.items()
            if (path := getattr(arguments, option)) is not None
        ),
    ]
    outputs.check([output for output, _ in renderers])
    # what is said about the files must not stand between the lines of one of them
    stream = sys.stderr if any(output.is_standard_output for output, _ in renderers) else sys.stdout
    gathered = collection.gather(arguments.runs, profile)
    for output, render in renderers:
        outputs.write(output, render(gathered))
        if not output.is_standard_output:
            print(f"written: {text.shown_path(output.path)}", file=stream)
    for line in node_lines.lines(gathered.judged, node_lines.ask(), datetime.now(timezone.utc)):
        print(line, file=stream)
    not_run = f"; not run: {', '.join(absent.phase for absent in gathered.absent)}" if gathered.absent else ""
    print(f"{text.headline(gathered.headline)}; {next_steps.counted(gathered.judged)}{not_run}", file=stream)
    return Outcome.FAIL.exit_code if gathered.headline.mark is Mark.FAIL else gathered.outcome.exit_code


def _links_from(document: Path) -> links.Links:
    """To the folders of the runs; from standard output, of which nobody knows where it will lie, to none."""
    from bringup.report import links

    return links.nowhere if str(document) == "-" else links.beside(document)


def do_ticket(arguments: argparse.Namespace) -> int:
    """Exit code: that of a report of these runs."""
    from bringup.report import collection, outputs, text, ticket

    output = outputs.Output("-o", arguments.output or Path("-"), arguments.force)
    outputs.check([output])
    gathered = collection.gather(arguments.runs)
    if arguments.folder is not None:
        content = ticket.in_folder(arguments.node, gathered.judged)
        outputs.make_folder("--folder", arguments.folder)
        if any(arguments.folder.iterdir()):
            raise UsageError(f"--folder {arguments.folder}: is not empty; name a new one")
        for name, data in content.items():
            outputs.write_in(arguments.folder, name, data)
        print(f"written: {text.shown_path(arguments.folder)}: {', '.join(content)}")
        return gathered.outcome.exit_code
    outputs.write(output, ticket.text(arguments.node, gathered.judged))
    if not output.is_standard_output:
        print(f"written: {text.shown_path(output.path)}")
    return gathered.outcome.exit_code


def do_history(arguments: argparse.Namespace) -> int:
    """Exit code: 1 something became slower, or a node is named; 0 neither; 2 low once, or too few days."""
    from bringup import judge, results
    from bringup.compare import history
    from bringup.report import history as report
    from bringup.report import terminal

    judged = []
    for folder in results.find(arguments.runs).once if arguments.runs else results.every_run():
        try:
            judged.append(judge.judge_folder(folder))
        except (BringupError, OSError) as error:
            complain(str(error))
    results.refuse_repeated([(run.folder, run.run) for run in judged])
    findings = history.judge(history.series(judged))
    lemon_nodes = _lemons(arguments.lemons)
    if arguments.json:
        print(report.as_json(findings, lemon_nodes))
    else:
        terminal.show("\n".join(filter(None, [report.screen(findings, len(judged)), history.compared(judged)])))
        if lemon_nodes is not None:
            terminal.show(report.lemons(lemon_nodes))
    code = history.exit_code(findings)
    if lemon_nodes is not None and lemon_nodes.named:
        return Outcome.FAIL.exit_code
    is_unknown = arguments.lemons is not None and lemon_nodes is None
    return max(code, Outcome.INCOMPLETE.exit_code) if is_unknown and code != Outcome.FAIL.exit_code else code


def _lemons(file: str | None) -> lemons.Lemons | None:
    """file: a table of sacct; empty: ask sacct. None: not requested, or not known."""
    from bringup.compare import lemons
    from bringup.evidence import slurm as answers
    from bringup.run import slurm

    if file is None:
        return None
    try:
        table = Path(file).read_text() if file else slurm.accounting(answers.OF_ENDED_JOBS)
        jobs, unread = answers.ended_jobs(table)
        answer = replace(lemons.find(jobs), unread=unread)
        if answer.jobs == 0:
            raise UsageError(
                f"no job that failed or completed is in the table; {many(unread, 'row')} could not be read"
            )
        return answer
    except (BringupError, OSError, UnicodeDecodeError) as error:
        complain(f"which nodes stood in failed jobs is not known: {error}")
        return None


def do_profile(arguments: argparse.Namespace) -> int:
    from bringup import judge, results
    from bringup.compare import learn
    from bringup.plan.catalogue import GATES
    from bringup.report import outputs

    output = outputs.Output("-o", arguments.output or Path("-"), arguments.force)
    outputs.check([output])
    runs = results.find(arguments.runs)
    if runs.absent:
        raise RunError(
            f"{runs.playbooks[0]}: {runs.absent[0].phase}: {runs.absent[0].why}; "
            "a profile is made of runs that passed: name those"
        )
    profile = learn.measured([judge.judge_folder(folder) for folder in runs.folders], arguments.name)
    profiles.check(profile, GATES)
    outputs.write(output, profiles.dump(profile))
    if not output.is_standard_output:
        print(f"{arguments.output}: {len(profile.expect)} expectations; use it with --profile or BRINGUP_PROFILE")
    return 0


def do_gates(arguments: argparse.Namespace) -> int:
    from bringup.plan import catalogue, own
    from bringup.report import text

    listed = list(catalogue.GATES.values()) if arguments.site is None else own.read(arguments.site)

    if arguments.json:
        fields = ("id", "per", "rule", "unit", "severity", "proves", "phases", "claims", "fix")
        gates = [{field: getattr(gate, field) for field in fields} | {"action": gate.helps} for gate in listed]
        print(json.dumps(gates, indent=1))
        return 0
    rows = [(gate.id, gate.helps, gate.proves) for gate in listed]  # their rules and units: --json
    print(text.columns(("gate", "usual fix", "a pass says"), rows))
    return 0


def do_schema(arguments: argparse.Namespace) -> int:
    from bringup.schemas import schemas as made

    schemas = made()
    if arguments.name not in schemas:
        raise UsageError(f"there is no schema of {arguments.name!r}; there are {', '.join(schemas)}")
    print(json.dumps(schemas[arguments.name], indent=1, ensure_ascii=False))
    return 0


def do_completion(arguments: argparse.Namespace) -> int:
    """Print a script for the shell, made from the verbs themselves. Once it is loaded, a TAB starts no Python."""
    import shtab

    from bringup.cli import parser

    top = parser()
    [verbs] = [action for action in top._actions if isinstance(action, argparse._SubParsersAction)]
    for verb in verbs.choices.values():
        for action in verb._actions:
            if action.type is Path or action.metavar == "RUN":
                vars(action)["complete"] = shtab.FILE
            elif action.metavar == "PHASE":
                action.choices = list(PHASES)
    print(shtab.complete(top, arguments.shell))
    return 0
