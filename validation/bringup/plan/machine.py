"""The machine in a profile: numbers from which other numbers are computed."""

from __future__ import annotations

from pydantic import Field

from bringup.records import Record


class Sourced(Record):
    """A number with its source. No gate is judged by it directly."""

    value: float = Field(gt=0)
    source: str = Field(min_length=3)


class Mfu(Sourced):
    """A model FLOP utilisation: it counts the model's own operations and no recomputed ones, so that recomputation
    lowers it."""

    recomputed: bool = False  # reached with recomputation, which it has paid for


class Machine(Record):
    """Numbers of the machine. If one is absent, everything computed from it is unknown."""

    # for `bringup advise`
    gpu_memory_gib: Sourced | None = None  # what PyTorch can allocate from, context included
    peak_bf16_tflops: Sourced | None = None  # dense
    mfu: Mfu | None = None  # assumed, full-attention convention
    # for `share_of_ceiling` (plan/ceiling.py)
    gpus_per_node: Sourced | None = None
    nics_per_node: Sourced | None = None  # that carry collectives
    nic_gb_per_s: Sourced | None = None  # GB/s of one of them in one direction, as its own test reaches it
    nvlink_busbw: Sourced | None = None  # GB/s: all_reduce inside a node, with all of its GPUs
    nvlink_ring_busbw: Sourced | None = None  # GB/s: the collectives that no NVSwitch reduces
    nvlink_nodes: Sourced | None = None  # nodes that one NVLink domain spans, 1 unless given
