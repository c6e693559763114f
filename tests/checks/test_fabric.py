"""RDMA ports, NUMA nodes and topology: trees of sysfs and texts of nvidia-smi, healthy and not."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import hca
import imex
import inventory
import pytest
import smi
from bringup import judge
from bringup.derive.blame import blame
from bringup.derive.fabric import HIDDEN
from bringup.evidence import topology
from bringup.evidence.parsed import Parsed, Seen
from bringup.plan import profile
from bringup.records import Action, Outcome, Verdict
from bringup.report import drain
from fabric import COUNTERS, fabric, uses_rdma
from factory import a_run, judged_of
from loops import for_each
from probing import told_by
from runs_for_tests import FIXTURES, about, add_derived
from showing import shows_failing
from simulated_tools import on_path

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
        for name in (counter for names in COUNTERS.values() for counter in names):
            write(root / f"ib/mlx5_{number}/ports/1/counters/{name}", "0")
    for number, node in enumerate(numa):
        for name, text in {"vendor": "0x10de", "class": "0x030200", "numa_node": node}.items():
            write(root / f"pci/0000:{number + 1}8:00.0/{name}", text)
    return root


def seen(trees: dict[str, Path], numa_nodes: int = 2) -> Parsed:
    parsed = Parsed()
    for node, root in trees.items():
        parsed.add(told_by(lambda probe, root=root: fabric(probe, root / "net", root / "ib", root / "pci"), node))
        parsed.saw("discovery.numa_nodes", node, numa_nodes, "count", "e")
    add_derived(parsed)
    return parsed


def verdicts(parsed: Parsed, gate: str, phase: str = "discovery", nodes: list[str] = NODES) -> dict[str, Verdict]:
    run = a_run(phase, nodes, gpus=4, profile="h100-8x400g")
    return about(gate, parsed, run)


TWO = ["n0", "n1"]


def test_of_two_nodes_the_one_whose_port_is_down_is_the_odd_one(tmp_path):
    """Both were accused, and nothing went on with the healthy one."""
    healthy, unhealthy = sysfs(tmp_path / "n0", [UP] * 8), sysfs(tmp_path / "n1", [UP] * 7 + [DOWN])
    by_gate = verdicts(seen({"n0": healthy, "n1": unhealthy}), "discovery.rdma.same", nodes=TWO)
    assert by_gate["n0"].outcome is Outcome.PASS
    assert by_gate["n1"].outcome is Outcome.FAIL
    assert (by_gate["n1"].cause or "").startswith("n0 has mlx5_0:1 mlx5_1:1")


def test_of_two_nodes_that_differ_without_a_fault_of_their_own_nobody_says_which_is_right(tmp_path):
    eight_ports, other = sysfs(tmp_path / "n0", [UP] * 8), sysfs(tmp_path / "n1", [UP] * 9)
    by_gate = verdicts(seen({"n0": eight_ports, "n1": other}), "discovery.rdma.same", nodes=TWO)
    assert {verdict.outcome for verdict in by_gate.values()} == {Outcome.FAIL}
    assert all("and no majority says which is right" in (verdict.cause or "") for verdict in by_gate.values())


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
        ({**UP, "rate": "4.0.0 Gb/sec (4X NDR)"}, "does not say its rate"),
    ],
)
@shows_failing("discovery.rdma.active")
def test_a_port_that_is_down_or_slow_fails_its_node_alone_and_is_named(tmp_path, port, says):
    parsed = seen({node: sysfs(tmp_path / node, [UP] * 7 + [port if node == "n1" else UP]) for node in NODES})
    for gate in ("discovery.rdma.active", "discovery.rdma.same"):
        assert outcomes(parsed, gate) == {**ALL_PASS, "n1": Outcome.FAIL}, gate
    verdict = verdicts(parsed, "discovery.rdma.active")["n1"]
    assert says in verdict.observed
    assert verdict.expected == "≥ 8 at 400Gb/s"


@shows_failing("discovery.rdma.active")
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


def test_a_port_that_was_counted_and_not_described_is_not_up(tmp_path):
    parsed = seen({node: sysfs(tmp_path / node, [UP] * 8) for node in NODES})
    parsed.observations = [
        fact.model_copy(update={"value": 9})
        if (fact.quantity, fact.subject) == ("discovery.rdma.ports", "n1")
        else fact
        for fact in parsed.observations
        if not fact.quantity.startswith("discovery.rdma.a") and fact.quantity != "discovery.rdma.same"
    ]
    for gate in ("discovery.rdma.active", "discovery.rdma.same"):
        assert outcomes(add_derived(parsed), gate)["n1"] is Outcome.INCOMPLETE, gate
        assert verdicts(parsed, gate)["n1"].cause == "not found out: 8 of 9 ports are described", gate


def storage_beside(tmp_path: Path, layer: str = "InfiniBand", dead: bool = False) -> dict[str, Path]:
    """Nine ports of one rate, the last one for storage; dead: the third one, of the fabric, is down."""
    ports = [UP, UP, DOWN if dead else UP, *[UP] * 5, {**UP, "link_layer": layer}]
    root = tmp_path / str(len(list(tmp_path.iterdir())))
    return {node: sysfs(root / node, ports) for node in NODES}


@shows_failing("discovery.rdma.active")
def test_a_port_for_storage_of_the_same_rate_does_not_stand_in_for_a_dead_one(tmp_path, monkeypatch):
    """All nodes are alike, so that no comparison finds it: 8 of the 9 ports are up."""
    gate = "discovery.rdma.active"
    for names in ("=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7", "^mlx5_8"):
        monkeypatch.setenv("NCCL_IB_HCA", names)
        assert outcomes(seen(storage_beside(tmp_path)), gate) == ALL_PASS
        sick = verdicts(seen(storage_beside(tmp_path, dead=True)), gate)
        assert {verdict.outcome for verdict in sick.values()} == {Outcome.FAIL}
        assert f"mlx5_8:1 is left out by NCCL_IB_HCA={names}" in sick["n1"].observed
    monkeypatch.delenv("NCCL_IB_HCA")
    by_layer = verdicts(seen(storage_beside(tmp_path, "Ethernet", dead=True)), gate)
    assert {verdict.outcome for verdict in by_layer.values()} == {Outcome.FAIL}
    assert "mlx5_8:1 is Ethernet" in by_layer["n1"].observed


def test_names_of_ports_are_taken_as_nccl_takes_them(monkeypatch, tmp_path):
    for names, port, allowed in (
        ("mlx5", "mlx5_3:1", True),
        ("mlx5_1", "mlx5_10:1", True),
        ("=mlx5_1", "mlx5_10:1", False),
        ("=mlx5_1,mlx5_10", "mlx5_10:1", True),
        ("mlx5_3:2", "mlx5_3:1", False),
        ("^mlx5_3", "mlx5_3:1", False),
        ("^=mlx5_3", "mlx5_30:1", True),
    ):
        assert hca.allows(names, port) is allowed, (names, port)
    monkeypatch.setenv("NCCL_CONF_FILE", str(tmp_path / "nccl.conf"))
    (tmp_path / "nccl.conf").write_text("# ours\nNCCL_DEBUG=WARN\nNCCL_IB_HCA=mlx5_0,mlx5_1\n")
    assert hca.named() == "mlx5_0,mlx5_1"
    monkeypatch.setenv("NCCL_IB_HCA", "mlx5_7")
    assert hca.named() == "mlx5_7"


@pytest.mark.parametrize(
    ("counter", "count", "gate"),
    [("link_downed", 23, "discovery.rdma.flaps"), ("symbol_error", 250000, "discovery.rdma.errors")],
)
def test_the_worst_port_counts_and_is_named_with_its_counter(tmp_path, counter, count, gate):
    trees = {node: sysfs(tmp_path / node, [UP] * 8) for node in NODES}
    write(trees["n1"] / f"ib/mlx5_3/ports/1/counters/{counter}", str(count))
    parsed = seen(trees)
    assert outcomes(parsed, gate) == {**ALL_PASS, "n1": Outcome.WARN}
    assert f"mlx5_3:1: {counter} {count}" in verdicts(parsed, gate)["n1"].observed


def test_a_slower_nic_whose_driver_counts_nothing_is_left_out_and_named_and_a_fast_one_is_incomplete(tmp_path):
    """The folder is missing for bnxt_re and irdma: a NIC for people made both gates of every node incomplete."""
    slow = {**UP, "rate": "25 Gb/sec (1X EDR)"}
    trees = {node: sysfs(tmp_path / node, [UP] * 8 + [slow]) for node in NODES}
    for node, device in (("n0", "mlx5_8"), ("n1", "mlx5_8"), ("n2", "mlx5_3")):
        shutil.rmtree(trees[node] / f"ib/{device}/ports/1/counters")
    parsed = seen(trees)
    for gate in ("discovery.rdma.flaps", "discovery.rdma.errors"):
        assert outcomes(parsed, gate) == {**ALL_PASS, "n2": Outcome.INCOMPLETE}, gate
        assert "mlx5_8:1 has no such" in verdicts(parsed, gate)["n0"].observed
        assert "mlx5_3:1" in str(verdicts(parsed, gate)["n2"].cause)


def test_a_port_without_counters_is_incomplete_and_a_node_without_a_port_has_lost_none(tmp_path):
    trees = {node: sysfs(tmp_path / node, [] if node == "n2" else [UP] * 2) for node in NODES}
    (trees["n1"] / "ib/mlx5_1/ports/1/counters/link_downed").unlink()
    parsed = seen(trees)
    assert outcomes(parsed, "discovery.rdma.flaps") == {**ALL_PASS, "n1": Outcome.INCOMPLETE}
    assert "mlx5_1:1" in str(verdicts(parsed, "discovery.rdma.flaps")["n1"].cause)
    assert "there is none" in verdicts(parsed, "discovery.rdma.flaps")["n2"].observed


# ---- NUMA


@shows_failing("discovery.numa.gpu")
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


# ---- nvidia-smi topo -m

TEXTS = {path.stem.removeprefix("topo-"): path.read_text() for path in FIXTURES.glob("nvidia-smi/topo-*.txt")}


def topo(texts: dict[str, str]) -> Parsed:
    parsed = Parsed()
    for node, text in texts.items():
        parsed.add(topology.parse(text, f"raw/nvidia-smi-topo-{node}.txt", node))
    return add_derived(parsed)


def test_a_healthy_node_of_eight_has_its_nics_beside_its_gpus():
    parsed = topo(dict.fromkeys(NODES, TEXTS["h100-8"]))
    assert parsed.problems == []
    assert outcomes(parsed, "discovery.topology") == outcomes(parsed, "discovery.topology.nic") == ALL_PASS
    whole = str(verdicts(parsed, "discovery.topology")["n0"].observed)
    assert whole.startswith("8 GPUs, NV18 between them; nearest NICs: GPU0 mlx5_0 PXB, GPU1 mlx5_3 PXB, ")


def test_evidence_of_a_topology_names_the_line_that_grep_gives():
    text = "10%\r20%\u2028\x0b\n" + TEXTS["h100-8"]
    row = 2 + next(number for number, line in enumerate(TEXTS["h100-8"].split("\n")) if "GPU0" in line)
    assert {observation.evidence for observation in topology.parse(text, "f", "n0").observations} == {f"f:{row}"}


@shows_failing("discovery.topology.nic")
def test_gpus_of_a_machine_with_pcie_alone_reach_their_nic_over_the_host_bridge_or_farther():
    parsed = topo(dict.fromkeys(NODES, TEXTS["pcie"]))
    assert set(outcomes(parsed, "discovery.topology.nic").values()) == {Outcome.FAIL}
    assert verdicts(parsed, "discovery.topology.nic")["n0"].observed == "SYS (GPU2)"
    assert "4 GPUs, NODE/PHB/SYS between them" in verdicts(parsed, "discovery.topology")["n0"].observed


def beside(tmp_path: Path, dead: str, text: str, names: str = "") -> dict[str, Verdict]:
    """discovery.topology.nic of a node with these paths, on which a NIC is down; names: NCCL_IB_HCA."""
    nics = [match[1] for match in re.finditer(r"NIC\d+: (\S+)", text)]
    parsed = topology.parse(text, "raw/topo", "n0")
    root = tmp_path / f"{dead}{names.strip('^=')}"
    for name in nics:
        for file, says in (DOWN if name == dead else UP).items():
            write(root / f"ib/{name}/ports/1/{file}", says)
    (root / "net/eth0").mkdir(parents=True)
    parsed.add(told_by(lambda probe: fabric(probe, root / "net", root / "ib", root / "pci"), "n0"))
    return verdicts(add_derived(parsed), "discovery.topology.nic", nodes=["n0"])


@shows_failing("discovery.topology.nic")
def test_a_gpu_whose_nic_is_dead_has_none_beside_it(tmp_path, monkeypatch):
    """Any NIC in the table counted, a dead one and that of another GPU as well."""
    h100 = TEXTS["h100-8"]
    assert beside(tmp_path, "none", h100)["n0"].outcome is Outcome.PASS
    sick = beside(tmp_path, "mlx5_0", h100)["n0"]
    assert (sick.outcome, sick.observed) == (Outcome.FAIL, "NODE (GPU0; mlx5_0 is DOWN)")
    legend = "NIC Legend:\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n  NIC2: mlx5_2\n"
    shared = (  # two GPUs and two NICs below one switch, and a NIC for storage as near as they are
        "\tGPU0\tGPU1\tNIC0\tNIC1\tNIC2\tCPU Affinity\nGPU0\tX\tNV12\tPXB\tPXB\tNODE\nGPU1\tNV12\tX\tPXB\tPXB\tNODE\n"
        "NIC0\tPXB\tPXB\tX\tPIX\tNODE\nNIC1\tPXB\tPXB\tPIX\tX\tNODE\nNIC2\tNODE\tNODE\tNODE\tNODE\tX\n" + legend
    )
    assert beside(tmp_path, "none of them", shared)["n0"].outcome is Outcome.PASS
    assert beside(tmp_path, "mlx5_1", shared)["n0"].observed == "NODE (GPU1; mlx5_1 is DOWN)"
    monkeypatch.setenv("NCCL_IB_HCA", "^mlx5_1")
    assert beside(tmp_path, "mlx5_0", shared, "^mlx5_1")["n0"].outcome is Outcome.FAIL


def test_a_nic_beside_a_gpu_is_not_up_where_nobody_knows_its_state():
    parsed = topology.parse(TEXTS["h100-8"], "raw/topo", "n0")
    nics = re.findall(r"NIC\d+: (\S+)", TEXTS["h100-8"])
    for name in nics:
        state = None if name == "mlx5_0" else UP["state"]
        parsed.saw("discovery.rdma.state", f"n0/{name}:1", state, "text", "e", None if state else "no answer")
    parsed.saw("discovery.rdma.ports", "n0", len(nics), "count", "e")
    nic = verdicts(add_derived(parsed), "discovery.topology.nic", nodes=["n0"])["n0"]
    assert (nic.outcome, nic.cause) == (Outcome.INCOMPLETE, "not found out: mlx5_0: no answer")


def test_a_virtual_machine_that_hides_pcie_is_incomplete_and_stops_nothing():
    """Azure's ND shows every NIC across the host bridge: each healthy node failed, and all stopped."""
    hidden = TEXTS["h100-8"].replace("PXB", "NODE")
    for virtual, outcome in ((True, Outcome.INCOMPLETE), (False, Outcome.FAIL)):
        parsed = topology.parse(hidden, "raw/topo", "n0")
        parsed.saw("inventory.virtual", "n0", virtual, "flag", "e")
        verdict = verdicts(add_derived(parsed), "discovery.topology.nic", nodes=["n0"])["n0"]
        assert verdict.outcome is outcome
        assert judge.stops(verdict) is (outcome is Outcome.FAIL)
    assert "NCCL_TOPO_FILE" in HIDDEN


