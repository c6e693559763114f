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
import smi
from bringup.domains.blame import blame
from bringup.domains.fabric import HIDDEN
from bringup.kernel import judge
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.plan import profile
from bringup.kernel.records import Action, Outcome, Verdict
from bringup.readers import topology
from bringup.report import drain
from fabric import COUNTERS, fabric, uses_rdma
from factory import a_run
from factory import judged_of as folder_of
from loops import case_for_each, for_each
from probing import answers_of, told_by
from programs import on_path, tree
from runs_for_tests import FAIL, FIXTURES, H100, OPEN, PASS, WARN, add_derived, judged, parsed_of
from showing import check_each, shows_failing

NODES = ("n0", "n1", "n2")
Ports = list[dict[str, str]]
UP = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand"}
DOWN = {**UP, "state": "1: DOWN", "phys_state": "2: Polling"}
DISABLED = {**DOWN, "phys_state": "3: Disabled"}
INIT = {**UP, "state": "2: INIT"}
SLOW = {**UP, "rate": "200 Gb/sec (4X HDR)"}
NUMA = ("0", "0", "1", "1")
CONFIGURE, INSPECT = Action.CONFIGURE, Action.INSPECT


def sysfs(root: Path, hcas: Ports, numa: tuple[str, ...] = NUMA) -> Path:
    """What the kernel shows of a node with these ports, one per HCA, and a GPU at each of these NUMA nodes."""
    files = {}
    for number, port in enumerate(hcas):
        files |= {f"mlx5_{number}/ports/1/{name}": text for name, text in port.items()}
        files |= {f"mlx5_{number}/ports/1/counters/{name}": "0" for names in COUNTERS.values() for name in names}
        files[f"mlx5_{number}/device/numa_node"] = "0"
    for number, node in enumerate(numa):
        tree(root / f"pci/0000:{number + 1}8:00.0", {"vendor": "0x10de", "class": "0x030200", "numa_node": node})
    (root / "net/eth0").mkdir(parents=True)
    if hcas:
        tree(root / "ib", files)
    return root


def probed(root: Path, node: str = "n0") -> Parsed:
    return told_by(lambda probe: fabric(probe, root / "net", root / "ib", root / "pci"), node)


def fleet(trees: dict[str, Path], numa_nodes: int = 2) -> Parsed:
    parsed = parsed_of([("discovery.numa_nodes", node, numa_nodes) for node in trees])
    for node, root in trees.items():
        parsed.add(probed(root, node))
    return parsed


def healthy(place: Path, ports: Ports | None = None, nodes: tuple[str, ...] = NODES, **odd: Ports) -> dict[str, Path]:
    """Nodes with these ports, or eight that are up. odd: a node with others."""
    usual = [UP] * 8 if ports is None else ports
    return {node: sysfs(place / node, odd.get(node, usual)) for node in nodes}


def of(gate: str, parsed: Parsed, nodes: tuple[str, ...] = NODES) -> dict[str, Verdict]:
    by_gate = judged(parsed, "discovery", nodes, gpus=4)
    return {node: by_gate[f"discovery.{gate} {node}"] for node in nodes}


def outcomes(gate: str, parsed: Parsed) -> list[Outcome]:
    return [verdict.outcome for verdict in of(gate, parsed).values()]


def test_of_two_nodes_the_one_whose_port_is_down_is_the_odd_one(tmp_path):
    """Both were accused, and nothing went on with the healthy one."""
    for ports, outcome, words in (
        ([UP] * 7 + [DOWN], PASS, "n0 has mlx5_0:1 mlx5_1:1"),
        ([UP] * 9, FAIL, "and no majority says which is right"),  # without a fault of their own
    ):
        by_node = of("rdma.same", fleet(healthy(tmp_path / words, nodes=NODES[:2], n1=ports)), NODES[:2])
        assert [verdict.outcome for verdict in by_node.values()] == [outcome, FAIL]
        assert words in str(by_node["n1"].cause)


