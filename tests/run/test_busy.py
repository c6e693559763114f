"""Nodes that others hold are waited for, and the screen names them and what holds them."""

import itertools
import os
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from bringup.errors import SlurmError
from bringup.evidence.names import by_reason
from bringup.run import slurm, waiting

NAMES = ("n0", "n1", "n2")


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
    waiting.wait_until_free(NAMES, whole, messages.append)
    return messages


def test_nodes_that_are_free_or_that_have_room_for_a_phase_that_shares_them_are_not_waited_for(monkeypatch) -> None:
    assert waited(monkeypatch, Queue(("IDLE", "IDLE", "DOWN"))) == []
    assert waited(monkeypatch, Queue(("MIXED", "IDLE", "IDLE")), whole=False) == []


def test_it_waits_until_the_last_one_is_free_and_names_who_holds_which(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [("17", "alice", "n[0-1]"), ("18", "bob", "n2")]
    queue = Queue(("ALLOCATED", "ALLOCATED", "MIXED"), ("IDLE", "IDLE", "MIXED"), ("IDLE", "IDLE", "IDLE"), jobs=jobs)
    assert waited(monkeypatch, queue) == [
        "waiting for n0, n1 (held by job 17 of alice); n2 (held by job 18 of bob)",
        "waiting for n2 (held by job 18 of bob)",
    ]


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
    assert messages == [
        "waiting for the smoke phase of another run (2 jobs, the first is job 17 of alice)",
        "waiting for the smoke phase of another run (1 job, the first is job 18 of alice)",
    ]
    seconds = itertools.count(0, waiting.LONGEST_SMOKE_S / 3)  # it is asked twice before the patience is over
    clock(monkeypatch, sleep=lambda seconds: None, monotonic=lambda: float(next(seconds)))
    monkeypatch.setattr(slurm, "queued", lambda prefix: [("17", "alice")])
    waiting.wait_for_smoke(messages.append)
    assert len(messages) == 4


def test_names_and_reasons_of_users_make_no_job_and_break_no_answer(tmp_path, monkeypatch) -> None:
    """A reason in Latin-1, on any node; a name with a line feed and the delimiter that stood between columns; a job
    that its user holds, so that each phase waits for it."""
    squeue = tmp_path / "squeue"
    squeue.write_text(
        "#!/usr/bin/env python3\nimport sys\nrow = sys.argv[-1].replace('%u', 'ann')\n"
        "held = row.replace('%i', '8').replace('%r', 'JobHeldUser').replace('%j', 'smoke-a')\n"
        "row = row.replace('%i', '7').replace('%r', 'Priority')\n"
        "name = 'caf\\xe9\\n9\\x1froot\\x1fsmoke-a'\n"
        "sys.stdout.buffer.write((row.replace('%j', name) + '\\n' + held + '\\n').encode('latin-1'))\n"
    )
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert slurm.queued(waiting.SMOKE) == []
    assert slurm.queued("caf") == [("7", "ann")]


@pytest.fixture
def another_run(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is in its smoke phase, on the cluster of /etc/a.conf, until its standard input is closed."""
    program = (
        "import pathlib, sys; from bringup.run import waiting\n"
        "with waiting.only_one(pathlib.Path(sys.argv[1]), print): print('inside', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "smoke.lock"],
        env=os.environ | {"SLURM_CONF": "/etc/a.conf"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
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
