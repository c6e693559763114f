"""Which nodes a run takes; those that others hold are waited for, and the screen names them and what holds them."""

import itertools
import os
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from bringup.kernel.errors import CannotStart, SlurmError, UsageError
from bringup.kernel.facts.names import by_reason
from bringup.run import nodes, slurm, waiting
from loops import case_for_each
from programs import begun, program


class Queue:
    """Slurm's answers, one after the other; the last one stays."""

    def __init__(self, *states: tuple[str, ...], jobs: Sequence[tuple[str, str, str]] = ()) -> None:
        self.states, self.jobs, self.looks = states, jobs, 0

    def nodes(self, names: Sequence[str]) -> dict[str, slurm.Node]:
        states = self.states[min(self.looks, len(self.states) - 1)]
        self.looks += 1
        return {name: slurm.Node(state, None) for name, state in zip(names, states, strict=True)}

    def running_on(self, nodes: Sequence[str]) -> list[tuple[str, str, str]]:
        return list(self.jobs)


def clock(monkeypatch, *, sleep: Callable[[float], object], monotonic: Callable[[], float] = time.monotonic) -> None:
    """The module's own clock alone: threads that other tests left behind sleep as ever."""
    monkeypatch.setattr(waiting, "time", types.SimpleNamespace(sleep=sleep, monotonic=monotonic))


def waited(monkeypatch: pytest.MonkeyPatch, queue: Queue, *, whole: bool = True) -> list[str]:
    messages: list[str] = []
    monkeypatch.setattr(slurm, "nodes", queue.nodes)
    monkeypatch.setattr(slurm, "running_on", queue.running_on)
    clock(monkeypatch, sleep=lambda seconds: None)
    waiting.wait_until_free(("n0", "n1", "n2"), whole, messages.append)
    return messages


def test_nodes_that_are_free_or_that_have_room_for_a_phase_that_shares_them_are_not_waited_for(monkeypatch) -> None:
    assert waited(monkeypatch, Queue(("IDLE", "IDLE", "DOWN"))) == []
    assert waited(monkeypatch, Queue(("MIXED", "IDLE", "IDLE")), whole=False) == []


