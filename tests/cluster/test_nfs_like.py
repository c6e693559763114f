"""Nodes that see the results folder as through a stock NFS client, which keeps a missing name for 30 s."""

from collections.abc import Callable

import pytest
from bringup.records import Outcome
from harness import CHECKOUT, Cluster
from playbook import Playbook, playbook

pytestmark = pytest.mark.cluster
RESULTS = CHECKOUT / "validation/results"


@pytest.fixture
def nfs_like(start_cluster: Callable[..., Cluster]) -> Cluster:
    RESULTS.mkdir(exist_ok=True)
    return start_cluster("--nodes", "3", "--gpus", "1")


def mount(cluster: Cluster, *nodes: str) -> None:
    for node in nodes:
        done = cluster.run("nfs-like", node, RESULTS)
        assert (done.returncode, done.stderr) == (0, "")


def of_filesystem(book: Playbook) -> dict[tuple[str, str], tuple[Outcome, str]]:
    return {(v.gate, v.subject): (v.outcome, v.observed) for v in book.verdicts("smoke").verdicts if ".fs." in v.gate}


def test_a_healthy_cluster_passes_smoke_and_its_late_names_come_within_30_s(nfs_like: Cluster):
    mount(nfs_like, "n0", "n1", "n2")
    assert nfs_like.on("n1", "findmnt", "--noheadings", "--output", "FSTYPE", RESULTS).stdout.startswith("fuse")
    with playbook(nfs_like) as book:
        done = book.run("--nodes", "3", "smoke", timeout=300)
        assert done.returncode == 0, done.stdout
        seen = of_filesystem(book)
    assert {outcome for outcome, _ in seen.values()} == {Outcome.PASS}
    late = [float(observed.split()[0]) for (gate, _), (_, observed) in seen.items() if "late_lookup" in gate]
    assert len(late) == 9
    assert all(15 < seconds < 32 for seconds in late)  # the client did keep them


def test_a_folder_that_is_not_shared_fails_on_its_node(nfs_like: Cluster):
    assert nfs_like.on("n1", "mount", "-t", "tmpfs", "tmpfs", RESULTS).returncode == 0
    mount(nfs_like, "n0", "n1", "n2")
    with playbook(nfs_like) as book:
        done = book.run("--nodes", "3", "smoke", env={"BRINGUP_SMOKE_PARTS": "folder"}, timeout=300)
        assert done.returncode == 1, done.stdout
        seen = of_filesystem(book)
    shared = {
        subject: outcome for (gate, subject), (outcome, _) in seen.items() if gate == "smoke.fs.reads_submit_host"
    }
    assert shared == {"n0": Outcome.PASS, "n1": Outcome.FAIL, "n2": Outcome.PASS}
    bad = {subject for (gate, subject), (outcome, _) in seen.items() if "pair" in gate and outcome is Outcome.FAIL}
    assert bad == {"n0->n1", "n1->n0", "n1->n2", "n2->n1"}
