"""Verbs that run phases, and say what the site file sets and why a job waits."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
from dataclasses import asdict
from pathlib import Path

from bringup.cli.arguments import phase_called, phases_called
from bringup.cli.training import compare_losses
from bringup.errors import UsageError
from bringup.plan import profile as profiles
from bringup.plan import sweep as sweeps
from bringup.plan.phases import PHASES
from bringup.records import Outcome, worst
from bringup.results import METRICS


def do_run(arguments: argparse.Namespace) -> int:
    from bringup.plan import catalogue
    from bringup.run import playbook
    from bringup.run import site as at_site

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
    from bringup.plan import catalogue
    from bringup.run import site as at_site
    from bringup.run import sweep

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
    if arguments.weak and sweeps.NODES not in vary:
        raise UsageError("--weak is for --vary nodes=1,2,4")
    site = at_site.entered()
    request = sweep.Request(
        phase=phase,
        vary=vary,
        grid=arguments.grid,
        weak=arguments.weak,
        repeat=arguments.repeat,
        nodes=arguments.nodes,
        nodelist=arguments.nodelist,
        profile=catalogue.load_profile(arguments.profile),
        profile_name=profiles.portable(arguments.profile),
        site=site,
    )
    return sweep.run(sweep.begin(request), site)


def do_train(arguments: argparse.Namespace) -> int:
    from bringup.plan import catalogue
    from bringup.report import write
    from bringup.run import train_here

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


def do_site(arguments: argparse.Namespace) -> int:
    from bringup.report import text
    from bringup.run import site as at_site

    if arguments.init is not None:
        return _write_site(arguments.init)
    if arguments.phase is not None:
        phase_called(arguments.phase)
    at = at_site.from_environment()
    if at is None:
        raise UsageError("no site file is used; name one: export BRINGUP_SITE=NAME, or the path of a .yaml file")
    if arguments.export:
        print("\n".join(at_site.for_a_person(at, arguments.phase)))
        return 0
    rows = text.site_rows(at_site.used(at.site, arguments.phase))
    print(f"{text.shown_path(at.file)}\n" + text.columns(("key", "value", "here instead"), rows))
    return 0


def _write_site(named: str) -> int:
    from bringup.report import text
    from bringup.run.before import cluster, new_site

    is_path = named.endswith((".yaml", ".yml"))
    new = new_site.suggest(cluster.read(), Path(named).name.split(".")[0] if is_path else named or None)
    path = new_site.write(new, named)
    print("\n".join(f"assumed    {line}" for line in new.assumed))
    print(f"wrote      {text.shown_path(path)}")
    print(f"next       export BRINGUP_SITE={path.resolve() if is_path else new.site.name} && bringup doctor")
    return 0


def do_doctor(arguments: argparse.Namespace) -> int:
    from bringup.report.terminal import console
    from bringup.run.before import checks, doctor

    lines = doctor.look(arguments.profile)
    console().print(doctor.screen(lines))
    return checks.exit_code(lines)


def do_why(arguments: argparse.Namespace) -> int:
    from bringup.daily import why
    from bringup.errors import SlurmError
    from bringup.report import text
    from bringup.run import slurm

    if not re.fullmatch(r"\d+([_+]\d+)?(\.\w+)?", arguments.job):
        raise UsageError(f"{arguments.job!r} is not a job number; squeue --me lists yours")
    with contextlib.suppress(SlurmError):  # it may be forgotten: the accounting may know it
        state = slurm.job(arguments.job)
        if state is not None and state.state == "PENDING":
            print(text.plain(slurm.why(arguments.job)))
            return 0
    answer = why.look(arguments.job, stall_s=arguments.stall_after, on_nodes=arguments.on_nodes)
    shown = json.dumps(asdict(answer), indent=1) if arguments.json else why.screen(answer)
    print("\n".join(text.printable(line) for line in shown.split("\n")))
    return 0


def do_drill(arguments: argparse.Namespace) -> int:
    from bringup.drill import result as drill_result
    from bringup.drill import suite
    from bringup.plan import catalogue, profile_text
    from bringup.plan.drill import Shape
    from bringup.run import discovered
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
        chosen = [drill for drill in on_local if not arguments.only or drill.id in arguments.only]
        print(drill_result.listed(chosen))
        return 0
    if arguments.healthy and (arguments.anywhere or arguments.only):
        raise UsageError("--healthy makes no fault and runs on local clusters: without --anywhere and --only")
    if arguments.anywhere:
        at_site.entered()
    if arguments.resume is not None and (arguments.only or arguments.healthy):
        raise UsageError("--resume goes on with what was planned: without --only and --healthy")
    known = catalogue.DECLARED.values() if arguments.anywhere else on_local
    chosen = [drill for drill in known if not arguments.only or drill.id in arguments.only]
    if arguments.anywhere and not arguments.only and arguments.resume is None:
        chosen = [drill for drill in chosen if drill.where == "anywhere"]
    request = suite.Request(
        drills=[] if arguments.healthy else chosen,
        healthy=arguments.healthy,
        shape=Shape(arguments.nodes, arguments.gpus),
        phases=arguments.phases,
        anywhere=arguments.anywhere,
        # a run that is continued knows what it had planned
        profile=discovered.profile(catalogue.load_profile(arguments.profile), []) if arguments.anywhere else None,
        resume=arguments.resume,
    )
    return suite.run(request)
