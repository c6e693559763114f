"""The verb that runs phases."""

import argparse

from bringup.kernel.plan import profile as profiles
from bringup.run import playbook, site
from bringup.verb import phases_called


def do_run(arguments: argparse.Namespace) -> int:
    phases = [stem for name in arguments.phases for stem in phases_called(name)]  # before Slurm is asked anything
    request = playbook.Request(
        site=site.entered(),
        profile=profiles.load(arguments.profile),
        profile_name=profiles.portable(arguments.profile),
        phases=phases,
        **{name: getattr(arguments, name) for name in ("nodes", "nodelist", "resume", "strict", "dry_run")},
    )
    return playbook.run(request)
