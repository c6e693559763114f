"""The mark of simulated hardware: the UUID of a simulated GPU, wherever it is printed."""

from collections.abc import Iterable

from bringup.kernel.records import Observation

GPU = "GPU-00000000-0000-"
"""Prefix of a simulated GPU's UUID in NVML, nvidia-smi and /proc. local-cluster/simulated/state.py makes it."""


def are_in(observations: Iterable[Observation]) -> bool:
    """Say whether a simulated GPU took part."""
    texts = set[str]()
    for seen in observations:
        texts.add(seen.subject)
        if isinstance(seen.value, str | list):
            texts.update([seen.value] if isinstance(seen.value, str) else seen.value)
    return any(GPU in text for text in texts)
