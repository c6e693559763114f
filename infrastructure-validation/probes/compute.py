#!/usr/bin/env python3
"""Does every GPU of this node multiply matrices rightly, and how fast? Without a GPU: the same on the CPU, in float32.

The factors repeat with period 7, so that the product is known exactly from a table of 7 x 7 whole numbers, which is
made without any matrix product. A single wrong bit in one element is seen. Speed: the median of the products of a
second, and of REPETITIONS at least, after a warm-up; a shorter time may hold nothing but a pause of a neighbour.
Then how fast each GPU's memory is, and the ways from and to it.
Does not prove: that memory is sound beyond what the matrices fill; that speed lasts for longer than a second.
Run: srun --label --ntasks-per-node=1 --gpus-per-node=8 PYTHON compute.py
"""

import contextlib
import statistics
import time

import cuda_start
import faults
import gpus
from beside import beside
from facts import Facts
from imports import large_imports

PERIOD = 7
REPETITIONS = 7
FEW = 3  # repetitions of each way between two GPUs, of which there may be 56; of a triad
LEAST_S = 1.0
SIZE = {"cuda": 8064, "cpu": 1008}  # multiples of STEP; at most, on a GPU
STEP = 112  # of 7, which the factors repeat with, and of 16, which tensor cores take at once
PEAK_BYTES = 20  # that an element takes while the factors are made: 2 whole numbers of 8 bytes, 2 of the factors
SHARE = 12  # of a GPU's memory that this may be: one of 16 GiB has the whole size
COPY_BYTES = 256 * 2**20
TRIAD_BYTES = 2**30  # of each of three arrays at most: far more than caches hold
TRIAD_SHARE = 16  # of a GPU's memory that one of them may be
TRIADS = 5
PRIME = 251
PART_BYTES = 2**24  # that are compared at once: the comparison takes as much memory
WITHOUT_TORCH = {
    "smoke.compute.device": "text",
    "smoke.compute.device.fallback": "count",
    "smoke.compute.wrong_values": "count",
}
OF_MEMORY, OF_COPIES = ("memory", "gpu.memory"), ("host_to_device", "device_to_device", "gpu.copies")
SLOW_S = 3.0  # the drill: longer than any product takes


def main():
    facts = Facts("compute")
    try:
        with large_imports():
            import torch
    except ImportError as error:
        why = "torch is not installed: make venv" if isinstance(error, ModuleNotFoundError) else f"torch: {error}"
        for quantity, unit in WITHOUT_TORCH.items():
            facts.unknown(quantity, unit, why)
        facts.finish()
        return
    count, why = cuda_start.devices(torch)
    devices = [torch.device("cuda", index) for index in range(count)] or [torch.device("cpu")]
    say_device(facts, devices[0].type, gpus.driver_count(), why)
    results = [multiply(torch, device, facts) for device in devices]
    facts.saw("smoke.compute.devices", [name(torch, device) for device in devices], "text")
    who = [label(torch, device) for device in devices]
    for each, (wrong, tflops, spread) in zip(who, results, strict=True):
        facts.saw("smoke.compute.gpu.wrong_values", wrong, "count", f"{facts.at}/{each}")
        facts.saw("smoke.compute.gpu.tflops", round(tflops, 4), "TFLOP/s", f"{facts.at}/{each}", spread)
    # the slowest one counts: a job waits for it
    slowest = min(range(len(devices)), key=lambda index: results[index][1])
    _, tflops, spread = results[slowest]
    facts.saw("smoke.compute.tflops", round(tflops, 4), "TFLOP/s", remark=f"{who[slowest]}, {spread}")
    wrong = [(f"wrong values on {each}", count) for each, (count, _, _) in zip(who, results, strict=True)]
    is_cuda = devices[0].type == "cuda"
    for question, quantities in ((memory, OF_MEMORY), (copies, OF_COPIES)):
        why = None if is_cuda else "torch sees no GPU"
        try:
            wrong += (is_cuda and question(torch, devices, who, facts)) or []
        except RuntimeError as error:  # what was seen before is said all the same
            why = cuda_start.reason(f"torch: {error}")
        for quantity in quantities if why is not None else ():
            facts.unknown(f"smoke.compute.{quantity}", "GB/s", why)
    say_wrong(facts, wrong)
    facts.finish()


def say_device(facts, kind, listed, why=None):
    """kind: the type of the device that is used; listed: GPUs that the driver of this node lists; why: CUDA's reason to
    give none."""
    facts.saw("smoke.compute.device", kind, "text", remark=why)
    bypassed = listed if kind == "cpu" else 0
    remark = f"{cuda_start.fallback(listed, why)}; bringup doctor says more" if bypassed else None
    facts.saw("smoke.compute.device.fallback", bypassed, "count", remark=remark)


