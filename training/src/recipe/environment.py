"""What a training ran on: versions of the libraries and the driver, GPUs and network devices, over all ranks."""

from __future__ import annotations

import re
from pathlib import Path

import torch
import transport
from bringup.records import Environment

from recipe import group

DRIVER = Path("/proc/driver/nvidia/version")


def of_rank() -> dict[str, list[str]]:
    """Of this rank and its node: the fields of records.Environment. What is not there is an empty list."""
    driver = driver_version(DRIVER.read_text()) if DRIVER.exists() else None
    return {
        "cuda": [str(torch.version.cuda)] if group.CUDA else [],
        "nccl": [".".join(map(str, torch.cuda.nccl.version()))] if group.CUDA else [],
        "driver": [] if driver is None else [driver],
        "gpus": [torch.cuda.get_device_name(group.DEVICE)] if group.CUDA else [],
        "nics": transport.active_rdma_devices() or sorted(transport.interface_bytes()),
    }


def driver_version(text: str) -> str | None:
    """`NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  …` -> 550.54.15."""
    match = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", text)
    return match[1] if match else None


def of_all(ranks: list[dict[str, list[str]]]) -> Environment:
    """Each distinct value once: two drivers in a list are two drivers in the run."""
    return Environment(**{name: sorted({value for rank in ranks for value in rank[name]}) for name in ranks[0]})
