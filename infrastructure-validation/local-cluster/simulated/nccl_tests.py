#!/usr/bin/env python3
"""A stand-in for nccl-tests (built with MPI), one rank of it: its table, and NCCL's log at NCCL_DEBUG=INFO.

Ranks and hosts are those of the Slurm step. It honours NCCL_P2P_LEVEL, NCCL_P2P_DISABLE, NCCL_SHM_DISABLE, NCCL_ALGO,
NCCL_NET_DISABLE_INTRA, NCCL_NVLS_ENABLE, NCCL_IB_DISABLE, NCCL_DEBUG, NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE.
Keys of the state file:
    nccl.nvls=ignored          NCCL_NVLS_ENABLE=0 has no effect; so `ring` (NCCL_ALGO), `p2p` (NCCL_P2P_DISABLE), `shm`
                               (NCCL_SHM_DISABLE) and `level` (NCCL_P2P_LEVEL)
    nccl.nvlink=broken         no GPU reaches another over NVLink: shared memory is used, or there is no way at all
    nccl.net=Socket            NCCL finds no RDMA device
    nccl.speed=0.5             everything is so much slower; nccl.speed.nic=0.5: what goes over NICs inside a node
    nccl.wrong=3               so many values are wrong at every size
"""

import os
import subprocess
import sys
from pathlib import Path

from nccl import Way, write_log
from tools import known_keys

OPERATIONS = {  # name in the log, factor from algorithm to bus bandwidth
    "all_reduce_perf": ("AllReduce", lambda n: 2 * (n - 1) / n),
    "all_gather_perf": ("AllGather", lambda n: (n - 1) / n),
    "reduce_scatter_perf": ("ReduceScatter", lambda n: (n - 1) / n),
    "alltoall_perf": ("SendRecv", lambda n: (n - 1) / n),
    "broadcast_perf": ("Broadcast", lambda n: 1),
    "sendrecv_perf": ("SendRecv", lambda n: 1),
}
LEAST_US = 18.0
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
TITLE = "#       size         count      type   redop    root" + "     time   algbw   busbw #wrong" * 2


def main():
    binary, known = Path(sys.argv[0]).name, known_keys()
    options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))
    rank, ranks = int(os.environ.get("SLURM_PROCID", "0")), int(os.environ.get("SLURM_NTASKS", "1"))
    hosts, sizes = hosts_of_step(), list(sizes_of(options))
    gpus = max(1, ranks // len(hosts))
    way = Way(known, len(hosts), gpus)
    write_log(way, OPERATIONS[binary][0], rank, hosts, gpus, sizes)
    if way.inside is None and gpus > 1:
        print(f"{hosts[rank // gpus]}: Test NCCL failure common.cu:1005 'internal error - please report this issue'")
        sys.exit(3)
    if rank == 0:
        rows = [row(binary, way, ranks, len(hosts), gpus, size, known) for size in sizes]
        report(binary, devices(ranks, hosts, gpus), rows, known)


def hosts_of_step():
    """In the order of ranks."""
    listed = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST")
    if listed and any(sign in listed for sign in "[,"):
        listing = subprocess.run(["scontrol", "show", "hostnames", listed], capture_output=True, text=True, check=True)
        return listing.stdout.split()
    return [listed or os.environ.get("SLURMD_NODENAME", "localhost")]


def sizes_of(options):
    size, last = (bytes_of(options.get(name, "32M")) for name in ("-b", "-e"))
    while size <= last:
        yield size
        size *= int(options.get("-f", "2"))


def bytes_of(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def devices(ranks, hosts, gpus):
    return [
        {
            "rank": rank,
            "group": 0,
            "pid": os.getpid() + rank,
            "hostname": hosts[rank // gpus],
            "device": rank % gpus,
            "device_hex": f"0000:{rank % gpus:x}8:00",
            "device_info": "NVIDIA H100 80GB HBM3",
        }
        for rank in range(ranks)
    ]


def row(binary, way, ranks, nodes, gpus, size, known):
    """One size, out of place and, a little slower, in place."""
    operation, factor = OPERATIONS[binary]
    share = factor(ranks) if ranks > 1 else 0.0
    us = LEAST_US + size * (share or 1) / way.speed(operation, nodes, gpus, known) / 1e3
    wrong = known.get("nccl.wrong", "0")
    halves = [
        {"time": time, "alg_bw": size / time / 1e3, "bus_bw": size / time / 1e3 * share, "nwrong": wrong}
        for time in (us, 1.01 * us)
    ]
    if operation == "SendRecv":
        halves[1]["nwrong"] = None  # never checked there
    first, second = halves
    named = {"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "-1"}
    return {**named, "out_of_place": first, "in_place": second}


def report(binary, ranks, rows, known):
    print(f"# Collective test starting: {binary}\n# nThread 1 nGpus 1 warmup iters: 5 iters: 20\n#\n# Using devices")
    for each in ranks:
        line = "#  Rank {rank:2} Group  0 Pid {pid:6} on {hostname:>10} device {device:2} [{device_hex}] {device_info}"
        print(line.format(**each))
    print(f"#\n{TITLE}")
    for each in rows:
        cells = "".join(
            f"{half['time']:9.2f} {half['alg_bw']:7.2f} {half['bus_bw']:7.2f} {half['nwrong'] or 'N/A':>6}"
            for half in (each["out_of_place"], each["in_place"])
        )
        print(f"{each['size']:12} {each['count']:13}     float     sum      -1{cells}")
    wrong = int(known.get("nccl.wrong", "0"))
    print(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}")


if __name__ == "__main__":
    main()
