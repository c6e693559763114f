#!/usr/bin/env python3
"""Collectives on torch.distributed: right results, one communicator, time and bus bandwidth per named size.

NCCL where every rank has a GPU, gloo where there is none. Rank and world size come from Slurm (one task per rank).
Proves: that these ranks, on these hosts, formed one communicator and that it computes rightly at this speed.
Does not prove: anything about a rank that did not take part; nccl-tests go deeper into NCCL itself.
Run: srun --label --ntasks=4 --ntasks-per-node=2 python collectives.py SCALE NCCL_LOG_FOLDER [COLLECTIVE]
     (MASTER_ADDR, MASTER_PORT set; with COLLECTIVE that one alone; that, and one rank, only at the smallest size and at
     16MiB, or at 1GiB or less on GPUs)
"""

import datetime
import os
import statistics
import sys
import time
from collections import Counter, namedtuple
from pathlib import Path

import arrival
import cuda_start
import gpus
import nccl_files
import progress
import ras
import transport
from bench import (
    GIB,
    GPU_SIZES,
    KIB,
    MIB,
    REPETITIONS,
    Bench,
    blame,
    fits,
    label_of,
    largest,
    named,
    needed,
    slowed,
    stall,
)
from facts import Facts, node_name
from faults import argument_of
from imports import large_imports

CPU_SIZES = (8 * KIB, 1 * MIB, 4 * MIB, 16 * MIB)
MAX_NAMED = 8  # RDMA devices of one host
FLIGHT = "64"  # collectives that the flight recorder keeps: some 40 KB for each rank that hangs
FLIGHTS_ARE_CHOSEN = "TORCH_FR_DUMP_TEMP_FILE" in os.environ  # by the user


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: collectives.py SCALE NCCL_LOG_FOLDER [COLLECTIVE]")
    scale, logs, *only = sys.argv[1:]
    check_patience("collectives.py")
    tasks, nodes = int(os.environ["SLURM_NTASKS"]), int(os.environ.get("SLURM_STEP_NUM_NODES", "1"))
    here = place_of(int(os.environ["SLURM_PROCID"]), tasks, nodes)
    if here.world < tasks:  # a drill: those of a node meet there
        os.environ["MASTER_ADDR"] = "127.0.0.1"
    if nccl_files.writes_log(here.local, only):
        nccl_files.Log().begin(logs if only else nccl_files.of_this_node(logs))
    keep_flights(logs)
    torch, dist = load()
    end(dist, measure_scale(torch, dist, device_of(torch, here.local), scale, here, logs, only))


Place = namedtuple("Place", "task local rank world node nodes")
"""task: number of the rank among those of the scale; local: on its node; rank, world: what torch is told, the same but
in a drill; node: the place of its node among the nodes of the scale, which are so many."""
Device = namedtuple("Device", "torch name gpu why_none")
"""torch: the device on which the rank computes; name: of what it was given, or None; gpu: UUID; why_none: why CUDA gave
no GPU."""


