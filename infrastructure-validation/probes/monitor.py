#!/usr/bin/env python3
"""Sample this node until SIGTERM, or until the standard input ends: CPU, memory, bytes over the network and over RDMA
ports, and GPU where NVML answers. CSV to stdout.

The first line says how often. After the line of the node come a line with the bytes of each network interface and RDMA
device, and a line for each of its GPUs. Columns: validation/bringup/readers/monitor.py. A cell that cannot be measured
here is empty, never 0.
Run: srun --label --overlap python3 monitor.py until-eof [SECONDS]. srun hands its standard input on to all tasks; a
     SIGTERM that it gets would kill them. Without words: until SIGTERM, once a second.
"""

import math
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

from facts import node_name
from faults import hits
from nvml import HARDWARE_SLOWDOWNS, each_gpu, library
from patience import NoAnswer, seconds, within
from transport import interface_traffic, rdma_reader, total

PERIOD_S = 1.0
NICS_A_LINE = 12  # srun cuts a line of 1,000 bytes when it labels it
DRILL_SAMPLES = 1
GPU, NICS, EVERY = "#gpu", "#nics", "#every"  # begin lines of another kind; no node has such a name
KIB_PER_GIB, GIB = 2**20, 2**30
ALL_LINKS = 2**32 - 1  # NVML: the sum over all NVLinks of a GPU
# nvml.h: since the driver was loaded; KiB of data over NVLink, bytes over PCIe; sent, received
FIELDS = ((138, ALL_LINKS), (139, ALL_LINKS), (197, 0), (198, 0))
NO_GPUS = ["", "", ""], []


def cpu_times():
    """(busy, all) jiffies since boot."""
    cells = [int(cell) for cell in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(cells) - cells[3] - cells[4], sum(cells)


def memory_used_gib():
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return (int(lines["MemTotal"].split()[0]) - int(lines["MemAvailable"].split()[0])) / KIB_PER_GIB


def gpu_reader(nvml=None):
    """A function that returns what the GPUs say now, as texts: [busiest %, W of all, hottest °C], and a list of cells
    for each GPU. Without NVML the three are empty, and no GPU is listed."""
    nvml = nvml or library()[0]
    if nvml is None:
        return lambda: NO_GPUS
    count, gpus = 0, {}
    try:
        for _, gpu, _ in each_gpu(nvml):
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
        (lambda handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM), "{}"),
        (lambda handle: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle), "{:#x}"),
        (lambda handle: nvml.nvmlDeviceGetMemoryInfo(handle).used / GIB, "{:.2f}"),
    )

    def all_or_none(summary, cells):  # of all GPUs or of none: a sum without one of them would be a wrong number
        return summary(map(int, cells)) if cells and len(cells) == count and all(cells) else ""

    def read():
        each = [
            [name, *(cell(reading, gpu, form) for reading, form in questions), *_moved(nvml, gpu)]
            for name, gpu in gpus.items()
        ]
        kinds = ((max, 1), (sum, 2), (max, 3))
        return [all_or_none(summary, [cells[place] for cells in each]) for summary, place in kinds], each

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


def _moved(nvml, handle):
    """Cells of FIELDS. One question for all of them: to ask for PCIe's rate instead would take NVML 40 ms a GPU."""
    try:
        values = nvml.nvmlDeviceGetFieldValues(handle, FIELDS)
        return [str(field.value.ullVal) if field.nvmlReturn == 0 else "" for field in values]
    except (nvml.NVMLError, AttributeError):  # an old driver, or a pynvml older than the question
        return [""] * len(FIELDS)


def slowdowns(reasons):
    """What the hardware does to protect itself: `hardware thermal+hardware power brake`, or none."""
    return "+".join(name for bit, name in HARDWARE_SLOWDOWNS.items() if reasons & bit) or "none"


def in_lines(counted):
    """The cells `eth0=SENT/RECEIVED` of [(name, (sent, received) or None)], some of them a line."""
    cells = ["{}={}".format(name, "/" if counts is None else "{}/{}".format(*counts)) for name, counts in counted]
    return [cells[first : first + NICS_A_LINE] for first in range(0, len(cells), NICS_A_LINE)]


def after(due, now, period_s=PERIOD_S):
    """The moment to sample at, after `due`. What a slow reading has overrun is left out, and nothing shifts what is to
    come."""
    return due + period_s * max(1, math.ceil((now - due) / period_s))


def main():
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if sys.argv[1:2] == ["until-eof"]:
        threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    node, gpu, rdma, before = node_name(), gpu_reader(), rdma_reader(), cpu_times()
    period_s = float(sys.argv[2]) if sys.argv[1:2] == ["until-eof"] and sys.argv[2:] else PERIOD_S
    write = partial(print, sep=",", flush=True)
    write(EVERY, node, f"{period_s:g}")
    begun, own_before, samples = time.monotonic(), time.process_time(), 0
    due = begun + period_s
    while not stop.wait(max(0.0, due - time.monotonic())):
        if hits("stop-monitor", node) and samples == DRILL_SAMPLES:
            return
        until = time.monotonic() + (period_s / 2 if hits("busy-monitor", node) else 0)
        while time.monotonic() < until:
            pass
        samples += 1
        now = cpu_times()
        busy = 100 * (now[0] - before[0]) / max(1, now[1] - before[1])
        before = now
        interfaces = interface_traffic()
        sent, received = (sum(counts) for counts in zip(*interfaces.values())) if interfaces else (0, 0)
        devices = rdma()
        over_rdma = ["" if count is None else count for count in total(devices)]
        gpus, each_gpu = gpu()
        at = f"{time.time():.3f}"
        own_percent = 100 * (time.process_time() - own_before) / max(period_s, time.monotonic() - begun)
        of_host = (f"{busy:.1f}", f"{memory_used_gib():.2f}", sent, received)
        write(node, at, *of_host, *gpus, f"{own_percent:.2f}", *over_rdma)
        for part in in_lines(sorted({**interfaces, **devices}.items())):
            write(NICS, node, at, *part)
        for cells in each_gpu:
            write(GPU, node, at, *cells)
        due = after(due, time.monotonic(), period_s)


if __name__ == "__main__":
    main()
