"""`bringup drill`: the declared faults."""

from __future__ import annotations

import argparse

from bringup import drills
from bringup.verbs.verb import Verbs


def add(verbs: Verbs) -> None:
    one = verbs.add_parser("drill", help="list the declared faults, each with the gate and subject that must fail")
    one.set_defaults(verb=_drill)


def _drill(arguments: argparse.Namespace) -> int:
    print(drills.listed())
    return 0
