"""What a training takes of a rank's memory: predicted from the model itself, before it has any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bringup.formulae import memory
from bringup.formulae.memory import Parts
from bringup.formulae.models import job_of
from bringup.records import ModelShape, RunArgs

from recipe import kept, model_shape


@dataclass(frozen=True)
class Footprint:
    """Of the rank with the most, in bytes. peak None: `reason` says why."""

    shape: ModelShape
    states: Parts
    least: int  # of the peak, whatever the kernels
    peak: Parts | None
    reason: str | None


def of_model(model: Any, resolved: RunArgs) -> Footprint:
    """model: on the meta device. The same on every rank: nothing is asked of the machine."""
    shape, job = model_shape.shape_of(model, resolved.model), job_of(resolved)
    by_blocks, reason = kept.by_blocks(model, job) if shape.not_covered is None else (None, shape.not_covered)
    peak = None if by_blocks is None else memory.peak(shape, job, by_blocks)
    return Footprint(shape, memory.states(shape, job.shards), memory.least(shape, job), peak, reason)
