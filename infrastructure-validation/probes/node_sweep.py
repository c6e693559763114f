#!/usr/bin/env python3
"""What every node can do by itself: a seeded training step, a sustained load, collectives among its own GPUs.

All nodes do it side by side, a rank for each GPU; where there is no GPU, on the CPU. Each part reports for itself, so
that one that hangs or ends does not take the answers of the others with it. The ranks of a node talk only to each
other.
Does not prove: anything between nodes; that speed lasts for longer than BRINGUP_LOAD_S seconds (default 60).
Run: srun --label --ntasks-per-node=8 --gpus-per-node=8 PYTHON node_sweep.py   (MASTER_PORT set, the same on all nodes)
"""

import datetime
import os
import statistics
import sys
import time

import arrival
import cuda_start
import gpus
import nvml
import seeded_step
import sustained_load
from bench import KIB, MIB, Bench, largest, named
from facts import Facts, node_name
from faults import hits
from imports import large_imports

TIMEOUT = datetime.timedelta(seconds=120)  # that a collective may wait
SMALLEST, ON_CPU = 8 * KIB, 4 * MIB
LOAD_DRILLS = {"slow-load": "slow", "drifting-load": "drifts", "wrong-load": "wrong"}


def main():
    local, world = int(os.environ["SLURM_LOCALID"]), int(os.environ["SLURM_NTASKS_PER_NODE"])
    try:
        duration_s = sustained_load.seconds()
        arrival.patience_s()
    except ValueError as error:
        sys.exit(f"node_sweep.py: {error}")
    seeded_step.prepare()
    with large_imports():
        import torch

    count, why = cuda_start.devices(torch)
    device = torch.device("cuda", local % count) if count else torch.device("cpu")
    if count:
        torch.cuda.set_device(device)
    say_device(torch, device, local, why)
    say_steps(torch, device, local)
    say_load(torch, device, local, duration_s)
    if local == 1 and hits("exit-sweep", node_name()):
        os._exit(3)
    say_inside(torch, device, local, world)


def who(torch, device, local):
    """The device in the subject of a fact: the UUID of a GPU, else the task that computed on the CPU."""
    if device.type == "cpu":
        return f"{node_name()}/task{local}"
    return f"{node_name()}/{cuda_start.uuid(torch, device) or f'gpu{local}'}"


def say_device(torch, device, local, why=None):
    """why: CUDA's reason to give no GPU."""
    facts = Facts("sweep_device")
    subject, listed = who(torch, device, local), gpus.driver_count()
    facts.saw("sweep.gpu.device", device.type, "text", subject)
    bypassed = device.type == "cpu" and listed > 0
    remark = cuda_start.fallback(listed, why) if bypassed else None
    facts.saw("sweep.gpu.device.fallback", int(bypassed), "count", subject, remark)
    facts.finish()


def say_steps(torch, device, local):
    """On the device, and on the CPU of this task where that is another one."""
    facts = Facts("seeded_step")
    devices = [device] if device.type == "cpu" else [torch.device("cpu"), device]
    for each in devices:
        quantity = "sweep.gpu.step." + ("cpu" if each.type == "cpu" else "gpu")
        try:
            of_kind = seeded_step.kind(torch, each)
            repeats = seeded_step.digests(torch, each, hits("flipped-bit", facts.at))
        except RuntimeError as error:
            facts.unknown(quantity, "text", f"torch: {error}", f"{facts.at}/task{local}")
            continue
        subject = who(torch, each, local)
        facts.saw(f"{quantity}.kind", of_kind, "text", subject)
        for repeat in repeats:
            facts.saw(quantity, repeat, "text", subject)
    if device.type == "cpu":
        facts.unknown("sweep.gpu.step.gpu", "text", "torch sees no GPU", who(torch, device, local))
    facts.finish()


