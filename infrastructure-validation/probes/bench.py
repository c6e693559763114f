"""The collectives: how each is run, what every rank must get, and which rank a wrong value came from.

torch and torch.distributed are handed in: this file is imported before they are.
"""

import json
import statistics
import time
from collections import Counter

import exchange
from faults import SLOW_RANK_S, SLOW_SIZE_S, argument_of, hits, in_the_middle
from progress import Progress
from pulse import Pulse, longest

KIB, MIB, GIB = 2**10, 2**20, 2**30
GPU_SIZES = (8 * KIB, 1 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1 * GIB, 8 * GIB)
ROOM = GIB  # of a GPU's memory, for what NCCL and torch take beside the two buffers of a collective
WARMUP, REPETITIONS = 2, 7
PERIOD = 7
PIECE = PERIOD * 2**22  # elements that are compared at once
ROUNDED = 0.01  # of a size: as much may be lost when it is divided among the ranks
STALLED = 2  # a repetition that takes less than twice the median of its size is uneven, and no stall


def named(size):
    """16777216 -> 16MiB, as profiles write it."""
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"


def needed(size):
    """Bytes of a GPU's memory."""
    return 2 * size + ROOM


def fits(size, free):
    return needed(size) <= free


def largest(free):
    """The size for those that measure one alone: 1 GiB, or the largest below that every rank has memory for. free:
    bytes, index = rank."""
    return max(size for size in GPU_SIZES if size <= GIB and (size == GPU_SIZES[0] or fits(size, min(free))))


def label_of(size, nbytes):
    """The size that was requested names a measurement. Where ranks do not divide it, the bytes are a little fewer;
    where many ranks share few bytes they are others altogether, and then the name is theirs."""
    return named(size if abs(nbytes - size) <= ROUNDED * size else nbytes)


