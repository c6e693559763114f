"""RDMA ports, NUMA nodes and topology: trees of sysfs and texts of nvidia-smi, healthy and not."""

import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from bringup import judge
from bringup.checks import catalogue as gates
from bringup.checks import planned as plan
from bringup.evidence import facts, topology
from bringup.evidence.parsed import Parsed
from bringup.plan import profile
from bringup.records import Outcome, Run, Verdict
from runs_for_tests import FIXTURES, add_derived

sys.path.append(str(Path(__file__).resolve().parents[1] / "infrastructure-validation/probes"))
import binding
import gpus
import smi
from fabric import fabric
from facts import Facts

NODES = ["n0", "n1", "n2"]
UP = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand"}
DOWN = {**UP, "state": "1: DOWN", "phys_state": "2: Polling"}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def sysfs(root: Path, hcas: list[dict[str, str]], numa: tuple[str, ...] = ("0", "0", "1", "1")) -> Path:
    """What the kernel shows of a node with these ports, one per HCA, and a GPU at each of these NUMA nodes."""
    (root / "net/eth0").mkdir(parents=True)
    for number, port in enumerate(hcas):
        for name, text in port.items():
            write(root / f"ib/mlx5_{number}/ports/1/{name}", text)
        write(root / f"ib/mlx5_{number}/device/numa_node", "0")
    for number, node in enumerate(numa):
        for name, text in {"vendor": "0x10de", "class": "0x030200", "numa_node": node}.items():
            write(root / f"pci/0000:{number + 1}8:00.0/{name}", text)
    return root


def said(question, node: str) -> Parsed:
    """What a probe on this node tells the judge."""
    stream = io.StringIO()
    probe = Facts("inventory", stream)
    probe.at = node
    question(probe)
    probe.finish()
    parsed = facts.parse(stream.getvalue(), "raw/inventory.jsonl")
    assert parsed.problems == []
    return parsed


def seen(trees: dict[str, Path], numa_nodes: int = 2) -> Parsed:
    parsed = Parsed()
    for node, root in trees.items():
        parsed.add(said(lambda probe, root=root: fabric(probe, root / "net", root / "ib", root / "pci"), node))
        parsed.saw("discovery.numa_nodes", node, numa_nodes, "count", "e")
    add_derived(parsed)
    return parsed


def verdicts(parsed: Parsed, gate: str, phase: str = "discovery", nodes: list[str] = NODES) -> dict[str, Verdict]:
    run = Run(
        phase=phase,
        name="x",
        profile_sha256="",
        nodes=nodes,
        gpus_per_node=4,
        ranks_per_node=4,
        profile="h100-8x400g",
        planned=plan.plan(phase, nodes, 4, set()),
        not_applicable=[],
        argv=[],
        git_commit=None,
        git_dirty=None,
        slurm_job_id=None,
        slurm_restart_count=0,
        opened_at="now",
    )
    return {v.subject: v for v in judge.judge(run, profile.load("h100-8x400g"), parsed).verdicts if v.gate == gate}


def outcomes(parsed: Parsed, gate: str) -> dict[str, Outcome]:
    return {subject: verdict.outcome for subject, verdict in verdicts(parsed, gate).items()}


ALL_PASS = dict.fromkeys(NODES, Outcome.PASS)


def test_eight_active_ports_at_the_rate_pass_beside_a_slower_one_for_storage(tmp_path):
    storage = {**UP, "rate": "200 Gb/sec (4X HDR)"}
    parsed = seen({node: sysfs(tmp_path / node, [UP] * 8 + [storage]) for node in NODES})
    assert outcomes(parsed, "discovery.rdma.same") == ALL_PASS
    assert outcomes(parsed, "discovery.rdma.active") == ALL_PASS