def test_numa_nodes_that_the_firmware_hides_stop_nothing(tmp_path):
    trees = {node: sysfs(tmp_path / node, [], ("-1",) * 4) for node in NODES}
    by_node = verdicts(seen(trees), "discovery.numa.gpu")
    assert {verdict.outcome for verdict in by_node.values()} == {Outcome.INCOMPLETE}
    assert not any(judge.stops(verdict) for verdict in by_node.values())


@shows_failing("discovery.topology")
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
    assert [fact.value for fact in parsed.observations][:2] == ["2 GPUs, PHB between them; nearest NICs: none", None]


def test_texts_of_nvidia_smi_are_kept_whole_and_an_absent_tool_is_said():
    kept: dict[str, str] = {}

    def run(command, **_):
        if command[1] == "topo":
            return SimpleNamespace(stdout=TEXTS["pcie"])
        raise subprocess.CalledProcessError(9, command, output="", stderr="NVIDIA-SMI has failed\n")

    parsed = told_by(lambda probe: smi.keep_texts(probe, lambda name, text: kept.update({name: text}), run), "n0")
    assert kept == {"topo": TEXTS["pcie"]}
    assert [(fact.quantity, fact.why) for fact in parsed.observations if fact.value is None] == [
        ("discovery.nvidia_smi.q", "nvidia-smi: NVIDIA-SMI has failed")
    ]

    def absent(command, **_):
        raise FileNotFoundError(command[0])

    parsed = told_by(lambda probe: smi.keep_texts(probe, kept.update, absent), "n0")
    assert {fact.why for fact in parsed.observations if fact.value is None} == {"nvidia-smi is not installed"}


