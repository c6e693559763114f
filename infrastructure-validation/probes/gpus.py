"""Which GPUs there are and which of them this process may open. No CUDA, no NVML: devices and the driver's own files.

A GPU is named by its UUID where the driver tells it, else by its device file (a placeholder GPU has no driver). Never
by index: under confinement a job sees CUDA_VISIBLE_DEVICES=0,1 for physical devices 2,3.
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
    paths = {}
    for path in Path("/dev").iterdir():
        match = DEVICE.fullmatch(path.name)
        if match and stat.S_ISCHR(path.stat().st_mode):
            paths[int(match[1])] = path
    return dict(sorted(paths.items()))


def driver_count(driver=DRIVER):
    """GPUs that the driver of this node lists, whatever this process may open; 0 without a driver."""
    return len(list(driver.glob("*")))


def uuids():
    """{minor: GPU UUID} as the driver tells; empty without a driver."""
    return _of_each(lambda path, text: re.search(r"GPU UUID:\s*(\S+)", text))


def addresses():
    """{minor: PCI address} as the driver tells: [domain, bus, device, function]; empty without a driver."""
    texts = _of_each(lambda path, text: re.fullmatch(r"([0-9a-fA-F]+(?:[:.][0-9a-fA-F]+){3})", path.parent.name))
    return {minor: [int(part, 16) for part in re.split("[:.]", address)] for minor, address in texts.items()}


def _of_each(question):
    """{minor: what `question` finds of the GPU}, of those whose minor and answer the driver tells."""
    answers = {}
    for path in DRIVER.glob("*/information"):
        text = path.read_text(errors="replace")
        minor, answer = re.search(r"Device Minor:\s*(\d+)", text), question(path, text)
        if minor and answer:
            answers[int(minor[1])] = answer[1]
    return answers


def places():
    """{GPU UUID: PCI address} of all GPUs of the node as the driver tells, also of one that is lost."""
    names = uuids()
    written = "{:04x}:{:02x}:{:02x}.{:x}"
    return {names[minor]: written.format(*at) for minor, at in addresses().items() if minor in names}


def in_cuda_order(paths):
    """[(minor, path)] as CUDA counts GPUs of one model: by PCI address, which minors need not follow. By minor where
    an address is not told."""
    at = addresses()
    return sorted(paths.items(), key=(lambda item: at[item[0]]) if paths.keys() <= at.keys() else None)


def pci_device(uuid, driver=DRIVER, pci=PCI):
    """Its folder in sysfs; None for what the driver does not list."""
    for path in driver.glob("*/information"):  # the folder is named after the PCI address
        if re.search(rf"GPU UUID:\s*{re.escape(uuid)}\s", path.read_text(errors="replace") + "\n"):
            return pci / path.parent.name.lower()
    return None


def numa_node(uuid, driver=DRIVER, pci=PCI):
    """Number of the NUMA node that this GPU sits at, as text ("-1": the firmware does not say); None for what is no
    PCI device."""
    device = pci_device(uuid, driver, pci)
    file = device and device / "numa_node"
    return file.read_text().strip() if file and file.exists() else None


def identity(minor, path, names):
    """UUID; for a placeholder, which has no driver to ask, its device file and number."""
    if minor in names:
        return names[minor]
    number = path.stat().st_rdev
    return f"{path.name} (char {os.major(number)}:{os.minor(number)})"


def openable():
    """Identities this process may open: (allowed, denied), each in CUDA's order. ENXIO is allowed: the kernel let us
    through to no driver."""
    names, allowed, denied = uuids(), [], []
    for minor, path in in_cuda_order(devices()):
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
