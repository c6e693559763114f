"""The highest bus bandwidth that a collective can reach on k nodes: NVLink carries it inside a node, the NICs between.

k nodes of g GPUs, n = k g ranks; a node's NICs carry N GB/s in one direction, b = N / g for each GPU. S is the size as
nccl-tests counts it. Each limit follows from the bytes that leave a node:

    all_reduce                   reduced inside the node first, so that each GPU sends 2 (k-1)/k S/g: b (n-1)/(k-1)
    all_reduce by ring           a ring over all ranks, so that 2 (n-1)/n S leaves each node: N
    all_gather, reduce_scatter   the same ring, once round: (n-1)/n S leaves each node: N
    all_to_all                   of its S, each GPU sends (n-g)/n to other nodes: b (n-1)/(n-g)
    over NICs only               a ring in which every hop is one of them, also inside a node: b

The ceiling is the lower one of this limit and NVLink's bandwidth. From three nodes on NCCL may use the ring for
all_reduce; it then cannot reach the first limit. With many nodes, both limits approach N. There is no ceiling if the
network's switches reduce (SHARP of InfiniBand): each node then sends half as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from bringup.kernel.characters import many
from bringup.kernel.records import Record, known

Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "ring", "nics"]
Algorithm = Literal["best", "ring"]

OF_GATE = known("ceilings", dict[str, tuple[Operation, int | None]])
"""Gates that have a ceiling -> the collective, and its number of nodes if that is fixed."""


@dataclass(frozen=True)
class Ceiling:
    gb_per_s: float
    nodes: int
    by: Literal["NVLink", "the NICs"]
    algorithm: Algorithm

    def __str__(self) -> str:
        ring = " of a ring" if self.algorithm == "ring" else ""
        return f"the ceiling{ring}, {self.gb_per_s:.4g} GB/s on {many(self.nodes, 'node')}, set by {self.by}"


def needs(operation: Operation, nodes: int | None = None, domain: int = 1) -> tuple[str, ...]:
    """Return keys of `machine` that the formula reads: for all numbers of nodes, or for this one. domain: nodes that
    NVLink spans."""
    inside = _inside(operation)
    is_inside = operation != "nics" and nodes is not None and nodes <= domain
    return (inside,) if is_inside else ("gpus_per_node", "nics_per_node", "nic_gb_per_s", inside)


def _inside(operation: Operation) -> str:
    """Return the key of NVLink's bandwidth. NVSwitches can reduce: an all_reduce is faster than other collectives."""
    return "nvlink_busbw" if operation == "all_reduce" else "nvlink_ring_busbw"


def missing(gate: str, machine: Machine) -> list[str]:
    """Return keys of `machine` without which the gate's ceiling is unknown."""
    return [key for key in needs(OF_GATE[gate][0]) if getattr(machine, key) is None]


def ceiling(gate: str, machine: Machine, nodes: int, algorithm: Algorithm = "best") -> Ceiling | str:
    """Return the ceiling, or the reason why there is none."""
    operation, always = OF_GATE[gate]
    k = nodes if always is None else always
    domain = 1 if machine.nvlink_nodes is None else int(machine.nvlink_nodes.value)
    known = {key: getattr(machine, key) for key in needs(operation, k, domain)}
    lacking = [key for key, number in known.items() if number is None]
    if lacking:
        return f"the ceiling needs machine.{', machine.'.join(lacking)}"
    inside = known[_inside(operation)].value
    if operation != "nics" and k <= domain:
        return Ceiling(inside, k, "NVLink", algorithm)
    if operation != "nics" and domain > 1:
        return f"no ceiling is known beyond one NVLink domain, {domain} nodes"
    gpus, nics, nic = (known[key].value for key in ("gpus_per_node", "nics_per_node", "nic_gb_per_s"))
    per_gpu, ranks = nics * nic / gpus, k * gpus
    match operation:
        case "nics":
            return Ceiling(per_gpu, k, "the NICs", algorithm)
        case "all_reduce" if algorithm == "best":
            between = per_gpu * (ranks - 1) / (k - 1)
        case "all_to_all":
            between = per_gpu * (ranks - 1) / (ranks - gpus)
        case _:
            between = per_gpu * gpus
    by: Literal["NVLink", "the NICs"] = "NVLink" if inside <= between else "the NICs"
    return Ceiling(min(inside, between), k, by, algorithm)


class Sourced(Record):
    """A number with its source. No gate is judged by it directly."""

    value: float = Field(gt=0)
    source: str = Field(min_length=3)


class Mfu(Sourced):
    """A model FLOP utilisation: it counts the model's own operations and no recomputed ones, so that recomputation
    lowers it. A profile that declares none is assumed to reach what others published (formulae/published.py)."""

    most: float | None = None  # of a range whose lowest is `value`
    recomputed: bool = False  # reached with recomputation, which it has paid for


class Machine(Record):
    """Numbers of the machine. If one is absent, everything computed from it is unknown."""

    # for `bringup advise`
    gpu_memory_gib: Sourced | None = None  # what PyTorch can allocate from, context included
    peak_bf16_tflops: Sourced | None = None  # dense
    mfu: Mfu | None = None  # assumed, full-attention convention
    # for `share_of_ceiling`
    gpus_per_node: Sourced | None = None
    nics_per_node: Sourced | None = None  # that carry collectives
    nic_gb_per_s: Sourced | None = None  # GB/s of one of them in one direction, as its own test reaches it
    nvlink_busbw: Sourced | None = None  # GB/s: all_reduce inside a node, with all of its GPUs
    nvlink_ring_busbw: Sourced | None = None  # GB/s: the collectives that no NVSwitch reduces
    nvlink_nodes: Sourced | None = None  # nodes that one NVLink domain spans, 1 unless given
