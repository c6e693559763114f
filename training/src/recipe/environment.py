"""What a training ran on: versions of the libraries and the driver, GPUs and network devices, over all ranks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
import transport
from bringup.records import Environment

from recipe import group

DRIVER = Path("/proc/driver/nvidia/version")


def of_rank() -> dict[str, Any]:
    """The environment of this rank and its node. What is not there is None, or an empty list."""
    return {
        "cuda": torch.version.cuda if group.CUDA else None,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if group.CUDA else None,
        "driver": driver_version(DRIVER.read_text()) if DRIVER.exists() else None,
        "gpu": torch.cuda.get_device_name(group.DEVICE) if group.CUDA else None,
        "nics": transport.active_rdma_devices() or sorted(transport.interface_bytes()),
    }


def driver_version(text: str) -> str | None:
    """`NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  …` -> 550.54.15."""
    match = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", text)
    return match[1] if match else None


def of_all(ranks: list[dict[str, Any]]) -> Environment:
    """Each distinct value once: two drivers in a list are two drivers in the run."""

    def distinct(name: str) -> list[str]:
        return sorted({rank[name] for rank in ranks if rank[name] is not None})

    return Environment(
        cuda=distinct("cuda"),
        nccl=distinct("nccl"),
        driver=distinct("driver"),
        gpus=distinct("gpu"),
        nics=sorted({nic for rank in ranks for nic in rank["nics"]}),
    )
