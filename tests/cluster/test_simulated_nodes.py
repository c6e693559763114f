"""A cluster whose GPUs and RDMA ports are simulated: faults are found on their own GPU, and a new boot is healthy."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bringup.kernel.records import Mark, Outcome, read_record
from bringup.kernel.results import PLAYBOOK
from bringup.report.campaigns import Playbook
from harness import CHECKOUT, Cluster, running_cluster
from loops import case_for_each
from playbook import playbook

pytestmark = pytest.mark.cluster
INVENTORY = CHECKOUT / "infrastructure-validation/probes/inventory.py"
PYTHON = CHECKOUT / ".venv/bin/python"
GPU_1 = "GPU-00000000-0000-8575-9a7a-461ee90213dc"  # of n1


def make(cluster: Cluster, *verb: str) -> None:
    done = cluster.run(*verb)
    assert done.returncode == 0, done.stderr


def test_status_gives_back_the_nvml_that_an_ldconfig_took_and_says_so(simulated: Cluster):
    """Linux ends a mount on a file that is replaced on the machine; here the mount is ended by hand."""
    make(simulated, "on", "n1", "umount", "/etc/ld.so.cache")
    assert "n1 had lost NVML" in simulated.run("status").stdout
    assert "libnvidia-ml" in simulated.run("on", "n1", "ldconfig", "-p").stdout
    assert "lost" not in simulated.run("status").stdout


OWN_CHECK = """sections:
- title: The GPUs have another firmware than this site wants
  action: configure
  checks:
    site.gpu.vbios:
      proves: all GPUs have the VBIOS that this site installs
      command: nvidia-smi --query-gpu=vbios_version --format=csv,noheader | sort -u | xargs
      unit: text
      one_of: [96.00.74.00.01]
