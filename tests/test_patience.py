"""bringup run waits for a controller that is away, and for what an earlier run has left at work."""

import subprocess
import sys
from pathlib import Path

import pytest
from bringup.errors import ControllerAway, SlurmError
from bringup.plan.phases import PHASES
from bringup.run import launch, playbook, slurm

AWAY = "slurm_load_partitions: Unable to contact slurm controller (connect failure)"


@pytest.fixture
def sinfo(tmp_path, monkeypatch):
    """A sinfo that reaches no controller for the first two calls, then lists two nodes."""
    monkeypatch.setattr(slurm, "_AGAIN_S", 0.0)
    program, calls = tmp_path / "sinfo", tmp_path / "calls"
    program.write_text(f"""#!/bin/sh
echo call >>"{calls}"
if [ "$(wc -l <"{calls}")" -le 2 ]; then echo "{AWAY}" >&2; exit 1; fi
printf 'main*\\037n[0-1]\\n'
""")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return calls


def test_a_controller_that_is_away_is_waited_for_and_that_is_said(sinfo):
    said: list[str] = []
    assert slurm.patiently(lambda: slurm.partition_nodes(None), said.append) == ["n0", "n1"]
    assert len(sinfo.read_text().splitlines()) == 3
    assert len(said) == 2
    assert "Unable to contact slurm controller" in said[0]


def test_one_that_stays_away_is_an_error_with_slurms_own_words(sinfo, monkeypatch):
    monkeypatch.setenv("BRINGUP_WAIT_S", "0")
    with pytest.raises(ControllerAway, match="connect failure"):
        slurm.patiently(lambda: slurm.partition_nodes(None), lambda text: None)


def test_another_error_is_not_waited_for(sinfo):
    sinfo.write_text("call\ncall\n")
    with pytest.raises(SlurmError, match="no partition 'gpu'"):
        slurm.patiently(lambda: slurm.partition_nodes("gpu"), lambda text: pytest.fail(text))


@pytest.mark.parametrize(
    ("states", "ends"),
    [
        (["IDLE+NOT_RESPONDING", "IDLE"], True),  # a node that comes back: a waiting job was once given up for it
        (["IDLE+NOT_RESPONDING"] * 30, False),
    ],
)
def test_a_waiting_job_is_given_up_for_a_node_that_stays_away_and_not_for_one_that_comes_back(
    monkeypatch, states, ends
):
    monkeypatch.setattr(launch, "POLL_S", 0.01)
    monkeypatch.setattr(launch, "LOST_S", 0.1)
    told, cancelled = list(states), list[str]()

    def job(job_id):
        return slurm.Job(state="PENDING", reason="BeginTime") if told else None  # it has ended

    monkeypatch.setattr(slurm, "job", job)
    monkeypatch.setattr(slurm, "node_facts", lambda: ({"n0": "IDLE", "n1": told.pop(0)}, {}))
    monkeypatch.setattr(slurm, "in_words", lambda state: "it waits")
    monkeypatch.setattr(slurm, "cancel", cancelled.append)
    assert launch._wait("7", ["n0", "n1"], lambda text: None) is ends
    assert cancelled == ([] if ends else ["7"])


def test_after_an_outage_nodes_have_their_moment_too(monkeypatch):
    monkeypatch.setattr(launch, "POLL_S", 0.2)
    monkeypatch.setattr(launch, "LOST_S", 0.3)
    answers = iter(["ok", "away", "away", "bad", "ok", "ended"])

    def job(job_id):
        nonlocal answer
        answer = next(answers)
        if answer == "away":
            raise SlurmError("connect failure")
        return None if answer == "ended" else slurm.Job(state="PENDING", reason="Resources")

    answer = ""
    monkeypatch.setattr(slurm, "job", job)
    monkeypatch.setattr(slurm, "node_facts", lambda: ({"n0": "DOWN" if answer == "bad" else "IDLE"}, {}))
    monkeypatch.setattr(slurm, "in_words", lambda state: "it waits")
    monkeypatch.setattr(slurm, "cancel", lambda job_id: pytest.fail("it was given up"))
    assert launch._wait("7", ["n0"], lambda text: None) is True


def test_a_script_of_a_killed_run_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "POLL_S", 0.01)
    lock = tmp_path / "smoke.lock"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys; stream = open(sys.argv[1], 'w'); fcntl.flock(stream, fcntl.LOCK_EX); "
            "print('held', flush=True); sys.stdin.read()",
            lock,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    said: list[str] = []

    def tell(text: str) -> None:
        said.append(text)
        if len(said) == 3:
            holder.stdin.close()

    with holder:
        launch.wait_for_earlier(PHASES["smoke"], tmp_path, tell)
    assert holder.returncode == 0
    assert len(said) >= 3
    assert "still running" in said[0]


def test_nothing_left_behind_is_not_waited_for(tmp_path: Path):
    launch.wait_for_earlier(PHASES["smoke"], tmp_path, lambda text: pytest.fail(text))


def test_a_script_that_opened_no_run_is_quoted(tmp_path, monkeypatch):
    """Its last line is the first cause: without it the user has to find the log by himself."""
    monkeypatch.setattr(launch, "REPOSITORY", tmp_path)
    phase = PHASES["run_ddp_2node"]
    assert launch.last_words(phase, tmp_path) == "it left no log; slurmd.log of its first node may say why"
    (tmp_path / "run_ddp_2node.job").write_text("12\n")
    log = tmp_path / "run_ddp_2node-12.out"
    log.write_text("one\nrun_ddp_2node: no Python environment at /x\n\n")
    assert launch.last_words(phase, tmp_path).startswith("run_ddp_2node: no Python environment at /x; see ")
    (tmp_path / "slurm-logs").mkdir()
    log.rename(tmp_path / "slurm-logs" / log.name)
    assert launch.last_words(phase, tmp_path).startswith("run_ddp_2node: no Python environment at /x; see ")
    (tmp_path / "smoke.log").write_text("smoke: sinfo gave no list of nodes\n")
    assert launch.last_words(PHASES["smoke"], tmp_path).startswith("smoke: sinfo gave no list of nodes; see ")


@pytest.mark.parametrize(("count", "nodelist"), [(None, "gpu-12,gpu-3"), (2, "gpu-20,gpu-12,gpu-3"), (None, None)])
def test_nodes_are_in_slurms_order_whatever_order_they_were_listed_in(monkeypatch, count, nodelist):
    """Rank 0 is on the first node of Slurm's table, and the first node of ours is the one that the others connect to."""
    states = dict.fromkeys(("gpu-3", "gpu-12", "gpu-20"), "IDLE")
    monkeypatch.setattr(slurm, "node_facts", lambda: (states, dict.fromkeys(states, 8)))
    monkeypatch.setattr(slurm, "partition_nodes", lambda partition: ["gpu-12", "gpu-3"])
    assert playbook.requested_nodes(count, nodelist) == ["gpu-3", "gpu-12"]