def test_ports_that_are_alike_pass_beside_a_slower_one_for_storage_and_a_fleet_without_any_has_none(tmp_path):
    for gate in ("rdma.same", "rdma.active"):
        assert outcomes(gate, fleet(healthy(tmp_path / gate, [UP] * 8 + [SLOW]))) == [PASS] * 3
    assert {v.observed for v in of("rdma.same", fleet(healthy(tmp_path / "none", []))).values()} == {"none"}
    assert outcomes("rdma.active", fleet(healthy(tmp_path / "none at all", []))) == [FAIL] * 3


@case_for_each(
    ([UP] * 7 + [DOWN], "mlx5_7:1 is DOWN, Polling", INSPECT),
    ([UP] * 7 + [INIT], "mlx5_7:1 is INIT, LinkUp", CONFIGURE),  # no subnet manager
    ([UP] * 7 + [SLOW], "mlx5_7:1 runs at 200 Gb/s", INSPECT),
    ([UP] * 7 + [{**UP, "rate": "none"}], "does not say its rate", CONFIGURE),
    ([UP] * 7 + [{**UP, "rate": "4.0.0 Gb/sec (4X NDR)"}], "does not say its rate", CONFIGURE),
    ([UP] * 7 + [DISABLED], "mlx5_7:1 is DOWN, Disabled", CONFIGURE),  # somebody switched it off
    ([UP] * 6 + [DISABLED, DOWN], "mlx5_6:1 is DOWN", INSPECT),
    ([], "0", CONFIGURE),  # its driver is not loaded
)
@shows_failing("discovery.rdma.active")
def test_a_port_that_is_down_slow_or_gone_fails_its_node_alone_and_says_what_helps(tmp_path, ports, says, helps):
    parsed = fleet(healthy(tmp_path, n1=ports))
    run = a_run("discovery", NODES, gpus=4, profile=H100)
    verdicts = blame(judge.judge(run, profile.load(H100), add_derived(parsed, run)), Seen(parsed.observations), run)
    for gate in ("discovery.rdma.active", "discovery.rdma.same"):
        of_gate = {v.subject: v for v in verdicts.verdicts if v.gate == gate}
        assert [of_gate[node].outcome for node in NODES] == [PASS, FAIL, PASS], gate
        assert of_gate["n1"].action is helps
        if gate == "discovery.rdma.active":
            assert says in of_gate["n1"].observed
            assert of_gate["n1"].expected == "≥ 8 at 400Gb/s"
    (line,) = drain.proposals([replace(folder_of(run=run), verdicts=verdicts)])
    assert f"; {helps} (" in line.why


def test_a_port_that_cannot_be_read_is_incomplete_and_not_down(tmp_path):
    trees = healthy(tmp_path)
    (trees["n1"] / "ib/mlx5_3/ports/1/phys_state").unlink()
    for gate in ("rdma.active", "rdma.same"):
        check_each(of(gate, fleet(trees)).values(), PASS, (OPEN, "mlx5_3:1"), PASS)


def test_a_port_that_was_counted_and_not_described_is_not_up(tmp_path):
    parsed = fleet(healthy(tmp_path))
    for place, seen in enumerate(parsed.observations):
        if (seen.quantity, seen.subject) == ("discovery.rdma.ports", "n1"):
            parsed.observations[place] = seen.model_copy(update={"value": 9})
    for gate in ("rdma.active", "rdma.same"):
        verdict = of(gate, Parsed(list(parsed.observations)))["n1"]
        assert (verdict.outcome, verdict.cause) == (OPEN, "not found out: 8 of 9 ports are described"), gate


