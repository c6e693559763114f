#!/usr/bin/env python3
"""What this node has. One question, answered from the kernel's own files and from nvidia-smi where there is one.

Proves: the node was reached and says this about itself. Does not prove: that any of it works.
Run: srun --label python3 inventory.py
"""

import os
import platform
import resource
import socket
import subprocess
from pathlib import Path

import gpus
from facts import Facts

GIB = 2**30
NVIDIA_SMI = ("nvidia-smi", "--query-gpu=uuid,name,memory.total,driver_version", "--format=csv,noheader,nounits")


def main():
    facts = Facts("inventory")
    host(facts)
    gpu(facts)
    fabric(facts)
    limits(facts)
    facts.finish()


def host(facts):
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    memory_kib = int(total.split()[1])
    facts.saw("discovery.hostname", socket.gethostname(), "text")
    facts.saw("discovery.boot_id", Path("/proc/sys/kernel/random/boot_id").read_text().strip(), "text")
    facts.saw("discovery.kernel", platform.release(), "text")
    facts.saw("discovery.cpu.model", cpu_model(), "text")
    facts.saw("discovery.cpu.count", os.cpu_count(), "count")
    facts.saw("discovery.cpu.allowed", len(os.sched_getaffinity(0)), "count")
    facts.saw("discovery.memory", round(memory_kib * 1024 / GIB, 2), "GiB")
    facts.saw("discovery.python", platform.python_version(), "text")


def cpu_model():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def gpu(facts):
    nodes = gpus.devices()
    names = gpus.uuids()
    facts.saw("discovery.gpu.count", len(nodes), "count")
    facts.saw("discovery.gpu.identities", [gpus.identity(minor, path, names) for minor, path in nodes.items()], "text")
    try:
        answer = subprocess.run(NVIDIA_SMI, capture_output=True, text=True, timeout=60, check=True).stdout
    except (subprocess.SubprocessError, OSError) as error:
        why = "nvidia-smi is not installed" if isinstance(error, FileNotFoundError) else f"nvidia-smi: {error}"
        facts.unknown("discovery.gpu.answering", "count", why)
        facts.unknown("discovery.gpu.driver", "text", why)
        return
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.splitlines() if line.strip()]
    facts.saw("discovery.gpu.answering", len(rows), "count")
    for uuid, model, memory_mib, driver in rows:
        facts.saw("discovery.gpu.model", model, "text", f"{facts.at}/{uuid}")
        facts.saw("discovery.gpu.memory", round(float(memory_mib) / 1024, 2), "GiB", f"{facts.at}/{uuid}")
        facts.saw("discovery.gpu.driver", driver, "text")


def fabric(facts):
    interfaces = sorted(path.name for path in Path("/sys/class/net").iterdir() if path.name != "lo")
    facts.saw("discovery.net.interfaces", interfaces, "text")
    hcas = Path("/sys/class/infiniband")
    if not hcas.is_dir():
        facts.saw("discovery.rdma.ports", [], "text")
        return
    facts.saw("discovery.rdma.ports", [f"{port.parent.parent.name}:{port.name} {(port / 'state').read_text().strip()}"
                                       for port in sorted(hcas.glob("*/ports/*"))], "text")


def limits(facts):
    shm = os.statvfs("/dev/shm")  # noqa: S108  # its size is the question
    facts.saw("discovery.shm", round(shm.f_blocks * shm.f_frsize / GIB, 2), "GiB")
    memlock = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    facts.saw("discovery.memlock", "unlimited" if memlock == resource.RLIM_INFINITY else f"{memlock} bytes", "text")
    facts.saw("discovery.nofile", resource.getrlimit(resource.RLIMIT_NOFILE)[0], "count")


if __name__ == "__main__":
    main()
