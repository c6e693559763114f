"""A round of pairs by collectives ends with its own steps, while what watches the nodes goes on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1] / "infrastructure-validation/scripts"

SRUN = """#!/bin/bash
case " $* " in *collectives.py*) echo measured ;; *) exec cat ;; esac # a watcher ends with its standard input
"""
ROUND = """
set -euo pipefail
placed() { :; }
rank0_of() { echo n0; }
port() { echo 1; }
cpus_per_rank() { echo 1; }
declare -A watcher_processes watcher_inputs
gpus=2 SLURM_JOB_NUM_NODES=2 RUN_DIR=$1 SRUN_SITE=() CONTAINER=() PYTHON=python3 PATH=$1:$PATH
source "$2/watchers.sh"
FUNCTION
start_watcher xids.jsonl 2 python3 xids.py
exchange_collectives pairs-1 "n0,n1 n2,n3" 1
echo went on
"""


def test_a_round_does_not_wait_for_the_watcher_of_xids(tmp_path: Path) -> None:
    """On every node with NVIDIA's driver the job once waited for it until its time limit."""
    (tmp_path / "raw").mkdir()
    script = (SCRIPTS / "nccl_pairwise.sbatch").read_text()
    function = re.search(r"^exchange_collectives\(\).*?^}$", script, re.DOTALL | re.MULTILINE)
    assert function is not None
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    (tmp_path / "round.sh").write_text(ROUND.replace("FUNCTION", function[0]))
    command = ["bash", tmp_path / "round.sh", tmp_path, SCRIPTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", "")
    for pair in ("n0-n1", "n2-n3"):
        assert (tmp_path / f"raw/pairs-1-{pair}.jsonl").read_text() == "measured\n"
