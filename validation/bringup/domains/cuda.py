"""Which builds of torch a driver can run, and how to install one that it can. Data and their sources.

A build for CUDA 13 needs a driver of branch 580 or later, one for CUDA 12 a driver from 525 on (NVIDIA, CUDA
Compatibility, minor version compatibility). torch 2.13 is published for CUDA 12.6, 13.0 (what pip installs) and 13.2
(pytorch/pytorch#187075). The build for 12.6 has no code for Blackwell: its newest GPU is Hopper (#182849).
"""

import re

LEAST_DRIVER = {13: 580, 12: 525}  # major version of CUDA -> major version of the driver
OLDER_BUILD = "https://download.pytorch.org/whl/cu126"
_BLACKWELL = re.compile(r"\bG?B[123]00\b")


def too_old(driver: str, cuda: str) -> bool | None:
    """Say whether this driver is too old for a build for this CUDA. None: not known."""
    least, major = LEAST_DRIVER.get(_major(cuda) or 0), _major(driver)
    return major < least if least is not None and major is not None else None


def _major(version: str) -> int | None:
    major = version.split(".")[0]
    return int(major) if re.fullmatch("[0-9]{1,6}", major) else None


def can_run(version: str, driver: str | None, torch: str) -> bool | None:
    """Say whether a driver runs a build for the CUDA `torch`: within a major version of CUDA all run. None: not known.

    version: the newest CUDA that NVML says; NVIDIA's package cuda-compat makes it newer than the driver's own. driver:
    asked where NVML does not say it.
    """
    newest, built_for = _major(version), _major(torch)
    if newest is not None and built_for is not None:
        return built_for <= newest
    old = too_old(driver or "", torch)
    return None if old is None else not old


def way_out(driver: str, gpu: str = "") -> str:
    """Say what to do where the driver is too old for torch."""
    newer = f"ask the administrator for driver {LEAST_DRIVER[13]} or newer"
    major = _major(driver)
    if major is not None and major < LEAST_DRIVER[12]:
        return f"{newer}: no build of torch 2.13 runs with {driver}"
    if _BLACKWELL.search(gpu):
        return f"{newer}: the build of torch 2.13 for CUDA 12.6 has no code for {gpu}"
    return f"TORCH_INDEX={OLDER_BUILD} make venv (torch for CUDA 12.6); or {newer}"
