"""The mark of simulated hardware: what stands in for a GPU says so in its own identity, wherever it is named."""

from __future__ import annotations

from bringup.records import Observation

GPU = "GPU-00000000-0000-"
"""Begins the UUID of a simulated GPU (local-cluster/simulated/state.py makes it): NVML, nvidia-smi and /proc."""


def is_named_in(observation: Observation) -> bool:
    if GPU in observation.subject:
        return True
    value = observation.value
    return GPU in value if isinstance(value, str) else isinstance(value, list) and any(GPU in each for each in value)