def say_load(torch, device, local, duration_s):
    facts = Facts("sustained_load")
    subject = who(torch, device, local)
    drill = next((kind for name, kind in LOAD_DRILLS.items() if hits(name, facts.at)), None)
    links, why_not = (None, "torch sees no GPU") if device.type == "cpu" else nvml.pcie_links(subject.split("/")[1])
    try:
        load = sustained_load.run(torch, device, duration_s, drill, links)
    except RuntimeError as error:
        for quantity, unit in (("tflops", "TFLOP/s"), ("drift", "ratio"), ("wrong_values", "count"), ("pcie", "count")):
            facts.unknown(f"sweep.gpu.load.{quantity}", unit, f"torch: {error}", subject)
        facts.finish()
        return
    windows = f"{len(load.windows)} windows in {duration_s} s"
    facts.saw("sweep.gpu.load.tflops", round(load.tflops, 4), "TFLOP/s", subject, windows)
    facts.saw("sweep.gpu.load.wrong_values", load.wrong, "count", subject)
    facts.saw("sweep.gpu.load.compared_s", round(load.compared_s, 6), "s", subject, windows)
    course = f"{windows}, from {min(load.speeds):.4g} to {max(load.speeds):.4g} TFLOP/s"
    facts.saw("sweep.gpu.load.drift", round(load.drift, 3), "ratio", subject, course)
    say_pcie(facts, subject, load.watched, why_not)
    facts.finish()


def say_pcie(facts, subject, links, why_not):
    """1 where the best of what was seen is not all that the slot can do: a single look may meet a moment of rest."""
    links = [link for link in links if link is not None]
    if not links:
        facts.unknown("sweep.gpu.load.pcie", "count", why_not or "NVML did not say it under load", subject)
        return
    (generation, lanes), (most, all_lanes) = max(links)
    remark = f"generation {generation} of {most}, {lanes} of {all_lanes} lanes"
    facts.saw("sweep.gpu.load.pcie", int((generation, lanes) != (most, all_lanes)), "count", subject, remark)


def say_inside(torch, device, local, world):
    """Collectives among the ranks of this node. A single rank has no peers."""
    facts = Facts("node_sweep")
    if world > 1:
        import torch.distributed as dist

        subject = who(torch, device, local)
        try:
            bench = join(torch, dist, device, local, world)
            inside(bench, facts, subject)
        except (arrival.Late, RuntimeError) as error:  # DistError is a RuntimeError
            words = str(error).split("\n")[0]
            facts.unknown("sweep.gpu.inside.wrong_values", "count", words, subject)
            facts.finish()
            if local == 0:
                time.sleep(arrival.LINGER_S)
            os._exit(1)  # a group that is broken may not let its ranks go
        dist.barrier()
        time.sleep(0.3)  # a gloo program that ends without this pause aborts in its worker thread every second time
        dist.destroy_process_group()
    facts.finish()


def join(torch, dist, device, local, world):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    patience, cuda = arrival.patience_s(), device.type == "cuda"
    gpu = cuda_start.uuid(torch, device) if cuda else None
    store = arrival.meet(dist, local, world, world, node_name(), local == 0, patience, gpu)
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        store=store,
        rank=local,
        world_size=world,
        timeout=TIMEOUT,
        **({"device_id": device} if cuda else {}),
    )
    return Bench(torch, dist, device, local, world)


def inside(bench, facts, subject):
    sizes, wrong = (SMALLEST, largest(free_memory(bench)) if bench.device.type == "cuda" else ON_CPU), 0
    for collective in bench.collectives():
        for size in sizes:
            operation, label = collective(size), f"{collective.__name__}@{named(size)}"
            if size == sizes[-1] and collective.__name__ == "all_reduce" and hits("slow-inside", facts.at):
                bench.slow = label
            seconds, _, counts = bench.measure(operation, label)
            wrong += sum(counts.values())
            if collective.__name__ == "all_reduce" and size == sizes[-1]:
                times = bench.gather(seconds)
                median = statistics.median(max(repetition) for repetition in zip(*times, strict=True))
                if bench.rank == 0:
                    busbw = operation.nbytes / median * operation.factor / 1e9
                    facts.saw("sweep.inside.busbw", float(f"{busbw:.4g}"), "GB/s", remark=f"all_reduce {named(size)}")
                    facts.saw("sweep.backend", bench.dist.get_backend(), "text")
    facts.saw("sweep.gpu.inside.wrong_values", wrong, "count", subject)


def free_memory(bench):
    """Bytes, index = rank."""
    return bench.gather(bench.torch.cuda.mem_get_info(bench.device)[0])


if __name__ == "__main__":
    main()
