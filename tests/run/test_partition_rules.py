"""Partitions with rules: what would never start is refused in one line, before anything is submitted."""

import dataclasses
from pathlib import Path

import pytest
from bringup.kernel.errors import CannotStart
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.phases import PHASES
from bringup.run import launch, partitions, slurm
from bringup.run import site as at_site
from bringup.run import site_file as sites
from bringup.run.site import AtSite
from loops import case_for_each, for_each
from runs_for_tests import FIXTURES

# scontrol of Slurm 22.05, shortened
SHOWN = """\
PartitionName=main AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A DefaultTime=NONE \
MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO Nodes=n[0-3] OverSubscribe=NO State=UP TotalNodes=4
PartitionName=debug AllowAccounts=ALL AllowQos=ALL Default=NO MaxNodes=2 MaxTime=00:10:00 MinNodes=1 \
Nodes=n[0-1] State=UP
PartitionName=train AllowQos=high Default=NO MaxNodes=UNLIMITED MaxTime=1-00:00:00 MinNodes=2 \
Nodes=n[0-3] State=UP
PartitionName=closed AllowAccounts=ALL AllowQos=ALL Default=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=1 \
Nodes=n[0-3] State=DOWN
PartitionName=empty AllowAccounts=ALL AllowQos=ALL Default=NO MaxTime=UNLIMITED MinNodes=1 Nodes=(null) State=UP
"""
KNOWN = partitions.read(SHOWN)
NODES = ["n0", "n1", "n2", "n3"]
LOW = {"SBATCH_PARTITION": "train", "SBATCH_QOS": "low"}


def refused(stem: str, nodes: list[str] = NODES, **environment: str) -> str | None:
    try:
        partitions.refuse(PHASES[stem], nodes, environment, KNOWN)
    except CannotStart as error:
        return str(error)
    return None


def test_what_slurm_says_of_partitions_is_read():
    debug, train = KNOWN[1], KNOWN[2]
    assert [partition.name for partition in KNOWN if partition.is_default] == ["main"]
    assert (debug.nodes, debug.minutes, debug.least_nodes, debug.most_nodes) == ({"n0", "n1"}, 10, 1, 2)
    assert (train.minutes, train.least_nodes, train.most_nodes, train.qos) == (1440, 2, None, ("high",))
    assert KNOWN[0].minutes is None
    assert KNOWN[-1].nodes == frozenset()


@for_each(
    *(("90", 90), ("00:10:00", 10), ("30:30", 30.5), ("1-12", 2160), ("2-00:00:00", 2880), ("1-00:30", 1470)),
    *(("UNLIMITED", None), ("INFINITE", None), ("0", None), ("soon", None)),
)
def test_times_are_read_as_slurm_writes_them(text: str, minutes: float | None):
    assert partitions.minutes(text) == minutes


@for_each(*PHASES.values())
def test_the_limit_of_each_script_is_known(phase):
    limit = partitions.requested_minutes(phase, {})
    assert 10 <= limit <= 60
    assert partitions.requested_minutes(phase, {"SBATCH_TIMELIMIT": "7", "SALLOC_TIMELIMIT": "7"}) == 7


def test_a_partition_that_takes_the_job_is_not_refused():
    """Of several one is enough. A QOS may lift the limits, and nobody here knows."""
    assert [refused(stem) for stem in PHASES] == [None] * len(PHASES)
    assert refused("nccl_scaling", SALLOC_PARTITION="train") is None
    assert refused("discovery", ["n0"], SBATCH_PARTITION="debug", SBATCH_TIMELIMIT="10") is None
    assert refused("smoke", SALLOC_PARTITION="debug,main") is None
    assert refused("run_ddp_2node", ["n0", "n1"], SBATCH_PARTITION="debug", SBATCH_QOS="long") is None


@for_each(
    ("discovery", {"SBATCH_PARTITION": "nope"}, "discovery: there is no partition 'nope'; there are main, debug, "),
    ("smoke", {"SALLOC_PARTITION": "debug"}, "smoke: partition debug does not hold n2, n3; choose nodes with "),
    ("smoke", {"SALLOC_PARTITION": "debug,closed"}, "smoke: partition debug does not hold"),
    ("smoke", {"SALLOC_PARTITION": "closed"}, "smoke: partition closed is DOWN: it starts no job; wait until it "),
    ("run_1gpu", {"SBATCH_PARTITION": "train"}, "run_1gpu: its job has 1 node, and partition train starts none"),
    ("discovery", LOW, "discovery: partition train takes jobs of QOS high, and its QOS is low; name another "),
)
def test_a_partition_that_would_never_start_the_job_is_refused_in_one_line(stem, environment, says):
    message = refused(stem, **environment)
    assert message.startswith(says)
    assert "\n" not in message


def test_a_job_that_is_too_long_or_too_large_says_by_how_much():
    message = refused("run_ddp_2node", ["n0", "n1"], SBATCH_PARTITION="debug")
    assert "asks for 30 minutes, and partition debug allows 10 (MaxTime)" in message
    assert 'time_limits: {run_ddp_2node: "10"}' in message
    known = [partition for partition in KNOWN if partition.name == "debug"]
    with pytest.raises(CannotStart, match=r"has 2 nodes, and partition debug starts none above 1 \(MaxNodes\)"):
        few = [dataclasses.replace(known[0], most_nodes=1)]
        partitions.refuse(PHASES["nccl_pairwise"], ["n0", "n1"], {"SBATCH_PARTITION": "debug"}, few)


