"""`bringup judge`: results folders again, here or on a copy. `bringup gates`: what there is to pass."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bringup import profile as profiles
from bringup import report, runs
from bringup.gates import GATES
from bringup.records import RecordError
from bringup.verbs.verb import CANNOT_TELL, Verbs, judge_and_show, load_profile


def add(verbs: Verbs) -> None:
    one = verbs.add_parser("judge", help="judge results folders again, here or on a copy; needs no Slurm and no torch")
    one.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    one.add_argument("--profile", help="judge against this profile instead of the one the run was opened with")
    one.set_defaults(verb=_judge)

    one = verbs.add_parser("gates", help="list the gates, with what a pass says")
    one.set_defaults(verb=_gates)


def _judge(arguments: argparse.Namespace) -> int:
    worst = 0
    for folder in arguments.runs:
        profile = None if arguments.profile is None else load_profile(arguments.profile)
        try:
            code = judge_and_show(folder, profile)
        except (
            profiles.ProfileError,
            runs.RunError,
            RecordError,
        ) as error:  # the other folders are judged all the same
            print(f"bringup: {report.plain(str(error))}", file=sys.stderr)
            code = CANNOT_TELL
        worst = 1 if 1 in (worst, code) else max(worst, code)
    return worst


def _gates(arguments: argparse.Namespace) -> int:
    for gate in GATES.values():
        print(f"{gate.id:<32} per {gate.per:<10} {gate.rule:<12} {gate.unit:<6} {gate.proves}")
    return 0
