"""Collectives among many ranks: there is always something to measure, its name is its size, and who was wrong is
told."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[3] / "infrastructure-validation/probes"))
import bench
from bench import KIB, MIB, Bench, label_of
from loops import for_each

DIVIDED = ("all_gather", "reduce_scatter", "all_to_all")


def bench_of(world: int, rank: int = 0) -> Bench:
    """One rank of so many, which has nobody to talk to."""
    dist = SimpleNamespace(all_gather_single=print, reduce_scatter_single=print)
    return Bench(torch, dist, "cpu", rank, world)


@for_each("name", DIVIDED)
@for_each("world", [2, 3, 24, 2048, 2049, 2056])
def test_every_rank_has_a_part_of_the_smallest_size(name, world):
    operation = getattr(bench_of(world), name)(8 * KIB)
    assert operation.result().numel() >= 1
    assert operation.result().numel() % len(operation.expected) == 0
    assert operation.nbytes >= 4 * world


def right(rank: Bench, operation: bench.Operation) -> None:
    """As if the collective had run, on all ranks."""
    operation.prepare()
    for part, period in zip(
        operation.result().view(len(operation.expected), -1), operation.expected.values(), strict=True
    ):
        rank.repeat(part, period)


@pytest.mark.parametrize("name", DIVIDED)
def test_a_wrong_value_is_counted_where_a_size_has_fewer_elements_than_ranks(name):
    rank = bench_of(2056)
    operation = getattr(rank, name)(8 * KIB)
    right(rank, operation)
    assert operation.wrong() == {}
    operation.result()[0] += 1
    assert operation.wrong() == {next(iter(operation.expected)): 1}


@for_each("collective", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv"])
def test_a_wrong_value_is_counted_wherever_it_is(collective, monkeypatch):
    """At the beginning and the end of a piece that is compared at once, and in what is left of a period."""
    monkeypatch.setattr(bench, "PIECE", 7 * 16)
    for world in (2, 3):
        rank = bench_of(world, rank=1)
        operation = getattr(rank, collective)(8 * KIB)
        right(rank, operation)
        assert operation.wrong() == {}
        parts = operation.result().view(len(operation.expected), -1)
        for element in (0, 111, 112, parts.shape[1] - 1):
            parts[-1][element] += 1
        assert operation.wrong() == {list(operation.expected)[-1]: 4}


@for_each("collective", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv"])
def test_no_collective_holds_more_than_two_buffers_of_its_size(collective, monkeypatch):
    """8 GiB have to fit on a GPU with 24 GB, beside what NCCL takes. Every tensor that lives is counted when an
    operation is made, run, and compared: the largest temporary of torch included."""
    size = 16 * MIB
    monkeypatch.setattr(bench, "PIECE", 7 * 2**16)
    rank = bench_of(4)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        operation = getattr(rank, collective)(size)
        operation.prepare()
        operation.wrong()
    lives = most = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            lives += event.nbytes()
            most = max(most, lives)
    assert 0.9 * size < most < 2 * size + 10 * bench.PIECE


@for_each(
    ("world", "size", "label"),
    [
        (2, 8 * KIB, "8KiB"),
        (3, 8 * KIB, "8KiB"),  # 8,184 B
        (24, 16 * MIB, "16MiB"),
        (2048, 8 * KIB, "8KiB"),
        (1500, 8 * KIB, "6000B"),
        (4096, 8 * KIB, "16KiB"),
        (8192, 8 * KIB, "32KiB"),
    ],
)
def test_a_measurement_is_named_after_the_bytes_that_were_moved(world, size, label):
    assert label_of(size, bench_of(world).all_gather(size).nbytes) == label


def test_who_gave_and_who_got_wrong_values_is_told_apart():
    clean: dict[int, int] = {}
    gave = [{2: 5}, {2: 5}, {2: 5}, {2: 5}]
    assert bench.blame(gave) == {2: 20}
    assert bench.blame([clean, {0: 3, 1: 3, 2: 3, 3: 3}, clean, clean]) == {1: 12}
    assert bench.blame([clean, {0: 3}, clean, clean]) == {0: 3, 1: 3}  # between two ranks, and nobody knows which
    assert bench.blame([clean] * 4) == {}
