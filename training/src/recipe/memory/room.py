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
from bringup.formulae.models import job_of
from bringup.records import ModelShape, RunArgs
from memory_limits import host_available

from recipe import GIB, group, model_shape
from recipe.strategy import Refused

WITHIN = 1.15  # a predicted peak is that of torch's MemTracker within 15 %, a test says


@dataclass(frozen=True)
class Footprint:
    """Predicted from the model, in bytes, for the rank with the most. peak None: `reason` says why."""

    shape: ModelShape
    states: Parts
    least: int  # of the peak, whatever the kernels
    peak: Parts | None
    reason: str | None


def footprint(model: Any, resolved: RunArgs, *, reads_checkpoint: bool = False) -> Footprint:
    """Compute the footprint. model: on the meta device. The same on every rank: nothing is asked of the machine."""
    shape, job = model_shape.shape_of(model, resolved.model), job_of(resolved, reads_checkpoint=reads_checkpoint)
    peak, reason = None, shape.not_covered
    if reason is None:
        try:
            peak = memory.peak(shape, job)
        except ModelError as error:
            reason = str(error)
    return Footprint(shape, memory.states(shape, job.shards), memory.least(shape, job), peak, reason)


def need(predicted: Footprint, resolved: RunArgs) -> int:
    """Return the bytes that one rank is going to allocate, at least: of its GPU, without one of its host."""
    parts = predicted.peak
    if parts is None:
        return predicted.least
    exact = parts.parameters + parts.gradients + parts.optimizer
    rest = parts.total - exact
    if resolved.recipe == "fast":  # fused kernels and compiled blocks store less of these
        rest -= parts.activations + parts.logits
    return max(predicted.least, exact + int(rest / WITHIN))


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


def require(needed: int, predicted: Footprint, resolved: RunArgs, hosts: list[str]) -> None:
    """Refuse, on every rank, what cannot fit. Without a GPU the ranks of a node share its memory. A collective.
    `hosts`: index = rank."""
    free = torch.cuda.mem_get_info(group.DEVICE)[0] if group.CUDA else None
    everyone = group.gather((needed, free, *host_available()), tuple[int, int | None, int, str])
    what = f"{resolved.model} as {job_of(resolved).kind} on {len(hosts)} rank(s)"
    states = predicted.states.total
    if group.CUDA:
        free, rank = min((free or 0, rank) for rank, (_, free, _, _) in enumerate(everyone))
        if needed > free:
            raise Refused(
                f"{what}: expected room for {needed / GIB:.1f} GiB of device memory per rank, observed "
                f"{free / GIB:.1f} GiB free on {hosts[rank]} (rank {rank}): "
                f"{advice(resolved, states_fit=states <= free)}"
            )
        return
    of_ranks = zip(hosts, everyone, strict=True)
    _, available, ranks, host, whose = min(
        (available - hosts.count(host) * needed, available, hosts.count(host), host, whose)
        for host, (_, _, available, whose) in of_ranks
    )
    if ranks * needed > available:
        raise Refused(
            f"{what}: expected room for {ranks * needed / GIB:.1f} GiB of host memory for the {ranks} rank(s) of a "
            f"node, observed {available / GIB:.1f} GiB on {host} ({whose}): "
            f"{advice(resolved, states_fit=states * ranks <= available)}"
        )