@shows_failing("discovery.memlock")
def test_little_locked_memory_fails():
    parsed = Parsed()
    for node, limit in (("n0", "unlimited"), ("n1", "65536"), ("n2", "unlimited")):
        parsed.saw("discovery.memlock", node, limit, "text", "e")
    assert outcomes(parsed, "discovery.memlock") == {**ALL_PASS, "n1": Outcome.FAIL}


def test_little_locked_memory_is_no_fault_where_no_rdma_port_is_active(tmp_path, monkeypatch):
    """A limit of 8 MiB is what a login shell of a stock system has, and Slurm hands it on."""
    memlock = {}
    state = tmp_path / "mlx5_0/ports/1/state"
    state.parent.mkdir(parents=True)
    for text in ("4: ACTIVE", "1: DOWN"):
        state.write_text(f"{text}\n")
        monkeypatch.setattr(inventory, "uses_rdma", lambda: uses_rdma(tmp_path))
        monkeypatch.setattr(inventory.resource, "getrlimit", lambda limit: (8388608, 8388608))
        facts = told_by(inventory.limits, "n0").observations
        memlock[text] = next(fact.value for fact in facts if fact.quantity == "discovery.memlock")
    assert memlock == {"4: ACTIVE": "8388608", "1: DOWN": "no RDMA"}
    parsed = Parsed()
    for node in ("n0", "n1", "n2"):
        parsed.saw("discovery.memlock", node, memlock["1: DOWN"], "text", "e")
    assert outcomes(parsed, "discovery.memlock") == ALL_PASS