@pytest.mark.parametrize(
    ("port", "says"),
    [
        (DOWN, "mlx5_7:1 is DOWN, Polling"),
        ({**UP, "state": "2: INIT"}, "mlx5_7:1 is INIT, LinkUp"),
        ({**UP, "rate": "200 Gb/sec (4X HDR)"}, "mlx5_7:1 runs at 200 Gb/s"),
        ({**UP, "rate": "none"}, "does not say its rate"),
    ],
)
def test_a_port_that_is_down_or_slow_fails_its_node_alone_and_is_named(tmp_path, port, says):
    parsed = seen({node: sysfs(tmp_path / node, [UP] * 7 + [port if node == "n1" else UP]) for node in NODES})
    for gate in ("discovery.rdma.active", "discovery.rdma.same"):
        assert outcomes(parsed, gate) == {**ALL_PASS, "n1": Outcome.FAIL}, gate
    verdict = verdicts(parsed, "discovery.rdma.active")["n1"]
    assert says in verdict.observed
    assert verdict.expected == "≥ 8.0 at 400Gb/s"


def test_a_node_without_its_ports_fails_and_a_fleet_without_any_is_one_that_has_none(tmp_path):
    parsed = seen({node: sysfs(tmp_path / node, [] if node == "n1" else [UP] * 8) for node in NODES})
    assert outcomes(parsed, "discovery.rdma.same") == {**ALL_PASS, "n1": Outcome.FAIL}
    assert outcomes(parsed, "discovery.rdma.active") == {**ALL_PASS, "n1": Outcome.FAIL}
    nothing = seen({node: sysfs(tmp_path / "none" / node, []) for node in NODES})
    assert {v.observed for v in verdicts(nothing, "discovery.rdma.same").values()} == {"none"}
    assert set(outcomes(nothing, "discovery.rdma.active").values()) == {Outcome.FAIL}


def test_a_port_that_cannot_be_read_is_incomplete_and_not_down(tmp_path):
    trees = {node: sysfs(tmp_path / node, [UP] * 8) for node in NODES}
    (trees["n1"] / "ib/mlx5_3/ports/1/phys_state").unlink()
    parsed = seen(trees)
    for gate in ("discovery.rdma.active", "discovery.rdma.same"):
        assert outcomes(parsed, gate) == {**ALL_PASS, "n1": Outcome.INCOMPLETE}, gate
        assert "mlx5_3:1" in str(verdicts(parsed, gate)["n1"].cause)


# ---- NUMA


def test_gpus_at_the_same_numa_nodes_everywhere_pass_and_the_odd_node_is_named(tmp_path):
    healthy = {node: sysfs(tmp_path / node, []) for node in NODES}
    assert outcomes(seen(healthy), "discovery.numa.gpu") == ALL_PASS
    healthy["n2"] = sysfs(tmp_path / "odd", [], ("0", "0", "0", "1"))
    assert outcomes(seen(healthy), "discovery.numa.gpu") == {**ALL_PASS, "n2": Outcome.FAIL}


def test_a_numa_node_that_the_firmware_does_not_tell_is_unknown_where_there_are_two(tmp_path):
    trees = {node: sysfs(tmp_path / node, [], ("-1",) * 4 if node == "n1" else ("0", "0", "1", "1")) for node in NODES}
    assert outcomes(seen(trees), "discovery.numa.gpu")["n1"] is Outcome.INCOMPLETE
    single = {node: sysfs(tmp_path / "single" / node, [], ("-1",) * 4) for node in NODES}
    assert outcomes(seen(single, numa_nodes=1), "discovery.numa.gpu") == ALL_PASS
    assert set(
        outcomes(
            seen({node: sysfs(tmp_path / "no gpu" / node, [], ()) for node in NODES}), "discovery.numa.gpu"
        ).values()
    ) == {Outcome.INCOMPLETE}


