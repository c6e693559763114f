"""The mark of simulated hardware: the UUID of a simulated GPU, wherever it is printed."""

from collections.abc import Iterable

from bringup.kernel.records import Observation

GPU = "GPU-00000000-0000-"
"""Prefix of a simulated GPU's UUID in NVML, nvidia-smi and /proc. local-cluster/simulated/state.py makes it."""


def is_named_in(observation: Observation) -> bool:
    if GPU in observation.subject:
        return True
    value = observation.value
    return GPU in value if isinstance(value, str) else isinstance(value, list) and any(GPU in item for item in value)


def are_in(observations: Iterable[Observation]) -> bool:
    """Say whether a simulated GPU took part."""
    return any(map(is_named_in, observations))
