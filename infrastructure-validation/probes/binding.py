#!/usr/bin/env python3
"""What Slurm gave this task: the GPU, by UUID, that it was bound to, the GPUs it can open, the cores it may run on.

Proves: binding as the kernel enforces it, not as an environment variable says. Does not prove: that the GPU computes.
Run: srun --label --gpus-per-task=1 --cpus-per-task=1 python3 binding.py task
     srun --label python3 binding.py no-gpu      (a job that requested none)
     srun --label --gpus-per-node=1 python3 binding.py first|second   (two jobs at once; the first waits for the end
                                                                      of its input)
"""

import os
import re
import sys
from pathlib import Path

import gpus
from beside import cpus
from facts import Facts
from imex import CHANNELS
from imex import NONE as NO_IMEX

TOPOLOGY = Path("/sys/devices/system/cpu")
NUMA = Path("/sys/devices/system/node")
TMP = Path("/tmp")  # noqa: S108  # a job_container gives each job a folder of its own there


def main():
    if sys.argv[1:] not in (["task"], ["no-gpu"], ["first"], ["second"]):
        sys.exit("usage: binding.py task|no-gpu|first|second")
    facts = Facts({"task": "binding", "no-gpu": "isolation"}.get(sys.argv[1], f"{sys.argv[1]}_job"))
    allowed, denied = gpus.openable()
    if sys.argv[1] == "task":
        task = f"{facts.at}/task{os.environ['SLURM_PROCID']}"
        near_gpu(facts, bound(facts, task, allowed))
        facts.saw("smoke.binding.openable", allowed, "text", task)
        facts.saw("smoke.binding.denied", denied, "text", task)
        facts.saw("smoke.cpu.bound", cores(), "count")
    elif sys.argv[1] in ("first", "second"):
        at_once(facts, f"smoke.{sys.argv[1]}_job", allowed, denied)
    else:
        facts.saw("smoke.gpu.isolated", len(denied), "count")
        facts.saw("smoke.isolation.openable", allowed, "text")
        facts.saw("smoke.cpu.confined", cores(), "count")  # the job has one core: with and without task/affinity
    facts.finish()


def at_once(facts, job, allowed, denied):
    """One of two jobs on this node. The first says at its end which GPUs it could open; the second ran in between."""
    bound(facts, facts.at, allowed, f"{job}.gpu")
    tmp = TMP.stat()
    facts.saw(f"{job}.tmp", [f"{tmp.st_dev}:{tmp.st_ino}"], "text")
    facts.saw(f"{job}.imex", channels(), "text")
    facts.saw(f"{job}.denied", denied, "text")
    facts.saw(f"{job}.openable", allowed, "text")
    if job.startswith("smoke.first"):
        sys.stdin.read()
        facts.saw(f"{job}.outlasted", True, "flag")


def channels(folder=CHANNELS):
    """The IMEX channels that this process may open; where the node has none for anybody, that."""
    if not folder.exists():
        return NO_IMEX
    return [path.name for path in sorted(folder.glob("channel*")) if opens(path)]


def opens(path):
    try:
        os.close(os.open(str(path), os.O_RDWR))
    except OSError:
        return False
    return True


def bound(facts, task, allowed, quantity="smoke.binding.gpu"):
    """The one GPU that this task would compute on; None when it is not known."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    gpu = None
    if re.fullmatch(r"\d+", visible) and int(visible) < len(allowed):
        # an index counts among the devices that can be opened, in CUDA's order, with and without confinement
        gpu = allowed[int(visible)]
    elif visible in allowed:
        gpu = visible
    facts.answered(quantity, gpu, "text", f"CUDA_VISIBLE_DEVICES={visible!r} names no single GPU of {allowed}", task)
    return gpu


def near_gpu(facts, gpu, numa=NUMA, quantity="smoke.cpu.near_gpu", subject=None):
    """Share of the CPUs that this process may run on which belong to the NUMA node of its GPU."""
    nodes = numa_nodes(numa)
    at, why = node_of(gpu, nodes)
    if at is None:
        facts.unknown(quantity, "share", why, subject)
        return
    allowed = os.sched_getaffinity(0)
    near = allowed & nodes[at]
    remark = f"{gpu} sits at NUMA node {at}, {len(near)} of {len(allowed)} CPUs too"
    facts.saw(quantity, len(near) / len(allowed), "share", subject, remark)


def node_of(gpu, nodes):
    """(number of this GPU's NUMA node, as text, and None), or (None, why it is not known). nodes: of numa_nodes."""
    if gpu is None:
        return None, "it is not known which GPU the task was given"
    at = gpus.numa_node(gpu)
    if at == "-1" and len(nodes) == 1:
        at = next(iter(nodes))  # there is only one
    if at in nodes:
        return at, None
    return None, f"{gpu}: " + ("no PCI device stands behind it" if at is None else f"its NUMA node reads {at}")


def numa_nodes(numa=NUMA):
    """{number as text: its CPUs} of the NUMA nodes of this machine."""
    return {path.name[len("node") :]: cpus((path / "cpulist").read_text()) for path in sorted(numa.glob("node[0-9]*"))}


def cores():
    """Distinct cores in the affinity mask: two hardware threads of one core count once."""
    distinct = set()
    for cpu in os.sched_getaffinity(0):
        folder = TOPOLOGY / f"cpu{cpu}" / "topology"
        try:
            distinct.add(((folder / "physical_package_id").read_text(), (folder / "core_id").read_text()))
        except OSError:  # no topology in this kernel: count the CPU itself
            distinct.add(cpu)
    return len(distinct)


if __name__ == "__main__":
    main()
