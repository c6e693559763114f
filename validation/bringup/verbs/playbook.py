"""`bringup run`: all phases, or some. `bringup why`: what a job waits for."""

from __future__ import annotations

import argparse
from pathlib import Path

from bringup import pipeline, report, slurm
from bringup import profile as profiles
from bringup.phases import PHASES
from bringup.profile import from_environment
from bringup.verbs.verb import Verbs, load_profile


def add(verbs: Verbs) -> None:
    one = verbs.add_parser("run", help="all phases, one after the other, with progress; or some of them")
    one.add_argument("phases", nargs="*", metavar="PHASE", help=f"default: all ({', '.join(PHASES)})")
    one.add_argument("--nodes", type=int, help="how many nodes (default: all nodes of the default partition)")
    one.add_argument("--nodelist", help="which nodes: n[0-3]")
    one.add_argument(
        "--profile", default=from_environment(), help="name or .yaml path (default: $BRINGUP_PROFILE, here %(default)s)"
    )
    one.add_argument(
        "--resume", type=Path, metavar="FOLDER", help="continue an earlier playbook run: what passed is not repeated"
    )
    one.set_defaults(verb=_run)

    one = verbs.add_parser("why", help="why a job waits, or how it ended, in plain words")
    one.add_argument("job", metavar="JOBID")
    one.set_defaults(verb=_why)


def _run(arguments: argparse.Namespace) -> int:
    return pipeline.run(
        pipeline.Request(
            nodes=arguments.nodes,
            nodelist=arguments.nodelist,
            profile=load_profile(arguments.profile),
            profile_name=profiles.portable(arguments.profile),
            phases=arguments.phases,
            resume=arguments.resume,
        )
    )


def _why(arguments: argparse.Namespace) -> int:
    try:
        print(report.plain(slurm.why(arguments.job)))
    except slurm.SlurmError as error:
        raise ValueError(str(error)) from error
    return 0
