#!/usr/bin/env python3
"""Sample this node once a second until SIGTERM, or until the standard input ends: CPU, memory, bytes over the network
and over RDMA ports, and GPU where NVML answers. CSV to stdout.

After the line of the node comes a line for each of its GPUs. Columns: validation/bringup/evidence/monitor.py. A cell
that cannot be measured here is empty, never 0.
Run: srun --label --overlap python3 monitor.py until-eof. srun hands its standard input on to all tasks; a SIGTERM that
     it gets would kill them. Without the word: until SIGTERM.
"""

import math
import signal
import sys
import threading
import time
from pathlib import Path

from facts import node_name
from faults import hits
from nvml import HARDWARE_SLOWDOWNS, found, library
from patience import NoAnswer, seconds, within
from transport import rdma_reader

PERIOD_S = 1.0
DRILL_SAMPLES = 1
GPU = "#gpu"  # begins the line of a GPU; no node has such a name
KIB_PER_GIB = 2**20
NO_GPUS = ["", "", ""], []


def cpu_times():
    """(busy, all) jiffies since boot."""
    cells = [int(cell) for cell in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(cells) - cells[3] - cells[4], sum(cells)


def memory_used_gib():
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return (int(lines["MemTotal"].split()[0]) - int(lines["MemAvailable"].split()[0])) / KIB_PER_GIB


def network_bytes():
    """(sent, received) over all interfaces but the loopback."""
    sent = received = 0
    for line in Path("/proc/net/dev").read_text().splitlines()[2:]:
        name, _, cells = line.partition(":")
        if name.strip() != "lo":
            received += int(cells.split()[0])
            sent += int(cells.split()[8])
    return sent, received


def gpu_reader(nvml=None):
    """A function that returns what the GPUs say now, as texts: [busiest %, W of all, hottest °C], and a list of cells
    for each GPU. Without NVML the three are empty, and no GPU is listed."""
    nvml = nvml or library()[0]
    if nvml is None:
        return lambda: NO_GPUS
    count, gpus = 0, {}
    try:
        for _, gpu, _ in found(nvml):
            count += 1
            if gpu is not None:  # one that fell off the bus must not end the samples of the others
                gpus[gpu[1]] = gpu[0]
    except (nvml.NVMLError, AttributeError, NoAnswer):  # nor must a driver that does not count them
        return lambda: NO_GPUS

    def cell(reading, handle, form):
        try:
            return form.format(reading(handle))
        except (nvml.NVMLError, AttributeError):  # the GPU does not say it, or pynvml is older than the question
            return ""

    questions = (
        (lambda handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu, "{}"),
        (lambda handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1000, "{:.0f}"),
        (lambda handle: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU), "{}"),
        (lambda handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM), "{}"),
        (lambda handle: slowdowns(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)), "{}"),
    )

    def whole(summary, cells):  # of all GPUs or of none: a sum without one of them would be a wrong number
        return summary(map(int, cells)) if cells and len(cells) == count and all(cells) else ""

    def read():
        each = [[name, *(cell(reading, gpu, form) for reading, form in questions)] for name, gpu in gpus.items()]
        kinds = ((max, 1), (sum, 2), (max, 3))
        return [whole(summary, [cells[place] for cells in each]) for summary, place in kinds], each

    hung = []

    def read_in_time():  # a GPU that hangs is waited for once: the node goes on without samples of its GPUs
        if not hung:
            try:
                return within(seconds(), read)
            except NoAnswer as error:
                hung.append(error)
                print(f"monitor.py: GPUs: {error}", file=sys.stderr, flush=True)
        return NO_GPUS

    return read_in_time


def slowdowns(reasons):
    """What the hardware does to protect itself: `hardware thermal+hardware power brake`, or none."""
    return "+".join(name for bit, name in HARDWARE_SLOWDOWNS.items() if reasons & bit) or "none"


def after(due, now):
    """The moment to sample at, after `due`. What a slow reading has overrun is left out, and nothing shifts what is to
    come."""
    return due + PERIOD_S * max(1, math.ceil((now - due) / PERIOD_S))


def main():
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if sys.argv[1:] == ["until-eof"]:
        threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    node, gpu, rdma, before = node_name(), gpu_reader(), rdma_reader(), cpu_times()
    begun, own_before, samples = time.monotonic(), time.process_time(), 0
    due = begun + PERIOD_S
    while not stop.wait(max(0.0, due - time.monotonic())):
        if hits("stop-monitor", node) and samples == DRILL_SAMPLES:
            return
        until = time.monotonic() + (PERIOD_S / 2 if hits("busy-monitor", node) else 0)
        while time.monotonic() < until:
            pass
        samples += 1
        now = cpu_times()
        busy = 100 * (now[0] - before[0]) / max(1, now[1] - before[1])
        before = now
        sent, received = network_bytes()
        over_rdma = ["" if count is None else count for count in rdma()]
        gpus, each_gpu = gpu()
        at = f"{time.time():.3f}"
        own = 100 * (time.process_time() - own_before) / max(PERIOD_S, time.monotonic() - begun)
        print(
            node,
            at,
            f"{busy:.1f}",
            f"{memory_used_gib():.2f}",
            sent,
            received,
            *gpus,
            f"{own:.2f}",
            *over_rdma,
            sep=",",
            flush=True,
        )
        for cells in each_gpu:
            print(GPU, node, at, *cells, sep=",", flush=True)
        due = after(due, time.monotonic())


if __name__ == "__main__":
    main()
