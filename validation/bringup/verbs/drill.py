"""`bringup drill`: faults that are made on purpose, and what the gates say about them."""

from __future__ import annotations

import argparse
from pathlib import Path

from bringup import drills
from bringup import profile as profiles
from bringup.drills import campaign
from bringup.phases import PHASES
from bringup.verbs.verb import Verbs, load_profile, natural


def add(verbs: Verbs) -> None:
    one = verbs.add_parser(
        "drill",
        help="make the declared faults, and see whether the declared gates say so on the declared subjects",
        description="The whole catalogue, on a local cluster that is started and ended for it. "
        "Exit code: 0 all found, 1 a fault was missed or something else accused, 2 we could not tell.",
    )
    one.add_argument("--list", action="store_true", help="print the catalogue and make nothing")
    one.add_argument("--only", nargs="+", metavar="ID", default=[], help="these drills")
    one.add_argument(
        "--anywhere",
        action="store_true",
        help="on the cluster you are on: those that stay inside your own jobs, and no other",
    )
    one.add_argument(
        "--healthy",
        type=natural,
        default=0,
        metavar="N",
        help="no fault: N rounds on a healthy local cluster of 4 nodes, in which everything has to pass",
    )
    one.add_argument(
        "--phases",
        nargs="+",
        metavar="PHASE",
        choices=list(PHASES),
        default=list(PHASES),
        help="with --healthy: of each round (default: all)",
    )
    one.add_argument("--resume", type=Path, metavar="FOLDER", help="continue an earlier drill run")
    one.add_argument(
        "--profile",
        default=profiles.from_environment(),
        help="with --anywhere: of this cluster (default: $BRINGUP_PROFILE, here %(default)s)",
    )
    one.set_defaults(verb=_drill)


def _drill(arguments: argparse.Namespace) -> int:
    if arguments.list:
        print(drills.listed())
        return 0
    catalogue = {drill.id: drill for drill in drills.DRILLS}
    unknown = [name for name in arguments.only if name not in catalogue]
    if unknown:
        raise ValueError(f"no drill is called {', '.join(unknown)}; bringup drill --list shows all")
    if arguments.healthy and (arguments.anywhere or arguments.only):
        raise ValueError("--healthy makes no fault and runs on local clusters: without --anywhere and --only")
    if arguments.resume is not None and (arguments.only or arguments.healthy):
        raise ValueError("--resume goes on with what was planned: without --only and --healthy")
    chosen = [drill for drill in drills.DRILLS if not arguments.only or drill.id in arguments.only]
    if arguments.anywhere and not arguments.only and arguments.resume is None:
        chosen = [drill for drill in chosen if drill.where == "anywhere"]
    profile = load_profile(arguments.profile) if arguments.anywhere else None
    # a run that is continued knows what it had planned
    return campaign.run(
        campaign.Request(
            drills=[] if arguments.healthy else chosen,
            healthy=arguments.healthy,
            phases=arguments.phases,
            anywhere=arguments.anywhere,
            profile=profile,
            resume=arguments.resume,
        )
    )
