"""Bash in the root of the checkout, as in a job of three nodes."""

import os
import subprocess
import sys
from pathlib import Path

from programs import ROOT, program, ran

JOB = {
    "SLURM_JOB_NAME": "training",
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[0-2]",
    "SLURM_JOB_NUM_NODES": "3",
    "SLURM_GPUS_ON_NODE": "2",
    "SLURM_CPUS_ON_NODE": "2",
    "SLURM_SUBMIT_DIR": str(ROOT),
    "BRINGUP_VENV": str(Path(sys.executable).parent.parent),
}


def bash(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "BRINGUP_"))}
    return ran(["bash", "-c", script, "bash", *arguments], cwd=ROOT, env=inherited | JOB | environment)


def on_the_path(folder: Path, **programs: str) -> str:
    """The PATH on which these programs of the test stand first."""
    for name, body in programs.items():
        program(folder / name, body)
    return f"{folder}:{os.environ['PATH']}"


def refused(done: subprocess.CompletedProcess[str], *says: str) -> None:
    """It is one line and exit code 2."""
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert [words for words in says if words not in done.stderr] == [], done.stderr


def chosen(ranks: int, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The workload that a training script would pass on: that of the profile, if one is named."""
    script = """set -euo pipefail
        source infrastructure-validation/scripts/job.sh
        need_repository
        source training/env.sh
        choose_workload training/src/train_ddp_multi_node.py "$@"
        printf '%s\\n' "${workload[*]}" """
    none = {} if "BRINGUP_PROFILE" in environment else {"BRINGUP_TRAIN_ARGS": ""}
    return bash(script, str(ranks), *options, **none | environment)


def in_job_sh(command: str, **environment: str) -> str:
    done = bash(f"set -euo pipefail; source infrastructure-validation/scripts/job.sh; {command}", **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
