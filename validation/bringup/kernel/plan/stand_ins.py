"""The mark of simulated hardware: the UUID of a simulated GPU, wherever it is printed."""

from collections.abc import Iterable

from bringup.kernel.records import Observation

GPU = "GPU-00000000-0000-"
"""Prefix of a simulated GPU's UUID in NVML, nvidia-smi and /proc. local-cluster/simulated/state.py makes it."""


def are_in(observations: Iterable[Observation]) -> bool:
    """Say whether a simulated GPU took part."""
    observations = list(observations)
    texts = {seen.subject for seen in observations} | {seen.value for seen in observations if type(seen.value) is str}
    texts.update(text for seen in observations if isinstance(seen.value, list) for text in seen.value)
    return any(GPU in text for text in texts)