def near(tmp_path: Path, monkeypatch, at: str, mask: set[int], nodes: int = 2) -> Verdict:
    """The verdict about a task whose GPU sits at this NUMA node and that may run on these CPUs: 0-3 at node 0, 4-7 at node 1."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: mask)
    write(tmp_path / "driver/0000:18:00.0/information", "Model: \t H100\nGPU UUID: \t GPU-a\nDevice Minor: \t 0")
    write(tmp_path / "devices/0000:18:00.0/numa_node", at)
    for number in range(nodes):
        write(tmp_path / f"numa/node{number}/cpulist", f"{number * 4}-{number * 4 + 3}")
    monkeypatch.setattr(gpus.numa_node, "__defaults__", (tmp_path / "driver", tmp_path / "devices"))
    parsed = said(lambda probe: binding.near_gpu(probe, "GPU-a", tmp_path / "numa"), "n0")
    return verdicts(parsed, "smoke.cpu.near_gpu", "smoke")["n0"]


def test_a_task_on_the_cpus_beside_its_gpu_passes(tmp_path, monkeypatch):
    assert near(tmp_path, monkeypatch, "1", {4, 5}).outcome is Outcome.PASS
    assert near(tmp_path / "single", monkeypatch, "-1", {0}, nodes=1).outcome is Outcome.PASS


def test_a_task_on_the_cpus_of_the_other_socket_is_a_warning_that_names_gpu_and_node(tmp_path, monkeypatch):
    verdict = near(tmp_path, monkeypatch, "1", {3, 4})
    assert verdict.outcome is Outcome.WARN
    assert verdict.observed == "0.5 (GPU-a sits at NUMA node 1, 1 of 2 CPUs too)"


@pytest.mark.parametrize("at", ["-1", "7"])
def test_a_gpu_whose_numa_node_is_not_told_is_incomplete(tmp_path, monkeypatch, at):
    assert near(tmp_path, monkeypatch, at, {0}).outcome is Outcome.INCOMPLETE


def test_a_placeholder_and_an_unknown_gpu_are_unknown():
    for gpu in ("nvidia0 (char 195:0)", None):
        parsed = said(lambda probe, gpu=gpu: binding.near_gpu(probe, gpu), "n0")
        assert [one.value for one in parsed.observations if one.quantity == "smoke.cpu.near_gpu"] == [None]
    assert binding.cpus("0-2,8\n") == {0, 1, 2, 8}


# ---- which GPU an index means


def bound_to(tmp_path: Path, monkeypatch, visible: str, addresses: dict[int, str], minors: int = 4) -> object:
    """The GPU that a task with this CUDA_VISIBLE_DEVICES would compute on. addresses: minor -> PCI address, as the driver tells."""
    for minor, address in addresses.items():
        write(tmp_path / f"driver/{address}/information", f"GPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}")
    for minor in range(minors):
        write(tmp_path / f"nvidia{minor}", "")
    monkeypatch.setattr(gpus, "DRIVER", tmp_path / "driver")
    monkeypatch.setattr(gpus, "devices", lambda: {minor: tmp_path / f"nvidia{minor}" for minor in range(minors)})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    parsed = said(lambda probe: binding.bound(probe, "n0/task0", gpus.openable()[0]), "n0")
    return next(one.value for one in parsed.observations if one.quantity == "smoke.binding.gpu")


CROSSED = {0: "0000:c8:00.0", 1: "0001:18:00.0", 2: "0000:18:00.0", 3: "0000:9a:00.0"}


@pytest.mark.parametrize(
    ("visible", "gpu"), [("0", "GPU-2"), ("1", "GPU-3"), ("2", "GPU-0"), ("3", "GPU-1"), ("GPU-1", "GPU-1")]
)
def test_an_index_counts_gpus_by_pci_address_as_cuda_does_and_not_by_minor(tmp_path, monkeypatch, visible, gpu):
    assert bound_to(tmp_path, monkeypatch, visible, CROSSED) == gpu


def test_gpus_of_which_the_driver_does_not_tell_every_address_are_counted_by_minor(tmp_path, monkeypatch):
    told = {minor: address for minor, address in CROSSED.items() if minor != 3}
    assert bound_to(tmp_path, monkeypatch, "0", told) == "GPU-0"
    assert bound_to(tmp_path / "other", monkeypatch, "0", {0: "not-an-address", 1: "0000:18:00.0"}, minors=2) == "GPU-0"


# ---- nvidia-smi topo -m

TEXTS = {path.stem.removeprefix("topo-"): path.read_text() for path in FIXTURES.glob("nvidia-smi/topo-*.txt")}


def topo(texts: dict[str, str]) -> Parsed:
    parsed = Parsed()
    for node, text in texts.items():
        parsed.add(topology.parse(text, f"raw/nvidia-smi-topo-{node}.txt", node))
    return parsed


def test_a_healthy_node_of_eight_has_its_nics_beside_its_gpus():
    parsed = topo(dict.fromkeys(NODES, TEXTS["h100-8"]))
    assert parsed.problems == []
    assert outcomes(parsed, "discovery.topology") == outcomes(parsed, "discovery.topology.nic") == ALL_PASS
    whole = str(verdicts(parsed, "discovery.topology")["n0"].observed)
    assert whole.startswith("8 GPUs, NV18 between them; nearest NICs: GPU0 mlx5_0 PXB, GPU1 mlx5_3 PXB, ")


def test_gpus_of_a_machine_with_pcie_alone_reach_their_nic_over_the_host_bridge_or_farther():
    parsed = topo(dict.fromkeys(NODES, TEXTS["pcie"]))
    assert set(outcomes(parsed, "discovery.topology.nic").values()) == {Outcome.FAIL}
    assert verdicts(parsed, "discovery.topology.nic")["n0"].observed == "SYS (GPU2)"
    assert "4 GPUs, NODE/PHB/SYS between them" in verdicts(parsed, "discovery.topology")["n0"].observed


def test_a_node_with_a_link_or_a_nic_less_is_the_odd_one():
    for old, new in (("NV18", "NV17"), ("PXB", "SYS")):
        parsed = topo({**dict.fromkeys(NODES, TEXTS["h100-8"]), "n1": TEXTS["h100-8"].replace(old, new, 1)})
        assert outcomes(parsed, "discovery.topology") == {**ALL_PASS, "n1": Outcome.FAIL}, new


@pytest.mark.parametrize(
    "text", [TEXTS["h100-8"][: len(TEXTS["h100-8"]) // 3], TEXTS["h100-8"].partition("NIC Legend")[0]]
)
def test_half_a_table_is_incomplete_and_said(text):
    parsed = topo({**dict.fromkeys(NODES, TEXTS["h100-8"]), "n1": text})
    assert "cut off" in parsed.problems[0]
    for gate in ("discovery.topology", "discovery.topology.nic"):
        assert outcomes(parsed, gate) == {**ALL_PASS, "n1": Outcome.INCOMPLETE}, gate


@pytest.mark.parametrize("text", ["", "No devices were found\n"])
def test_an_empty_answer_is_a_problem_and_proves_nothing(text):
    parsed = topo({"n0": text})
    assert parsed.problems == ["raw/nvidia-smi-topo-n0.txt: holds no table of GPUs"]
    assert set(outcomes(parsed, "discovery.topology").values()) == {Outcome.INCOMPLETE}


def test_gpus_without_any_nic_are_told_as_such():
    parsed = topo({"n0": "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPHB\t0-7\t0\nGPU1\tPHB\t X \t0-7\t0\n"})
    assert [one.value for one in parsed.observations] == ["2 GPUs, PHB between them; nearest NICs: none", None]


def test_texts_of_nvidia_smi_are_kept_whole_and_an_absent_tool_is_said():
    kept: dict[str, str] = {}

    def run(command, **_):
        if command[1] == "topo":
            return SimpleNamespace(stdout=TEXTS["pcie"])
        raise subprocess.CalledProcessError(9, command, output="", stderr="NVIDIA-SMI has failed\n")

    parsed = said(lambda probe: smi.keep_texts(probe, lambda name, text: kept.update({name: text}), run), "n0")
    assert kept == {"topo": TEXTS["pcie"]}
    assert [(one.quantity, one.why) for one in parsed.observations if one.value is None] == [
        ("discovery.nvidia_smi.q", "nvidia-smi: NVIDIA-SMI has failed")
    ]

    def absent(command, **_):
        raise FileNotFoundError(command[0])

    parsed = said(lambda probe: smi.keep_texts(probe, kept.update, absent), "n0")
    assert {one.why for one in parsed.observations if one.value is None} == {"nvidia-smi is not installed"}


def test_every_gate_of_the_fabric_is_seen_to_fail_here():
    mine = {
        gate.id
        for gate in gates.of_phase("discovery")
        if gate.id.startswith(("discovery.rdma", "discovery.numa", "discovery.topo"))
    }
    text = Path(__file__).read_text()
    assert len(mine) == 5
    assert all(f'"{gate}"' in text for gate in mine)
