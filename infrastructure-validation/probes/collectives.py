#!/usr/bin/env python3
"""Collectives on torch.distributed: right results, one communicator, time and bus bandwidth per named size.

NCCL where every rank has a GPU, gloo where there is none. Rank and world size come from Slurm (one task per rank).
Proves: that these ranks, on these hosts, formed one communicator and that it computes rightly at this speed.
Does not prove: anything about a rank that did not take part; nccl-tests go deeper into NCCL itself.
Run: srun --label --ntasks=4 --ntasks-per-node=2 python collectives.py SCALE NCCL_LOG_FOLDER   (MASTER_ADDR, MASTER_PORT set)
"""

import datetime
import os
import re
import statistics
import sys
import time
from pathlib import Path

from facts import Facts, node_name

KIB, MIB, GIB = 2**10, 2**20, 2**30
CPU_SIZES = (8 * KIB, 1 * MIB, 16 * MIB)
GPU_SIZES = (8 * KIB, 1 * MIB, 64 * MIB, 1 * GIB, 8 * GIB)
WARMUP, REPETITIONS = 2, 7
TIMEOUT = datetime.timedelta(seconds=120)


def named(size):
    """16777216 -> 16MiB, as profiles write it."""
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: collectives.py SCALE NCCL_LOG_FOLDER")
    scale, logs = sys.argv[1], Path(sys.argv[2])
    rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    os.environ.setdefault("NCCL_DEBUG", "INFO")
    os.environ.setdefault("NCCL_DEBUG_SUBSYS", "INIT,NET,GRAPH")
    os.environ.setdefault("NCCL_DEBUG_FILE", f"{logs}/nccl.%h.%p.log")
    import torch
    import torch.distributed as dist

    cuda = torch.cuda.is_available()
    local = int(os.environ["SLURM_LOCALID"])
    device = torch.device("cuda", local % torch.cuda.device_count()) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    begun = time.monotonic()
    dist.init_process_group("nccl" if cuda else "gloo", timeout=TIMEOUT, **({"device_id": device} if cuda else {}))
    init_s = time.monotonic() - begun
    bench = Bench(torch, dist, device, rank, world)
    members = bench.gather((node_name(), os.getpid(), bench.device_name()))
    facts = Facts("collectives") if rank == 0 else None
    if facts is not None:
        facts.saw("nccl.ranks", len(set(members)), "count", scale)
        facts.saw("nccl.hosts", len({host for host, _, _ in members}), "count", scale)
        if cuda:
            facts.saw("nccl.devices", len({(host, name) for host, _, name in members}), "count", scale)
        else:
            facts.unknown("nccl.devices", "count", "no GPU behind the ranks", scale)
        facts.saw("nccl.members", [f"{host} pid {pid} {name}" for host, pid, name in members][:8], "text", scale)
        facts.saw("nccl.init_s", round(init_s, 3), "s", scale)
        facts.saw("nccl.backend", dist.get_backend(), "text", scale)
    before = interface_bytes()
    wrong = 0
    for operation in (bench.all_reduce, bench.all_gather, bench.reduce_scatter):
        for size in GPU_SIZES if cuda else CPU_SIZES:
            wrong += measure(bench, operation, size, facts, scale)
    moved = bench.gather({name: sent - before.get(name, 0) for name, sent in interface_bytes().items()})
    if facts is not None:
        facts.saw("nccl.wrong_values", wrong, "count", scale)
        transport(facts, scale, moved, logs if cuda else None, bench.bytes_between_hosts(members, CPU_SIZES))
        facts.finish()
    # a gloo program that ends without this pause aborts in its worker thread every second time
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


