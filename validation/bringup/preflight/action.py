"""What `bringup preflight` does."""

import argparse
import os
import sys

from bringup.kernel.errors import UsageError
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.phases import PREFLIGHT
from bringup.preflight import checks, flow
from bringup.run import site as at_site


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
        profile=profiles.load(arguments.profile),
        profile_name=profiles.portable(arguments.profile),
        site=site,
    )
    # standard output is the command's
    return flow.run(request, os.environ, lambda line: print(f"preflight: {line}", file=sys.stderr, flush=True))