@shows_failing("discovery.rdma.active")
def test_a_port_for_storage_of_the_same_rate_does_not_stand_in_for_a_dead_one(tmp_path, monkeypatch):
    """All nodes are alike, so that no comparison finds it: 8 of the 9 ports are up."""
    nine, dead = [UP] * 9, [UP, UP, DOWN, *[UP] * 6]
    for place, names in enumerate(("=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7", "^mlx5_8")):
        monkeypatch.setenv("NCCL_IB_HCA", names)
        assert outcomes("rdma.active", fleet(healthy(tmp_path / f"{place} up", nine))) == [PASS] * 3
        sick = of("rdma.active", fleet(healthy(tmp_path / f"{place} dead", dead))).values()
        check_each(sick, *[(FAIL, f"mlx5_8:1 is left out by NCCL_IB_HCA={names}")] * 3)
    monkeypatch.delenv("NCCL_IB_HCA")
    ethernet = of("rdma.active", fleet(healthy(tmp_path / "e", [*dead[:8], {**UP, "link_layer": "Ethernet"}])))
    check_each(ethernet.values(), *[(FAIL, "mlx5_8:1 is Ethernet")] * 3)


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
    for line, read in {"=a,b": "a,b", " = a": "", "= a": " a", "=a ": "a "}.items():  # NCCL keeps blanks
        (tmp_path / "nccl.conf").write_text(f"# ours\nNCCL_DEBUG=WARN\nNCCL_IB_HCA{line}\n")
        assert hca.named() == read
    for value in ("mlx5_7", ""):
        monkeypatch.setenv("NCCL_IB_HCA", value)
        assert hca.named() == value


def test_the_worst_port_counts_and_is_named_with_its_counter(tmp_path):
    for counter, count, gate in (("link_downed", 23, "rdma.flaps"), ("symbol_error", 250000, "rdma.errors")):
        trees = healthy(tmp_path / counter)
        tree(trees["n1"], {f"ib/mlx5_3/ports/1/counters/{counter}": str(count)})
        check_each(of(gate, fleet(trees)).values(), PASS, (WARN, f"mlx5_3:1: {counter} {count}"), PASS)


def test_a_slower_nic_whose_driver_counts_nothing_is_left_out_and_named_and_a_fast_one_is_incomplete(tmp_path):
    """The folder is missing for bnxt_re and irdma: a NIC for people made both gates of every node incomplete."""
    trees = healthy(tmp_path, [UP] * 8 + [{**UP, "rate": "25 Gb/sec (1X EDR)"}])
    for node, device in (("n0", "mlx5_8"), ("n1", "mlx5_8"), ("n2", "mlx5_3")):
        shutil.rmtree(trees[node] / f"ib/{device}/ports/1/counters")
    for gate in ("rdma.flaps", "rdma.errors"):
        check_each(of(gate, fleet(trees)).values(), (PASS, "mlx5_8:1 has no such"), PASS, (OPEN, "mlx5_3:1"))


def test_a_port_whose_driver_says_that_it_counts_nothing_is_left_out_and_named(tmp_path):
    """Older kernels show the files of such a port: each of its nodes was incomplete."""
    trees = healthy(tmp_path)
    silent = {f"ib/mlx5_3/ports/1/counters/{name}": "N/A (no PMA)" for names in COUNTERS.values() for name in names}
    tree(trees["n1"], silent)
    for gate in ("rdma.flaps", "rdma.errors"):
        check_each(of(gate, fleet(trees)).values(), PASS, (PASS, "mlx5_3:1 has no such"), PASS)


def test_a_port_of_a_driver_in_software_is_up_and_its_own_counter_of_lost_links_counts(tmp_path):
    """Soft-RoCE (rxe) has no device and no folder `counters`: four gates of every healthy node were incomplete."""
    trees = healthy(tmp_path, [{**UP, "link_layer": "Ethernet"}])
    for node, root in trees.items():
        shutil.rmtree(root / "ib/mlx5_0/device")
        shutil.rmtree(root / "ib/mlx5_0/ports/1/counters")
        tree(root / "ib/mlx5_0/ports/1", {"hw_counters/link_downed": "23" if node == "n1" else "0"})
    assert outcomes("rdma.flaps", fleet(trees)) == [PASS, WARN, PASS]
    assert outcomes("rdma.same", fleet(trees)) == [PASS] * 3


