"""Several partitions with rules: phases go where the site file says, or are refused before anything is submitted."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bringup.kernel.records import Outcome, Run, read_record
from harness import Cluster
from playbook import playbook

pytestmark = pytest.mark.cluster
PARTITIONS = (
    ("debug", "MaxTime=20"),
    ("train", "MaxTime=60", "OverSubscribe=EXCLUSIVE", "DefMemPerCPU=100", "AllowQos=high"),
    ("pairs", "MinNodes=2"),
)
SITE = """\
schema_version: 1
name: lab
partition: {default: debug, nccl_pairwise: pairs, training: train}
qos: {training: high}
"""
PHASES = ("discovery", "nccl_pairwise", "run_1gpu")


@pytest.fixture
def partitioned(cluster: Cluster) -> Iterator[Cluster]:
    try:
        for name, *rules in PARTITIONS:
            made = cluster.sh("scontrol", "create", f"PartitionName={name}", "Nodes=n[0-1]", *rules)
            assert made.returncode == 0, made.stderr
        yield cluster
    finally:
        cluster.wait_idle()
        for name, *_ in PARTITIONS:
            cluster.sh("scontrol", "delete", f"PartitionName={name}")


@pytest.fixture
def site(partitioned: Cluster) -> Path:
    """The nodes read it as well."""
    file = partitioned.shared / "lab.site.yaml"
    file.write_text(SITE)
    return file


def jobs(cluster: Cluster) -> dict[str, tuple[str, str]]:
    """Number -> (name, partition), of all that Slurm has seen."""
    listed_jobs = cluster.sh("squeue", "--noheader", "--states=all", "--format=%i %j %P").stdout
    return {job: (name, partition) for job, name, partition in (line.split() for line in listed_jobs.splitlines())}


def test_each_phase_goes_to_its_partition(partitioned: Cluster, site: Path):
    before = jobs(partitioned)
    with playbook(partitioned) as book:
        done = book.run(*PHASES, env={"BRINGUP_SITE": str(site)})
        assert done.returncode == 0, done.stdout
        new = {name: partition for job, (name, partition) in jobs(partitioned).items() if job not in before}
        assert new == {"discovery": "debug", "nccl_pairwise": "pairs", "run_1gpu": "train"}
        for phase in PHASES:
            assert book.verdicts(phase).outcome is Outcome.PASS
            used = read_record(book.folder(phase) / "run.json", Run).site
            assert used is not None
            assert used.otherwise == {}


def test_what_would_never_start_is_one_line_before_anything_is_submitted(partitioned: Cluster, site: Path):
    """Of the rules one is enough here: tests/run/test_partition_rules.py has them all."""
    site.write_text("schema_version: 1\nname: lab\npartition: debug\n")
    before = jobs(partitioned)
    with playbook(partitioned) as book:
        done = book.run("discovery", "smoke", env={"BRINGUP_SITE": str(site)})
        assert (done.returncode, done.stdout.count("\n")) == (2, 0), done.stdout
        assert done.stderr.startswith("bringup: smoke: its job asks for 30 minutes, and partition debug allows 20")
        assert done.stderr.count("\n") == 1
        assert not book.own_folder.exists()
    assert jobs(partitioned) == before


def test_a_script_that_is_started_by_hand_is_refused_too(partitioned: Cluster, site: Path):
    before = jobs(partitioned)
    script = "infrastructure-validation/scripts/nccl_scaling.sh"
    done = partitioned.sh("bash", script, env={"BRINGUP_SITE": str(site)})
    assert (done.returncode, done.stdout) == (2, "")
    assert "nccl_scaling: its job asks for 60 minutes, and partition debug allows 20 (MaxTime)" in done.stderr
    assert jobs(partitioned) == before
