"""What `bringup drill` does."""

import argparse

from bringup.drill import catalogue, result, suite
from bringup.kernel.errors import UsageError
from bringup.kernel.plan import profile, profile_text
from bringup.run import auto_profile, site


def do_drill(arguments: argparse.Namespace) -> int:
    if arguments.anywhere and arguments.checks is not None:
        raise UsageError("--checks runs on local clusters: without --anywhere")
    on_local = catalogue.DRILLS if arguments.checks is None else suite.of_site(arguments.checks)
    ids = [drill.id for drill in on_local]
    if unknown := [name for name in arguments.only if name not in ids]:
        near = profile_text.meant(unknown[0], ids)
        raise UsageError(f"no drill is called {', '.join(unknown)}{near}; bringup drill --list shows all")
    known = catalogue.DECLARED.values() if arguments.anywhere and not arguments.list else on_local
    chosen = [drill for drill in known if not arguments.only or drill.id in arguments.only]
    if arguments.list:
        print(result.listed(chosen))
        return 0
    if arguments.anywhere:
        site.entered()
    if arguments.resume is not None and arguments.only:
        raise UsageError("--resume goes on with what was planned: without --only")
    if arguments.anywhere and not arguments.only and arguments.resume is None:
        chosen = [drill for drill in chosen if drill.where == "anywhere"]
    request = suite.Request(
        drills=chosen,
        anywhere=arguments.anywhere,
        # a run that is continued knows what it had planned
        profile=auto_profile.profile(profile.load(arguments.profile), []) if arguments.anywhere else None,
        resume=arguments.resume,
    )
    return suite.run(request)