# ---- the site file by phase

LAB = """\
schema_version: 1
name: lab
partition: {default: main, smoke: debug, training: train, run_1gpu: main}
qos: {training: high}
account: us
time_limits: {training: "02:00:00", discovery: "30"}
gpu_request: --gres=gpu:h100:8
sbatch: ["--comment=of sbatch"]
"""


@pytest.fixture
def at(tmp_path) -> AtSite:
    return AtSite(sites.parse(LAB, "lab"), tmp_path / "lab.site.yaml")


@case_for_each(
    ("discovery", "main", None, "30"),
    ("smoke", "debug", None, None),
    ("run_1gpu", "main", "high", "02:00:00"),
    ("run_fsdp_2node", "train", "high", "02:00:00"),
    (None, "main", None, None),
)
def test_a_phase_has_its_own_partition_then_that_of_trainings_then_that_of_all(at, phase, partition, qos, limit):
    variables = at_site.slurm_variables(at.site, phase)
    for command in ("SBATCH", "SALLOC"):
        assert variables[f"{command}_PARTITION"] == partition
        assert variables[f"{command}_ACCOUNT"] == "us"
        assert variables.get(f"{command}_QOS") == qos
        assert variables.get(f"{command}_TIMELIMIT") == limit


def test_what_is_entered_for_all_phases_does_not_win_over_that_of_one(at, monkeypatch):
    for name in ("SBATCH_PARTITION", "SALLOC_PARTITION", "SLURM_PARTITION"):
        monkeypatch.delenv(name, raising=False)
    with monkeypatch.context() as patched:
        environment: dict[str, str] = {}
        patched.setattr(at_site.os, "environ", environment)
        at_site.enter(at)
        assert environment["SBATCH_PARTITION"] == "main"
        assert at_site.for_submission(at, "smoke", environment)["SALLOC_PARTITION"] == "debug"
        environment["SALLOC_PARTITION"] = "mine"
        assert at_site.for_submission(at, "smoke", environment)["SALLOC_PARTITION"] == "mine"
        assert at_site.for_submission(at, "smoke", environment)["SBATCH_PARTITION"] == "debug"


def test_a_phase_is_submitted_with_the_sites_options_and_variables(at, monkeypatch, tmp_path):
    monkeypatch.setattr(slurm, "nodes", lambda names=(): dict.fromkeys(names, slurm.Node("IDLE", None, 2)))
    monkeypatch.setattr(launch.Started, "_wait", lambda *arguments: True)
    asked: list[tuple[tuple[str, ...], dict[str, str]]] = []

    def ask(*command: str, environment: dict[str, str], folder: Path) -> str:
        asked.append((command, environment))
        return "5\n"

    monkeypatch.setattr(slurm, "ask", ask)
    given = {"BRINGUP_RUN_NAME": "x", "SBATCH_ACCOUNT": "mine", "SBATCH_ERROR": "elsewhere", "SLURM_UNBUFFEREDIO": "1"}
    environment = at_site.for_submission(at, "discovery", given)
    profile = profiles.load("generic")
    launch.Launch(PHASES["discovery"], "x", tmp_path, str, ["n0"], 8, {}, profile, at).submit(environment)
    ((command, passed),) = asked
    assert command[-2:] == ("--comment=of sbatch", PHASES["discovery"].script)
    assert (passed["SBATCH_PARTITION"], passed["SBATCH_ACCOUNT"], passed["SBATCH_TIMELIMIT"]) == ("main", "mine", "30")
    assert passed["SBATCH_GRES"] == "gpu:h100:8"
    assert not passed.keys() & {"SBATCH_ERROR", "SLURM_UNBUFFEREDIO"}  # the reason of a job stood in that file


# ---- whether two jobs share a node

FILES = {version: FIXTURES / f"slurm/partitions-{version}.txt" for version in ("24.11", "26.05")}
BY_VERSION = {version: partitions.read(file.read_text()) for version, file in FILES.items()}


@for_each(
    *((None, True), ("main", True), ("forced", True), ("exclusive-user", True)),
    *(("oversubscribe", False), ("main,oversubscribe", False), ("oversubscribe,main", False)),
)
def test_two_jobs_share_a_node_where_every_partition_that_was_named_lets_them(named, shares):
    for known in BY_VERSION.values():
        assert partitions.share_nodes(named, known) is shares


def test_a_partition_that_gives_whole_nodes_or_racks_shares_no_node_as_slurm_26_says_it():
    """Two jobs on one node under 24.11's ExclusiveTopo=YES were seen."""
    assert partitions.share_nodes("exclusive-topo", BY_VERSION["24.11"]) is True
    for named in ("exclusive-topo", "exclusive-node"):
        assert partitions.share_nodes(named, BY_VERSION["26.05"]) is False
