"""Verbs that run phases, trainings and drills."""

from __future__ import annotations

import argparse

from bringup.cli.arguments import phase_called, phases_called
from bringup.cli.comparing import compare_losses
from bringup.compare import sweep
from bringup.drill import declared, suite
from bringup.drill import result as drill_result
from bringup.kernel.errors import UsageError
from bringup.kernel.plan import catalogue, profile_text
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.phases import NODES, PHASES
from bringup.kernel.records import Outcome, worst
from bringup.kernel.results import METRICS
from bringup.report import write
from bringup.run import discovered, playbook, train_here
from bringup.run import site as at_site
from bringup.training import varied as sweeps


def do_run(arguments: argparse.Namespace) -> int:
    phases = [stem for name in arguments.phases for stem in phases_called(name)]  # before Slurm is asked anything
    site = at_site.entered()
    return playbook.run(
        playbook.Request(
            nodes=arguments.nodes,
            nodelist=arguments.nodelist,
            profile=catalogue.load_profile(arguments.profile),
            profile_name=profiles.portable(arguments.profile),
            phases=phases,
            resume=arguments.resume,
            strict=arguments.strict,
            site=site,
            dry_run=arguments.dry_run,
        )
    )


def do_sweep(arguments: argparse.Namespace) -> int:
    if arguments.resume is not None:
        if arguments.phase or arguments.vary or arguments.nodes or arguments.nodelist:
            raise UsageError("sweep --resume goes on with what it was: leave out the phase, --vary and the nodes")
        site = at_site.entered()
        return sweep.run(arguments.resume, site)
    if arguments.phase is None or not arguments.vary:
        raise UsageError("sweep needs a training and what to vary: bringup sweep run_fsdp_1node --vary compile=yes,no")
    phase = phase_called(arguments.phase)
    if not phase.is_training:
        trainings = ", ".join(stem for stem, known in PHASES.items() if known.is_training)
        raise UsageError(f"sweep {phase.stem}: not a training; there are {trainings}")
    vary = sweeps.read(arguments.vary, phase)
    if arguments.weak and NODES not in vary:
        raise UsageError("--weak is for --vary nodes=1,2,4")
    site = at_site.entered()
    options = {name: getattr(arguments, name) for name in ("nodes", "nodelist", "grid", "weak", "repeat")}
    return sweep.run(sweep.begin(phase, vary, arguments.profile, site, **options), site)


def do_train(arguments: argparse.Namespace) -> int:
    request = train_here.Request(
        strategy=arguments.strategy,
        ranks=arguments.ranks,
        profile=catalogue.load_profile(arguments.profile),
        profile_name=profiles.portable(arguments.profile),
        options=arguments.options,
    )
    if arguments.resume_on is None:
        return write.judge_and_show(train_here.train(request)[0], None).exit_code
    folders, outcomes = [], []
    for folder, _ in train_here.resumed_on(request, arguments.resume_on):  # a refusal of the second leaves the first
        folders.append(folder)
        outcomes.append(write.judge_and_show(folder, None))
    if all((folder / METRICS).is_file() for folder in folders) and len(folders) == 2:
        outcomes += [Outcome.FAIL] if compare_losses(folders) else []
    return worst(outcomes).exit_code


def do_drill(arguments: argparse.Namespace) -> int:
    if arguments.checks is not None and arguments.anywhere:
        raise UsageError("--checks runs on local clusters: without --anywhere")
    on_local = declared.DRILLS if arguments.checks is None else suite.of_site(arguments.checks)
    ids = [drill.id for drill in on_local]
    unknown = [name for name in arguments.only if name not in ids]
    if unknown:
        near = profile_text.meant(unknown[0], ids)
        raise UsageError(f"no drill is called {', '.join(unknown)}{near}; bringup drill --list shows all")
    if arguments.list:
        chosen = [drill for drill in on_local if not arguments.only or drill.id in arguments.only]
        print(drill_result.listed(chosen))
        return 0
    if arguments.anywhere:
        at_site.entered()
    if arguments.resume is not None and arguments.only:
        raise UsageError("--resume goes on with what was planned: without --only")
    known = declared.DECLARED.values() if arguments.anywhere else on_local
    chosen = [drill for drill in known if not arguments.only or drill.id in arguments.only]
    if arguments.anywhere and not arguments.only and arguments.resume is None:
        chosen = [drill for drill in chosen if drill.where == "anywhere"]
    request = suite.Request(
        drills=chosen,
        anywhere=arguments.anywhere,
        # a run that is continued knows what it had planned
        profile=discovered.profile(catalogue.load_profile(arguments.profile), []) if arguments.anywhere else None,
        resume=arguments.resume,
    )
    return suite.run(request)