def say_wrong(facts, wrong):
    """wrong: (what may be wrong, in words; how many of its elements are)."""
    remark = "; ".join(f"{words}: {count}" for words, count in wrong if count)
    facts.saw("smoke.compute.wrong_values", sum(count for _, count in wrong), "count", remark=remark or None)


def label(torch, device):
    """The device in the subject of a fact: its UUID where torch tells it, never an index of what is visible."""
    if device.type == "cpu":
        return "cpu"
    return cuda_start.uuid(torch, device) or f"gpu{device.index}"


def name(torch, device):
    if device.type == "cpu":
        return "cpu"
    return f"{torch.cuda.get_device_properties(device).name} {label(torch, device)}"


def factors(size):
    """Two sequences of small whole numbers, and the 7 x 7 table of what their product must be."""
    left, right = [index - 3 for index in range(PERIOD)], [(2 * index) % PERIOD - 3 for index in range(PERIOD)]
    turns = size // PERIOD
    table = [
        [
            turns * sum(left[(row + k) % PERIOD] * right[(k + column) % PERIOD] for k in range(PERIOD))
            for column in range(PERIOD)
        ]
        for row in range(PERIOD)
    ]
    return left, right, table


def size_on(torch, device):
    """Rows of the matrices: the same on all devices of one kind, so that their speeds can be compared."""
    if device.type == "cpu":
        return SIZE["cpu"]
    return size_for(torch.cuda.get_device_properties(device).total_memory)