def test_a_port_without_counters_is_incomplete_and_a_node_without_a_port_has_lost_none(tmp_path):
    trees = healthy(tmp_path, [UP] * 2, n2=[])
    (trees["n1"] / "ib/mlx5_1/ports/1/counters/link_downed").unlink()
    check_each(of("rdma.flaps", fleet(trees)).values(), PASS, (OPEN, "mlx5_1:1"), (PASS, "there is none"))


# ---- NUMA


@shows_failing("discovery.numa.gpu")
@for_each(
    (NUMA, NUMA, 2, [PASS] * 3),
    (NUMA, ("0", "0", "0", "1"), 2, [PASS, FAIL, PASS]),
    (NUMA, ("-1",) * 4, 2, [PASS, OPEN, PASS]),  # the firmware does not tell
    (("-1",) * 4, ("-1",) * 4, 2, [OPEN] * 3),
    (("-1",) * 4, ("-1",) * 4, 1, [PASS] * 3),  # there is no other one
    ((), (), 2, [OPEN] * 3),
)
def test_numa_nodes_of_gpus_are_alike_and_what_is_hidden_stops_nothing(tmp_path, usual, odd, numa_nodes, expected):
    shutil.rmtree(tmp_path)
    trees = {node: sysfs(tmp_path / node, [], odd if node == "n1" else usual) for node in NODES}
    by_node = of("numa.gpu", fleet(trees, numa_nodes))
    assert [verdict.outcome for verdict in by_node.values()] == expected
    stops = [judge.stops(verdict) for verdict in by_node.values()]
    assert stops == [outcome is FAIL for outcome in expected] or not usual


# ---- nvidia-smi topo -m

TEXTS = {path.stem.removeprefix("topo-"): path.read_text() for path in FIXTURES.glob("nvidia-smi/topo-*.txt")}
H100_8 = TEXTS["h100-8"]


def topo(text: str, **odd: str) -> Parsed:
    parsed = Parsed()
    for node in NODES:
        parsed.add(topology.parse(odd.get(node, text), f"raw/nvidia-smi-topo-{node}.txt", node))
    return parsed


@shows_failing("discovery.topology.nic")
def test_nics_are_beside_their_gpus_or_over_the_host_bridge_or_farther():
    parsed = topo(H100_8)
    assert parsed.problems == []
    assert outcomes("topology", topo(H100_8)) == outcomes("topology.nic", topo(H100_8)) == [PASS] * 3
    whole = of("topology", parsed)["n0"].observed
    assert whole.startswith("8 GPUs, NV18 between them; nearest NICs: GPU0 mlx5_0 PXB, GPU1 mlx5_3 PXB, ")
    pcie_alone = of("topology.nic", topo(TEXTS["pcie"]))
    assert {(verdict.outcome, verdict.observed) for verdict in pcie_alone.values()} == {(FAIL, "SYS (GPU2)")}
    assert "4 GPUs, NODE/PHB/SYS between them" in of("topology", topo(TEXTS["pcie"]))["n0"].observed


def test_evidence_of_a_topology_names_the_line_that_grep_gives_and_gpus_without_any_nic_are_said():
    text = "10%\r20%\u2028\x0b\n" + H100_8
    row = 2 + next(number for number, line in enumerate(H100_8.split("\n")) if "GPU0" in line)
    assert {observation.evidence for observation in topology.parse(text, "f", "n0").observations} == {f"f:{row}"}
    text = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPHB\t0-7\t0\nGPU1\tPHB\t X \t0-7\t0\n"
    seen = [fact.value for fact in topology.parse(text, "f", "n0").observations]
    assert seen[:2] == ["2 GPUs, PHB between them; nearest NICs: none", None]


def test_a_table_whose_heading_is_wrapped_is_not_read_as_one_gpu():
    wrapped = topology.parse("\tGPU0\n\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-7\nGPU1\tPHB\t X \t0-7\n", "f", "n0")
    assert [fact.value for fact in wrapped.observations] == [None, None]
    assert wrapped.problems == ["f: cut off: nothing about GPU1"]


