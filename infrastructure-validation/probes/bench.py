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
WARMUP, REPETITIONS = 2, 7
PERIOD = 7
ROUNDED = 0.01  # of a size: as much may be lost when it is divided among the ranks
STALLED = 2  # a repetition that takes less than twice the median of its size is uneven, and no stall


def named(size):
    """16777216 -> 16MiB, as profiles write it."""
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"


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
    """One collective at one size. origin: the ranks whose data the equal parts of the result are; None: a sum over all
    ranks."""

    def __init__(self, *, nbytes, prepare, run, result, expected, factor, origin):
        self.nbytes, self.prepare, self.run, self.result = nbytes, prepare, run, result
        self.expected, self.factor, self.origin = expected, factor, origin

    def wrong(self):
        """{rank that the wrong values came from, or None: how many}."""
        per_part = (self.result() != self.expected).view(len(self.origin), -1).sum(dim=1).tolist()
        return {rank: count for rank, count in zip(self.origin, per_part, strict=True) if count}


class Bench:
    """Factors from time to bus bandwidth: NVIDIA/nccl-tests, doc/PERFORMANCE.md."""

    def __init__(self, torch, dist, device, rank, world):
        self.torch, self.dist, self.device, self.rank, self.world = torch, dist, device, rank, world
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

    def pattern(self, count, offset=0):
        """1..7 repeated, from another start for each offset."""
        period = ((self.torch.arange(PERIOD, device=self.device) + offset) % PERIOD + 1).float()
        return period.repeat(-(-count // PERIOD))[:count]

    def contribution(self, values):
        """What this rank contributes: `values`, except in a drill."""
        return values + 1 if hits("wrong-value", self.rank) else values

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
        count = size // 4
        source = self.pattern(count)
        values = self.contribution(source * self.weight(self.rank))
        buffer = self.torch.empty_like(source)
        return Operation(
            nbytes=count * 4,
            prepare=lambda: buffer.copy_(values),
            run=lambda: self.dist.all_reduce(buffer),
            result=lambda: buffer,
            expected=source * self.weights(),
            origin=[None],
            factor=2 * (self.world - 1) / self.world,
        )

    def all_gather(self, size):
        """size = bytes of the gathered result."""
        count = self.part(size)
        values = self.contribution(self.pattern(count) * (self.rank + 1))
        result = self.torch.empty(count * self.world, device=self.device)
        expected = self.torch.cat([self.pattern(count) * (rank + 1) for rank in range(self.world)])
        return Operation(
            nbytes=count * self.world * 4,
            prepare=result.zero_,
            run=lambda: self._gather(result, values),
            result=lambda: result,
            expected=expected,
            origin=list(range(self.world)),
            factor=(self.world - 1) / self.world,
        )

    def reduce_scatter(self, size):
        """size = bytes of the whole input."""
        count = self.part(size)
        values = self.contribution(self.pattern(count * self.world) * self.weight(self.rank))
        result = self.torch.empty(count, device=self.device)
        expected = self.pattern(count, offset=count * self.rank) * self.weights()
        return Operation(
            nbytes=count * self.world * 4,
            prepare=result.zero_,
            run=lambda: self._scatter(result, values),
            result=lambda: result,
            expected=expected,
            origin=[None],
            factor=(self.world - 1) / self.world,
        )

    def all_to_all(self, size):
        """size = bytes that each rank sends, its own part included. The part for rank d starts its pattern at d."""
        count = self.part(size)
        values = self.contribution(
            self.torch.cat([self.pattern(count, offset=to) for to in range(self.world)]) * (self.rank + 1)
        )
        result = self.torch.empty_like(values)
        expected = self.torch.cat([self.pattern(count, offset=self.rank) * (rank + 1) for rank in range(self.world)])
        return Operation(
            nbytes=count * self.world * 4,
            prepare=result.zero_,
            run=lambda: self.dist.all_to_all_single(result, values),
            result=lambda: result,
            expected=expected,
            origin=list(range(self.world)),
            factor=(self.world - 1) / self.world,
        )

    def broadcast(self, size):
        """From rank 0; size = bytes of the buffer."""
        count = size // 4
        buffer = self.torch.empty(count, device=self.device)
        values = (
            self.contribution(self.pattern(count)) if self.rank == 0 else self.torch.zeros(count, device=self.device)
        )
        return Operation(
            nbytes=count * 4,
            prepare=lambda: buffer.copy_(values),
            run=lambda: self.dist.broadcast(buffer, src=0),
            result=lambda: buffer,
            expected=self.pattern(count),
            origin=[0],
            factor=1,
        )

    def sendrecv(self, size):
        """Each rank to the next and from the one before, all at once; size = bytes sent by a rank."""
        count = size // 4
        before, after = (self.rank - 1) % self.world, (self.rank + 1) % self.world
        values = self.contribution(self.pattern(count) * (self.rank + 1))
        result = self.torch.empty_like(values)

        def run():
            p2p = [self.dist.P2POp(self.dist.isend, values, after), self.dist.P2POp(self.dist.irecv, result, before)]
            for work in self.dist.batch_isend_irecv(p2p):
                work.wait()

        return Operation(
            nbytes=count * 4,
            prepare=result.zero_,
            run=run,
            result=lambda: result,
            expected=self.pattern(count) * (before + 1),
            origin=[before],
            factor=1,
        )

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
        source = self.pattern(size // 4)
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
