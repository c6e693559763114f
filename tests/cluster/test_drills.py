"""Declared faults are made on the live cluster, and the declared gate says so on the declared subject.

`make test` performs those below, a fault of every kind; `make drill` performs the whole catalogue.
"""

import os

import pytest
from bringup.drills import DRILLS
from bringup.drills.drill import Drill
from bringup.records import Outcome
from harness import CHECKOUT, Cluster, wait_until
from playbook import BRINGUP, playbook

pytestmark = pytest.mark.cluster
JOB_MUST_END_WITHIN_S = 30
IN_EVERY_TEST = {
    "node-off", "node-off-unnoticed", "gpu-missing", "hostname-twice", "clock-off", "kernel-log-unreadable", "shm-small",
    "munge-drift",
    "path-not-shared", "stale-lookups", "two-tasks-one-gpu", "no-devices-confined", "wrong-matmul", "slow-matmul",
    "slow-link", "separate-communicators", "wrong-value", "packet-loss", "slow-pair",
    "rank-killed", "fsdp-not-applied", "results-truncated",
}
PERFORMED = DRILLS if os.environ.get("BRINGUP_ALL_DRILLS") else [drill for drill in DRILLS if drill.id in IN_EVERY_TEST]


def test_the_drills_of_every_test_are_in_the_catalogue():
    assert {drill.id for drill in DRILLS} >= IN_EVERY_TEST


def perform(cluster: Cluster, commands: tuple[tuple[str, ...], ...]) -> None:
    for command in commands:
        done = cluster.run(*(word.replace("{results}", str(CHECKOUT / "validation/results")) for word in command))
        assert done.returncode == 0, f"{command}: {done.stderr}"


@pytest.mark.parametrize("drill", PERFORMED, ids=lambda drill: drill.id)
def test_the_fault_is_found_on_the_right_subject(request: pytest.FixtureRequest, drill: Drill):
    shape = "unconfined" if drill.unconfined else "cluster" if drill.nodes == 2 else "four_nodes"
    cluster: Cluster = request.getfixturevalue(shape)
    cluster.wait_idle()
    with playbook(cluster) as book:
        try:
            perform(cluster, drill.inject)
            if drill.wait_for is not None:
                node, state = drill.wait_for
                wait_until(lambda: cluster.node_state(node) == state, f"{node} {state}")
            done = book.run(drill.phase, env=dict(drill.environment))
        finally:
            perform(cluster, drill.undo)
            cluster.wait_idle()
        folder = book.folder(drill.phase)
        if drill.truncate is not None:
            assert done.returncode == 0, done.stdout
            cut = folder / drill.truncate
            cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
            done = cluster.sh(BRINGUP, "judge", folder)
        assert done.returncode == drill.outcome.exit_code, done.stdout + done.stderr
        verdicts = book.verdicts(drill.phase).verdicts
        found = next(v for v in verdicts if (v.gate, v.subject) == (drill.gate, drill.subject))
        assert found.outcome is drill.outcome
        assert drill.says in f"{found.observed} {found.cause}"
        also = {(v.gate, v.subject): v.outcome for v in verdicts if (v.gate, v.subject) in drill.also}
        assert also == dict.fromkeys(drill.also, drill.outcome)
        assert f"{drill.gate} [{drill.subject}]" in done.stdout
        quiet = [v for v in verdicts if v.subject in drill.silent]
        assert {v.outcome for v in quiet} <= {Outcome.PASS}, quiet
        assert len(quiet) >= len(drill.silent)


def test_a_killed_rank_ends_the_job_in_seconds_and_only_the_culprit_fails(cluster: Cluster):
    with playbook(cluster) as book:
        book.run("run_ddp_2node", env={"BRINGUP_DRILL": "kill-rank:3@4"})
        folder = book.folder("run_ddp_2node")
        died = (folder / "raw/rank3.jsonl").stat().st_mtime  # its last word: the start of training, a few steps earlier
        assert (folder / "closed.json").stat().st_mtime - died < JOB_MUST_END_WITHIN_S
        ranks = {v.subject: v.outcome for v in book.verdicts("run_ddp_2node").verdicts if v.gate == "train.rank.finished"}
        assert ranks.pop("n1/rank3") is Outcome.FAIL
        assert Outcome.FAIL not in ranks.values()
        assert Outcome.PASS not in ranks.values()


def test_a_node_that_is_off_stops_the_phases_that_would_mean_nothing(cluster: Cluster):
    with playbook(cluster) as book:
        try:
            cluster.off("n1")
            wait_until(lambda: cluster.node_state("n1") == "down*", "n1 down*")
            done = book.run(timeout=120)
        finally:
            cluster.boot("n1")
            cluster.wait_idle()
        assert done.returncode == 1
        assert "discovery.node.state [n1]" in done.stdout
        assert done.stdout.count("not proven") >= 9
