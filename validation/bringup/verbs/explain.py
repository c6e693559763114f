"""`bringup explain`: from a verdict that is not a pass to its cause and the next command."""

from __future__ import annotations

import argparse
from pathlib import Path

from bringup import explain, runs
from bringup.phases import REPOSITORY
from bringup.records import Playbook, RecordError, read_record
from bringup.verbs.verb import Verbs


def add(verbs: Verbs) -> None:
    one = verbs.add_parser(
        "explain", help="what went wrong in a run: first causes, signs in the logs, what to run next"
    )
    one.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="results folders, of a phase or of a whole playbook"
    )
    one.set_defaults(verb=_explain)


def _explain(arguments: argparse.Namespace) -> int:
    codes = []
    for folder in arguments.runs:
        for one in _phases(folder):
            text, outcome = explain.run(one)
            print(text, end="\n\n")
            codes.append(outcome.exit_code)
    return 1 if 1 in codes else max(codes, default=2)


def _phases(folder: Path) -> list[Path]:
    """A playbook's folder stands for those of its phases that ran."""
    path = folder / "playbook.json"
    if not path.is_file() or (folder / runs.RUN).exists():
        return [folder]
    book = read_record(path, Playbook)
    ran = [REPOSITORY / step.folder for step in book.steps if step.folder is not None]
    if not ran:
        raise RecordError(f"{path}: no phase of this playbook ran; its report.md says why")
    return ran
