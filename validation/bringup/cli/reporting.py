"""Verbs that write documents about runs. What makes a document is imported where it is asked for."""

import argparse
import sys
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from bringup import registry
from bringup.kernel.errors import UsageError
from bringup.kernel.records import Mark, Outcome
from bringup.report import collection, links, outputs, text
from bringup.report.next_steps import counted
from bringup.run import node_lines
from bringup.verb import named_profile

PAGE = "report.html"
_RENDERERS = {
    "markdown": "document:playbook",
    "zip": "bundle:pack",
    "junit": "junit:junit",
    "prometheus": "prometheus:prometheus",
}
_LINKED = ("page:render", "document:playbook")


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
    for line in node_lines.lines(gathered.judged, datetime.now(timezone.utc)):
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
