"""Verbs for the time after bring-up: the baseline of the health check, a preflight."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from bringup.errors import UsageError
from bringup.plan.phases import PREFLIGHT


def do_site_baseline(arguments: argparse.Namespace) -> int:
    from bringup import judge, results
    from bringup.daily import baseline
    from bringup.report import outputs

    output = outputs.Output("-o", arguments.output or Path("-"), arguments.force)
    outputs.check([output])
    runs = results.find(arguments.runs)
    made = baseline.made_of([judge.judge_folder(folder) for folder in runs.once])
    outputs.write(output, made.model_dump_json(indent=1) + "\n")
    if not output.is_standard_output:
        nodes, limits = sum(len(group.nodes) for group in made.groups), len(made.groups[-1].asked)
        print(
            f"{arguments.output}: {nodes} nodes, {limits} questions; infrastructure-validation/slurm/install takes it"
        )
    return 0


def do_preflight(arguments: argparse.Namespace) -> int:
    from bringup.daily.preflight import checks, flow
    from bringup.plan import catalogue
    from bringup.plan import profile as profiles
    from bringup.run import site as at_site

    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise UsageError("preflight: which command? bringup preflight --nodes 2 -- srun python train.py")
    site = at_site.from_environment()  # its variables for sbatch and srun are not the command's
    request = checks.Request(
        command=command,
        nodes=arguments.nodes,
        spares=arguments.spares,
        retries=arguments.retries,
        stall_after_s=arguments.stall_after,
        phases=[stem for stem in PREFLIGHT if stem in arguments.phases],
        profile=catalogue.load_profile(arguments.profile),
        profile_name=profiles.portable(arguments.profile),
        site=site,
    )
    # standard output is the command's
    return flow.run(request, os.environ, lambda line: print(f"preflight: {line}", file=sys.stderr, flush=True))
