"""Binds this rank to the CPUs at the NUMA node of its GPU, and records where they are.

Under torchrun a rank starts with all CPUs that the job has on its node. Not `torchrun --numa-binding`: torch 2.13
raises where the command numactl is missing. A rank that it bound has CPUs at one node only, and is left as it is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Set
from pathlib import Path

import binding
import gpus

from recipe.rank import LOCAL_RANK, RANK, RankFacts


def place(facts: RankFacts, numa: Path = binding.NUMA) -> None:
    """Bind, and record. Call it while this process has one thread: later ones inherit the CPUs.
    What cannot be read or set is recorded, and training goes on."""
    subject = f"{facts.at}/rank{RANK}"
    try:
        gpu = gpu_of_rank()
        nodes = binding.numa_nodes(numa)
        at, unknown = binding.node_of(gpu, nodes)
        near, why = choose(os.sched_getaffinity(0), nodes, at)
        if near is not None:
            try:
                os.sched_setaffinity(0, near)
            except OSError as error:
                near, why = None, f"the kernel refused: {error.strerror}"
        allowed = os.sched_getaffinity(0)
        where = ", ".join(nodes_of(allowed, nodes)) or "unknown"
        facts.saw("train.rank.cpus", len(allowed), "count", remark=f"at NUMA node {where}")
        if at is None:
            facts.unknown("train.rank.gpu_node", "text", unknown, subject)
        else:
            facts.saw("train.rank.gpu_node", at, "text", remark=gpu)
        facts.saw("train.rank.numa_bound", near is not None, "bool", remark=why)
        binding.near_gpu(facts, gpu, numa, "train.cpu.near_gpu", subject)
    except OSError as error:
        facts.unknown("train.cpu.near_gpu", "share", f"CPUs and GPUs of this node cannot be read: {error}", subject)


def doubt(facts: RankFacts, device: str) -> None:
    """Doubt the place if place() took another GPU than `device` (GPU-<uuid>), on which torch computes."""
    with contextlib.suppress(OSError):  # place() recorded it
        if (taken := gpu_of_rank()) not in (None, device):
            why = f"the CPUs were chosen for {taken}, but torch computes on {device}; set CUDA_DEVICE_ORDER=PCI_BUS_ID"
            facts.unknown("train.cpu.near_gpu", "share", why, f"{facts.at}/rank{RANK}")


def choose(allowed: Set[int], nodes: Mapping[str, Set[int]], at: str | None) -> tuple[Set[int] | None, str]:
    """Return (the CPUs to bind to, or None to leave it, and why). nodes: NUMA node -> its CPUs; at: the GPU's node."""
    if at is None:
        return None, "the NUMA node of the GPU is not known"
    spanned = nodes_of(allowed, nodes)
    if len(spanned) < 2:
        return None, f"the CPUs lie at one NUMA node: {', '.join(spanned) or 'unknown'}"
    near = allowed & nodes[at]
    if not near:
        return None, f"no CPU of the rank lies at NUMA node {at} of its GPU"
    return near, f"{len(near)} of {len(allowed)} CPUs lie at NUMA node {at} of its GPU"


def nodes_of(allowed: Set[int], nodes: Mapping[str, Set[int]]) -> list[str]:
    """Return the NUMA nodes that some of these CPUs lie at."""
    return [node for node, cpus in nodes.items() if allowed & cpus]


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
