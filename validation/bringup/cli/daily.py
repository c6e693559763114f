"""Verbs for the time after bring-up: any job's cause, a preflight, the baseline of the health check."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
from dataclasses import asdict
from pathlib import Path

from bringup.health import baseline
from bringup.kernel import judge, results
from bringup.kernel.errors import SlurmError, UsageError
from bringup.kernel.plan import catalogue
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.phases import PREFLIGHT
from bringup.preflight import checks, flow
from bringup.report import outputs, text
from bringup.run import site as at_site
from bringup.run import slurm
from bringup.why import job as why


def do_why(arguments: argparse.Namespace) -> int:
    is_log = not re.fullmatch(r"\d+([_+]\d+)?(\.\w+)?", arguments.job)
    if is_log and arguments.job != "-" and not Path(arguments.job).is_file():
        raise UsageError(f"{arguments.job!r} is not a job number (squeue --me lists yours), nor a file with a log")
    with contextlib.suppress(SlurmError):  # it may be forgotten: the accounting may know it
        state = None if is_log else slurm.job(arguments.job)
        if state is not None and state.state == "PENDING":
            print(text.plain(slurm.why_pending(arguments.job, state)))
            return 0
    if is_log:
        answer = why.look_at_log(arguments.job, arguments.state, arguments.of_nodes, arguments.tasks)
    else:
        answer = why.look(arguments.job, stall_s=arguments.stall_after, on_nodes=arguments.on_nodes)
    if arguments.json:
        print("\n".join(map(text.printable, json.dumps(asdict(answer), indent=1).split("\n"))))
        return 0
    for line in why.screen(answer).split("\n"):  # what is to be run stays in one line, for who copies it
        print(text.printable(line) if line.startswith("next ") else text.wrapped(line, why.LABEL))
    return 0


def do_preflight(arguments: argparse.Namespace) -> int:
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise UsageError("preflight: which command? bringup preflight --nodes 2 -- srun python train.py")
    site = at_site.from_environment()  # its variables for sbatch and srun are not the command's
    request = checks.Request(
        command=command,
        nodes=arguments.nodes,
        retries=arguments.retries,
        stall_after_s=arguments.stall_after,
        phases=[stem for stem in PREFLIGHT if stem in arguments.phases],
        profile=catalogue.load_profile(arguments.profile),
        profile_name=profiles.portable(arguments.profile),
        site=site,
    )
    # standard output is the command's
    return flow.run(request, os.environ, lambda line: print(f"preflight: {line}", file=sys.stderr, flush=True))


def do_site_baseline(arguments: argparse.Namespace) -> int:
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