def place_of(task, tasks, nodes):
    """Who this rank is, for torch: what Slurm says, except in a drill."""
    local, per_node = int(os.environ["SLURM_LOCALID"]), max(1, tasks // nodes)
    if argument_of("separate-communicators") is None:
        return Place(task, local, task, tasks, task // per_node, nodes)
    return Place(task, local, local, per_node, task // per_node, nodes)


def check_patience(program):
    """End here with one line if a patience of the environment is no number."""
    try:
        arrival.patience_s()
        progress.hang_s()
    except ValueError as error:
        sys.exit(f"{program}: {error}")


def keep_flights(logs):
    """torch keeps the last collectives of this rank (its flight recorder); NCCL's watchdog adds its own at a timeout.
    The names are those since torch 2.9."""
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", FLIGHT)
    os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")
    if not FLIGHTS_ARE_CHOSEN:
        os.environ["TORCH_FR_DUMP_TEMP_FILE"] = f"{logs}/flight_at_timeout_"


def load():
    """torch and torch.distributed."""
    with large_imports():
        import torch
        import torch.distributed as dist
    return torch, dist


def device_of(torch, local):
    """The device of this rank, which is chosen for all that it does."""
    count, why_none = cuda_start.devices(torch)
    if count == 0:
        return Device(torch.device("cpu"), placeholder(local), None, why_none)
    device = torch.device("cuda", local % count)
    torch.cuda.set_device(device)
    uuid = cuda_start.uuid(torch, device)
    return Device(device, uuid, uuid, why_none)


def age_s():
    """Seconds since this process began."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def measure_scale(torch, dist, own, scale, here, logs, only=(), store=None, before_s=0.0, is_first=True):
    """Join the ranks of the scale, and measure. The bench, whose group is still there. only: the name of a collective;
    store: as in start(); before_s: CPU seconds that this process took for smaller scales; is_first: the start of the
    ranks is this scale's."""
    begun_s = 0.0 if is_first else age_s()
    device, cuda = own.torch, own.torch.type == "cuda"
    init_s = start(dist, device, scale, own.gpu, here, store)
    bench = Bench(torch, dist, device, dist.get_rank(), dist.get_world_size())
    bench.progress.watch(
        scale, here.task, progress.hang_s() / 2, lambda: keep_words(torch._C._distributed_c10d, cuda, logs, here)
    )
    facts = Facts("collectives", before_s=before_s) if bench.rank == 0 else None
    members = [tuple(member) for member in bench.gather((node_name(), here.task, os.getpid(), own.name))]
    rdma = bench.gather((node_name(), transport.active_rdma_devices()))
    used = bench.gather((node_name(), device.type, gpus.driver_count(), own.why_none))
    if facts is not None:
        say_members(facts, scale, members, rdma)
        say_devices(facts, scale, used)
        facts.saw("nccl.init_s", round(init_s, 3), "s", scale)
        facts.saw("nccl.backend", dist.get_backend(), "text", scale)
        facts.saw("nccl.debug", os.environ["NCCL_DEBUG"], "text", scale)
    joined_s = age_s()
    before = transport.interface_bytes()
    sizes = GPU_SIZES if cuda else CPU_SIZES
    free = bench.gather(torch.cuda.mem_get_info(device)[0] if cuda else None)
    if only or bench.world == 1:  # one rank has no curve
        sizes = (sizes[0], largest(free) if cuda else 16 * MIB)
    sizes, too_large, why = fitting(sizes, free, members)
    bench.slow = slowed(sizes)
    parts, sums, names = [], [], []  # results whose origin is known, sums over all ranks, and of which collective
    chosen = [collective for collective in bench.collectives() if not only or collective.__name__ in only]
    bench.middle = f"{chosen[len(chosen) // 2].__name__}@{named(sizes[0])}"
    stalls = []
    for collective in chosen:
        for size in sizes:
            results, stalled = measure(bench, collective, size, facts, scale)
            stalls.append(stalled)
            parts.append([{rank: count for rank, count in wrong.items() if rank is not None} for wrong in results])
            sums.append([wrong.get(None, 0) for wrong in results])
            names.append(collective.__name__)
        if facts is not None:
            say_not_measured(facts, scale, collective.__name__, too_large, why)
    moved = bench.gather(transport.sent_since(before))
    local_s = bench.gather(bench.local_seconds(sizes[-1]))
    standstills = bench.gather(bench.standstill())
    if facts is not None:
        say_wrong(facts, scale, members, parts, sums, names)
        say_stalls(facts, scale, members, stalls, standstills)
        for (host, number, _, _), seconds in zip(members, local_s, strict=True):
            subject, ratio = f"{host}/rank{number}", round(seconds / statistics.median(local_s), 3)
            facts.saw("nccl.rank.state", "finished", "text", subject)  # all took part in the last one
            facts.saw("nccl.rank.local_time", ratio, "ratio", subject)
        if not cuda:  # a ring crosses each host once: the least that one host sends in all timed all_reduces
            least = 0 if len({host for host, *_ in members}) == 1 else REPETITIONS * sum(sizes)
            carried, why = transport.carriers(moved, least)
            facts.answered("nccl.transport", carried, "text", why, scale)
        facts.saw("nccl.time.start", round(joined_s - begun_s, 2), "s", scale)
        facts.saw("nccl.time.measure", round(age_s() - joined_s, 2), "s", scale)
        facts.finish()
    return bench


def end(dist, bench):
    """Leave the group."""
    # a gloo program that ends without this pause aborts in its worker thread every second time
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()
    bench.close()


def fitting(sizes, free, members):
    """(the sizes that every rank has memory for, the others, why). free: bytes, index = rank; None without a GPU. The
    smallest is always tried: without it nothing would be known."""
    known = [(left, rank) for rank, left in enumerate(free) if left is not None]
    if not known:
        return list(sizes), [], ""
    least, rank = min(known)
    fit = [size for size in sizes if fits(size, least)] or list(sizes[:1])
    host, number, _, _ = members[rank]
    why = f"{host}/rank{number} has {least / GIB:.1f} GiB of GPU memory free"
    return fit, [size for size in sizes if size not in fit], why


def say_not_measured(facts, scale, name, sizes, why):
    for size in sizes:
        for quantity, unit in (("time", "us"), ("time_spread", "share"), ("busbw", "GB/s")):
            words = f"{needed(size) / GIB:.1f} GiB are needed for {named(size)}, and {why}"
            facts.unknown(f"nccl.{name}.{quantity}@{named(size)}", unit, words, scale)


def keep_words(c10d, cuda, logs, here):
    """Keep what torch and NCCL themselves know of a rank that is stuck, before anything is killed."""
    keep_flight(c10d, cuda, f"{logs}/flight.rank{here.task}.json")
    if cuda and ras.is_witness(here.node, here.nodes, here.local):
        ras.keep(f"{logs}/ras.rank{here.task}.txt")


def keep_flight(c10d, cuda, file):
    """As JSON: torch's own files are pickles. Private names, and not in every torch."""
    dump = getattr(c10d, "_dump_nccl_trace_json" if cuda else "_dump_fr_trace_json", None)
    if dump is None:
        return
    try:
        Path(file).write_bytes(dump(True, False))
    except (OSError, TypeError, RuntimeError) as error:
        print(f"{node_name()}: the flight record was not kept: {error}", file=sys.stderr, flush=True)


def start(dist, device, scale, gpu, here, store=None):
    """Join the others. Seconds that it took once all were there. Ends this rank when some do not come, or share a
    GPU. store: a connection to that of a larger group, under a prefix of its own."""
    patience, per_host = arrival.patience_s(), max(1, here.world // here.nodes)
    try:
        store = arrival.meet(
            dist, here.rank, here.world, per_host, node_name(), here.rank == 0, patience, gpu, store=store
        )
    except arrival.Shared as error:
        if here.rank == 0:
            say_shared(error, scale)
        time.sleep(arrival.PAUSE_S)  # rank 0 writes it down before Slurm ends all, and serves the store to the others
        os._exit(1)
    except arrival.Late as error:
        say_late(error, here.rank, patience)
        if here.rank == 0:
            time.sleep(arrival.LINGER_S)
        os._exit(1)
    begun, cuda = time.monotonic(), device.type == "cuda"
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        store=store,
        rank=here.rank,
        world_size=here.world,
        timeout=datetime.timedelta(seconds=patience),
        **({"device_id": device} if cuda else {}),
    )
    dist.barrier()  # the first collective connects all ranks; who waits longer in a later one is in a hang
    timeout = datetime.timedelta(seconds=progress.hang_s())
    dist.distributed_c10d._set_pg_timeout(timeout, dist.group.WORLD)  # torch has no public way
    store.set_timeout(timeout)
    return time.monotonic() - begun


def say_late(error, rank, patience):
    """The rank that looked who is missing says it as facts, and for people. srun may end the step at once after it."""
    print(f"{node_name()}: rank {rank}: {error}", file=sys.stderr, flush=True)
    if error.late:
        facts = Facts("arrival")
        for late, host in error.late:
            facts.saw("nccl.rank.late", patience, "s", f"{host or 'unknown'}/rank{late}", str(error))
        facts.finish()


def say_shared(error, scale):
    print(f"{node_name()}: {error}", file=sys.stderr, flush=True)
    facts = Facts("collectives")
    facts.saw("nccl.devices", error.gpus, "count", scale, str(error))
    facts.finish()


def placeholder(local):
    """The GPU that this rank would take if there were one behind the device files. None without such files, and where a
    driver lists GPUs: they are real, and this rank computes on the CPU."""
    if gpus.driver_count():
        return None
    allowed, _ = gpus.openable()
    return allowed[local % len(allowed)] if allowed else None


def say_members(facts, scale, members, rdma):
    """Who is in the communicator, counted by its members."""
    facts.saw("nccl.ranks", len(set(members)), "count", scale)
    facts.saw("nccl.hosts", len({host for host, *_ in members}), "count", scale)
    members_by_device = Counter((host, name) for host, _, _, name in members)
    if any(name is None for _, name in members_by_device):
        facts.unknown("nccl.devices", "count", "a rank has no GPU", scale)
    else:
        shared = [
            f"{count} ranks have {name} of {host}" for (host, name), count in members_by_device.items() if count > 1
        ]
        facts.saw("nccl.devices", len(members_by_device), "count", scale, "; ".join(shared) or None)
    facts.saw("nccl.members", [f"{host} pid {pid} {name}" for host, _, pid, name in members][:8], "text", scale)
    have = sorted({f"{host}: {some_of(devices)}" for host, devices in rdma if devices})
    for hosts in [[host] for host in have] or [[]]:  # of a fleet with 32 devices per host they do not fit on one line
        facts.saw("nccl.rdma.active", hosts, "text", scale)


def say_devices(facts, scale, used):
    """used: (host, type of the device that the rank computes on, GPUs that the driver of the host lists, why CUDA gave
    none), index = rank."""
    facts.saw("nccl.device", " and ".join(sorted({kind for _, kind, *_ in used})), "text", scale)
    fell_back = [(rank, *each) for rank, each in enumerate(used) if each[1] == "cpu" and each[2]]
    remark = None
    if fell_back:
        rank, host, _, listed, why = fell_back[0]
        remark = f"first rank {rank} on {host}: {cuda_start.fallback(listed, why)}"
    facts.saw("nccl.device.fallback", len(fell_back), "count", scale, remark)


def some_of(devices):
    left = len(devices) - MAX_NAMED
    return " ".join(devices[:MAX_NAMED]) + (f" and {left} more" if left > 0 else "")


def measure(bench, collective, size, facts, scale, name=None):
    """(wrong values of every rank, the longest repetition as `stall` says it). Rank 0 reports the median of the slowest
    rank's times, and the spread."""
    operation, name = collective(size), name or collective.__name__
    at, label = label_of(size, operation.nbytes), f"{name}@{named(size)}"
    seconds, with_waits, wrong_values = bench.measure(operation, label)
    everyone = bench.gather((seconds, with_waits, list(wrong_values.items())))
    times, with_wait, wrong = zip(*everyone, strict=True)
    slowest = [max(repetition) for repetition in zip(*times, strict=True)]
    if facts is not None:
        median = statistics.median(slowest)
        facts.saw(f"nccl.{name}.time@{at}", round(median * 1e6, 1), "us", scale)
        facts.saw(f"nccl.{name}.time_spread@{at}", round((max(slowest) - min(slowest)) / median, 3), "share", scale)
        if bench.world > 1:
            busbw = float(f"{operation.nbytes / median * operation.factor / 1e9:.4g}")
            facts.saw(f"nccl.{name}.busbw@{at}", busbw, "GB/s", scale)
    slowest_with_waits = [max(repetition) for repetition in zip(*with_wait, strict=True)]
    return [dict(items) for items in wrong], stall(slowest_with_waits, label)


def say_stalls(facts, scale, members, stalls, standstills):
    """The longest repetition of all, and per rank how long it stood still itself. stalls: (seconds, words);
    standstills: index = rank; (seconds, NAME@SIZE, CPU seconds)."""
    seconds, words = max(stalls, key=lambda stall: stall[0])
    rank = max(range(len(standstills)), key=lambda number: standstills[number][0])
    if seconds > 0:
        host, number, _, _ = members[rank]
        explained = standstills[rank][0] >= seconds / 2
        words += f"; {host}/rank{number} stood still" if explained else "; no rank stood still itself"
    facts.saw("nccl.stall", round(seconds, 2), "s", scale, words if seconds > 0 else None)
    for (host, number, _, _), (still_s, label, cpu_s) in zip(members, standstills, strict=True):
        how = None
        if label is not None:
            reason = "stopped, or got no core" if cpu_s < still_s / 2 else "busy in one call that keeps the interpreter"
            how = f"in {label}: the process stood still and used {cpu_s:.2g} s of CPU: it was {reason}"
        facts.saw("nccl.rank.stall", round(still_s, 2), "s", f"{host}/rank{number}", how)


def say_wrong(facts, scale, members, parts, sums, names):
    """All wrong values, and those of each rank. A sum that is wrong on every rank does not tell who gave the wrong
    value.

    names: the collective of each step of parts and sums.
    """
    per_step = [
        sum(added) + sum(count for origins in step for count in origins.values())
        for step, added in zip(parts, sums, strict=True)
    ]
    total, where = sum(per_step), dict.fromkeys(name for name, count in zip(names, per_step, strict=True) if count)
    remark = f"in {', '.join(where)}" if where else None
    facts.saw("nccl.wrong_values", total, "count", scale, remark)
    # over all collectives: all_to_all shows who is wrong with everybody, where a ring of sendrecv alone leaves it open
    blamed = blame([sum(map(Counter, steps), start=Counter()) for steps in zip(*parts, strict=True)])
    for step in sums:
        if not all(step):
            blamed.update(dict(enumerate(step)))
    untold = total > 0 and not any(blamed.values())
    why = "only sums are wrong, and on every rank"
    for rank, (host, number, _, _) in enumerate(members):
        count, subject = None if untold else blamed[rank], f"{host}/rank{number}"
        facts.answered("nccl.rank.wrong_values", count, "count", why, subject, remark if count else None)


if __name__ == "__main__":
    main()
