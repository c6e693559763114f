"""Whether a training fits into its memory, said before any weight is allocated.

What is needed comes from bringup.formulae.memory. A refusal has to be certain: of the predicted peak, parameters,
gradients and optimizer states are exact, and the rest counts with the lowest value that the prediction allows. What is
free is read: of the GPU from the driver, of the host from the kernel and from the cgroups that limit this process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from bringup.formulae import memory
from bringup.formulae.memory import Parts
from bringup.formulae.models import Job, job_of
from bringup.records import ModelShape, RunArgs
from memory_limits import host_available

from recipe import GIB, group, kept, model_shape, weights
from recipe.strategy import Refused

WITHIN = 1.15  # a predicted peak is that of torch's MemTracker within 15 %, a test says
READ_WHOLE = "take a model whose safetensors files can be read in parts, fewer ranks per node, or a larger node"


@dataclass(frozen=True)
class Footprint:
    """Predicted from the model, in bytes, for the rank with the most. peak None: `reason` says why."""

    shape: ModelShape
    states: Parts
    least: int  # of the peak, whatever the kernels
    peak: Parts | None
    reason: str | None


@dataclass(frozen=True)
class Need:
    """Bytes that one rank is going to allocate, at least."""

    device: int
    host: int
    read_whole: bool  # part of host: the model, before it is sharded or moved
    states: int  # part of device, or of host: what no number of rows and no recomputation makes smaller


@dataclass(frozen=True)
class Room:
    """Of the rank and of the node with the least room: fields of records.MemoryCheck. Without a GPU, device is None."""

    device_needed_bytes: int | None
    device_free_bytes: int | None
    host_needed_bytes: int  # by all ranks of the node together
    host_available_bytes: int


def footprint(model: Any, resolved: RunArgs, *, reads_checkpoint: bool = False) -> Footprint:
    """model: on the meta device. The same on every rank: nothing is asked of the machine."""
    shape, job = model_shape.shape_of(model, resolved.model), job_of(resolved, reads_checkpoint=reads_checkpoint)
    by_blocks, reason = (None, shape.not_covered) if shape.not_covered else kept.by_blocks(model, job)
    peak = None if by_blocks is None else memory.peak(shape, job, by_blocks)
    states = memory.states(shape, job.shards)
    return Footprint(shape, states, memory.least(shape, job), peak, reason)


def need(model: Any, predicted: Footprint, resolved: RunArgs, *, on_gpu: bool, read_whole: bool) -> Need:
    """model: without memory."""
    job, parts = job_of(resolved), predicted.peak
    device = max(predicted.least, at_start(model, predicted, job, read_whole=read_whole))
    if parts is not None:
        exact = parts.parameters + parts.gradients + parts.optimizer
        rest = parts.total - exact
        if resolved.recipe == "fast":  # fused kernels and compiled blocks store less of these
            rest -= parts.activations + parts.logits
        device = max(device, exact + int(rest / WITHIN))
    whole = memory.read_whole(predicted.shape) if read_whole else 0
    states = predicted.states.total
    if on_gpu:
        return Need(device, whole, read_whole, states)
    return Need(0, max(device, whole), read_whole, states)


def advice(resolved: RunArgs, *, of_host: bool, states_fit: bool) -> str:
    """What to change, of what was not changed yet: the cheap first, where it can be enough."""
    job = job_of(resolved)
    other = {
        "single": "take a smaller model, or FSDP on several ranks",
        "ddp": "take FSDP, which divides the states",
        "zero2": "leave out --no-reshard-after-forward",
        "hsdp": "raise --shard-size or leave out --hsdp",
    }.get(job.kind, "take more nodes")
    options = {
        "give --rows-at-once 1": states_fit and resolved.per_device_batch > 1,
        "give --activation-checkpointing": states_fit and not resolved.activation_checkpointing,
    }
    cheap = [option for option, helps in options.items() if helps]
    return ", or ".join([*cheap, other] if states_fit else [other, *cheap])


def at_start(model: Any, predicted: Footprint, job: Job, *, read_whole: bool) -> int:
    """On the device, while weights are drawn: the shard, and the largest part of the model whole (weights.py)."""
    held = predicted.states.parameters
    if read_whole or not job.sharded:
        return held
    return held + memory.MASTER * weights.largest_part(model)


def require(needed: Need, resolved: RunArgs, hosts: list[str]) -> Room:
    """Refuse, on every rank, what cannot fit. A collective. `hosts`: index = rank."""
    free = torch.cuda.mem_get_info(group.DEVICE)[0] if group.CUDA else None
    available, whose = host_available()
    everyone = group.gather((needed, free, available, whose), tuple[Need, int | None, int, str])
    kind = job_of(resolved).kind
    what = f"{resolved.model} as {kind} on {len(hosts)} rank(s)"
    of_device = [(theirs.device, room, rank) for rank, (theirs, room, _, _) in enumerate(everyone) if room is not None]
    tightest = max(of_device, key=lambda known: known[0] - known[1], default=None)
    if tightest is not None and tightest[0] > tightest[1]:
        raise Refused(
            f"{what}: expected room for {tightest[0] / GIB:.1f} GiB of device memory per rank, observed "
            f"{tightest[1] / GIB:.1f} GiB free on {hosts[tightest[2]]} (rank {tightest[2]}): "
            f"{advice(resolved, of_host=False, states_fit=needed.states <= tightest[1])}"
        )
    of_nodes: dict[str, tuple[int, tuple[int, str]]] = {}
    for host, (theirs, _, room, whose) in zip(hosts, everyone, strict=True):
        ours, least = of_nodes.get(host, (0, (room, whose)))
        of_nodes[host] = (ours + theirs.host, min(least, (room, whose)))
    host, (ours, (room, whose)) = max(of_nodes.items(), key=lambda known: known[1][0] - known[1][1][0])
    if ours > room:
        states_fit = not group.CUDA and needed.states * hosts.count(host) <= room
        raise Refused(
            f"{what}: expected room for {ours / GIB:.1f} GiB of host memory for the {hosts.count(host)} rank(s) of a "
            f"node, observed {room / GIB:.1f} GiB on {host} ({whose}): "
            f"{READ_WHOLE if needed.read_whole else advice(resolved, of_host=True, states_fit=states_fit)}"
        )
    return Room(None if tightest is None else tightest[0], None if tightest is None else tightest[1], ours, room)
