"""Binds this rank to the CPUs at the NUMA node of its GPU, and records where they are.

Under torchrun a rank starts with all CPUs that the job has on its node. Not `torchrun --numa-binding`: torch 2.13
raises where the command numactl is missing. A rank that it bound has CPUs at one node only, and is left as it is.
"""

import os
from collections.abc import Mapping, Set
from pathlib import Path

import binding
import gpus

from recipe.rank import LOCAL_RANK, RankFacts


def place(facts: RankFacts, numa: Path = binding.NUMA) -> None:
    """Bind, and record. Call it while this process has one thread: later ones inherit the CPUs.
    What cannot be read or set is recorded, and training goes on."""
    os.environ.setdefault(
        "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
    )  # else CUDA may give the rank another GPU than is read here
    try:
        gpu, nodes = gpu_of_rank(), binding.numa_nodes(numa)
        near, why = choose(os.sched_getaffinity(0), nodes, binding.node_of(gpu, nodes)[0])
        if near is not None:
            try:
                os.sched_setaffinity(0, near)
            except OSError as error:
                near, why = None, f"the kernel refused: {error.strerror}"
        facts.saw("train.rank.numa_bound", near is not None, "bool", remark=why)
        binding.near_gpu(facts, gpu, numa, "train.cpu.near_gpu")
    except OSError as error:
        facts.unknown("train.cpu.near_gpu", "share", f"CPUs and GPUs of this node cannot be read: {error}")


def choose(allowed: Set[int], nodes: Mapping[str, Set[int]], at: str | None) -> tuple[Set[int] | None, str]:
    """Return (the CPUs to bind to, or None to leave it, and why). nodes: NUMA node -> its CPUs; at: the GPU's node."""
    if at is None:
        return None, "the NUMA node of the GPU is not known"
    spanned = [node for node, cpus in nodes.items() if allowed & cpus]
    if len(spanned) < 2:
        return None, f"the CPUs lie at one NUMA node: {', '.join(spanned) or 'unknown'}"
    near = allowed & nodes[at]
    if not near:
        return None, f"no CPU of the rank lies at NUMA node {at} of its GPU"
    return near, f"{len(near)} of {len(allowed)} CPUs lie at NUMA node {at} of its GPU"


def gpu_of_rank(local_rank: int = LOCAL_RANK) -> str | None:
    """Return the GPU that CUDA gives to this rank, without CUDA: by UUID; None when it is not known.

    It counts as CUDA does among the entries of CUDA_VISIBLE_DEVICES, and among all GPUs that can be opened without it.
    """
    allowed: list[str] = gpus.openable()[0]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    entries = [str(index) for index in range(len(allowed))] if visible is None else visible.split(",")
    entry = entries[local_rank].strip() if local_rank < len(entries) else ""
    if entry.isdecimal():
        return allowed[int(entry)] if int(entry) < len(allowed) else None
    return entry if entry in allowed else None
