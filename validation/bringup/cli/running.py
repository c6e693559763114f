"""Verbs that run phases, and say what the site file sets and why a job waits."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from bringup.cli.command_line import natural, phase_called, profile_of_the_environment
from bringup.errors import UsageError
from bringup.plan import profile as profiles
from bringup.plan import sweep as sweeps
from bringup.plan.phases import PHASES

if TYPE_CHECKING:
    from bringup.cli.command_line import Verbs


def add(verbs: Verbs) -> None:
    verb = verbs.add_parser("run", help="all phases, one after the other, with progress; or some of them")
    verb.add_argument("phases", nargs="*", metavar="PHASE", help=f"default: all ({', '.join(PHASES)})")
    verb.add_argument("--nodes", type=int, help="how many nodes (default: all nodes of the default partition)")
    verb.add_argument("--nodelist", help="which nodes: n[0-3]")
    profile_of_the_environment(verb, "name or .yaml path")
    verb.add_argument(
        "--resume", type=Path, metavar="FOLDER", help="continue an earlier playbook run: what passed is not repeated"
    )
    verb.add_argument("--strict", action="store_true", help="stop at any fault; default: ill nodes are left out")
    verb.set_defaults(verb=_run)

    verb = verbs.add_parser(
        "sweep", help="variants of one training (batch, attention, ZeRO-2, …), and a table of what each of them gives"
    )
    verb.add_argument("phase", nargs="?", metavar="PHASE", help="a training: run_fsdp_1node")
    verb.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="FIELD=VALUE,VALUE",
        help="one field at a time against the base ($BRINGUP_TRAIN_ARGS, or the profile's workload). May be repeated. "
        f"Fields: {', '.join(sweeps.FIELDS)}; of the flags yes or no",
    )
    verb.add_argument("--grid", action="store_true", help="every combination of the values instead")
    verb.add_argument(
        "--repeat",
        type=natural,
        default=1,
        help="runs of each variant, which show the noise (default: %(default)s)",
    )
    verb.add_argument("--nodes", type=int, help="how many nodes (default: all that the phase takes)")
    verb.add_argument("--nodelist", help="which nodes: n[0-3]")
    profile_of_the_environment(verb, "name or .yaml path")
    verb.add_argument(
        "--resume", type=Path, metavar="FOLDER", help="continue an earlier sweep: runs that finished are not repeated"
    )
    verb.set_defaults(verb=_sweep)

    verb = verbs.add_parser(
        "site", help="what the site file of $BRINGUP_SITE says; --export: as lines to source before sbatch"
    )
    verb.add_argument("phase", nargs="?", metavar="PHASE", help="with its own time limit (default: that of any phase)")
    verb.add_argument("--export", action="store_true", help="source <(bringup site --export)")
    verb.set_defaults(verb=_site)

    verb = verbs.add_parser("why", help="why a job waits, or how it ended, in plain words")
    verb.add_argument("job", metavar="JOBID")
    verb.set_defaults(verb=_why)


def _run(arguments: argparse.Namespace) -> int:
    from bringup.checks import catalogue
    from bringup.run import playbook
    from bringup.run import site as at_site

    for phase in arguments.phases:  # before the first request to Slurm
        phase_called(phase)
    site = at_site.from_environment()
    at_site.enter(site)
    return playbook.run(
        playbook.Request(
            nodes=arguments.nodes,
            nodelist=arguments.nodelist,
            profile=catalogue.load_profile(arguments.profile),
            profile_name=profiles.portable(arguments.profile),
            phases=arguments.phases,
            resume=arguments.resume,
            strict=arguments.strict,
            site=site,
        )
    )


def _sweep(arguments: argparse.Namespace) -> int:
    from bringup.checks import catalogue
    from bringup.run import site as at_site
    from bringup.run import sweep

    if arguments.resume is not None:
        if arguments.phase or arguments.vary or arguments.nodes or arguments.nodelist:
            raise UsageError("sweep --resume goes on with what it was: leave out the phase, --vary and the nodes")
        site = at_site.from_environment()
        at_site.enter(site)
        return sweep.run(arguments.resume, site)
    if arguments.phase is None or not arguments.vary:
        raise UsageError("sweep needs a training and what to vary: bringup sweep run_fsdp_1node --vary compile=yes,no")
    phase = phase_called(arguments.phase)
    if not phase.is_training:
        trainings = ", ".join(stem for stem, known in PHASES.items() if known.is_training)
        raise UsageError(f"sweep {phase.stem}: not a training; there are {trainings}")
    vary = sweeps.read(arguments.vary, phase)
    site = at_site.from_environment()
    at_site.enter(site)
    request = sweep.Request(
        phase=phase,
        vary=vary,
        grid=arguments.grid,
        repeat=arguments.repeat,
        nodes=arguments.nodes,
        nodelist=arguments.nodelist,
        profile=catalogue.load_profile(arguments.profile),
        profile_name=profiles.portable(arguments.profile),
        site=site,
    )
    return sweep.run(sweep.begin(request), site)


def _site(arguments: argparse.Namespace) -> int:
    from bringup.report import text
    from bringup.run import site as at_site

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


def _why(arguments: argparse.Namespace) -> int:
    from bringup.report import text
    from bringup.run import slurm

    if not re.fullmatch(r"\d+([_+]\d+)?(\.\w+)?", arguments.job):
        raise UsageError(f"{arguments.job!r} is not a job number; squeue --me lists yours")
    print(text.plain(slurm.why(arguments.job)))
    return 0
