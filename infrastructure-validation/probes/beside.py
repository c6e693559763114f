"""Work beside a PCIe device: on its own cores, with memory of its NUMA node. Standard library only.

A transfer from the memory of another socket measures the link between sockets. Where a task has no core there (a step
of one core), the memory alone is near.
"""

import contextlib
import ctypes
import os
import platform
import re

from facts import read

SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}  # numbers of the system call
DEFAULT, PREFERRED = 0, 1  # linux/mempolicy.h
MOST_NODES = 64


@contextlib.contextmanager
def beside(device):
    """device: its folder in sysfs. Programs that are started inside inherit both. What cannot be set stays as it is."""
    allowed = os.sched_getaffinity(0)
    own = allowed & cpus(read(device / "local_cpulist") or "")
    node = read(device / "numa_node") or ""
    prefers = node.isdigit() and int(node) < MOST_NODES and _prefer(1 << int(node))
    try:
        if own:
            os.sched_setaffinity(0, own)
        yield
    finally:
        os.sched_setaffinity(0, allowed)
        if prefers:
            _prefer(0)


def cpus(text):
    """ "0-2,8" -> {0, 1, 2, 8}"""
    return {
        cpu
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", text)
        for cpu in range(int(first), int(last or first) + 1)
    }


def _prefer(nodes):
    """Memory comes from this node while it has some; 0: from the node of the core. False where it cannot be set."""
    number = SET_MEMPOLICY.get(platform.machine())
    if number is None:
        return False
    mask = ctypes.c_ulong(nodes)
    libc = ctypes.CDLL(None, use_errno=True)
    mode = PREFERRED if nodes else DEFAULT
    return libc.syscall(number, mode, ctypes.byref(mask) if nodes else None, MOST_NODES + 1 if nodes else 0) == 0