def nic(parsed: Parsed) -> Verdict:
    return of("topology.nic", parsed, ("n0",))["n0"]


def beside(root: Path, dead: str, text: str) -> Verdict:
    """discovery.topology.nic of a node with these paths, on which a NIC is down."""
    names = [match[1] for match in re.finditer(r"NIC\d+: (\S+)", text)]
    states = {name: DOWN if name == dead else UP for name in names}
    tree(root / "ib", {f"{name}/ports/1/{file}": says for name in names for file, says in states[name].items()})
    (root / "net/eth0").mkdir(parents=True)
    parsed = topology.parse(text, "raw/topo", "n0")
    parsed.add(probed(root))
    return nic(parsed)


@shows_failing("discovery.topology.nic")
def test_a_gpu_whose_nic_is_dead_has_none_beside_it(tmp_path, monkeypatch):
    """Any NIC in the table counted, a dead one and that of another GPU as well."""
    assert beside(tmp_path / "1", "none", H100_8).outcome is PASS
    sick = beside(tmp_path / "2", "mlx5_0", H100_8)
    assert (sick.outcome, sick.observed) == (FAIL, "NODE (GPU0; mlx5_0 is DOWN)")
    legend = "NIC Legend:\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n  NIC2: mlx5_2\n"
    shared = (  # two GPUs and two NICs below one switch, and a NIC for storage as near as they are
        "\tGPU0\tGPU1\tNIC0\tNIC1\tNIC2\tCPU Affinity\nGPU0\tX\tNV12\tPXB\tPXB\tNODE\nGPU1\tNV12\tX\tPXB\tPXB\tNODE\n"
        "NIC0\tPXB\tPXB\tX\tPIX\tNODE\nNIC1\tPXB\tPXB\tPIX\tX\tNODE\nNIC2\tNODE\tNODE\tNODE\tNODE\tX\n" + legend
    )
    assert beside(tmp_path / "3", "none of them", shared).outcome is PASS
    assert beside(tmp_path / "4", "mlx5_1", shared).observed == "NODE (GPU1; mlx5_1 is DOWN)"
    monkeypatch.setenv("NCCL_IB_HCA", "^mlx5_1")
    assert beside(tmp_path / "5", "mlx5_0", shared).outcome is FAIL


def test_a_nic_beside_a_gpu_is_not_up_where_nobody_knows_its_state():
    nics = re.findall(r"NIC\d+: (\S+)", H100_8)
    states = {name: None if name == "mlx5_0" else UP["state"] for name in nics}
    parsed = topology.parse(H100_8, "raw/topo", "n0")
    parsed.add(parsed_of([("discovery.rdma.state", f"n0/{name}:1", states[name], "said") for name in nics]))
    parsed.add(parsed_of([("discovery.rdma.ports", "n0", len(nics))]))
    assert (nic(parsed).outcome, nic(parsed).cause) == (OPEN, "not found out: mlx5_0: said")


def test_a_virtual_machine_that_hides_pcie_is_incomplete_and_stops_nothing():
    """Azure's ND shows every NIC across the host bridge: each healthy node failed, and all stopped."""
    for virtual, outcome in ((True, OPEN), (False, FAIL)):
        parsed = topology.parse(H100_8.replace("PXB", "NODE"), "raw/topo", "n0")
        parsed.saw("inventory.virtual", "n0", virtual, "flag", "e")
        assert (nic(parsed).outcome, judge.stops(nic(parsed))) == (outcome, outcome is FAIL)
    assert "NCCL_TOPO_FILE" in HIDDEN