def slowed(sizes):
    """The collective and which of `sizes`, ascending, a drill slows down: all_reduce@4MiB; None without that drill. It
    asks for a place, for sizes are others on GPUs than on CPUs."""
    name, _, place = (argument_of("slow-size") or "").partition("@")
    places = {"smallest": sizes[0], "middle": sizes[len(sizes) // 2], "largest": sizes[-1]}
    return f"{name}@{named(places[place])}" if name else None


class Operation:
    """One collective at one size. expected: {rank that a part of the result is from, or None for a sum over all ranks:
    its period}; the parts are equal and in this order. count(part, period): the elements that are not so."""

    def __init__(self, *, nbytes, prepare, run, result, expected, factor, count):
        self.nbytes, self.prepare, self.run, self.result = nbytes, prepare, run, result
        self.expected, self.factor, self._count = expected, factor, count

    def wrong(self):
        """{rank that the wrong values came from, or None: how many}."""
        parts = self.result().view(len(self.expected), -1)
        counts = [int(self._count(part, period)) for part, period in zip(parts, self.expected.values(), strict=True)]
        return {rank: count for rank, count in zip(self.expected, counts, strict=True) if count}


class Bench:
    """Factors from time to bus bandwidth: NVIDIA/nccl-tests, doc/PERFORMANCE.md."""

    def __init__(self, torch, dist, device, rank, world):
        self.torch, self.dist, self.device, self.rank, self.world = torch, dist, device, rank, world
        self.ranks, self.group = range(world), None  # of a part of all ranks: their numbers, and torch's group
        self.slow = None  # NAME@SIZE that a drill slows down
        self.middle = None  # NAME@SIZE in which a drill ends or stops a rank
        self.progress, self.last = Progress(), "the start"
        self.pulse = Pulse()
        self.spans = []  # (NAME@SIZE, begin, end) of what was measured, on the clock of the pulse
        # torch 2.13 names them so; older ones only know the second name
        self._gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        self._scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

    def collectives(self):
        """A single rank has no partner to send to."""
        alone = (self.all_reduce, self.all_gather, self.reduce_scatter, self.all_to_all, self.broadcast)
        return alone if self.world == 1 else (*alone, self.sendrecv)

    def gather(self, value):
        """The values of all ranks, index = rank, as JSON has them: a tuple is a list, every key a text. RuntimeError
        where a rank sent what is not JSON."""
        self.progress.enter(f"the gathering after {self.last}")
        values = exchange.gather(self.torch, self.dist, self.device, json.dumps(value).encode())
        self.progress.leave()
        return [_of_json(theirs, rank) for rank, theirs in enumerate(values)]

    def period(self, factor=1, offset=0):
        """1..7 from another start for each offset, times the factor. Buffers repeat it, so that what they must hold
        takes no memory: the largest sizes leave little of a GPU."""
        return ((self.torch.arange(PERIOD, device=self.device) + offset) % PERIOD + 1).float() * factor

    def repeat(self, buffer, period):
        """Fill the whole of it, which is flat."""
        whole = len(buffer) // PERIOD * PERIOD
        buffer[:whole].view(-1, PERIOD).copy_(period)
        buffer[whole:].copy_(period[: len(buffer) - whole])

    def filled(self, count, period):
        buffer = self.empty(count)
        self.repeat(buffer, period)
        return buffer

    def empty(self, count):
        return self.torch.empty(count, device=self.device)

    def count_wrong(self, buffer, period):
        """Elements, as a tensor. Piece by piece: torch counts in a copy with 8 bytes for each element."""
        total = 0
        for piece in buffer.split(PIECE):
            whole = len(piece) // PERIOD * PERIOD
            total = total + (piece[:whole].view(-1, PERIOD) != period).sum()
            total = total + (piece[whole:] != period[: len(piece) - whole]).sum()
        return total

    def operation(self, **parts):
        return Operation(count=self.count_wrong, **parts)

    def contribution(self, period):
        """What this rank contributes: this period, except in a drill."""
        return period + 1 if hits("wrong-value", self.ranks[self.rank]) else period

    def part(self, size):
        """Elements of one rank when `size` bytes are divided among all. At least one: no element would be no
        measurement."""
        return max(1, size // 4 // self.world)

    def weight(self, rank):
        """The factor of a rank in a sum. At most 7, so that sums over 300,000 ranks stay below 2^24, exact in fp32."""
        return rank % PERIOD + 1

    def weights(self):
        return sum(self.weight(rank) for rank in range(self.world))

    def all_reduce(self, size):
        """Sum in place; size = bytes of the buffer."""
        buffer, values = self.empty(size // 4), self.contribution(self.period(self.weight(self.rank)))
        return self.operation(
            nbytes=len(buffer) * 4,
            prepare=lambda: self.repeat(buffer, values),
            run=lambda: self.dist.all_reduce(buffer, group=self.group),
            result=lambda: buffer,
            expected={None: self.period(self.weights())},
            factor=2 * (self.world - 1) / self.world,
        )

    def all_gather(self, size):
        """size = bytes of the gathered result."""
        count = self.part(size)
        values = self.filled(count, self.contribution(self.period(self.rank + 1)))
        result = self.empty(count * self.world)
        return self.operation(
            nbytes=len(result) * 4,
            prepare=result.zero_,
            run=lambda: self._gather(result, values, group=self.group),
            result=lambda: result,
            expected={rank: self.period(rank + 1) for rank in range(self.world)},
            factor=(self.world - 1) / self.world,
        )

    def reduce_scatter(self, size):
        """size = bytes of the whole input."""
        count = self.part(size)
        values = self.filled(count * self.world, self.contribution(self.period(self.weight(self.rank))))
        result = self.empty(count)
        return self.operation(
            nbytes=len(values) * 4,
            prepare=result.zero_,
            run=lambda: self._scatter(result, values, group=self.group),
            result=lambda: result,
            expected={None: self.period(self.weights(), offset=count * self.rank)},
            factor=(self.world - 1) / self.world,
        )

    def all_to_all(self, size):
        """size = bytes that each rank sends, its own part included. The part for rank d starts its pattern at d."""
        count = self.part(size)
        values, result = self.empty(count * self.world), self.empty(count * self.world)
        for to, part in enumerate(values.view(self.world, -1)):
            self.repeat(part, self.contribution(self.period(self.rank + 1, offset=to)))
        return self.operation(
            nbytes=len(values) * 4,
            prepare=result.zero_,
            run=lambda: self.dist.all_to_all_single(result, values, group=self.group),
            result=lambda: result,
            expected={rank: self.period(rank + 1, offset=self.rank) for rank in range(self.world)},
            factor=(self.world - 1) / self.world,
        )

    def broadcast(self, size):
        """From rank 0; size = bytes of the buffer."""
        buffer, given = self.empty(size // 4), self.contribution(self.period())
        return self.operation(
            nbytes=len(buffer) * 4,
            prepare=lambda: self.repeat(buffer, given) if self.rank == 0 else buffer.zero_(),
            run=lambda: self.dist.broadcast(buffer, src=self.ranks[0], group=self.group),
            result=lambda: buffer,
            expected={0: self.period()},
            factor=1,
        )

    def sendrecv(self, size):
        """Each rank to the next and from the one before, all at once; size = bytes sent by a rank."""
        before, after = (self.rank - 1) % self.world, (self.rank + 1) % self.world
        values = self.filled(size // 4, self.contribution(self.period(self.rank + 1)))
        result = self.empty(size // 4)

        def run():
            ways = ((self.dist.isend, values, after), (self.dist.irecv, result, before))
            p2p = [self.dist.P2POp(way, buffer, self.ranks[peer], self.group) for way, buffer, peer in ways]
            for work in self.dist.batch_isend_irecv(p2p):
                work.wait()

        return self.operation(
            nbytes=len(values) * 4,
            prepare=result.zero_,
            run=run,
            result=lambda: result,
            expected={before: self.period(before + 1)},
            factor=1,
        )

    def close(self):
        """When nothing more is measured, and the process goes on."""
        self.progress.close()
        self.pulse.close()

    def synchronize(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def measure(self, operation, label):
        """Seconds of this rank per repetition; the same with the wait for the others before it; and the wrong values of
        the last repetition with their origin. label: NAME@SIZE."""
        seconds, with_wait, self.last = [], [], label
        for repetition in range(WARMUP + REPETITIONS):
            started = time.perf_counter()
            operation.prepare()
            self.synchronize()
            self.progress.enter(f"the barrier before {label}")
            self.dist.barrier()
            self.progress.leave()
            begun = time.perf_counter()
            if label == self.middle and repetition == WARMUP + REPETITIONS // 2:
                in_the_middle(self.rank)
            self.progress.enter(label)
            operation.run()
            self.synchronize()
            self.progress.leave()
            if label == self.slow:
                time.sleep(SLOW_SIZE_S)
            ended = time.perf_counter()
            seconds.append(ended - begun)
            with_wait.append(ended - started)
            if repetition >= WARMUP:
                self.spans.append((label, started, ended))
        return seconds[WARMUP:], with_wait[WARMUP:], operation.wrong()

    def standstill(self):
        """(seconds, NAME@SIZE, CPU seconds) of the longest time that this rank itself stood still in a repetition."""
        seconds, index, cpu_s = longest(self.pulse.gaps(), [span[1:] for span in self.spans])
        return seconds, None if index is None else self.spans[index][0], cpu_s

    def local_seconds(self, size):
        """A copy inside this rank's own memory, no rank waiting for another: a rank that is slow here slows all of
        them."""
        source = self.filled(size // 4, self.period())
        target = self.torch.empty_like(source)
        seconds = []
        for _ in range(WARMUP + REPETITIONS):
            begun = time.perf_counter()
            target.copy_(source)
            self.synchronize()
            if hits("slow-rank", self.rank):
                time.sleep(SLOW_RANK_S)
            seconds.append(time.perf_counter() - begun)
        return min(seconds)  # the least: other processes on a busy host disturb some repetitions, not all


def _of_json(data, rank):
    try:
        return json.loads(data.decode())
    except ValueError as error:
        raise RuntimeError(f"rank {rank} sent {len(data)} bytes that are not JSON: {error}") from error


def stall(with_wait, label):
    """(seconds beyond the median, what happened) of the longest repetition. with_wait: seconds of each until the
    slowest rank; label: NAME@SIZE."""
    most, usual = max(with_wait), statistics.median(with_wait)
    excess = most - usual if most > STALLED * usual else 0.0
    return excess, f"repetition {with_wait.index(most) + 1} of {label} took {most:.4g} s, the median is {usual:.4g} s"


def blame(per_receiver):
    """Counter of wrong values per rank that gave or got them. per_receiver: index = rank; {origin: wrong values it got
    from there}.

    A wrong value between two ranks is counted for the one that has wrong values with more ranks; for both when that is
    undecided.
    """
    edges = [(got, gave, count) for got, origins in enumerate(per_receiver) for gave, count in origins.items()]
    partners = Counter()  # a rank's own part counts for both, once
    for side in (0, 1):
        partners.update((side, edge[side]) for edge in edges)
    blamed = Counter()
    for got, gave, count in edges:
        by_getting, by_giving = partners[0, got], partners[1, gave]
        if by_giving >= by_getting:
            blamed[gave] += count
        if by_getting > by_giving or (by_getting == by_giving and got != gave):
            blamed[got] += count
    return blamed