"""


def test_faults_of_a_node_are_found_together_and_a_boot_ends_them(simulated: Cluster):
    before = {path: path.read_bytes() for path in (Path("/etc/ld.so.cache"),)}
    try:
        for fault in ("gpu n1 1 ecc 2", "gpu n1 0 nvlink 5 down", "gpu n1 1 throttle", "gpu n1 1 xid 79"):
            make(simulated, *fault.split())
        for fault in ("port n1 mlx5_3 flap 23", "port n1 mlx5_4 down"):
            make(simulated, *fault.split())
        with playbook(simulated) as book:
            done = book.run("discovery")
            assert done.returncode == 1, done.stdout
            bad = [v for v in book.verdicts("discovery").verdicts if v.outcome is not Outcome.PASS]
        observed = {v.gate: v.observed for v in bad}
        gates = ("gpu.ecc", "gpu.nvlinks", "gpu.slowdown", "kernel_log.xid", "rdma.flaps", "rdma.active", "rdma.same")
        assert {(v.gate, v.subject) for v in bad} == {(f"discovery.{gate}", "n1") for gate in gates}
        assert observed["discovery.gpu.ecc"] == f"2 ({GPU_1})"
        assert observed["discovery.gpu.nvlinks"].startswith("17 (GPU-")
        assert observed["discovery.kernel_log.xid"].startswith("1 (1 × Xid 79 on PCI:0000:43:00, last at 20")
        assert observed["discovery.kernel_log.xid"].endswith("Z: GPU has fallen off the bus; reboot the node)")
        assert observed["discovery.rdma.flaps"] == "23 (mlx5_3:1: link_downed 23)"
        assert observed["discovery.rdma.active"] == "7 (mlx5_4:1 is DOWN, Disabled)"
    finally:
        simulated.off("n1")
        simulated.boot("n1")
        simulated.wait_idle()
    # a site's own check gets the node's GPUs: without them nvidia-smi lists none, and it was incomplete
    (simulated.shared / "checks.yaml").write_text(OWN_CHECK)
    site = simulated.shared / "own.site.yaml"
    site.write_text(f"schema_version: 1\nname: own\ndescription: own check\nchecks: {simulated.shared}/checks.yaml\n")
    with playbook(simulated) as book:
        done = book.run("discovery", env={"BRINGUP_SITE": str(site)})
        assert done.returncode == 0, done.stdout
        own = [v for v in book.verdicts("discovery").verdicts if v.gate == "site.gpu.vbios"]
        assert {(v.subject, v.outcome) for v in own} == {(node, Outcome.PASS) for node in ("n0", "n1", "n2")}
        marks = {answer.question: answer for answer in read_record(book.own_folder / PLAYBOOK, Playbook).answers}
    assert marks[1].mark is Mark.NOT_PROVEN
    assert "the GPUs are simulated: their UUIDs say so" in marks[1].reservations[0]
    assert {path: path.read_bytes() for path in before} == before
    assert not Path("/run/bringup-simulated").exists()


def test_what_healthy_nodes_lack_is_no_fault_and_no_gap(start_cluster: Callable[..., Cluster]):
    """A management NIC without counters, and no memory controller: gates of every node were incomplete."""
    with playbook(start_cluster("--nodes", "2", "--simulate", "h100+management-nic+virtual")) as book:
        done = book.run("discovery", "node_sweep", env={"BRINGUP_LOAD_S": "3"})
        assert done.returncode == 0, done.stdout
        observed = {v.gate: v.observed for v in book.verdicts("discovery").verdicts}
        under_load = {v.gate: v.observed for v in book.verdicts("node_sweep").verdicts}
    assert observed["discovery.rdma.flaps"].endswith("bnxt_re0:1 has no such)")
    assert "no ue_count: a virtual machine sees no memory controller" in under_load["load.node_faults"]


def test_where_the_kernel_log_is_closed_nvml_says_which_xids_came_under_load(start_cluster: Callable[..., Cluster]):
    """n1 reports no events, as a virtual machine. What n0 has had before the load is not known, and no fault of it."""
    running = start_cluster("--nodes", "2", "--simulate", "h100")
    for node in ("n0", "n1"):
        make(running, "on", node, "mv", "/dev/kmsg", "/dev/kmsg.away")
    make(running, "gpu", "n0", "1", "xid", "79")
    make(running, "gpu", "n1", "gpu.events=error:3")
    with playbook(running) as book:
        done = book.run("node_sweep", env={"BRINGUP_LOAD_S": "3"})
        assert done.returncode == 2, done.stdout
        under_load = {v.subject: v for v in book.verdicts("node_sweep").verdicts if v.gate == "load.kernel_log"}
    assert under_load["n0"].outcome is Outcome.PASS
    assert "NVML's events of 2 GPUs were watched for" in under_load["n0"].observed
    assert under_load["n1"].outcome is Outcome.INCOMPLETE
    assert (under_load["n1"].cause or "").endswith("No such file or directory; NVML's events: Not Supported")


def test_a_job_sees_the_simulated_gpus_that_it_was_granted(simulated: Cluster):
    done = simulated.sh("srun", "--nodes=1", "--gpus-per-node=1", PYTHON, INVENTORY)
    facts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [fact["value"] for fact in facts if fact.get("quantity") == "discovery.gpu.answering"] == [1]


@case_for_each(
    ("gpu n1 2 ecc 1", "no GPU 2; the node has GPU 0 to 1"),  # tests/simulated has the others
    ("gpu n3 repair", "gpu wants a node from n0 to n2"),
    ("up --nodes 3 --gpus 2", "up already with another shape (3 nodes x 2 GPUs (simulated h100)"),
    # of no cluster, and of the one with placeholders
    ("up --simulate h9000", ", h200, got 'h9000'"),
    ("up --simulate h100 --gpus 9", "a node has at most 8 GPUs, got --gpus 9"),
    ("up --simulate", "--simulate wants a GPU model"),
    ("up --simulate h100+green", ", virtual, got 'green'"),
    ("gpu n1 1 ecc 1", "this cluster has placeholder GPUs; start one with 'cluster up --simulate MODEL'"),
)
def test_a_wrong_verb_is_refused_in_one_line(simulated, cluster, verb, why):
    none = Cluster(Path("/tmp/bringup-test-not-started"))
    of = none if "--simulate" in verb else cluster if "placeholder" in why else simulated
    done = of.run(*verb.split())
    assert done.returncode == 2
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


# --- a cluster whose programs compute on the simulated GPUs, through CUDA


SEES = "import torch; print(*(torch.cuda.get_device_properties(i).uuid for i in range(torch.cuda.device_count())))"


@pytest.fixture(scope="module")
def with_cuda() -> Iterator[Cluster]:
    with running_cluster("--nodes", "1", "--simulate", "h100", "--cuda") as running:
        yield running


def seen(running: Cluster, *options: str) -> list[str]:
    """UUIDs of the devices that each task has, a line for each task."""
    done = running.sh("srun", *options, PYTHON, "-c", SEES, timeout=120)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_a_task_computes_on_the_gpu_that_it_was_granted(with_cuda: Cluster):
    driver = with_cuda.on("n0", "nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader").stdout.split()
    uuids = sorted(line.removeprefix("GPU-") for line in driver)
    assert len(uuids) == 2 and all(uuid.startswith("00000000-0000-") for uuid in uuids)
    assert seen(with_cuda, "--ntasks=2", "--gpus-per-task=1") == uuids
    assert [sorted(task.split()) for task in seen(with_cuda, "--ntasks=1", "--gpus=2")] == [uuids]
    assert seen(with_cuda, "--ntasks=1") == [""]


def test_the_environment_itself_is_untouched(with_cuda: Cluster):
    has = "import sys; print('cuda_stand_in' in sys.modules)"
    assert with_cuda.sh(PYTHON, "-c", has).stdout == "False\n"
    assert with_cuda.on("n0", PYTHON, "-c", has).stdout == "True\n"
    for file in (CHECKOUT / ".venv").glob("lib/python3*/site-packages/*.pth"):
        assert "cuda_stand_in" not in file.read_text(), file


@pytest.mark.timeout(620)
def test_one_node_passes_on_cuda_and_is_rehearsed(with_cuda: Cluster):
    with playbook(with_cuda) as book:
        phases = ("smoke", "node_sweep", "run_1gpu", "run_ddp_1node")
        done = book.run(*phases, env={"BRINGUP_LOAD_S": "3"}, timeout=560)
        assert done.returncode == 0, done.stdout
        devices = {v.gate: v.observed for phase in ("smoke", "node_sweep") for v in book.verdicts(phase).verdicts}
        marks = {answer.question: answer for answer in read_record(book.own_folder / PLAYBOOK, Playbook).answers}
    assert devices["smoke.compute.device"] == "cuda" and devices["sweep.device"].startswith("cuda (GPU-00000000-0000-")
    assert marks[1].mark is Mark.NOT_PROVEN and "their UUIDs say so" in marks[1].reservations[0]
