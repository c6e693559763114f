#!/usr/bin/env python3
"""Become another program, with those variables alone that Slurm, MPI, NCCL and the site file set, and no secret.

For nccl-tests: with -J they write their whole environment into a file as soon as they start.
Run: srun … PYTHON clean_environment.py PROGRAM [ARGUMENT]…   (SITE_VARIABLES: names that the site file sets)
"""

import os
import signal
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


def clean(environment):
    names = NAMES.union(environment.get("SITE_VARIABLES", "").split())
    return {
        name: value
        for name, value in environment.items()
        if (name in names or name.startswith(PREFIXES)) and not looks_secret(name, value)
    }


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: clean_environment.py PROGRAM [ARGUMENT]…")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and what it becomes would do so, too
    environment = clean(os.environ)
    try:
        os.execvpe(sys.argv[1], sys.argv[1:], environment)  # noqa: S606  # no shell is wanted
    except OSError as error:
        sys.exit(f"clean_environment.py: {sys.argv[1]}: {error.strerror}")


if __name__ == "__main__":
    main()
