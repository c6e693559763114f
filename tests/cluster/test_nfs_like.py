"""Where the login host and every node see the whole checkout as through a stock NFS client.

Such a client keeps a missing name for 30 s. The drills nfs-client and nfs-client-not-shared look at smoke alone, and
show that a folder that is not shared fails with this client too.
"""

from collections.abc import Callable

import pytest
from bringup.kernel.records import Outcome, read_record
from bringup.report.campaigns import Playbook as Record
from harness import CHECKOUT, Cluster
from playbook import playbook

pytestmark = pytest.mark.cluster
PHASES = ("discovery", "smoke", "nccl_scaling", "run_1gpu", "run_ddp_2node")  # each way of starting, and of waiting
ANY_SPEED = """\
schema_version: 1
name: any-speed
description: a client in user space on a disk that other tests use says nothing about the speed of storage
extends: local-cpu
expect:
  smoke.storage.write: {at_least: 0.0001, unit: GB/s, source: "this test"}
  smoke.storage.read: {at_least: 0.0001, unit: GB/s, source: "this test"}
  smoke.storage.write_together: {at_least: 0.0001, unit: GB/s, source: "this test"}
  smoke.storage.files: {at_least: 1, unit: 1/s, source: "this test"}
"""


@pytest.fixture
def nfs_like(start_cluster: Callable[..., Cluster]) -> Cluster:
    cluster = start_cluster("--nodes", "2", "--gpus", "1")
    for host in ("ctl", "n0", "n1"):
        done = cluster.run("nfs-like", host, CHECKOUT)
        assert (done.returncode, done.stderr) == (0, "")
    return cluster


@pytest.mark.timeout(420)
def test_a_healthy_cluster_passes_its_phases(nfs_like: Cluster):
    """The login host once looked for the end of a run too early, and called the run incomplete."""
    for seen in (nfs_like.sh("findmnt", "-n", "-o", "FSTYPE", CHECKOUT), nfs_like.on("n1", "stat", "-fc%T", CHECKOUT)):
        assert seen.stdout.startswith("fuse"), seen.stderr
    profile = nfs_like.shared / "any-speed.yaml"
    profile.write_text(ANY_SPEED)
    with playbook(nfs_like) as book:
        done = book.run(*PHASES, env={"BRINGUP_STORAGE_MIB": "8", "BRINGUP_PROFILE": str(profile)}, timeout=400)
        assert done.returncode == 0, done.stdout
        steps = read_record(book.own_folder / "playbook.json", Record).steps
        assert {step.phase: step.outcome for step in steps} == dict.fromkeys(PHASES, Outcome.PASS)
        late = [float(v.observed.split()[0]) for v in book.verdicts("smoke").verdicts if "late_lookup" in v.gate]
    assert late
    assert all(15 < seconds < 32 for seconds in late)  # the client did keep them
