"""The job that the user has, and environments in which programs see only a part of its nodes.

Slurm itself has no such thing: a step gets nodes of the whole job, whatever SLURM_JOB_NODELIST says. So each of these
environments has a program `srun` first on its PATH, which adds the option that keeps steps away from the other nodes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bringup.kernel.errors import UsageError
from bringup.kernel.facts import hostlist
from bringup.kernel.results import REPOSITORY
from bringup.run import slurm

SRUN = REPOSITORY / "infrastructure-validation/scripts/part-of-a-job"  # the folder of that program

_TASKS, _CPUS = "SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"
_LISTS, _COUNTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST"), ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")
_TASK_COUNTS = ("SLURM_NTASKS", "SLURM_NPROCS")
_OF_TASKS = re.compile(
    r"(?:SLURM|SRUN)_(?:NTASKS|NPROCS|TASKS_PER_NODE|CPUS_PER_TASK|NTASKS_PER_\w+|(?:CPU|MEM|GPU|TRES)_BIND\w*|HOSTFILE|HINT|"
    r"EXACT|EXCLUSIVE|THREADS_PER_CORE|DISTRIBUTION|KILL_BAD_EXIT|LABELIO|STD(?:IN|OUT|ERR)MODE)"
)
_PER_NODE = re.compile(r"(\d+)(?:\(x(\d+)\))?")


@dataclass(frozen=True)
class Allocation:
    job: str
    nodes: list[str]  # in Slurm's order
    gpus_per_node: int
    environment: Mapping[str, str]  # in which preflight was started

    def for_command(self, nodes: Sequence[str], hostfile: Path) -> dict[str, str]:
        """Return the user's own environment, as if the job had these nodes only. hostfile: a node per line, also
        written here for `mpirun --hostfile`."""
        shown = self._part(nodes)
        tasks = self._each(_TASKS, nodes)
        for name in _TASK_COUNTS:
            if name in shown and tasks:
                shown[name] = str(sum(tasks))
        return shown | {"BRINGUP_NODES": ",".join(nodes), "BRINGUP_HOSTFILE": str(hostfile), "MASTER_ADDR": nodes[0]}

    def for_script(self, nodes: Sequence[str], stem: str) -> dict[str, str]:
        """Return the environment of a phase's script: without what the user wants of the tasks of their own steps."""
        shown = {name: value for name, value in self._part(nodes).items() if not _OF_TASKS.fullmatch(name)}
        return shown | {
            "SLURM_SUBMIT_DIR": str(REPOSITORY),
            "SLURM_JOB_NAME": stem,  # its log is called so, and no log of the user
            "SLURM_GPUS_ON_NODE": str(self.gpus_per_node),
            "BRINGUP_NODES": ",".join(nodes),
        }

    def overlapping(self) -> "Allocation":
        """Return the same job, whose new steps share cores and GPUs with those that are there: a step of which a node
        was lost keeps its cores on the others for good, and a new step would wait."""
        return replace(self, environment={**self.environment, "SLURM_OVERLAP": "1"})

    def _part(self, nodes: Sequence[str]) -> dict[str, str]:
        shown = dict(self.environment)
        shown |= dict.fromkeys(_LISTS, hostlist.shortened(nodes)) | dict.fromkeys(_COUNTS, str(len(nodes)))
        for name in (_TASKS, _CPUS):
            if each := self._each(name, nodes):
                shown[name] = ",".join(map(str, each))
        others = [node for node in self.nodes if node not in nodes]
        path = [str(SRUN), *(part for part in shown.get("PATH", "").split(":") if part != str(SRUN))]
        return shown | {"PATH": ":".join(path), "BRINGUP_OTHER_NODES": ",".join(others)}

    def _each(self, name: str, nodes: Sequence[str]) -> list[int]:
        """Read what a variable (`2(x3),1`) says of nodes; empty where it does not say it of each node of the job."""
        counts = [
            int(match[1])
            for part in self.environment.get(name, "").split(",")
            if (match := _PER_NODE.fullmatch(part))
            for _ in range(int(match[2] or 1))
        ]
        by_node = dict(zip(self.nodes, counts, strict=False)) if len(counts) == len(self.nodes) else {}
        return [by_node[node] for node in nodes if node in by_node]


def of_environment(environment: Mapping[str, str]) -> Allocation:
    """Read the allocation from the environment. Raises UsageError outside of a job."""
    job = environment.get("SLURM_JOB_ID", "")
    listed = environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST")
    if not job.isdecimal() or not listed:
        raise UsageError(
            "preflight works inside a job of yours, with more nodes than the command needs: sbatch --nodes=3 "
            "--exclusive --no-kill --wrap 'bringup preflight --nodes 2 -- COMMAND', or salloc"
        )
    nodes = hostlist.expand(listed)
    gpus = _granted(environment) or min((node.gpus for node in slurm.nodes(nodes).values()), default=0)
    if gpus < 1:
        raise UsageError(f"preflight: Slurm granted no GPU to job {job}; ask for them: --exclusive, or --gpus-per-node")
    return Allocation(job, nodes, gpus, dict(environment))


def _granted(environment: Mapping[str, str]) -> int:
    """GPUs of each node, as the job's environment says it; 0: it does not."""
    for name in ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"):  # salloc on a login host sets only the second
        count = environment.get(name, "").rpartition(":")[2]
        if count.isdecimal():
            return int(count)
    return 0
