"""Verbs that run phases and trainings."""

import argparse

from bringup.kernel.plan import profile as profiles
from bringup.kernel.records import Outcome, worst
from bringup.kernel.results import METRICS
from bringup.report import write
from bringup.run import playbook, site, train_here
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


def do_train(arguments: argparse.Namespace) -> int:
    request = train_here.Request(
        strategy=arguments.strategy,
        ranks=arguments.ranks,
        profile=profiles.load(arguments.profile),
        profile_name=profiles.portable(arguments.profile),
        options=arguments.options,
    )
    if arguments.resume_on is None:
        return write.judge_and_show(train_here.train(request)[0], None).exit_code
    from bringup.compare.action import compare_losses  # of another room, for this option alone

    folders, outcomes = [], []
    for folder, _ in train_here.resumed_on(request, arguments.resume_on):  # a refusal of the second leaves the first
        folders.append(folder)
        outcomes.append(write.judge_and_show(folder, None))
    if all((folder / METRICS).is_file() for folder in folders) and len(folders) == 2:
        outcomes += [Outcome.FAIL] if compare_losses(folders) else []
    return worst(outcomes).exit_code
