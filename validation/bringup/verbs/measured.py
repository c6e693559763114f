"""`bringup profile`: expectations from runs that passed."""

from __future__ import annotations

import argparse
from pathlib import Path

from bringup import profile as profiles
from bringup import profiling
from bringup.gates import GATES
from bringup.records import write_text
from bringup.verbs.verb import Verbs


def add(verbs: Verbs) -> None:
    one = verbs.add_parser("profile", help="write a profile from runs that passed: numbers with spread and source")
    one.add_argument("--from", dest="runs", nargs="+", type=Path, required=True, metavar="RUN", help="folders of runs")
    one.add_argument("--name", default="measured", help="of the profile (default: %(default)s)")
    one.add_argument("-o", "--output", type=Path, metavar="FILE", help="a new .yaml file (default: standard output)")
    one.set_defaults(verb=_profile_from)


def _profile_from(arguments: argparse.Namespace) -> int:
    profile = profiling.measured(arguments.runs, arguments.name)
    profiles.check_units(profile, {gate.id: gate.unit for gate in GATES.values()})
    if arguments.output is None:
        print(profiles.dump(profile), end="")
    else:
        write_text(arguments.output, profiles.dump(profile))
        print(f"{arguments.output}: {len(profile.expect)} expectations; use it with --profile or BRINGUP_PROFILE")
    return 0
