"""Which GPUs there are and which of them this process may open. No CUDA, no NVML: devices and the driver's own files.

A GPU is named by its UUID where the driver tells it, else by its device file (a placeholder GPU has no driver). Never by
index: under confinement a job sees CUDA_VISIBLE_DEVICES=0,1 for physical devices 2,3.
"""

import errno
import os
import re
import stat
from pathlib import Path

DEVICE = re.compile(r"nvidia(\d+)")
DRIVER = Path("/proc/driver/nvidia/gpus")
PCI = Path("/sys/bus/pci/devices")


def devices():
    """{minor: path} of the character devices /dev/nvidia0, 1, ..., ordered."""
    found = {}
    for path in Path("/dev").iterdir():
        match = DEVICE.fullmatch(path.name)
        if match and stat.S_ISCHR(path.stat().st_mode):
            found[int(match[1])] = path
    return dict(sorted(found.items()))


def uuids():
    """{minor: GPU UUID} as the driver tells; empty without a driver."""
    names = {}
    for path in DRIVER.glob("*/information"):
        text = path.read_text(errors="replace")
        minor, uuid = re.search(r"Device Minor:\s*(\d+)", text), re.search(r"GPU UUID:\s*(\S+)", text)
        if minor and uuid:
            names[int(minor[1])] = uuid[1]
    return names


def numa_node(uuid, driver=DRIVER, pci=PCI):
    """Number of the NUMA node that this GPU sits at, as text ("-1": the firmware does not say); None for what is no PCI device."""
    for path in driver.glob("*/information"):  # the folder is named after the PCI address
        if re.search(rf"GPU UUID:\s*{re.escape(uuid)}\s", path.read_text(errors="replace") + "\n"):
            file = pci / path.parent.name.lower() / "numa_node"
            return file.read_text().strip() if file.exists() else None
    return None


def identity(minor, path, names):
    """UUID; for a placeholder, which has no driver to ask, its device file and number."""
    if minor in names:
        return names[minor]
    number = path.stat().st_rdev
    return f"{path.name} (char {os.major(number)}:{os.minor(number)})"


def openable():
    """Identities this process may open: (allowed, denied). ENXIO is allowed: the kernel let us through to no driver."""
    names, allowed, denied = uuids(), [], []
    for minor, path in devices().items():
        try:
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
        except OSError as error:
            if error.errno == errno.EACCES:  # a file mode: neither ours to use nor proof that jobs are confined
                continue
            if error.errno == errno.EPERM:  # the devices cgroup's answer
                denied.append(identity(minor, path, names))
                continue
            if error.errno != errno.ENXIO:
                raise
        allowed.append(identity(minor, path, names))
    return allowed, denied
