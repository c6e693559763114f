"""The few questions `bringup run` asks Slurm. Every answer may be missing: the controller can be away for a minute."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bringup.errors import ControllerAway, SlurmError
from bringup.evidence import hostlist
from bringup.evidence import slurm as answers
from bringup.known_faults import pending
from bringup.results import REPOSITORY

SEPARATOR = "\x1f"  # free text may hold every printable delimiter
ENDED = {
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "BOOT_FAIL",
    "DEADLINE",
    "PREEMPTED",
}


_AWAY = re.compile(r"Unable to contact slurm controller|Unable to establish controller machine")
_AGAIN_S = 2.0
T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    state: str
    reason: str


def ask(
    *command: str, timeout_s: float = 60, environment: dict[str, str] | None = None, folder: Path | None = None
) -> str:
    """Standard output of a Slurm command. Raises SlurmError with its own words."""
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False, env=environment, cwd=folder
        )
    except FileNotFoundError as error:
        raise SlurmError(
            f"{command[0]} is not on the PATH: run this on a login host of the cluster "
            "(`make cluster` starts a local one)"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SlurmError(f"{command[0]} gave no answer in {timeout_s:.0f} s") from error
    if result.returncode != 0:
        words = " ".join(result.stderr.split()) or f"exit code {result.returncode}"
        raise (ControllerAway if _AWAY.search(words) else SlurmError)(f"{command[0]}: {words}")
    return result.stdout


def patience_s() -> float:
    """How long to wait for a controller that is away, as for busy nodes: BRINGUP_WAIT_S, 120 by default."""
    given = os.environ.get("BRINGUP_WAIT_S", "")
    return float(given) if given.isdecimal() else 120.0


def patiently(question: Callable[[], T], tell: Callable[[str], None]) -> T:
    """The answer, asked for again while the controller is away. Raises its SlurmError when it stays away."""
    deadline = time.monotonic() + patience_s()
    while True:
        try:
            return question()
        except ControllerAway as error:
            if time.monotonic() > deadline:
                raise
            tell(f"no answer from slurmctld ({error}); waiting up to {patience_s():.0f} s for it")
            time.sleep(_AGAIN_S)


def chosen_partition() -> str | None:
    """As Slurm's own commands read it; None: the default one."""
    return os.environ.get("SBATCH_PARTITION") or os.environ.get("SLURM_PARTITION")


def partition_nodes(partition: str | None) -> list[str]:
    """Names of all nodes of a partition (None: the default one), in Slurm's order. Raises SlurmError."""
    names: list[str] = []
    for line in ask("sinfo", "--noheader", "--format", f"%P{SEPARATOR}%N").splitlines():
        name, _, nodes = line.partition(SEPARATOR)
        if name.rstrip("*") == partition or (partition is None and name.endswith("*")):
            names += [node for node in hostlist.expand(nodes) if node not in names]
    if not names:
        raise SlurmError(
            f"no partition {partition!r} with nodes"
            if partition
            else "no default partition; name one: export SBATCH_PARTITION=… SLURM_PARTITION=…"
        )
    return names


def show_nodes() -> str:
    return ask("scontrol", "--oneliner", "show", "node")


def node_facts() -> tuple[dict[str, str], dict[str, int]]:
    """Per node: its state (harmless flags removed) and the GPUs configured for it."""
    states: dict[str, str] = {}
    gpus: dict[str, int] = {}
    for one in answers.nodes(show_nodes(), "scontrol").observations:
        if one.quantity == "slurm.node.state":
            states[one.subject] = str(one.value)
        elif one.quantity == "slurm.node.gpus" and isinstance(one.value, int):
            gpus[one.subject] = one.value
    return states, gpus


def why(job_id: str) -> str:
    """State of a job, and in plain words why it waits or how it ended. Raises SlurmError."""
    one = job(job_id)
    if one is None:
        raise SlurmError(
            f"Slurm does not know job {job_id}; a job that ended is forgotten after MinJobAge; try sacct -j {job_id}"
        )
    words = in_words(one)
    return f"job {job_id} {one.state.lower()}" + (f": {words}" if words else "")


def in_words(one: Job) -> str:
    """Why it waits or how it ended; without the nodes' states while the controller gives no answer."""
    nodes: dict[str, pending.Node] = {}
    try:
        text = show_nodes()
    except SlurmError:
        return pending.explain(one.reason, nodes)
    for seen in answers.nodes(text, "scontrol").observations:
        if seen.quantity == "slurm.node.state":
            nodes[seen.subject] = pending.Node(str(seen.value), seen.why)
    return pending.explain(one.reason, nodes)


def submit(script: str, nodes: list[str], environment: dict[str, str]) -> str:
    """Job id of `script`, a path from the repository root. Raises SlurmError with sbatch's words."""
    answer = ask(
        "sbatch",
        "--parsable",
        "--export=ALL",  # whatever the site's SBATCH_EXPORT is: the script has to know the run's name and nodes
        f"--nodes={len(nodes)}",
        f"--nodelist={','.join(nodes)}",
        script,
        environment=environment,
        folder=REPOSITORY,
    )
    return answer.strip().split(";")[0]


def job(job_id: str) -> Job | None:
    """State and reason; None when Slurm no longer knows the job. Raises SlurmError while the controller is away."""
    try:
        text = ask("squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format", f"%T{SEPARATOR}%r")
    except SlurmError as error:
        if "Invalid job id" in str(error):
            return None
        raise
    state, _, reason = text.strip().partition(SEPARATOR)
    return Job(state, reason) if state else None


def is_own(job_id: str, name: str) -> bool:
    """Whether Slurm still knows this job of this user, under this name: numbers begin again on a new cluster."""
    try:
        told = ask("squeue", "--noheader", "--states=all", "--me", f"--jobs={job_id}", "--format", "%j")
    except SlurmError:
        return False
    return told.strip() == name


def cancel(job_id: str) -> None:
    ask("scancel", job_id)
