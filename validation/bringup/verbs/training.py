"""`bringup compare`: training runs side by side, or against a baseline."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bringup import compare, figures_training, regression, report
from bringup.records import Outcome
from bringup.verbs.verb import Verbs


def add(verbs: Verbs) -> None:
    one = verbs.add_parser(
        "compare", help="training runs side by side; refuses unlike ones; --baseline: is it slower than it was?"
    )
    one.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    one.add_argument(
        "--baseline",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="earlier runs with the same arguments, best 5 of each: regression (exit 1), none (0), cannot tell (2)",
    )
    one.add_argument(
        "--plot", type=Path, metavar="PATH", help="draw: a new folder of pictures, or one sheet (.png, .svg, .pdf)"
    )
    one.add_argument("--markdown", action="store_true", help="a Markdown table")
    one.set_defaults(verb=_compare)


def _compare(arguments: argparse.Namespace) -> int:
    if arguments.baseline is not None:
        return _against_baseline(arguments)
    if len(arguments.runs) < 2:
        raise ValueError("compare needs at least two training runs (training/results/…)")
    header, rows, note = compare.table(arguments.runs)
    print(f"{_table(arguments, header, rows)}\n\n{note}")
    _plot(arguments, arguments.runs)
    wrong = compare.disagreements(rows)
    if wrong:
        print(
            f"bringup: the losses of {', '.join(wrong)} do not agree with the base run's: their speed means nothing yet",
            file=sys.stderr,
        )
    return Outcome.FAIL.exit_code if wrong else 0


def _against_baseline(arguments: argparse.Namespace) -> int:
    if not arguments.runs:
        raise ValueError("compare --baseline needs runs to hold against it: bringup compare RUN… --baseline RUN…")
    compared = regression.check(arguments.runs, arguments.baseline)
    for one in compared:
        print(one.title)
        for change in one.environment:
            print(f"differs: {report.plain(change)}")
        header, rows = regression.table(one)
        print(f"{_table(arguments, header, rows)}\n")
    _plot(arguments, [*arguments.baseline, *arguments.runs])
    outcome = regression.overall(compared)
    print(f"{report.MARK[outcome]}: {regression.in_words(compared)}")
    return outcome.exit_code


def _table(arguments: argparse.Namespace, header: list[str], rows: list[list[str]]) -> str:
    return "\n".join(report.table(header, rows)) if arguments.markdown else compare.as_text(header, rows)


def _plot(arguments: argparse.Namespace, folders: list[Path]) -> None:
    if arguments.plot is not None:
        for path in figures_training.draw([compare.load(folder) for folder in folders], arguments.plot):
            print(f"drawn: {report.shown_path(path)}")
