"""The verb that makes faults and looks whether they are found."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bringup.cli.command_line import natural, profile_of_the_environment
from bringup.errors import UsageError
from bringup.plan.phases import PHASES

if TYPE_CHECKING:
    from bringup.cli.command_line import Verbs


def add(verbs: Verbs) -> None:
    verb = verbs.add_parser(
        "drill",
        help="make the declared faults, and see whether the declared gates say so on the declared subjects",
        description="The whole catalogue, on a local cluster that is started and ended for it. "
        "Exit code: 0 all found, 1 a fault was missed or something else accused, 2 we could not tell.",
    )
    verb.add_argument("--list", action="store_true", help="print the catalogue and make nothing")
    verb.add_argument(
        "--checks", type=Path, metavar="FILE", help="the drills of a site's own checks, in place of the catalogue"
    )
    verb.add_argument("--only", nargs="+", metavar="ID", default=[], help="these drills")
    verb.add_argument(
        "--anywhere",
        action="store_true",
        help="on the cluster you are on: those that stay inside your own jobs, and no other",
    )
    verb.add_argument(
        "--healthy",
        type=natural,
        default=0,
        metavar="N",
        help="no fault: N rounds on a healthy local cluster, in which everything has to pass",
    )
    verb.add_argument("--nodes", type=natural, default=4, help="with --healthy: of the cluster (default: %(default)s)")
    verb.add_argument("--gpus", type=natural, default=2, help="with --healthy: of each node (default: %(default)s)")
    verb.add_argument(
        "--phases",
        nargs="+",
        metavar="PHASE",
        choices=list(PHASES),
        default=list(PHASES),
        help="with --healthy: of each round (default: all)",
    )
    verb.add_argument("--resume", type=Path, metavar="FOLDER", help="continue an earlier drill run")
    profile_of_the_environment(verb, "with --anywhere: of this cluster")
    verb.set_defaults(verb=_drill)


def _drill(arguments: argparse.Namespace) -> int:
    from bringup.checks import catalogue
    from bringup.drill import result as drill_result
    from bringup.drill import suite
    from bringup.plan import profile_text
    from bringup.plan.drill import Shape
    from bringup.run import site as at_site

    if arguments.checks is not None and arguments.anywhere:
        raise UsageError("--checks runs on local clusters: without --anywhere")
    on_local = catalogue.DRILLS if arguments.checks is None else suite.of_site(arguments.checks)
    ids = [drill.id for drill in on_local]
    unknown = [name for name in arguments.only if name not in ids]
    if unknown:
        near = profile_text.meant(unknown[0], ids)
        raise UsageError(f"no drill is called {', '.join(unknown)}{near}; bringup drill --list shows all")
    if arguments.list:
        print(drill_result.listed([drill for drill in on_local if not arguments.only or drill.id in arguments.only]))
        return 0
    if arguments.healthy and (arguments.anywhere or arguments.only):
        raise UsageError("--healthy makes no fault and runs on local clusters: without --anywhere and --only")
    if arguments.anywhere:
        at_site.enter(at_site.from_environment())
    if arguments.resume is not None and (arguments.only or arguments.healthy):
        raise UsageError("--resume goes on with what was planned: without --only and --healthy")
    known = catalogue.DECLARED.values() if arguments.anywhere else on_local
    chosen = [drill for drill in known if not arguments.only or drill.id in arguments.only]
    if arguments.anywhere and not arguments.only and arguments.resume is None:
        chosen = [drill for drill in chosen if drill.where == "anywhere"]
    return suite.run(
        suite.Request(
            drills=[] if arguments.healthy else chosen,
            healthy=arguments.healthy,
            shape=Shape(arguments.nodes, arguments.gpus),
            phases=arguments.phases,
            anywhere=arguments.anywhere,
            # a run that is continued knows what it had planned
            profile=catalogue.load_profile(arguments.profile) if arguments.anywhere else None,
            resume=arguments.resume,
        )
    )