class Bench:
    """The collectives with their check and their busbw factor (definitions: NVIDIA/nccl-tests, doc/PERFORMANCE.md)."""

    def __init__(self, torch, dist, device, rank, world):
        self.torch, self.dist, self.device, self.rank, self.world = torch, dist, device, rank, world
        # torch 2.13 names them so; older ones only know the second name
        self._gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        self._scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

    def device_name(self):
        return str(self.torch.cuda.get_device_properties(self.device).uuid) if self.device.type == "cuda" else "cpu"

    def gather(self, value):
        values = [None] * self.world
        self.dist.all_gather_object(values, value)
        return values

    def pattern(self, count, offset=0):
        """1..7 repeated: sums over up to 100,000 ranks stay exact in fp32."""
        return ((self.torch.arange(count, device=self.device) + offset) % 7 + 1).float()

    def all_reduce(self, size):
        """Sum in place; size = bytes of the buffer; busbw factor 2(n-1)/n."""
        count = size // 4
        source = self.pattern(count)
        buffer = self.torch.empty_like(source)
        prepare = lambda: self.torch.mul(source, self.rank + 1, out=buffer)  # noqa: E731
        expected = source * (self.world * (self.world + 1) / 2)
        return prepare, lambda: self.dist.all_reduce(buffer), lambda: buffer, expected, 2 * (self.world - 1) / self.world

    def all_gather(self, size):
        """size = bytes of the gathered result; busbw factor (n-1)/n."""
        count = size // 4 // self.world
        mine = self.pattern(count) * (self.rank + 1)
        result = self.torch.empty(count * self.world, device=self.device)
        expected = self.torch.cat([self.pattern(count) * (rank + 1) for rank in range(self.world)])
        return result.zero_, lambda: self._gather(result, mine), lambda: result, expected, (self.world - 1) / self.world

    def reduce_scatter(self, size):
        """size = bytes of the whole input; busbw factor (n-1)/n."""
        count = size // 4 // self.world
        whole = self.pattern(count * self.world) * (self.rank + 1)
        result = self.torch.empty(count, device=self.device)
        expected = self.pattern(count, offset=count * self.rank) * (self.world * (self.world + 1) / 2)
        return result.zero_, lambda: self._scatter(result, whole), lambda: result, expected, (self.world - 1) / self.world

    def synchronize(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def bytes_between_hosts(self, members, sizes):
        """Least bytes that one host must send to the others in all timed all_reduces: a ring crosses each host once."""
        hosts = len({host for host, _, _ in members})
        return 0 if hosts == 1 else REPETITIONS * sum(sizes)


def measure(bench, operation, size, facts, scale):
    """Wrong values over all ranks. Rank 0 reports the median of the slowest rank's times, and the spread."""
    prepare, run, result, expected, factor = operation(size)
    seconds = []
    for _ in range(WARMUP + REPETITIONS):
        prepare()
        bench.synchronize()
        bench.dist.barrier()
        begun = time.perf_counter()
        run()
        bench.synchronize()
        seconds.append(time.perf_counter() - begun)
    wrong = sum(bench.gather(int((result() != expected).sum())))
    slowest = [max(times) for times in zip(*bench.gather(seconds[WARMUP:]), strict=True)]
    if facts is not None:
        name, at, median = operation.__name__, named(size), statistics.median(slowest)
        facts.saw(f"nccl.{name}.time@{at}", round(median * 1e6, 1), "us", scale)
        facts.saw(f"nccl.{name}.time_spread@{at}", round((max(slowest) - min(slowest)) / median, 3), "share", scale)
        if bench.world > 1:
            facts.saw(f"nccl.{name}.busbw@{at}", round(size / median * factor / 1e9, 4), "GB/s", scale)
    return wrong


def interface_bytes():
    """{interface: bytes sent}, without the loopback."""
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    return {name.strip(): int(cells.split()[8])
            for name, _, cells in (line.partition(":") for line in lines) if name.strip() != "lo"}


def transport(facts, scale, moved, logs, least_bytes):
    """NCCL's own log says what it uses between nodes; under gloo, the interface that carried the bytes on every host."""
    if logs is not None:
        text = "".join(path.read_text(errors="replace") for path in sorted(logs.glob("nccl.*.log")))
        networks = sorted(set(re.findall(r"Using network (.+)", text)))
        if networks:
            facts.saw("nccl.transport", "+".join(networks), "text", scale)
        else:
            facts.unknown("nccl.transport", "text", f"no 'Using network' line in {logs}", scale)
        return
    if least_bytes == 0:
        facts.saw("nccl.transport", "inside one host", "text", scale)
        return
    carriers = sorted({max(host, key=host.get) for host in moved if host and max(host.values()) >= least_bytes})
    silent = [host for host in moved if not host or max(host.values()) < least_bytes]
    if silent:
        facts.unknown("nccl.transport", "text", f"no interface carried {least_bytes} bytes on {len(silent)} ranks' hosts", scale)
    else:
        facts.saw("nccl.transport", "+".join(f"tcp:{name}" for name in carriers), "text", scale)


if __name__ == "__main__":
    main()