def test_it_waits_until_the_last_one_is_free_and_names_who_holds_which(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [("17", "alice", "n[0-1]"), ("18", "bob", "n2")]
    queue = Queue(("ALLOCATED", "ALLOCATED", "MIXED"), ("IDLE", "IDLE", "MIXED"), ("IDLE", "IDLE", "IDLE"), jobs=jobs)
    second = "n2 (held by job 18 of bob)"
    first = f"waiting for n0, n1 (held by job 17 of alice); {second}"
    assert waited(monkeypatch, queue) == [first, f"waiting for {second}"]


def test_jobs_that_may_not_be_seen_hold_their_nodes_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(nodes: Sequence[str]) -> list[tuple[str, str, str]]:
        raise SlurmError("squeue: Access denied")

    queue = Queue(("ALLOCATED", "IDLE", "IDLE"), ("IDLE", "IDLE", "IDLE"))
    monkeypatch.setattr(queue, "running_on", refused)
    assert waited(monkeypatch, queue) == ["waiting for n0 (held by jobs that this user may not see)"]


def test_the_smoke_phase_of_another_run_is_waited_for_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = [[("17", "alice"), ("18", "alice")], [("18", "alice")], []]
    messages: list[str] = []
    monkeypatch.setattr(slurm, "queued", lambda prefix: queue.pop(0))
    clock(monkeypatch, sleep=lambda seconds: None)
    waiting.wait_for_smoke(messages.append)
    says = "waiting for the smoke phase of another run ({}, the first is job {})"
    assert messages == [says.format("2 jobs", "17 of alice"), says.format("1 job", "18 of alice")]
    seconds = itertools.count(0, waiting.LONGEST_SMOKE_S / 3)  # it is asked twice before the patience is over
    clock(monkeypatch, sleep=lambda seconds: None, monotonic=lambda: float(next(seconds)))
    monkeypatch.setattr(slurm, "queued", lambda prefix: [("17", "alice")])
    waiting.wait_for_smoke(messages.append)
    assert len(messages) == 4


def test_names_and_reasons_of_users_make_no_job_and_break_no_answer(tmp_path, monkeypatch) -> None:
    """A reason in Latin-1, on any node; a name with a line feed and the delimiter that stood between columns; a job
    that its user holds, so that each phase waits for it."""
    program(
        tmp_path / "squeue",
        "import sys\nrow = sys.argv[-1].replace('%u', 'ann')\n"
        "held = row.replace('%i', '8').replace('%r', 'JobHeldUser').replace('%j', 'smoke-a')\n"
        "row = row.replace('%i', '7').replace('%r', 'Priority')\n"
        "name = 'caf\\xe9\\n9\\x1froot\\x1fsmoke-a'\n"
        "sys.stdout.buffer.write((row.replace('%j', name) + '\\n' + held + '\\n').encode('latin-1'))",
        by="/usr/bin/env python3",
    )
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert slurm.queued(waiting.SMOKE) == []
    assert slurm.queued("caf") == [("7", "ann")]


@pytest.fixture
def another_run(tmp_path) -> Iterator[subprocess.Popen[str]]:
    """A process that is in its smoke phase, on the cluster of /etc/a.conf, until its standard input is closed."""
    holds = (
        "import pathlib, sys; from bringup.run import waiting\n"
        "with waiting.only_one(pathlib.Path(sys.argv[1]), print): print('inside', flush=True); sys.stdin.read()"
    )
    environment = os.environ | {"SLURM_CONF": "/etc/a.conf"}
    lock = tmp_path / "smoke.lock"
    with begun([sys.executable, "-c", holds, lock], env=environment, stdin=subprocess.PIPE) as process:
        assert process.stdout.readline() == "inside\n"
        yield process


@pytest.mark.parametrize("is_same_cluster", [True, False])
def test_of_two_runs_of_a_checkout_on_one_cluster_the_second_waits_for_the_smoke_phase_of_the_first(
    tmp_path: Path, another_run: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, is_same_cluster: bool
) -> None:
    messages: list[str] = []
    monkeypatch.setenv("SLURM_CONF", "/etc/a.conf" if is_same_cluster else "/etc/b.conf")
    clock(monkeypatch, sleep=lambda seconds: another_run.communicate())
    with waiting.only_one(tmp_path / "smoke.lock", messages.append):
        assert messages == ["waiting for the smoke phase of another run of this checkout"] * is_same_cluster
    assert (another_run.poll() is None) is not is_same_cluster


def test_of_many_nodes_and_jobs_the_first_are_named() -> None:
    held = {f"n{number}": f"held by job {number // 5} of alice" for number in range(25)}
    assert by_reason(held) == (
        "n0, n1, n2, n3 and 1 more (held by job 0 of alice); n5, n6, n7, n8 and 1 more (held by job 1 of alice); "
        "n10, n11, n12, n13 and 1 more (held by job 2 of alice); n15, n16, n17, n18 and 1 more "
        "(held by job 3 of alice); and 1 more"
    )


# --- which nodes are taken


MIXED = """\
NodeName=n0 Arch=x86_64 ActiveFeatures=cpu Gres=(null) State=IDLE Version=23.11
NodeName=n1 Arch=x86_64 ActiveFeatures=a100,ib Gres=gpu:a100:4(S:0-1) State=IDLE Version=23.11
NodeName=n2 Arch=x86_64 ActiveFeatures=a100,ib Gres=gpu:a100:4 State=DOWN Version=23.11
NodeName=n3 Arch=x86_64 ActiveFeatures=a100 Gres=gpu:a100:4,shard:8 State=IDLE Version=23.11
NodeName=n4 Arch=x86_64 ActiveFeatures=a100,ib Gres=gpu:a100:2,gpu:1g.5gb:14 State=IDLE Version=23.11
NodeName=n5 Arch=x86_64 ActiveFeatures=a100,ib Gres=gpu:a100:2 State=IDLE Version=23.11
"""


def test_of_a_mixed_partition_the_most_common_nodes_with_gpus_are_taken_and_the_others_named(monkeypatch):
    """A node without a GPU came first, and ended discovery; one with a divided GPU counted 16."""
    monkeypatch.setattr(slurm, "ask", lambda *command, **options: MIXED)
    monkeypatch.setattr(slurm, "partition_nodes", lambda partition: [f"n{number}" for number in range(6)])
    lines: list[str] = []
    assert list(nodes.requested_nodes(None, None, None, lines.append)) == ["n1", "n2", "n3"]
    others = "n0 (no GPU); n4 (gpu:a100:2,gpu:1g.5gb:14); n5 (gpu:a100:2)"
    assert lines == [f"left aside: {others}; the run takes gpu:a100:4 (--nodelist names others)"]
    lines.clear()
    assert list(nodes.requested_nodes(None, "n4", None, lines.append)) == ["n4"]
    assert [line.partition(";")[0] for line in lines] == [
        "GPUs are divided (MIG), and Slurm counts the parts: n4 (gpu:a100:2,gpu:1g.5gb:14)"
    ]
    assert list(nodes.requested_nodes(2, None)) == ["n1", "n3"]  # n2 is down
    assert list(nodes.requested_nodes(None, "n5")) == ["n5"]  # who names them gets them
    for nodelist in ("n0,n1", "n1,n4", "n1,n2,n5"):  # each step asks for as many GPUs of each node
        with pytest.raises(CannotStart, match="--nodelist: a run takes nodes with the same GPUs, and these differ: n"):
            nodes.requested_nodes(None, nodelist)
    with pytest.raises(UsageError, match="Slurm has no GPU configured on n0"):
        nodes.requested_nodes(None, "n0")
    for constraint, count in (("ib", 2), ("a100&ib|none", 2), ("[a*2]", 3), ("h100", 3)):
        monkeypatch.setenv("SBATCH_CONSTRAINT", constraint)
        assert list(nodes.requested_nodes(None, None)) == ["n1", "n2", "n3"][:count], constraint
        assert list(nodes.requested_nodes(None, "n[1-3]")) == ["n1", "n2", "n3"], constraint


def test_a_partition_whose_nodes_are_hidden_is_named_with_the_cure(monkeypatch):
    """It said that '' is not a node name."""
    monkeypatch.setattr(slurm, "ask", lambda *command, **options: f"main*{slurm.SEPARATOR}\ncpu{slurm.SEPARATOR}c0\n")
    for partition in (None, "main"):
        with pytest.raises(SlurmError, match=r"partition main shows no node now: .*PrivateData=cloud"):
            slurm.partition_nodes(partition)
    assert slurm.partition_nodes("cpu") == ["c0"]


@pytest.mark.parametrize(("count", "nodelist"), [(None, "gpu-12,gpu-3"), (2, "gpu-20,gpu-12,gpu-3"), (None, None)])
def test_nodes_are_in_slurms_order_whatever_order_they_were_listed_in(monkeypatch, count, nodelist):
    """Rank 0 is on the first of Slurm's table. The first node of our list is the one the others connect to."""
    known = dict.fromkeys(("gpu-3", "gpu-12", "gpu-20"), slurm.Node("IDLE", None, 8))
    monkeypatch.setattr(slurm, "nodes", lambda: known)
    monkeypatch.setattr(slurm, "partition_nodes", lambda partition: ["gpu-12", "gpu-3"])
    assert list(nodes.requested_nodes(count, nodelist)) == ["gpu-3", "gpu-12"]


@case_for_each(
    ("error: you may not submit a job not requesting GPUs in a GPU partition", {}, True),
    ("error: Batch job submission failed: Invalid generic resource (gres) specification", {}, True),
    ("error: you may not submit a job not requesting GPUs", {"SBATCH_GPUS_PER_NODE": "8"}, False),
    ("error: Batch job submission failed: Invalid partition name specified", {}, False),
)
def test_a_refusal_that_speaks_of_gpus_tells_how_to_request_them(monkeypatch, message, given, hinted):
    """The first is what a submit plugin said to a user of NVIDIA/exemplar-performance."""

    def refused(*_command: str, **_options: object) -> str:
        raise SlurmError(f"sbatch: {message}")

    monkeypatch.setattr(slurm, "ask", refused)
    with pytest.raises(SlurmError) as raised:
        slurm.submit("x.sbatch", ["n0"], given)
    assert str(raised.value).startswith(f"sbatch: {message}")
    assert ("say it in the site file (gpu_request)" in str(raised.value)) is hinted
