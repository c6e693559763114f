#!/usr/bin/env python3
"""What this node has and runs, answered from the kernel's own files, and by the GPUs where they have a driver.

Proves: the node was reached and says this about itself. Does not prove: that any of it works.
Run: srun --label python3 inventory.py [--raw FOLDER] [--folder LABEL=PATH]…
"""

import argparse
import os
import platform
import resource
from pathlib import Path

import devices
import gpus
import nvml
import smi
from beside import cpus
from drives import drives
from fabric import fabric, uses_rdma
from fabric_manager import fabric_manager
from facts import Facts
from folders import folders, of_this_task
from identity import identity
from imex import imex
from kernel_log import kernel_log
from leftovers import leftovers
from machine import is_virtual, machine
from settings import settings
from shared_files import CACHED_S
from software import software
from timekeeping import timekeeping

GIB = 2**30
# may be unlimited
LIMITS = {"memlock": resource.RLIMIT_MEMLOCK, "nproc": resource.RLIMIT_NPROC, "stack": resource.RLIMIT_STACK}
NO_RDMA = "no RDMA"  # nothing locks memory there
CPUS = Path("/sys/devices/system/cpu")
ONLINE = CPUS / "online"
NUMA = Path("/sys/devices/system/node")
CPUINFO = Path("/proc/cpuinfo")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")  # always [madvise] never: the one in force is marked


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--raw", type=Path, help="where raw answers of tools are kept, a file per node and tool")
    parser.add_argument("--folder", action="append", default=[], help="LABEL=PATH: a further folder to write to")
    arguments = parser.parse_args()
    facts = Facts("inventory")

    def places(facts):
        named = [tuple(named.split("=", 1)) for named in arguments.folder]
        folders(facts, of_this_task() + named, cached_s=CACHED_S)

    of_the_kernel = (
        software,
        machine,
        host,
        limits,
        settings,
        timekeeping,
        places,
        kernel_log,
        leftovers,
        drives,
        identity,
    )
    for question in (*of_the_kernel, fabric, imex, fabric_manager, devices.devices):
        try:
            question(facts)
        except Exception as error:  # noqa: BLE001  # one question must not hide the answers to the others
            facts.unknown(f"discovery.{question.__name__}", "text", f"ended early: {type(error).__name__}: {error}")
    gpu(facts, arguments.raw)
    facts.finish()


def host(facts):
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    cpuinfo = CPUINFO.read_text()
    facts.saw("inventory.virtual", is_virtual(cpuinfo), "flag")
    facts.answered("discovery.cpu.model", cpu_model(cpuinfo), "text", f"{CPUINFO} names none")
    facts.saw("discovery.cpu.count", len(cpus(ONLINE.read_text())), "count")
    errors = (OSError, ValueError)
    facts.asked("discovery.cpu.topology", "text", lambda: cpu_topology(CPUS, NUMA), CPUS, errors)
    facts.asked("discovery.hugepages", "text", huge_pages, HUGE_PAGES, errors)
    facts.saw("discovery.cpu.allowed", len(os.sched_getaffinity(0)), "count")
    facts.saw("inventory.memory", round(int(total.split()[1]) * 1024 / GIB, 3), "GiB")
    facts.saw("discovery.numa_nodes", len(list(NUMA.glob("node[0-9]*"))), "count")


def huge_pages():
    text = HUGE_PAGES.read_text()
    return text[text.index("[") + 1 : text.index("]")]


def cpu_model(cpuinfo):
    """Its name; an Arm kernel gives numbers instead, of the maker and of the part. None when the text has neither."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    known = {name.strip(): value.strip() for name, _, value in lines if value.strip() not in ("", "unknown")}
    for name in ("model name", "cpu"):  # "cpu": POWER
        if name in known:
            return known[name]
    if {"CPU implementer", "CPU part"} <= known.keys():
        return f"{platform.machine()} implementer {known['CPU implementer']} part {known['CPU part']}"
    return None


def cpu_topology(cpus, numa):
    """What settings of the firmware change: SMT, and NUMA nodes per socket. Of the CPUs that are online."""
    placed = [path / "topology" for path in sorted(cpus.glob("cpu[0-9]*")) if (path / "topology").is_dir()]
    if not placed:
        raise ValueError("no CPU has a topology")
    cores = [
        ((path / "physical_package_id").read_text().strip(), (path / "core_id").read_text().strip()) for path in placed
    ]
    sockets, nodes = len({socket for socket, _ in cores}), len(list(numa.glob("node[0-9]*")))
    return f"sockets {sockets}, cores {len(set(cores))}, threads {len(cores)}, NUMA nodes {nodes}"


def limits(facts):
    shm = os.statvfs("/dev/shm")  # noqa: S108  # its size is the question
    facts.saw("discovery.shm", round(shm.f_blocks * shm.f_frsize / GIB, 3), "GiB")
    for name, number in LIMITS.items():
        soft = resource.getrlimit(number)[0]
        limit = "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
        if name == "memlock" and not uses_rdma():
            facts.saw("discovery.memlock", NO_RDMA, "text", remark=f"the limit is {limit}")
        else:
            facts.saw(f"discovery.{name}", limit, "text")
    # a program may raise its soft limit to the hard one, as NCCL and our scripts do
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    facts.saw("discovery.nofile", hard, "count", remark=f"soft limit {soft}")


def gpu(facts, raw):
    paths, names = gpus.devices(), gpus.uuids()
    facts.saw("discovery.gpu.count", len(paths), "count")
    facts.saw("discovery.gpu.identities", [gpus.identity(minor, path, names) for minor, path in paths.items()], "text")
    for uuid, address in gpus.places().items():
        facts.saw("inventory.gpu.address", address, "text", f"{facts.at}/{uuid}")
    library, why_not = nvml.library()
    if library is not None:
        nvml.read(facts, library, names.values())
        devices.of_gpus(facts, library)
    else:
        if names:
            facts.unknown("inventory.devices.gpus", "text", why_not)
        for quantity in ("nvlinks", "nvlink_recoveries", "nvlink_replays", "nvlink_crc_errors"):
            facts.unknown(f"discovery.gpu.{quantity}", "count", why_not)
        smi.read(facts, lambda name, text: keep(facts, raw, f"{name}-{facts.at}.csv", text), nvml_said=why_not)
    smi.keep_texts(facts, lambda name, text: keep(facts, raw, f"{name}-{facts.at}.txt", text))


def keep(facts, folder, name, text):
    """A raw answer as a file of its own. Where it cannot be written (a broken filesystem), the facts stay."""
    if folder is None:
        return
    try:
        (folder / f"nvidia-smi-{name}").write_text(text)
    except OSError as error:
        facts.unknown("discovery.raw", "text", f"{name} of nvidia-smi could not be kept: {error.strerror}")


if __name__ == "__main__":
    main()