@shows_failing("discovery.topology")
@for_each(
    (H100_8.replace("NV18", "NV17", 1), FAIL, None),
    (H100_8.replace("PXB", "SYS", 1), FAIL, None),
    (H100_8[: len(H100_8) // 3], OPEN, "cut off"),
    (H100_8.partition("NIC Legend")[0], OPEN, "cut off"),
    ("", OPEN, "raw/nvidia-smi-topo-n1.txt: holds no table of GPUs"),
    ("No devices were found\n", OPEN, "raw/nvidia-smi-topo-n1.txt: holds no table of GPUs"),
    ids=lambda value: str(value)[-20:],
)
def test_a_node_with_a_link_or_a_nic_less_is_the_odd_one_and_half_a_table_proves_nothing(odd, outcome, problem):
    parsed = topo(H100_8, n1=odd)
    assert [problem in each for each in parsed.problems] == ([True] if problem else [])
    assert outcomes("topology", parsed) == [PASS, outcome, PASS]
    if outcome is OPEN:
        assert outcomes("topology.nic", topo(H100_8, n1=odd)) == [PASS, OPEN, PASS]


def test_texts_of_nvidia_smi_are_kept_whole_and_an_absent_tool_is_said():
    kept = {}

    def run(command, **_):
        if command[1] == "topo":
            return SimpleNamespace(stdout=TEXTS["pcie"])
        raise subprocess.CalledProcessError(9, command, output="", stderr="NVIDIA-SMI has failed\nNVML library: 535\n")

    def absent(command, **_):
        raise FileNotFoundError(command[0])

    facts = answers_of(lambda probe: smi.keep_texts(probe, lambda name, text: kept.update({name: text}), run))
    assert kept == {"topo": TEXTS["pcie"]}
    unknown = {name: why for name, (value, why) in facts.items() if value is None}
    assert unknown == {"discovery.nvidia_smi.q": "nvidia-smi: NVIDIA-SMI has failed"}
    facts = answers_of(lambda probe: smi.keep_texts(probe, kept.update, absent))
    assert {why for value, why in facts.values() if value is None} == {"nvidia-smi is not installed"}


@shows_failing("discovery.memlock")
def test_little_locked_memory_fails_where_an_rdma_port_is_active(tmp_path, monkeypatch):
    """A limit of 8 MiB is what a login shell of a stock system has, and Slurm hands it on."""
    monkeypatch.setattr(inventory.resource, "getrlimit", lambda limit: (1024, 524288))
    assert answers_of(inventory.limits)["discovery.nofile"] == (524288, "soft limit 1024")  # the hard one is judged
    monkeypatch.setattr(inventory, "uses_rdma", lambda: uses_rdma(tmp_path))
    monkeypatch.setattr(inventory.resource, "getrlimit", lambda limit: (8388608, 8388608))
    for state, value, outcome in (("4: ACTIVE", "8388608", FAIL), ("1: DOWN", "no RDMA", PASS)):
        tree(tmp_path, {"mlx5_0/ports/1/state": state})
        assert answers_of(inventory.limits)["discovery.memlock"][0] == value
        limits = {"n0": "unlimited", "n1": value, "n2": "unlimited"} if outcome is FAIL else dict.fromkeys(NODES, value)
        parsed = parsed_of([("discovery.memlock", node, limit) for node, limit in limits.items()])
        assert outcomes("memlock", parsed) == [PASS, outcome, PASS]


@shows_failing("discovery.imex")
@for_each(
    ({"imex_state": "UP"}, "UP", PASS),
    ({"imex_state": "DEGRADED", "imex_away": "n2"}, "DEGRADED", FAIL),
    ({}, "not running", FAIL),
    (None, "no IMEX", PASS),
)
def test_the_domain_of_imex_is_up_or_there_is_none(tmp_path, monkeypatch, state, value, outcome):
    path = str(tmp_path) if state is None else on_path(tmp_path / "node", **state)["PATH"]
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("BRINGUP_SIMULATED_STATE", str(tmp_path / "node/state.conf"))
    monkeypatch.setattr(imex, "CHANNELS", tmp_path)
    verdict = of("imex", told_by(imex.imex), ("n0",))["n0"]
    assert (verdict.value, verdict.outcome) == (value, outcome)
    assert ("n2 UNAVAILABLE" in (verdict.cause or "")) == (value == "DEGRADED")