def test_the_hard_limit_of_open_files_is_judged(monkeypatch):
    """A soft limit of 1024 is Slurm's and the distributions' default; programs raise it."""
    monkeypatch.setattr(inventory.resource, "getrlimit", lambda limit: (1024, 524288))
    facts = told_by(inventory.limits, "n0").observations
    assert [(fact.value, fact.why) for fact in facts if fact.quantity == "discovery.nofile"] == [
        (524288, "soft limit 1024")
    ]


def test_rdma_ports_and_numa_nodes_are_read_from_sysfs(tmp_path):
    port = tmp_path / "ib/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (tmp_path / "net/eth0").mkdir(parents=True)
    for name, text in {"state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)"}.items():
        (port / name).write_text(f"{text}\n")
    gpu = tmp_path / "pci/0000:18:00.0"
    gpu.mkdir(parents=True)
    for name, text in {"vendor": "0x10de", "class": "0x030200", "numa_node": "1"}.items():
        (gpu / name).write_text(f"{text}\n")
    parsed = told_by(lambda facts: fabric(facts, tmp_path / "net", tmp_path / "ib", tmp_path / "pci"))
    value_of = {
        (fact.subject, fact.quantity): fact.why if fact.value is None else fact.value for fact in parsed.observations
    }
    assert value_of["n0/mlx5_0:1", "discovery.rdma.state"] == "4: ACTIVE"
    assert "cannot be read" in str(value_of["n0/mlx5_0:1", "discovery.rdma.layer"])
    assert value_of["n0/0000:18:00.0", "discovery.numa.gpu"] == "1"
    assert value_of["n0", "discovery.rdma.ports"] == 1


