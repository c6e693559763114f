"""A rank binds itself to the CPUs near its GPU, and the record of each rank is judged."""

import io
import json
import os
import sys
from pathlib import Path
from unittest.mock import Mock

import binding
import gpus
import pytest
from bringup.kernel.facts import facts
from bringup.kernel.records import Verdict
from factory import a_run
from loops import case_for_each
from programs import ran, tree
from recipe import program
from recipe.rank import RankFacts
from runs_for_tests import OPEN, PASS, WARN, about
from showing import shows_failing

SOURCES = Path(__file__).resolve().parents[3] / "training/src"


NODES = {"0": {0, 1, 2, 3}, "1": {4, 5, 6, 7}}
GPU = "GPU-a"


class Rank:
    """Rank 0 of node n0, whose GPU is at one of two NUMA nodes, of four CPUs each."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, at: str, mask: set[int], numa_nodes: int = 2):
        self.mask, self.root = mask, root
        tree(root / "numa", {f"node{n}/cpulist": f"{n * 4}-{n * 4 + 3}" for n in range(numa_nodes)})
        tree(root / "devices/0000:18:00.0", {"numa_node": at})
        tree(root / "driver/0000:18:00.0", {"information": f"GPU UUID: \t {GPU}\nDevice Minor: \t 0"})
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
        program.place(self.facts, self.root / "numa")
        return {fact["quantity"]: fact["value"] for fact in map(json.loads, self.stream.getvalue().splitlines())}

    def verdict(self) -> Verdict:
        self.facts.finish()
        seen = facts.parse(self.stream.getvalue(), "raw/rank0.jsonl")
        return about("train.cpu.near_gpu", seen, a_run("run_1gpu", ["n0"]), "h100-8x400g")["n0/rank0"]


ALL, FAR = set(range(8)), "GPU-a sits at NUMA node 1, {} CPUs too"


@case_for_each(
    pytest.param("1", ALL, 2, {4, 5, 6, 7}, PASS, "", id="on all CPUs of two NUMA nodes it keeps those of its GPU"),
    pytest.param(
        *("1", {0, 1}, 2, {0, 1}, WARN, f"0 ({FAR.format('0 of 2')})"),
        id="CPUs at another node than the GPU are a warning of the rank",
        marks=shows_failing("train.cpu.near_gpu"),
    ),
    pytest.param("-1", ALL, 2, ALL, OPEN, "", id="the firmware does not know the GPU's node"),
    pytest.param("7", ALL, 2, ALL, OPEN, "", id="the GPU's node is none of the machine"),
    pytest.param("-1", {0, 1}, 1, {0, 1}, PASS, "", id="a machine of one NUMA node passes whatever firmware says"),
)
def test_a_rank_binds_itself_to_the_cpus_of_its_gpu_where_it_has_several_numa_nodes_and_knows_which(
    tmp_path, monkeypatch, at, mask, numa_nodes, kept, outcome, says
):
    rank = Rank(tmp_path, monkeypatch, at, mask, numa_nodes)
    assert rank.place()["train.rank.numa_bound"] is (kept != mask)
    assert rank.mask == kept
    verdict = rank.verdict()
    assert (verdict.subject, verdict.outcome) == ("n0/rank0", outcome)
    assert outcome is not PASS or numa_nodes == 1 or verdict.value == 1.0
    assert says in ("", verdict.observed)


def test_a_kernel_that_refuses_and_gpus_that_cannot_be_read_are_recorded_and_the_rank_goes_on(tmp_path, monkeypatch):
    refused = Rank(tmp_path / "1", monkeypatch, "1", ALL)
    monkeypatch.setattr(os, "sched_setaffinity", Mock(side_effect=PermissionError(1, "Operation not permitted")))
    assert refused.place()["train.rank.numa_bound"] is False
    assert "the kernel refused: Operation not permitted" in refused.stream.getvalue()
    assert refused.verdict().observed == f"0.5 ({FAR.format('4 of 8')})"
    unread = Rank(tmp_path / "2", monkeypatch, "1", ALL)
    monkeypatch.setattr(gpus, "openable", Mock(side_effect=OSError(5, "Input/output error")))
    assert unread.place() == {"train.cpu.near_gpu": None}
    assert unread.verdict().outcome is OPEN


def test_a_rank_that_left_no_word_is_incomplete(tmp_path, monkeypatch):
    assert Rank(tmp_path, monkeypatch, "1", {0}).verdict().outcome is OPEN


@case_for_each(
    ({2, 3, 4}, "1", {4}),
    ({4, 5}, "1", None),  # torchrun bound it, or Slurm
    ({2, 3}, "1", None),  # the GPU is at the other node
    ({2, 3, 4}, None, None),
)
def test_cpus_are_chosen_only_among_several_numa_nodes(allowed, at, chosen):
    assert program.choose(allowed, NODES, at)[0] == chosen


def test_no_cpu_is_chosen_where_the_node_of_the_gpu_has_none():
    assert program.choose({0, 4}, NODES | {"2": set()}, "2")[0] is None


@case_for_each(
    (None, 1, "GPU-b"),
    ("0,1", 1, "GPU-b"),
    ("1,0", 1, "GPU-a"),
    ("GPU-b,GPU-a", 0, "GPU-b"),
    ("0", 1, None),
    ("", 0, None),
    ("7", 0, None),
    ("MIG-c", 0, None),
)
def test_the_gpu_of_a_rank_is_counted_as_cuda_counts(monkeypatch, visible, local_rank, gpu):
    monkeypatch.setattr(gpus, "openable", lambda: (["GPU-a", "GPU-b"], []))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert program.gpu_of_rank(local_rank) == gpu


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU cannot be divided")
def test_threads_that_are_made_later_have_the_cpus_that_the_kernel_was_given(tmp_path):
    first, *others = sorted(os.sched_getaffinity(0))
    tree(tmp_path, {"node0/cpulist": ",".join(map(str, others)), "node1/cpulist": str(first)})
    words = (
        "import io, os, sys, threading; from pathlib import Path; from recipe import program, rank; import gpus\n"
        "gpus.openable = lambda: (['GPU-a'], []); gpus.numa_node = lambda gpu: '1'\n"
        "program.place(rank.RankFacts('train', io.StringIO()), Path(sys.argv[1]))\n"
        "thread = threading.Thread(target=lambda: print(os.sched_getaffinity(0))); thread.start(); thread.join()"
    )
    path = os.pathsep.join((str(SOURCES), str(Path(binding.__file__).parent)))
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    done = ran([sys.executable, "-c", words, str(tmp_path)], env=environment | {"PYTHONPATH": path})
    assert (done.stdout, done.stderr) == (f"{{{first}}}\n", "")
