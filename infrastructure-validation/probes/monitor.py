#!/usr/bin/env python3
"""Sample this node once a second until SIGTERM, or until the standard input ends: CPU, memory, bytes over the network and
over RDMA ports, and GPU where NVML answers. CSV to stdout.

Columns are in validation/bringup/evidence/monitor.py; a cell that cannot be measured here is empty, never 0.
Run: srun --label --overlap python3 monitor.py until-eof. srun hands its standard input on to all tasks; a SIGTERM that it
     gets would kill them. Without the word: until SIGTERM.
"""

import math
import signal
import sys
import threading
import time
from pathlib import Path

from facts import node_name
from faults import hits
from transport import rdma_reader

PERIOD_S = 1.0
DRILL_SAMPLES = 1
KIB_PER_GIB = 2**20


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


def gpu_reader():
    """A function that returns (utilisation % of the busiest, W of all, hottest °C) as texts; empty texts without
    NVML."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001  # not installed, no driver, wrong driver: it cannot be measured here
        return lambda: ("", "", "")
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]

    def over_all(summary, reading, form):
        try:  # of all GPUs or of none: a sum without one of them would be a wrong number
            return form.format(summary([reading(handle) for handle in handles]))
        except pynvml.NVMLError:
            return ""

    def read():
        return (
            over_all(max, lambda handle: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu, "{}"),
            over_all(sum, lambda handle: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000, "{:.0f}"),
            over_all(max, lambda handle: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU), "{}"),
        )

    return read if handles else lambda: ("", "", "")


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
        gpus = gpu()
        own = 100 * (time.process_time() - own_before) / max(PERIOD_S, time.monotonic() - begun)
        print(
            node,
            f"{time.time():.3f}",
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
        due = after(due, time.monotonic())


if __name__ == "__main__":
    main()