DISABLED = {**UP, "state": "1: DOWN", "phys_state": "3: Disabled"}
SLOW = {**UP, "rate": "200 Gb/sec (2X NDR)"}


@pytest.mark.parametrize(
    ("ports", "helps"),
    [
        ([UP] * 7 + [DISABLED], Action.CONFIGURE),  # somebody switched it off
        ([UP] * 7 + [{**UP, "state": "2: INIT"}], Action.CONFIGURE),  # no subnet manager
        ([], Action.CONFIGURE),  # its driver is not loaded
        ([UP] * 7 + [DOWN], Action.INSPECT),
        ([UP] * 7 + [SLOW], Action.INSPECT),
        ([UP] * 6 + [DISABLED, DOWN], Action.INSPECT),
    ],
)
def test_a_port_that_is_switched_off_is_configured_and_one_without_a_link_is_looked_at(tmp_path, ports, helps):
    parsed = seen({node: sysfs(tmp_path / node, ports if node == "n1" else [UP] * 8) for node in NODES})
    run, expected = a_run("discovery", NODES, gpus=4, profile="h100-8x400g"), profile.load("h100-8x400g")
    blamed = blame(judge.judge(run, expected, parsed), Seen(parsed.observations), run)
    helps_with = {
        v.gate: v.action for v in blamed.verdicts if v.subject == "n1" and v.gate.startswith("discovery.rdma")
    }
    assert helps_with["discovery.rdma.active"] is helps
    assert helps_with["discovery.rdma.same"] is helps
    (line,) = drain.proposals([replace(judged_of(run=run), verdicts=blamed)])
    assert f"; {helps} (" in line.why


@shows_failing("discovery.imex")
@for_each(
    ("state", "value", "outcome"),
    [
        ({"imex_state": "UP"}, "UP", Outcome.PASS),
        ({"imex_state": "DEGRADED", "imex_away": "n2"}, "DEGRADED", Outcome.FAIL),
        ({}, "not running", Outcome.FAIL),
        (None, "no IMEX", Outcome.PASS),
    ],
)
def test_the_domain_of_imex_is_up_or_there_is_none(state, value, outcome, tmp_path, monkeypatch):
    path = str(tmp_path) if state is None else on_path(tmp_path / "node", **state)["PATH"]
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("BRINGUP_SIMULATED_STATE", str(tmp_path / "node/state.conf"))
    monkeypatch.setattr(imex, "CHANNELS", tmp_path)
    parsed = told_by(imex.imex)
    verdict = about("discovery.imex", parsed, a_run("discovery", ("n0",)), "h100-8x400g")["n0"]
    assert (verdict.value, verdict.outcome) == (value, outcome)
    assert ("n2 UNAVAILABLE" in (verdict.cause or "")) == (value == "DEGRADED")
