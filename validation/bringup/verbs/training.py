"""`bringup compare`: training runs side by side."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bringup import compare, report
from bringup.records import Outcome
from bringup.verbs.verb import Verbs


def add(verbs: Verbs) -> None:
    one = verbs.add_parser("compare", help="training runs side by side; refuses unlike ones")
    one.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    one.add_argument("--markdown", action="store_true", help="a Markdown table")
    one.set_defaults(verb=_compare)


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
