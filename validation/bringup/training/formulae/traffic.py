"""What one training step sends, computed from the shape of the model and the layout of the job. Bytes per optimizer
step.

A collective's bytes are those of the full tensor, as nccl-tests counts them (doc/PERFORMANCE.md there). All formulae
assume rings. In a ring of n each rank sends (n-1)/n of the bytes for all_gather and reduce_scatter, and twice as much
for all_reduce. A test compares calls and bytes with those of the real fully_shard (training/src/predict.py).
"""

import math
from dataclasses import dataclass
from typing import Literal

from bringup.training.formulae.memory import MASTER, groups
from bringup.training.formulae.models import Job, padded
from bringup.training.records import ModelShape

Operation = Literal["all_reduce", "all_gather", "reduce_scatter"]


@dataclass(frozen=True)
class Collective:
    """One kind of call in a step. `over`: ranks of a node, of several, those with the same shard, or all ranks."""

    operation: Operation
    over: Literal["node", "nodes", "replicas", "all"]
    ranks: int  # in a group
    calls: int
    size: int  # bytes of the full tensors, all calls together

    @property
    def sent(self) -> float:
        """Count bytes that one rank sends."""
        return self.size * (self.ranks - 1) / self.ranks * (2 if self.operation == "all_reduce" else 1)

    @property
    def message(self) -> float:
        """Return mean bytes of a call."""
        return self.size / self.calls


def collectives(shape: ModelShape, job: Job) -> list[Collective]:
    """Return the collectives of one optimizer step. Norms, losses and barriers are some bytes and left out."""
    if job.ranks == 1:
        return []
    if job.kind == "ddp":
        size = MASTER * shape.parameters
        buckets = math.ceil(size / (job.bucket_mib * 2**20))
        return [Collective("all_reduce", "all", job.ranks, job.reductions * buckets, job.reductions * size)]
    over: Literal["node", "nodes", "all"] = "all"
    if job.kind == "hsdp":
        over = "node" if job.shards <= job.gpus_per_node else "nodes"
    shard = {tensors: padded(tensors, job.shards) for _, tensors in groups(shape)}
    calls = sum(count for count, _ in groups(shape))
    whole = job.shards * sum(count * shard[tensors] for count, tensors in groups(shape))
    again = job.kind != "zero2"  # for the backward pass; tail and root stay gathered between the two
    once = [group for group in (shape.tail, shape.rest) if group]
    gathers = job.accumulation * (2 * calls - len(once) if again else calls)
    gathered = whole if not again else 2 * whole - job.shards * sum(shard[group] for group in once)
    gathered *= job.accumulation * job.compute_bytes
    reductions, reduced = job.reductions * calls, job.reductions * job.reduce_bytes * whole
    of_step = [
        Collective("all_gather", over, job.shards, gathers, gathered),
        Collective("reduce_scatter", over, job.shards, reductions, reduced),
    ]
    if job.kind == "hsdp" and job.replicas > 1:
        of_step.append(Collective("all_reduce", "replicas", job.replicas, reductions, reduced // job.shards))
    return of_step


def sent_inside(calls: list[Collective], job: Job) -> float:
    """Count bytes that a rank sends to its neighbour in the node. Replicas have one if a node holds several."""
    if job.gpus_per_node == 1:
        return 0.0
    several = job.shards < job.gpus_per_node
    return sum(collective.sent for collective in calls if several or collective.over != "replicas")


def leaving_node(calls: list[Collective], job: Job) -> float:
    """Count bytes that leave a node. A ring passes each node's border once; each shard has a ring of replicas."""
    if job.nodes == 1:
        return 0.0
    rings = {"node": 0, "replicas": min(job.shards, job.gpus_per_node)}
    return sum(collective.sent * rings.get(collective.over, 1) for collective in calls)
