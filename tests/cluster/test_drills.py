"""Declared faults are made on the live cluster, and the declared gate says so on the declared subject.

`make test` performs a dozen, one of each domain; `make test-all` a fault of every kind; `make drill` (bringup drill)
performs all, by the same code.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from bringup.drill import result
from bringup.drill import suite as campaign
from bringup.drill.catalogue import DRILLS, Drill, Shape
from bringup.drill.environment import LocalCluster
from bringup.drill.perform import perform
from bringup.kernel import judge
from bringup.kernel.records import ClaimAnswer, Mark, Outcome, read_record
from bringup.kernel.results import DRILLS as DRILLS_FILE
from bringup.kernel.results import METRICS, PLAYBOOK
from bringup.report.campaigns import DrillReport, Playbook
from bringup.training.records import TrainMetrics
from harness import CHECKOUT, Cluster, wait_until
from playbook import playbook
from programs import begun
from tiers import in_test_all

pytestmark = pytest.mark.cluster
JOB_MUST_END_WITHIN_S = 30
IN_EVERY_TEST = {  # on the cluster of the playbook, and on simulated GPUs
    *("node-off-unnoticed", "hostname-twice", "kernel-log-unreadable", "gpu-missing", "gpu-lost", "rdma-port-down"),
    *("two-tasks-one-gpu", "path-not-shared", "flipped-bit", "wrong-value", "rank-killed", "results-truncated"),
}
IN_TEST_ALL = {
    *("clock-off", "rail-slow", "separate-communicators", "nfs-client-not-shared", "no-devices-confined"),
    *("wrong-matmul", "slow-pair", "fsdp-not-applied"),
}
PERFORMED = [
    pytest.param(drill, id=drill.id, marks=[] if drill.id in IN_EVERY_TEST else in_test_all)
    for drill in DRILLS
    if drill.id in IN_EVERY_TEST | IN_TEST_ALL
]
CLUSTERS = {
    Shape(): "cluster",
    Shape(unconfined=True): "unconfined",
    Shape(4, 1): "four_nodes",
    Shape(3, 2, simulate="h100"): "simulated",
}
BRINGUP = (sys.executable, "-m", "bringup")


def test_the_drills_of_every_test_are_in_the_catalogue():
    assert {drill.id for drill in DRILLS} >= IN_EVERY_TEST | IN_TEST_ALL


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Where evidence goes, and with it the healthy runs that drills share."""
    folder = campaign.DRILLS / f"test-{uuid.uuid4().hex[:8]}"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def is_found(drill: Drill, cluster: Cluster, place: Path) -> Path:
    """The run that the fault was made in."""
    local = LocalCluster(cluster.state, drill.shape, up=True)
    try:
        drill_result = perform(drill, local, place, name=place.name)
    finally:
        local.heal()
    assert result.mark(drill_result) == "FOUND", result.line(drill_result)
    assert drill_result.evidence is not None
    return campaign.DRILLS / drill_result.evidence


def the_job_ended_in_seconds_and_only_the_culprit_fails(folder: Path) -> None:
    died = (folder / "raw/rank3.jsonl").stat().st_mtime  # its last word: the start of training, a few steps earlier
    assert (folder / "closed.json").stat().st_mtime - died < JOB_MUST_END_WITHIN_S
    verdicts = judge.judge_folder(folder).verdicts.verdicts
    ranks = {v.subject: v.outcome for v in verdicts if v.gate == "train.rank.finished"}
    assert ranks.pop("n1/rank3") is Outcome.FAIL
    assert len(ranks) == 3
    assert set(ranks.values()) == {Outcome.INCOMPLETE}


AND_THEN = {"rank-killed": the_job_ended_in_seconds_and_only_the_culprit_fails}


@pytest.mark.parametrize("drill", PERFORMED)
def test_the_fault_is_found_on_the_right_subject(request: pytest.FixtureRequest, place: Path, drill: Drill):
    evidence = is_found(drill, request.getfixturevalue(CLUSTERS[drill.shape]), place)
    AND_THEN.get(drill.id, lambda _: None)(evidence)


@in_test_all
def test_a_check_of_the_site_finds_the_fault_of_its_own_drill(cluster: Cluster, place: Path):
    (drill,) = campaign.of_site(CHECKOUT / "validation/checks/own/example.yaml")
    is_found(drill, cluster, place)


