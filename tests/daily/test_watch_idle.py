"""bringup watch --idle: idle nodes, the longest unverified first, a few at once; the work of others goes first."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from bringup import results
from bringup.daily import watch
from bringup.errors import SlurmError
from bringup.run import slurm
from loops import for_each

SEP = slurm.SEPARATOR


@for_each(
    ("line", "waits"),
    [
        (("17", "anna", "train", "PENDING", "Resources"), "job 17 of anna"),
        (("17", "anna", "train", "PENDING", "Priority"), "job 17 of anna"),
        (("17", "anna", "train", "PENDING", "Dependency"), None),
        (("17", "anna", "train", "PENDING", "JobHeldUser"), None),
        (("17", "root", watch.NAME, "PENDING", "Resources"), None),
    ],
)
def test_who_waits_for_resources_goes_first(line: tuple[str, ...], waits: str | None):
    assert watch.who_waits(SEP.join(line) + "\n") == waits


def test_a_sweep_counts_once_it_came_to_its_end(tmp_path: Path):
    for name, closed in (
        ("idle-20261123-010000_n0", True),
        ("idle-20261123-020000_n0", False),
        ("20261123-010000-abc", True),
    ):
        (tmp_path / name).mkdir()
        if closed:
            (tmp_path / name / results.CLOSED).touch()
    (when,) = watch.last_swept(tmp_path).values()
    assert time.strftime("%H:%M", time.gmtime(when)) == "01:00"


@dataclass
class Fake:
    """A Slurm of four nodes; jobs of ours begin at once and stay."""

    states: dict[str, str]
    queue: str = ""
    jobs: dict[str, str] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    options: list[tuple[str, ...]] = field(default_factory=list)

    def ask(self, *command: str, **_: object) -> str:
        if command[0] == "squeue":
            return self.queue
        return "".join(f"{node}{SEP}{state}\n" for node, state in self.states.items())

    def submit(self, script: str, nodes: list[str], environment: dict[str, str], options: tuple[str, ...]) -> str:
        self.jobs[job := str(len(self.jobs) + 1)] = nodes[0]
        self.options.append(tuple(options))
        return job

    def job_states(self, jobs: list[str]) -> dict[str, str]:
        return dict.fromkeys(jobs, "RUNNING")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    made = Fake({"n0": "idle", "n1": "allocated", "n2": "idle", "n3": "idle*", "n4": "reserved", "n5": "idle"})
    monkeypatch.setattr(slurm, "ask", made.ask)
    monkeypatch.setattr(slurm, "submit", made.submit)
    monkeypatch.setattr(slurm, "states", made.job_states)
    monkeypatch.setattr(slurm, "is_own", lambda job, name: name == watch.NAME)
    monkeypatch.setattr(slurm, "cancel", made.cancelled.append)
    monkeypatch.setattr(results, "REPOSITORY", tmp_path)
    return made


def a_request(most: int = 2) -> watch.Request:
    return watch.Request(most, 3600, True, [], "generic", None, False, look_s=0)


def test_only_idle_nodes_get_a_sweep_and_only_so_many_at_once(fake: Fake):
    running: list[watch.Sweep] = []
    assert watch._look(a_request(), running, set(), print) == 0
    assert list(fake.jobs.values()) == ["n0", "n2"]
    watch._look(a_request(), running, set(), print)
    assert len(fake.jobs) == 2
    assert "--no-requeue" in fake.options[0]


def test_the_longest_unverified_node_is_first(fake: Fake, tmp_path: Path):
    for stamp, node in (("20200102-000000", "n0"), ("20200101-000000", "n2")):
        folder = tmp_path / watch.PHASE.results / f"idle-{stamp}_{node}"
        folder.mkdir(parents=True)
        (folder / results.CLOSED).touch()
    watch._look(a_request(3), [], set(), print)
    assert list(fake.jobs.values()) == ["n5", "n2", "n0"]


def test_a_node_that_was_swept_lately_is_left_alone(fake: Fake, tmp_path: Path):
    folder = tmp_path / watch.PHASE.results / f"idle-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}_n0"
    folder.mkdir(parents=True)
    (folder / results.CLOSED).touch()
    watch._look(a_request(3), [], set(), print)
    assert list(fake.jobs.values()) == ["n2", "n5"]


def test_our_jobs_give_way_and_none_is_started_while_somebody_waits(fake: Fake):
    running: list[watch.Sweep] = []
    watch._look(a_request(), running, set(), print)
    fake.queue = SEP.join(("17", "anna", "train", "PENDING", "Resources")) + "\n"
    messages: list[str] = []
    watch._look(a_request(), running, set(), messages.append)
    assert fake.cancelled == ["1", "2"]
    assert running == []
    assert len(fake.jobs) == 2
    assert "gives way to job 17 of anna" in messages[0]


def test_a_job_whose_node_was_taken_is_withdrawn(fake: Fake, monkeypatch: pytest.MonkeyPatch):
    running: list[watch.Sweep] = []
    watch._look(a_request(1), running, set(), print)
    running[0].submitted -= watch.NOT_BEGUN_S + 1
    monkeypatch.setattr(slurm, "states", lambda jobs: dict.fromkeys(jobs, "PENDING"))
    watch._look(a_request(1), running, {"n0"}, print)
    assert fake.cancelled == ["1"]


def test_an_end_of_the_watch_ends_its_jobs(fake: Fake, monkeypatch: pytest.MonkeyPatch):
    def stop(_: float) -> None:
        raise KeyboardInterrupt

    # its own clock: other threads of this process sleep too
    clock = SimpleNamespace(sleep=stop, time=time.time, monotonic=time.monotonic)
    monkeypatch.setattr(watch, "time", clock)
    with pytest.raises(KeyboardInterrupt):
        watch.watch(a_request(), print)
    assert fake.cancelled == ["1", "2"]


def test_a_controller_that_is_away_is_asked_again(fake: Fake, monkeypatch: pytest.MonkeyPatch):
    def away(*_: str, **__: object) -> str:
        raise SlurmError("squeue: no answer")

    monkeypatch.setattr(slurm, "ask", away)
    messages: list[str] = []
    assert watch._look(a_request(), [], set(), messages.append) == 0
    assert "asked again" in messages[0]
