"""A rank binds itself to the CPUs near its GPU, and the record of each rank is judged."""

import io
import json
import os
import sys
from pathlib import Path

import binding
import gpus
import pytest
from bringup.evidence import facts
from bringup.records import Outcome, Verdict
from factory import a_run
from programs import ran
from recipe import numa
from recipe.rank import RankFacts
from runs_for_tests import about
from showing import shows_failing

SOURCES = Path(__file__).resolve().parents[3] / "training/src"


NODES = {"0": {0, 1, 2, 3}, "1": {4, 5, 6, 7}}
GPU = "GPU-a"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


class Rank:
    """Rank 0 of node n0, whose GPU is at one of two NUMA nodes, of four CPUs each."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, at: str, mask: set[int], numa_nodes: int = 2):
        self.mask, self.root = mask, root
        write(root / "driver/0000:18:00.0/information", f"GPU UUID: \t {GPU}\nDevice Minor: \t 0")
        write(root / "devices/0000:18:00.0/numa_node", at)
        for number in range(numa_nodes):
            write(root / f"numa/node{number}/cpulist", f"{number * 4}-{number * 4 + 3}")
        monkeypatch.setattr(gpus.numa_node, "__defaults__", (root / "driver", root / "devices"))
        monkeypatch.setattr(gpus, "openable", lambda: ([GPU], []))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # place() sets it where it is not
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: self.mask)
        monkeypatch.setattr(os, "sched_setaffinity", self.bind)
        self.stream = io.StringIO()
        self.facts = RankFacts("train", self.stream)
        self.facts.at = "n0"

    def bind(self, pid: int, cpus: set[int]) -> None:
        self.mask = cpus

    def place(self) -> dict[str, object]:
        """Its facts, by quantity."""
        numa.place(self.facts, self.root / "numa")
        return {fact["quantity"]: fact["value"] for fact in map(json.loads, self.stream.getvalue().splitlines())}

    def verdict(self) -> Verdict:
        self.facts.finish()
        seen = facts.parse(self.stream.getvalue(), "raw/rank0.jsonl")
        return about("train.cpu.near_gpu", seen, a_run("run_1gpu", ["n0"]), "h100-8x400g")["n0/rank0"]


def test_a_rank_on_all_cpus_of_two_numa_nodes_keeps_those_of_its_gpu_and_passes(tmp_path, monkeypatch):
    rank = Rank(tmp_path, monkeypatch, "1", set(range(8)))
    messages = rank.place()
    assert rank.mask == {4, 5, 6, 7}
    assert messages["train.rank.numa_bound"] is True
    assert messages["train.cpu.near_gpu"] == 1.0
    assert rank.verdict().outcome is Outcome.PASS


@shows_failing("train.cpu.near_gpu")
def test_cpus_at_another_numa_node_than_the_gpu_are_a_warning_of_the_rank(tmp_path, monkeypatch):
    rank = Rank(tmp_path, monkeypatch, "1", {0, 1})
    assert rank.place()["train.rank.numa_bound"] is False
    assert rank.mask == {0, 1}
    verdict, observed = rank.verdict(), "0 (GPU-a sits at NUMA node 1, 0 of 2 CPUs too)"
    assert (verdict.subject, verdict.outcome, verdict.observed) == ("n0/rank0", Outcome.WARN, observed)


@pytest.mark.parametrize("at", ["-1", "7"])
def test_a_gpu_whose_numa_node_is_not_known_leaves_the_rank_as_it_is_and_is_incomplete(tmp_path, monkeypatch, at):
    rank = Rank(tmp_path, monkeypatch, at, set(range(8)))
    messages = rank.place()
    assert (len(rank.mask), messages["train.rank.numa_bound"]) == (8, False)
    assert rank.verdict().outcome is Outcome.INCOMPLETE


def test_a_machine_of_one_numa_node_passes_whatever_its_firmware_reports(tmp_path, monkeypatch):
    rank = Rank(tmp_path, monkeypatch, "-1", {0, 1}, numa_nodes=1)
    assert rank.place()["train.rank.numa_bound"] is False
    assert rank.verdict().outcome is Outcome.PASS


def test_a_kernel_that_refuses_is_recorded_and_the_rank_goes_on(tmp_path, monkeypatch):
    rank = Rank(tmp_path, monkeypatch, "1", set(range(8)))

    def refuse(pid: int, cpus: set[int]) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    assert rank.place()["train.rank.numa_bound"] is False
    assert "the kernel refused: Operation not permitted" in rank.stream.getvalue()
    assert rank.verdict().observed == "0.5 (GPU-a sits at NUMA node 1, 4 of 8 CPUs too)"


def test_gpus_that_cannot_be_read_are_recorded_and_the_rank_goes_on(tmp_path, monkeypatch):
    rank = Rank(tmp_path, monkeypatch, "1", set(range(8)))

    def broken() -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(gpus, "openable", broken)
    assert rank.place() == {"train.cpu.near_gpu": None}
    assert rank.verdict().outcome is Outcome.INCOMPLETE


def test_a_rank_that_left_no_word_is_incomplete(tmp_path, monkeypatch):
    assert Rank(tmp_path, monkeypatch, "1", {0}).verdict().outcome is Outcome.INCOMPLETE


@pytest.mark.parametrize(
    ("allowed", "at", "chosen"),
    [
        ({2, 3, 4}, "1", {4}),
        ({4, 5}, "1", None),  # torchrun bound it, or Slurm
        ({2, 3}, "1", None),  # the GPU is at the other node
        ({2, 3, 4}, None, None),
    ],
)
def test_cpus_are_chosen_only_among_several_numa_nodes(allowed, at, chosen):
    assert numa.choose(allowed, NODES, at)[0] == chosen


def test_no_cpu_is_chosen_where_the_node_of_the_gpu_has_none():
    assert numa.choose({0, 4}, NODES | {"2": set()}, "2")[0] is None


@pytest.mark.parametrize(
    ("visible", "local_rank", "gpu"),
    [
        (None, 1, "GPU-b"),
        ("0,1", 1, "GPU-b"),
        ("1,0", 1, "GPU-a"),
        ("GPU-b,GPU-a", 0, "GPU-b"),
        ("0", 1, None),
        ("", 0, None),
        ("7", 0, None),
        ("MIG-c", 0, None),
    ],
)
def test_the_gpu_of_a_rank_is_counted_as_cuda_counts(monkeypatch, visible, local_rank, gpu):
    monkeypatch.setattr(gpus, "openable", lambda: (["GPU-a", "GPU-b"], []))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert numa.gpu_of_rank(local_rank) == gpu


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU cannot be divided")
def test_threads_that_are_made_later_have_the_cpus_that_the_kernel_was_given(tmp_path):
    first, *others = sorted(os.sched_getaffinity(0))
    write(tmp_path / "node0/cpulist", ",".join(map(str, others)))
    write(tmp_path / "node1/cpulist", str(first))
    program = (
        "import io, os, sys, threading; from pathlib import Path; from recipe import numa, rank; import binding, gpus\n"
        "gpus.openable = lambda: (['GPU-a'], []); gpus.numa_node = lambda gpu: '1'\n"
        "numa.place(rank.RankFacts('train', io.StringIO()), Path(sys.argv[1]))\n"
        "thread = threading.Thread(target=lambda: print(os.sched_getaffinity(0))); thread.start(); thread.join()"
    )
    path = os.pathsep.join((str(SOURCES), str(Path(binding.__file__).parent)))
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    done = ran([sys.executable, "-c", program, str(tmp_path)], env=environment | {"PYTHONPATH": path})
    assert (done.stdout, done.stderr) == (f"{{{first}}}\n", "")
