#!/usr/bin/env python3
"""What this node has and runs. One question, answered from the kernel's own files, and by the GPUs where they have a driver.

Proves: the node was reached and says this about itself. Does not prove: that any of it works.
Run: srun --label python3 inventory.py [--raw FOLDER]
"""

import argparse
import os
import platform
import re
import resource
from pathlib import Path

import gpus
import nvml
import smi
from fabric import fabric
from facts import Facts
from kernel_log import kernel_log
from software import software

GIB = 2**30
LIMITS = {"memlock": resource.RLIMIT_MEMLOCK, "nproc": resource.RLIMIT_NPROC, "stack": resource.RLIMIT_STACK}  # may be unlimited
ONLINE = Path("/sys/devices/system/cpu/online")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--raw", type=Path, help="where raw answers of tools are kept, a file per node and tool")
    arguments = parser.parse_args()
    facts = Facts("inventory")
    for question in (software, host, limits, kernel_log, fabric):
        try:
            question(facts)
        except OSError as error:  # what one question cannot read must not hide the answers to the others
            facts.unknown(f"discovery.{question.__name__}", "text", f"ended early: {error}")
    gpu(facts, arguments.raw)
    facts.finish()


def host(facts):
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    facts.saw("discovery.cpu.model", cpu_model(), "text")
    facts.saw("discovery.cpu.count", cpus_online(ONLINE.read_text()), "count")
    facts.saw("discovery.cpu.allowed", len(os.sched_getaffinity(0)), "count")
    facts.saw("discovery.memory", round(int(total.split()[1]) * 1024 / GIB, 3), "GiB")
    facts.saw("discovery.numa_nodes", len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))), "count")


def cpu_model():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def cpus_online(text):
    """"0-3,8" -> 5."""
    return sum(int(last or first) - int(first) + 1 for first, last in re.findall(r"(\d+)(?:-(\d+))?", text))


def limits(facts):
    shm = os.statvfs("/dev/shm")  # noqa: S108  # its size is the question
    facts.saw("discovery.shm", round(shm.f_blocks * shm.f_frsize / GIB, 3), "GiB")
    for name, number in LIMITS.items():
        soft = resource.getrlimit(number)[0]
        facts.saw(f"discovery.{name}", "unlimited" if soft == resource.RLIM_INFINITY else str(soft), "text")
    facts.saw("discovery.nofile", resource.getrlimit(resource.RLIMIT_NOFILE)[0], "count")


def gpu(facts, raw):
    devices, names = gpus.devices(), gpus.uuids()
    facts.saw("discovery.gpu.count", len(devices), "count")
    facts.saw("discovery.gpu.identities", [gpus.identity(minor, path, names) for minor, path in devices.items()], "text")
    library, why_not = nvml.library()
    if library is not None:
        nvml.read(facts, library)
    else:
        for quantity in ("nvlinks", "nvlink_recoveries", "nvlink_replays", "nvlink_crc_errors"):
            facts.unknown(f"discovery.gpu.{quantity}", "count", why_not)
        smi.read(facts, lambda name, text: keep(facts, raw, f"{name}-{facts.at}.csv", text))
    smi.keep_texts(facts, lambda name, text: keep(facts, raw, f"{name}-{facts.at}.txt", text))


def keep(facts, folder, name, text):
    """A raw answer as a file of its own; where that cannot be written (a filesystem that is broken here), the facts stay."""
    if folder is None:
        return
    try:
        (folder / f"nvidia-smi-{name}").write_text(text)
    except OSError as error:
        facts.unknown("discovery.raw", "text", f"{name} of nvidia-smi could not be kept: {error.strerror}")


if __name__ == "__main__":
    main()
