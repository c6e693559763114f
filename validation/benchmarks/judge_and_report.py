"""How long judging and reporting take, and what memory they need, by number of nodes.

    python validation/benchmarks/judge_and_report.py            # 64, 256 and 1,024 nodes with 8 GPUs each
    python validation/benchmarks/judge_and_report.py 512
    python validation/benchmarks/judge_and_report.py --page fleet.html 1024     # the page alone, for a picture of it

The evidence of a discovery is made up: H100 nodes with eight NICs, and one sick GPU in the fleet. Each size is judged
and reported in a process of its own, as `bringup judge` does it. Seconds are CPU time of that process, imports
included.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

SIZES = (64, 256, 1024)
GPUS = 8
NVLINKS = 18
PROFILE = "h100-8x400g"
SICK = ("discovery.gpu.ecc", 3, True)  # of which GPU of the sick node
NODE = f"NodeName={{}} CPUTot=112 Gres=gpu:h100:{GPUS} Version=24.11.5 RealMemory=2063000 State=IDLE Partitions=main\n"
CONFIG = """\
GresTypes               = gpu
EpilogMsgTime           = 2000 usec
Epilog                  = /etc/slurm/epilog
HealthCheckProgram      = /etc/slurm/health-check
KillOnBadExit           = 1
MpiDefault              = pmix
ProctrackType           = proctrack/cgroup
Prolog                  = /etc/slurm/prolog
PrologFlags             = Alloc,Contain
ReturnToService         = 1
SlurmdTimeout           = 300 sec
TaskPlugin              = task/cgroup,task/affinity
ConstrainCores          = yes
ConstrainDevices        = yes
ConstrainRAMSpace       = yes
"""
MPI = "MPI plugin types are...\n\tnone\n\tpmix\n\tpmi2\n"


def node_facts(node: str, sick: bool) -> list[tuple[str, str, object, str]]:
    """(quantity, subject, value, unit) of one node."""
    facts: list[tuple[str, str, object, str]] = [
        ("discovery.node.hostname", node, node, "text"),
        ("discovery.node.distinct", node, f"0b3b071d-5a0f-4013-a15f-{node}", "text"),
        ("discovery.node.machine_id", node, f"4c5a2e0f9d6b-{node}", "text"),
        ("inventory.packages", node, ["torch=2.13.0", "transformers=5.14.1", "accelerate=1.14.0"], "text"),
        ("discovery.kernel", node, "6.8.0-1021", "text"),
        ("discovery.os", node, "Ubuntu 24.04.2 LTS", "text"),
        ("discovery.python", node, "CPython 3.12.3", "text"),
        *(
            (f"inventory.library.{name}", node, f"{name} 1926232 bytes 6b4a45352fd0", "text")
            for name in ("libc", "libcuda", "libnccl", "libibverbs", "libmunge")
        ),
        ("discovery.mount", node, "lustre mds@o2ib:/home rw,flock", "text"),
        ("discovery.cpu.model", node, "Intel(R) Xeon(R) Platinum 8480C", "text"),
        ("discovery.cpu.count", node, 112, "count"),
        ("discovery.cpu.topology", node, "sockets 2, cores 112, threads 1, NUMA nodes 2", "text"),
        ("inventory.memory", node, 2015.3, "GiB"),
        ("discovery.hugepages", node, "madvise", "text"),
        ("discovery.imex", node, "no IMEX", "text"),
        ("discovery.numa_nodes", node, 2, "count"),
        ("discovery.shm", node, 1007.0, "GiB"),
        ("discovery.memlock", node, "unlimited", "text"),
        ("discovery.nofile", node, 1048576, "count"),
        ("discovery.kernel_log.xids", node, 0, "count"),
        ("discovery.rdma.messages", node, 0, "count"),
        ("discovery.rdma.ports", node, GPUS, "count"),
        ("discovery.gpu.count", node, GPUS, "count"),
        ("inventory.nvswitches", node, 4, "count"),
        ("inventory.fabric_manager", node, "570.124.06", "text"),
        ("discovery.gpu.answering", node, GPUS, "count"),
        ("discovery.gpu.driver", node, "570.124.06", "text"),
        ("discovery.gpu.cuda", node, "12.8", "text"),
        ("inventory.torch", node, "12.6", "text"),
        ("discovery.gpu.free", node, 0, "count"),
        ("discovery.gpu.left", node, 0.5, "GiB"),
        ("discovery.left.processes", node, 0, "count"),
        ("discovery.left.zombies", node, 0, "count"),
        ("discovery.left.blocked", node, 0, "count"),
        ("discovery.left.shm", node, 0.0, "GiB"),
        ("discovery.drives.broken", node, 0, "count"),
        ("discovery.user.home", node, True, "flag"),
        ("inventory.drives", node, ["NVMe drives=8 x a model"], "text"),
        ("inventory.user", node, ["name of user 1000=ann", "home=/home/ann"], "text"),
        ("discovery.clock.synchronised", node, True, "flag"),
        ("inventory.settings.net", node, [f"net.core.setting{number}=212992" for number in range(7)], "text"),
        ("inventory.settings.kernel", node, [f"vm.setting{number}=60" for number in range(7)], "text"),
        ("inventory.settings.task", node, ["ulimit -l=unlimited", "CPU governor=performance"], "text"),
        ("inventory.network", node, [f"mlx5_core, 400000 Mb/s full duplex, MTU 4092={GPUS}"], "text"),
    ]
    for folder in ("tmp", "shm", "results"):
        facts += [
            (f"inventory.folder.{folder}.writes", node, "works", "text"),
            (f"inventory.folder.{folder}.space", node, 800.5, "GiB"),
            (f"inventory.folder.{folder}.files", node, 4000000, "count"),
        ]
    facts.append(("inventory.devices.nics", node, ["firmware of MT_0000000838=28.39.1002"], "text"))
    for index in range(GPUS):
        gpu = f"{node}/GPU-{node}-{index:04}"
        port = f"{node}/mlx5_{index}:1"
        facts += [
            ("discovery.gpu.model", gpu, "NVIDIA H100 80GB HBM3", "text"),
            ("discovery.gpu.memory", gpu, 79.65, "GiB"),
            *((name, gpu, 2 if (name, index, sick) == SICK else value, unit) for name, value, unit in of_a_gpu()),
            ("discovery.rdma.state", port, "4: ACTIVE", "text"),
            ("discovery.rdma.phys_state", port, "5: LinkUp", "text"),
            ("discovery.rdma.rate", port, "400 Gb/sec (4X NDR)", "text"),
            ("discovery.rdma.layer", port, "InfiniBand", "text"),
            ("discovery.rdma.numa", port, str(index // 4), "text"),
            ("discovery.numa.gpu", f"{node}/0000:{index:x}8:00.0", str(index // 4), "text"),
            ("inventory.rdma.flaps", port, 0, "count"),
            ("inventory.rdma.errors", port, 0, "count"),
        ]
    return facts


@cache
def of_a_gpu() -> list[tuple[str, object, str]]:
    """Quantity, value that passes, and unit, of each check of a fact that every GPU has."""
    from bringup.kernel.plan import catalogue, profile

    expected = profile.load(PROFILE)
    of_gpus = [gate for gate in catalogue.of_phase("discovery") if gate.fold.how == "each" and gate.expect != "fleet"]
    limits = [getattr(gate.expect, "value", expected.limit(gate.id, 1).value) for gate in of_gpus]
    values = [value[0] if isinstance(value, list) else value for value in limits]
    return [
        (gate.id, 0 if gate.rule == "at_most" else value, gate.unit)
        for gate, value in zip(of_gpus, values, strict=True)
    ]


def name_facts(number: int) -> list[tuple[str, str, object, str]]:
    """What a node says of names. One in a hundred knows an old address of its neighbour."""
    node = name_of(number)
    differ = ["gpu-00-00 10.0.0.0"] * (number > 0) + [f"{name_of(number - 1)} 10.9.9.9"] * (number % 100 == 99)
    return [
        ("discovery.names.unresolved", node, 0, "count"),
        ("discovery.names.slowest", node, 0.004, "s"),
        ("names.different", node, len(differ), "count"),
        ("names.differ", node, differ, "text"),
        ("names.own_addresses", node, [address_of(number)], "text"),
        ("discovery.names.reachable", node, True, "flag"),
    ]


def clock_facts(node: str) -> list[tuple[str, str, object, str]]:
    seconds = {"clock.behind_reference": 0.0, "clock.uncertainty": 0.00003, "network.round_trip": 0.00005}
    facts = [(f"discovery.{name}", node, value, "s") for name, value in seconds.items()]
    return [*facts, ("discovery.network.lost", node, 0, "count")]


def topology() -> str:
    """As `nvidia-smi topo -m` prints it: each GPU with a NIC of its own behind one PCIe switch."""
    devices = [f"{kind}{index}" for kind in ("GPU", "NIC") for index in range(GPUS)]

    def path(row: str, column: str) -> str:
        if row == column:
            return " X "
        if row[:3] == column[:3] == "GPU":
            return f"NV{NVLINKS}"
        if row[3:] == column[3:]:
            return "PXB"
        return "NODE" if int(row[3:]) // 4 == int(column[3:]) // 4 else "SYS"

    rows = ["\t".join(["", *devices, "CPU Affinity", "NUMA Affinity"])]
    rows += ["\t".join([row, *(path(row, column) for column in devices)]) for row in devices]
    return "\n".join([*rows, "", *(f"  NIC{index}: mlx5_{index}" for index in range(GPUS)), ""])


def name_of(number: int) -> str:
    return f"gpu-{number // 32:02}-{number % 32:02}"


def address_of(number: int) -> str:
    return f"10.0.{number // 256}.{number % 256}"


def write_evidence(raw: Path, nodes: list[str]) -> int:
    """What nodes say of themselves, of names, clocks and topology, and what Slurm says. Returns the number of facts."""
    table = [("names.address", node, address_of(number), "text") for number, node in enumerate(nodes)]
    count = write_facts(raw / "names-table.jsonl", "names_table", {nodes[0]: table}, of_a_step=False)
    facts_by_node = {node: name_facts(number) for number, node in enumerate(nodes)}
    count += write_facts(raw / "names.jsonl", "names", facts_by_node)
    facts = {node: node_facts(node, sick=number == len(nodes) // 2) for number, node in enumerate(nodes)}
    count += write_facts(raw / "inventory.jsonl", "inventory", facts)
    count += write_facts(raw / "clock.jsonl", "clock", {node: clock_facts(node) for node in nodes})
    table_of_paths = topology()
    for node in nodes:
        (raw / f"nvidia-smi-topo-{node}.txt").write_text(table_of_paths)
    (raw / "scontrol-config.txt").write_text(CONFIG)
    (raw / "mpi-list.txt").write_text(MPI)
    (raw / "scontrol-node.txt").write_text("".join(NODE.format(node) for node in nodes))
    return count


def write_facts(
    file: Path, probe: str, facts_by_node: dict[str, list[tuple[str, str, object, str]]], *, of_a_step: bool = True
) -> int:
    """What the probe prints on each node, as srun labels it in a step. Returns the number of facts."""
    with file.open("w") as stream:
        for number, (node, facts) in enumerate(facts_by_node.items()):
            label = f"{number}: " if of_a_step else ""
            for quantity, subject, value, unit in facts:
                fact = {"probe": probe, "at": node, "subject": subject, "quantity": quantity}
                stream.write(f"{label}{json.dumps(fact | {'value': value, 'unit': unit})}\n")
            stream.write(f"{label}{json.dumps({'probe': probe, 'at': node, 'end': len(facts)})}\n")
    return sum(map(len, facts_by_node.values()))


def made_up_run(nodes: int, results: Path) -> tuple[Path, int]:
    """A closed discovery, and its number of facts."""
    from bringup.kernel.plan import profile
    from bringup.kernel.plan.phases import PHASES
    from bringup.run import open as opening

    names = [name_of(number) for number in range(nodes)]
    run = opening.open_run(
        PHASES["discovery"],
        nodes=names,
        gpus_per_node=GPUS,
        ranks_per_node=GPUS,
        profile=profile.load(PROFILE),
        argv=["benchmark"],
        results=results,
    )
    facts = write_evidence(run / "raw", names)
    opening.close_run(run, 0)
    return run, facts


def write_page(nodes: int, target: Path) -> None:
    """Its commands name the run by its place in a tree, because the folder of this one is removed."""
    from bringup.report import collection, page

    with tempfile.TemporaryDirectory(prefix="bringup-benchmark-") as folder:
        run, _ = made_up_run(nodes, Path(folder))
        shown = page.render(collection.gather([run]))
        target.write_text(shown.replace(str(run.resolve().parent), "validation/results/discovery"), encoding="utf-8")


def one_size(nodes: int) -> None:
    """In a process of its own: prints a row."""
    from bringup.report import collection, page, write

    with tempfile.TemporaryDirectory(prefix="bringup-benchmark-") as folder:
        run, facts = made_up_run(nodes, Path(folder))
        begun = time.process_time()
        outcomes = [verdict.outcome for verdict in write.judge_and_save(run).verdicts.verdicts]
        saved = time.process_time()
        page.render(collection.gather([run]))
        rendered = time.process_time()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{nodes:>6} {facts:>9,} {len(outcomes):>9,} {outcomes.count('fail'):>6} "
        f"{saved - begun:>16.2f} {rendered - saved:>16.2f} {peak_mib:>9.0f}"
    )


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--one":
        one_size(int(sys.argv[2]))
        return
    if len(sys.argv) == 4 and sys.argv[1] == "--page":
        write_page(int(sys.argv[3]), Path(sys.argv[2]))
        return
    sizes = [int(size) for size in sys.argv[1:]] or list(SIZES)
    print(f"{'nodes':>6} {'facts':>9} {'verdicts':>9} {'fail':>6} {'judge+report s':>16} {'page s':>16} {'MiB':>9}")
    for size in sizes:
        subprocess.run([sys.executable, __file__, "--one", str(size)], check=True)


if __name__ == "__main__":
    main()
