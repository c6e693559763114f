"""Whether a training fits into its memory, said before any weight is allocated.

What is needed comes from bringup.formulae.memory. A refusal has to be certain: of the predicted peak, parameters,
gradients and optimizer states are exact, and the rest counts with the lowest value that the prediction allows. What is
free is read: of the GPU from the driver, of the host from the kernel and from the cgroups that limit this process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from bringup.errors import ModelError
from bringup.formulae import memory
from bringup.formulae.memory import Parts
from bringup.formulae.models import Job, job_of
from bringup.records import ModelShape, RunArgs
from memory_limits import host_available

from recipe import GIB, group, model_shape, weights
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
class Room:
    """Needed and free of the rank and of the node with the least room: fields of records.MemoryCheck. Without a GPU,
    device is None."""

    device_needed_bytes: int | None
    device_free_bytes: int | None
    host_needed_bytes: int  # by all ranks of the node together
    host_available_bytes: int


def footprint(model: Any, resolved: RunArgs, *, reads_checkpoint: bool = False) -> Footprint:
    """model: on the meta device. The same on every rank: nothing is asked of the machine."""
    shape, job = model_shape.shape_of(model, resolved.model), job_of(resolved, reads_checkpoint=reads_checkpoint)
    peak, reason = None, shape.not_covered
    if reason is None:
        try:
            peak = memory.peak(shape, job)
        except ModelError as error:
            reason = str(error)
    return Footprint(shape, memory.states(shape, job.shards), memory.least(shape, job), peak, reason)


def need(model: Any, predicted: Footprint, resolved: RunArgs, *, on_gpu: bool, read_whole: bool) -> tuple[int, int]:
    """Return the bytes that one rank is going to allocate, at least: (of its device, of its host). model: without
    memory; read_whole: it is read whole, before it is sharded or moved."""
    job, parts = job_of(resolved), predicted.peak
    device = max(predicted.least, at_start(model, predicted, job, read_whole=read_whole))
    if parts is not None:
        exact = parts.parameters + parts.gradients + parts.optimizer
        rest = parts.total - exact
        if resolved.recipe == "fast":  # fused kernels and compiled blocks store less of these
            rest -= parts.activations + parts.logits
        device = max(device, exact + int(rest / WITHIN))
    whole = memory.read_whole(predicted.shape) if read_whole else 0
    return (device, whole) if on_gpu else (0, max(device, whole))


def at_start(model: Any, predicted: Footprint, job: Job, *, read_whole: bool) -> int:
    """Return what is on the device while weights are drawn: the shard, and the largest part of the model whole."""
    held = predicted.states.parameters
    return held if read_whole or not job.sharded else held + memory.MASTER * weights.largest_part(model)


def advice(resolved: RunArgs, *, states_fit: bool) -> str:
    """Return what to change, of what was not changed yet: the cheap first, where it can be enough."""
    kind = job_of(resolved).kind
    other = {
        "single": "take a smaller model, or FSDP on several ranks",
        "ddp": "take FSDP, which divides the states",
        "zero2": "leave out --no-reshard-after-forward",
        "hsdp": "raise --shard-size or leave out --hsdp",
    }.get(kind, "take more nodes")
    options = {
        "give --rows-at-once 1": states_fit and resolved.per_device_batch > 1,
        "give --activation-checkpointing": states_fit and not resolved.activation_checkpointing,
        "give --sync-each-batch": kind in ("fsdp", "zero2", "hsdp")
        and resolved.gradient_accumulation > 1
        and not resolved.sync_each_batch,
    }
    cheap = [option for option, helps in options.items() if helps]
    return ", or ".join([*cheap, other] if states_fit else [other])


def require(needed: tuple[int, int], predicted: Footprint, resolved: RunArgs, hosts: list[str]) -> Room:
    """Refuse, on every rank, what cannot fit. A collective. `hosts`: index = rank."""
    free = torch.cuda.mem_get_info(group.DEVICE)[0] if group.CUDA else None
    everyone = group.gather((*needed, free, host_available()), tuple[int, int, int | None, tuple[int, str]])
    what = f"{resolved.model} as {job_of(resolved).kind} on {len(hosts)} rank(s)"
    states = predicted.states.total
    of_device = [
        (room - device, device, room, rank) for rank, (device, _, room, _) in enumerate(everyone) if room is not None
    ]
    lacks, device, device_free, rank = min(of_device, default=(0, None, None, 0))
    if lacks < 0:
        raise Refused(
            f"{what}: expected room for {device / GIB:.1f} GiB of device memory per rank, observed "
            f"{device_free / GIB:.1f} GiB free on {hosts[rank]} (rank {rank}): "
            f"{advice(resolved, states_fit=states <= device_free)}"
        )
    of_nodes: dict[str, tuple[int, tuple[int, str]]] = {}
    for host, (_, own, _, available) in zip(hosts, everyone, strict=True):
        ours, least = of_nodes.get(host, (0, available))
        of_nodes[host] = (ours + own, min(least, available))
    host, (ours, (room, whose)) = max(of_nodes.items(), key=lambda known: known[1][0] - known[1][1][0])
    if ours > room:
        change = READ_WHOLE if free is not None else advice(resolved, states_fit=states * hosts.count(host) <= room)
        raise Refused(
            f"{what}: expected room for {ours / GIB:.1f} GiB of host memory for the {hosts.count(host)} rank(s) of a "
            f"node, observed {room / GIB:.1f} GiB on {host} ({whose}): {change}"
        )
    return Room(device, device_free, ours, room)