@in_test_all
def test_a_drill_run_that_is_interrupted_leaves_no_cluster_and_goes_on_where_it_was():
    def started(*arguments: str) -> subprocess.Popen[str]:
        # env: a pytest that was started with nohup or in the background ignores SIGINT, and so would its children
        command = ["env", "--default-signal=INT", *BRINGUP, "drill", *arguments]
        how = {"cwd": CHECKOUT, "stderr": subprocess.STDOUT, "start_new_session": True}
        return begun(command, env=os.environ | {"BRINGUP_RUN_NAME": name}, **how)

    name = f"test-{uuid.uuid4().hex[:8]}"

    def clusters() -> list[Path]:
        return list(Path("/tmp").glob(f"bringup-drill-{name}-*"))

    folder = campaign.DRILLS / name
    try:
        first = started("--only", "gpu-missing", "node-off")  # side by side, and the second one waits for Slurm
        wait_until(lambda: (folder / "report.md").exists(), "the first of two drills is done", timeout=90)
        assert clusters()
        first.send_signal(signal.SIGINT)
        output = first.communicate(timeout=60)[0]
        assert f"--resume validation/results/drill/{name}" in output
        assert first.returncode == 130
        assert clusters() == []
        again = started("--resume", str(folder))
        output = again.communicate(timeout=90)[0]
        assert again.returncode == 0, output
        assert "1 performed before" in output
        totals = "2 of 2 drills detected; 2 in the right place; 2 with the right cause; 0 false"
        assert output.splitlines()[-1].startswith(totals)
        done = read_record(folder / DRILLS_FILE, DrillReport)
        assert {drill_result.drill for drill_result in done.results} == set(done.planned)
        assert clusters() == []
    finally:
        for state in clusters():
            Cluster(state).down()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def without(cluster: Cluster, node: str) -> Iterator[None]:
    try:
        cluster.off(node)
        wait_until(lambda: cluster.node_state(node) == "down*", f"{node} down*")
        yield
    finally:
        cluster.boot(node)
        cluster.wait_idle()


def claims_of(record: Playbook) -> dict[str, ClaimAnswer]:
    return {claim.claim: claim for answer in record.answers for claim in answer.claims}


@in_test_all
def test_a_node_that_is_off_is_left_out_and_the_healthy_rest_is_asked(four_nodes: Cluster):
    with playbook(four_nodes) as book:
        with without(four_nodes, "n2"):
            done = book.run("discovery", "smoke", "nccl_pairwise", timeout=280)
        assert done.returncode == 1, done.stdout
        assert "EXCLUDED   n2: discovery.node.state fail" in done.stdout
        assert "Going on with n0, n1, n3" in done.stdout
        assert book.verdicts("smoke").outcome is Outcome.PASS
        assert book.verdicts("nccl_pairwise").outcome is Outcome.PASS
        claims = claims_of(read_record(book.own_folder / PLAYBOOK, Playbook))
        assert claims["nodes-ran"].mark is Mark.FAIL
        assert claims["gpus-present"].mark is Mark.INCOMPLETE
        assert "not on n2 (excluded)" in str(claims["one-folder"].why)
        assert claims["one-folder"].mark is Mark.PARTLY


@in_test_all
@pytest.mark.timeout(620)
def test_a_slow_node_is_named_by_the_pairs_and_scales_and_trainings_run_without_it(four_nodes: Cluster):
    """The pairs once did not run when a scale failed, which is when they are needed. The node stays slow meanwhile."""
    trainings = ("run_1gpu", "run_ddp_2node")
    slow_link = next(drill for drill in DRILLS if drill.id == "slow-link")
    with playbook(four_nodes) as book:
        try:
            four_nodes.on("n2", *slow_link.inject[0][2:])
            done = book.run("nccl_scaling", "nccl_pairwise", *trainings, timeout=540)
        finally:
            four_nodes.on("n2", *slow_link.undo[0][2:])
        assert done.returncode == 1, done.stdout
        assert "EXCLUDED   n2: nccl.pair.node fail. Going on with n0, n1, n3" in done.stdout
        record = read_record(book.own_folder / PLAYBOOK, Playbook)
        steps = record.steps
        assert [(step.phase, step.outcome) for step in steps] == [
            ("nccl_scaling", Outcome.FAIL),
            ("nccl_pairwise", Outcome.FAIL),
            ("nccl_scaling", Outcome.PASS),
            *((stem, Outcome.PASS) for stem in trainings),
        ]
        assert steps[0].folder != steps[2].folder
        scaled = judge.judge_folder(CHECKOUT / str(steps[2].folder)).verdicts.verdicts
        assert {v.subject for v in scaled if v.gate == "nccl.ranks"} == {"1-node", "2-nodes", "3-nodes"}
        trained = read_record(book.folder("run_ddp_2node") / METRICS, TrainMetrics)
        assert trained.observed.hosts == ["n0", "n1", "n3"]
        claims = claims_of(record)
        assert claims["no-slow-link"].mark is Mark.FAIL
        assert "not on n2 (excluded)" in str(claims["trains-across"].why)


@in_test_all
def test_strictly_a_node_that_is_off_stops_the_phases_that_would_mean_nothing(cluster: Cluster):
    with playbook(cluster) as book:
        with without(cluster, "n1"):
            done = book.run("--strict", timeout=120)
        assert done.returncode == 1
        assert "discovery.node.state [n1]" in done.stdout
        assert done.stdout.count("not proven") >= 9