def size_for(memory):
    """... for a GPU with so many bytes. A part of a GPU (MIG) or a small one has room for less."""
    return max(STEP, min(SIZE["cuda"], int((memory / SHARE / PEAK_BYTES) ** 0.5) // STEP * STEP))


def operands(torch, device):
    """Two factors, and their exact product. Sums stay below 2^24: float32 adds them exactly, in any order."""
    # sums across parts of a product may not be rounded on the way: the result has to be exact
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    size = size_on(torch, device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    left, right, table = factors(size)
    index = torch.arange(size, device=device)
    both = (index[:, None] + index[None, :]) % PERIOD
    a = torch.tensor(left, dtype=dtype, device=device)[both]
    b = torch.tensor(right, dtype=dtype, device=device)[both]
    return a, b, torch.tensor(table, dtype=torch.float64).to(dtype).to(device)[index % PERIOD][:, index % PERIOD]


def multiply(torch, device, facts):
    """(wrong elements, TFLOP/s, spread in words)."""
    a, b, expected = operands(torch, device)
    size = len(a)
    seconds = []  # the first one is the warm-up
    wrong = 0
    while len(seconds) <= REPETITIONS or sum(seconds[1:]) < LEAST_S:
        begun = clock(torch, device)
        product = a @ b
        took = clock(torch, device) - begun
        if faults.hits("slow-matmul", facts.at):
            time.sleep(faults.size(SLOW_S))
            took = clock(torch, device) - begun
        if faults.hits("wrong-matmul", facts.at) and len(seconds) == REPETITIONS:
            spoil(product)
        wrong += int((product != expected).sum())
        seconds.append(took)
    median = statistics.median(seconds[1:])
    twentieths = statistics.quantiles(seconds[1:], n=20)
    within = f"9 of 10 within {(twentieths[-1] - twentieths[0]) / median:.0%}"
    spread = f"{len(seconds) - 1} repetitions of {size} x {size}, {within}"
    return wrong, 2 * size**3 / median / 1e12, spread


def spoil(product):
    """The drill: the largest element gets the other sign. One more would be lost where the dtype rounds it away."""
    flat = product.view(-1)
    flat[flat.abs().argmax()] *= -1


def clock(torch, device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def memory(torch, devices, who, facts):
    """Bandwidth of each GPU's own memory: a = b + 3 c reads two arrays and writes one. The slowest GPU counts."""
    speeds = [triad_gbps(torch, device) for device in devices]
    for each, speed in zip(who, speeds, strict=True):
        facts.saw("smoke.compute.gpu.memory", round(speed, 1), "GB/s", f"{facts.at}/{each}")
    facts.saw("smoke.compute.memory", round(min(speeds), 1), "GB/s", remark=who[speeds.index(min(speeds))])


def triad_gbps(torch, device):
    room = torch.cuda.get_device_properties(device).total_memory // TRIAD_SHARE
    a, b, c = (torch.ones(min(TRIAD_BYTES, room) // 4, device=device) for _ in range(3))
    seconds = []
    for _ in range(FEW + 1):
        begun = clock(torch, device)
        for _ in range(TRIADS):
            torch.add(b, c, alpha=3, out=a)
        seconds.append(clock(torch, device) - begun)
    return 3 * a.numel() * 4 * TRIADS / statistics.median(seconds[1:]) / 1e9


def copies(torch, devices, who, facts):
    """From pinned host memory beside each GPU to it; from each GPU to the next, or within the only one. The slowest
    counts. Returns (which copy, in words; bytes that did not arrive as they were sent): each GPU's is read back."""
    # all at once: torch would give a freed one of another socket
    hosts = [host_memory(torch, each) for each in who]
    for host in hosts:
        fill(torch, host)
    alone = len(devices) == 1
    returned = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    buffers, inward, across, inward_wrong, across_wrong = [], [], [], [], []
    for host, device in zip(hosts, devices, strict=True):
        buffers.append(torch.empty(COPY_BYTES, dtype=torch.uint8, device=device))
        inward.append(copy_gbps(torch, host, buffers[-1]))
        inward_wrong.append(wrong_bytes(torch, buffers[-1], returned, host))
    for host, source, device in zip(hosts, buffers, [*devices[1:], devices[0]], strict=True):
        # zeros of its own: a copy that never arrives would not be missed where the same bytes lie already
        target = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=device)
        across.append(copy_gbps(torch, source, target))
        across_wrong.append(wrong_bytes(torch, target, returned, host))
        del target
    matrix(torch, buffers, who, facts)
    for quantity, speeds, way in (("host_to_device", inward, "to"), ("device_to_device", across, "from")):
        for each, speed in zip(who, speeds, strict=True):
            facts.saw(f"smoke.compute.gpu.{quantity}", round(speed, 2), "GB/s", f"{facts.at}/{each}")
        remark = f"{way} {who[speeds.index(min(speeds))]}"
        if way == "from":
            remark += ", within one GPU" if alone else ", to the next GPU"
        facts.saw(f"smoke.compute.{quantity}", round(min(speeds), 2), "GB/s", remark=remark)
    wrong = [(f"wrong bytes copied to {each} and back", count) for each, count in zip(who, inward_wrong, strict=True)]
    # a copy that carried on what had arrived wrongly is not to blame
    return wrong + [
        (f"wrong bytes copied from {who[i]} to {who[(i + 1) % len(who)]}", max(0, across_wrong[i] - inward_wrong[i]))
        for i in range(len(who))
    ]


def matrix(torch, buffers, who, facts):
    """From each GPU to each other one, one after the other: of each the slowest way, and to which GPU it goes. Nothing
    where there is one GPU. A GPU that cannot reach another one directly goes through memory of the host."""
    ways = [{} for _ in buffers]
    for other, buffer in enumerate(buffers if len(buffers) > 1 else []):
        target = torch.empty_like(buffer)
        for source in set(range(len(buffers))) - {other}:
            ways[source][who[other]] = copy_gbps(torch, buffers[source], target, FEW)
        del target
    for each, speeds in zip(who, ways, strict=True):
        if speeds:
            slowest = min(speeds, key=speeds.get)
            remark = f"to {slowest}; the fastest way reaches {max(speeds.values()):.4g}"
            facts.saw("smoke.compute.gpu.copies", round(speeds[slowest], 2), "GB/s", f"{facts.at}/{each}", remark)


def fill(torch, host):
    """With bytes that repeat with a prime period: what arrives at another address differs."""
    whole = len(host) // PRIME * PRIME
    part = torch.arange(PRIME, dtype=torch.uint8)
    host[:whole].view(-1, PRIME).copy_(part)
    host[whole:].copy_(part[: len(host) - whole])


def wrong_bytes(torch, source, returned, sent):
    """How many bytes on the GPU are not those that were sent. returned: pinned memory for them."""
    returned.copy_(source)
    if torch.equal(returned, sent):
        return 0
    parts = zip(returned.split(PART_BYTES), sent.split(PART_BYTES), strict=True)
    return sum(int((here != there).sum()) for here, there in parts)


def host_memory(torch, uuid):
    """Pinned, and of the GPU's own NUMA node where that is known."""
    device = gpus.pci_device(uuid)
    with contextlib.nullcontext() if device is None else beside(device):
        return torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=True)


def copy_gbps(torch, source, target, repetitions=REPETITIONS):
    seconds = []
    for _ in range(repetitions + 1):
        torch.cuda.synchronize(target.device)
        begun = time.perf_counter()
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize(target.device)
        if source.is_cuda:
            torch.cuda.synchronize(source.device)
        seconds.append(time.perf_counter() - begun)
    return COPY_BYTES / statistics.median(seconds[1:]) / 1e9


if __name__ == "__main__":
    main()
