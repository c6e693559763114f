"""`bringup report`: one HTML page, machine outputs, and the nodes that jobs should be kept away from."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bringup import collection, drain, exports, page, report, slurm
from bringup.records import write_text
from bringup.verbs.verb import CANNOT_TELL, Verbs, load_profile

NAME = "report.html"


def add(verbs: Verbs) -> None:
    one = verbs.add_parser("report", help="one HTML page of a playbook or of runs; JUnit, Prometheus, drain commands")
    one.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a playbook's folder, or folders of runs")
    one.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help=f"the page (default: {NAME} in the folder, when it is one)"
    )
    one.add_argument("--junit", type=Path, metavar="FILE", help="also JUnit XML, a test case per verdict")
    one.add_argument(
        "--prometheus", type=Path, metavar="FILE", help="also gauges for node_exporter's textfile collector (.prom)"
    )
    one.add_argument("--profile", help="judge against this profile instead of the one that each run was opened with")
    one.add_argument(
        "--apply", action="store_true", help="run the printed scontrol commands: drain the nodes that failed"
    )
    one.set_defaults(verb=_report)


def _report(arguments: argparse.Namespace) -> int:
    if arguments.output is None and len(arguments.runs) > 1:
        raise ValueError("report of several folders: say where to write the page, -o FILE.html")
    gathered = collection.gather(arguments.runs, None if arguments.profile is None else load_profile(arguments.profile))
    output = arguments.output or arguments.runs[0] / NAME
    texts = {output: page.render(gathered)}
    if arguments.junit is not None:
        texts[arguments.junit] = exports.junit(gathered)
    if arguments.prometheus is not None:
        texts[arguments.prometheus] = exports.prometheus(gathered)
    for path, text in texts.items():
        write_text(path, text, replace=True)
        print(f"written: {report.shown_path(path)}")
    proposed = drain.proposals(gathered.judged)
    for one in proposed:
        print(one.line)
    print(
        f"{report.MARK[gathered.outcome]}: {report.counted(gathered.verdicts)}"
        + (f"; not run: {', '.join(gone.phase for gone in gathered.absent)}" if gathered.absent else "")
    )
    if arguments.apply and not _applied(proposed):
        return CANNOT_TELL
    return gathered.outcome.exit_code


def _applied(proposed: list[drain.Proposal]) -> bool:
    """Drain them; a node that Slurm keeps out by now keeps its reason. True when all that was to be done is done."""
    todo = [one for one in proposed if one.command is not None]
    if not todo:
        print("nothing to apply")
        return True
    try:
        states, _ = slurm.node_facts()
    except slurm.SlurmError as error:
        raise ValueError(str(error)) from error
    done = True
    for one in todo:
        state = states.get(one.node)
        if state is None or "DRAIN" in state or "DOWN" in state:
            print(f"left as it is: {one.node}: {'Slurm knows no such node' if state is None else state}")
            done = done and state is not None
            continue
        try:
            slurm.ask(*(one.command or []))
            print(f"drained: {one.node}")
        except slurm.SlurmError as error:
            print(f"bringup: {one.node}: {report.plain(str(error))}", file=sys.stderr)
            done = False
    return done
