#!/usr/bin/env python3
"""Become another program, with those variables alone that Slurm, MPI, NCCL and the site file set, and no secret.

For nccl-tests: with -J they write their whole environment into a file as soon as they start. Older ones, as HPC-X and
some images bring them, end at once with their usage when they see -J. They run without it and leave their table.
Run: srun … PYTHON clean_environment.py PROGRAM [ARGUMENT]…   (SITE_VARIABLES: names that the site file sets)
"""

import os
import signal
import subprocess
import sys

from bringup.plan.hidden import looks_secret

NAMES = {"PATH", "HOME", "USER", "LOGNAME", "HOSTNAME", "PWD", "TMPDIR", "LANG", "TZ"}
PREFIXES = (
    *("SLURM_", "SLURMD_", "PMI_", "PMIX_", "PALS_", "PRTE_", "OMPI_", "OPAL_", "MPICH_", "I_MPI_", "MV2_", "HYDRA_"),
    *(
        "NCCL_",
        "OFI_",
        "CUDA_",
        "NVIDIA_",
        "UCX_",
        "UCC_",
        "FI_",
        "IBV_",
        "MLX5_",
        "RDMAV_",
        "PSM2_",
        "PSM3_",
        "HCOLL_",
    ),
    *("SHARP_", "SLINGSHOT_", "OMP_", "LD_", "LC_"),
)


HELP_S = 60  # for the usage of a program on a cold filesystem


def clean(environment):
    names = NAMES.union(environment.get("SITE_VARIABLES", "").split())
    return {
        name: value
        for name, value in environment.items()
        if (name in names or name.startswith(PREFIXES)) and not looks_secret(name, value)
    }


def without_unknown_json(command, environment):
    """The command, without `-J FILE` where the program's usage does not name it."""
    if "-J" not in command:
        return command
    options = {"env": environment, "capture_output": True, "text": True, "errors": "replace", "timeout": HELP_S}
    try:
        usage = subprocess.run([command[0], "--help"], check=False, **options)
    except subprocess.TimeoutExpired:
        return command
    if "--output_file" in usage.stdout + usage.stderr:
        return command
    at = command.index("-J")
    return command[:at] + command[at + 2 :]


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: clean_environment.py PROGRAM [ARGUMENT]…")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and what it becomes would do so, too
    environment = clean(os.environ)
    try:
        command = without_unknown_json(sys.argv[1:], environment)
        os.execvpe(command[0], command, environment)  # noqa: S606  # no shell is wanted
    except OSError as error:
        sys.exit(f"clean_environment.py: {sys.argv[1]}: {error.strerror}")


if __name__ == "__main__":
    main()
