"""The verbs of a simulated node change its state, and the trees and the kernel log follow."""

from pathlib import Path
from typing import Any

import kernel_log
import node
import pytest
import state as states
import trees
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan import stand_ins
from bringup.readers import topology
from fabric import fabric
from loops import for_each
from probing import told_by
from programs import module_at
from runs_for_tests import add_derived
from state import State, StateError

GPU_1 = "GPU-00000000-0000-8575-9a7a-461ee90213dc"  # of n1, as drills name it
HEALTHY = states.healthy("h100", "n1", 8)


def test_a_trait_adds_ports_to_those_of_the_model():
    state = State(states.healthy("h100+management-nic+virtual", "n1", 2))
    assert state.ports == [*(f"mlx5_{number}" for number in range(8)), "bnxt_re0"]
    assert (state.port("bnxt_re0", "rate"), state.first("virtual")) == ("25 Gb/sec (1X EDR)", "yes")
    says = "no trait of a node is called 'green'; there are cuda, hidden-topology, management-nic"
    with pytest.raises(StateError, match=says):
        states.healthy("h100+green", "n1", 2)


def changed(*changes: str) -> State:
    return State(states.changed(HEALTHY, changes))


def nvidia_smi() -> Any:
    return module_at(states.HERE / "bin/nvidia-smi", "nvidia_smi")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A node's folder, made on a machine with one network interface, one disk and a GPU of its own."""
    pci, classes = tmp_path / "machine/pci", tmp_path / "machine/class"
    for name, vendor in (("0000:00:01.0", "0x8086"), ("0000:00:02.0", trees.NVIDIA)):
        (tmp_path / "devices" / name).mkdir(parents=True)
        (tmp_path / "devices" / name / "vendor").write_text(f"{vendor}\n")
        pci.mkdir(parents=True, exist_ok=True)
        (pci / name).symlink_to(tmp_path / "devices" / name)
    (classes / "net").mkdir(parents=True)
    (classes / "net/eth0").symlink_to(tmp_path)
    trees.make(tmp_path / "node", pci, classes)
    return tmp_path / "node"


def faults_told(root: Path, state: State):
    trees.render(state, root)
    facts = told_by(lambda probe: fabric(probe, root / "class/net", root / "class/infiniband", root / "pci"))
    return {(o.subject, o.quantity): o.value if o.value is not None else f"? {o.why}" for o in facts.observations}


# --- the words of the verbs


@for_each(
    ("mlx5_3 down", ["port.mlx5_3=down"]),
    ("mlx5_3 up", ["port.mlx5_3=up"]),
    ("mlx5_3 flap", ["port.mlx5_3=up", "port.mlx5_3.counters.link_downed=1"]),
    ("mlx5_3 flap 23", ["port.mlx5_3=up", "port.mlx5_3.counters.link_downed=23"]),
    ("mlx5_3 counters.symbol_error=7", ["port.mlx5_3.counters.symbol_error=7"]),
    ("3 ecc 2", ["gpu3.ecc=2"]),
    ("4 nvlink 5 down", ["gpu4.nvlink5=down"]),
    ("4 nvlink 5 up", ["gpu4.nvlink5=up"]),
    ("6 throttle", ["gpu6.throttle=hw_thermal"]),
    ("6 throttle hw_power_brake", ["gpu6.throttle=hw_power_brake"]),
    ("6 throttle off", ["gpu6.throttle=idle"]),
    ("7 lost", ["gpu7.lost=1"]),
    ("7 hang 5", ["gpu7.hang=5"]),
    ("3 xid 79", ["xids=79@3"]),
    ("3 xid 79 GPU is away", ["xids=79@3:GPU is away"]),
    ("2 pcie_width=8 mig=on", ["gpu2.pcie_width=8", "gpu2.mig=on"]),
    ("driver=550.54.15", ["driver=550.54.15"]),
)
def test_a_fault_of_a_gpu_or_port_is_a_line_of_the_state(words, lines):
    verb = node.port if words.startswith("mlx5") else node.gpu
    assert verb(State(HEALTHY), words.split(" ")) == lines
    assert states.changed(HEALTHY, lines) == HEALTHY + "".join(f"{line}\n" for line in lines)


def test_flaps_and_xids_add_up():
    once = changed("port.mlx5_0.counters.link_downed=2", "xids=79@3")
    assert node.port(once, ["mlx5_0", "flap"])[1] == "port.mlx5_0.counters.link_downed=3"
    assert node.gpu(once, ["3", "xid", "154"]) == ["xids=79@3|154@3"]


@for_each(
    (node.gpu, ["8", "ecc", "2"], "no GPU 8; the node has GPU 0 to 7"),
    (node.gpu, ["1", "eccc", "2"], "no fault 'eccc'"),
    (node.gpu, ["1", "ecc", "many"], "ecc wants one number, got 'many'"),
    (node.gpu, ["1", "nvlink", "5"], "nvlink wants the number of a link, and up or down"),
    (node.gpu, ["1", "throttle", "cold"], "throttle takes one of hw_thermal"),
    (node.gpu, ["1", "lost", "now"], "lost takes no argument"),
    (node.gpu, ["1", "xid"], "xid wants its number"),
    (node.gpu, ["1", "xid", "79", "a|b"], "xid wants its number"),
    (node.gpu, [], "use: cluster gpu NODE"),
    (node.port, ["mlx5_9", "down"], "no RDMA device 'mlx5_9'; the node has mlx5_0"),
    (node.port, ["mlx5_1", "sideways"], "no fault 'sideways'"),
    (node.port, ["mlx5_1"], "use: cluster port NODE"),
)
def test_a_wrong_word_is_refused_in_one_line(verb, words, why):
    with pytest.raises(StateError) as refused:
        verb(State(HEALTHY), words)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


NO_KEYS = ["gpu1.eccc=2", "gpu8.ecc=2", "gpu1.nvlink18=down", "gpu1.nvlink5.heat=1", "port.mlx5_1.colour=blue"]


@for_each(*NO_KEYS, "ecc=2", "ecc", "a=1\nb=2")
def test_a_key_that_nobody_would_read_is_refused(change):
    with pytest.raises(StateError):
        states.changed(HEALTHY, [change])


def test_a_node_has_no_more_gpus_than_its_model_describes():
    with pytest.raises(StateError, match="8 GPUs at most"):
        states.healthy("h100", "n1", 9)
    with pytest.raises(StateError, match="there are a100, b200, h100, h100-efa, h200"):
        states.healthy("h9000", "n1", 1)


# --- trees and log


def test_a_healthy_node_has_its_gpus_and_ports_in_sysfs_and_keeps_the_machines_devices(root):
    facts = faults_told(root, State(HEALTHY))
    assert [value for value in facts.values() if str(value).startswith("?")] == []
    assert facts["n0", "discovery.rdma.ports"] == 8
    assert facts["n0/mlx5_7:1", "discovery.rdma.state"] == "4: ACTIVE"
    assert facts["n0/mlx5_7:1", "discovery.rdma.rate"] == "400 Gb/sec (4X NDR)"
    assert facts["n0/mlx5_7:1", "discovery.rdma.numa"] == "1"
    assert facts["n0/0000:1b:00.0", "discovery.numa.gpu"] == "0"
    assert facts["n0/0000:df:00.0", "discovery.numa.gpu"] == "1"
    assert (root / "pci/0000:00:01.0/vendor").read_text() == "0x8086\n"
    assert not (root / "pci/0000:00:02.0").exists(), "a GPU of the machine is not the node's"
    text = (root / "driver/nvidia/gpus/0000:43:00.0/information").read_text()
    assert "Device Minor: \t 1" in text
    assert GPU_1 in text


def test_efa_devices_count_nothing_of_a_link_and_are_not_in_topo_m(root):
    state = State(states.healthy("h100-efa", "n1", 8))
    facts = faults_told(root, state)
    assert facts["n0", "discovery.rdma.ports"] == 32
    assert facts["n0/rdmap79s0:1", "discovery.rdma.layer"] == "Unspecified"
    assert str(facts["n0/rdmap79s0:1", "inventory.rdma.flaps"]).startswith("? ")
    assert {facts[f"n0/{name}:1", "discovery.rdma.rate"] for name in state.ports} == {"100 Gb/sec (4X EDR)"}
    parsed = topology.parse(nvidia_smi().topology(state), "raw/topo", "n0")
    seen = {o.quantity: o.value for o in parsed.observations}
    links = "8 GPUs, NV18 between them; nearest NICs: none"
    assert seen == {"discovery.topology": links, "discovery.topology.nic": None}


def test_the_trees_follow_the_state_and_go_back(root):
    before = faults_told(root, State(HEALTHY))
    faults = ("port.mlx5_3=down", "port.mlx5_2.counters.link_downed=4", "gpu1.numa=-1", "gpus=7")
    after = faults_told(root, changed(*faults))
    assert {key: value for key, value in after.items() if before.get(key) != value} == {
        ("n0/mlx5_3:1", "discovery.rdma.state"): "1: DOWN",
        ("n0/mlx5_3:1", "discovery.rdma.phys_state"): "3: Disabled",
        ("n0/mlx5_2:1", "inventory.rdma.flaps"): 4,
        ("n0/0000:43:00.0", "discovery.numa.gpu"): "-1",
    }
    assert before.keys() - after.keys() == {("n0/0000:df:00.0", "discovery.numa.gpu")}
    assert faults_told(root, State(HEALTHY)) == before


@pytest.mark.parametrize("change", ["port.mlx5_1=sideways", "gpus=many", "gpus=9", "xids=x@1", "xids=79@many"])
def test_a_value_that_cannot_be_shown_leaves_the_node_as_it_was(root, monkeypatch, change):
    state, kmsg = root / "state.conf", root / "dev-kmsg"
    for file, text in ((state, HEALTHY), (kmsg, "boots\n"), (root / "kmsg", "boots\n")):
        file.write_text(text)
    monkeypatch.setattr(states, "FILE", state)
    monkeypatch.setattr(State.read.__func__, "__defaults__", (state,))
    for name, file in (("ROOT", root), ("BOOT_LOG", root / "kmsg"), ("KMSG", kmsg), ("HEALTHY", state)):
        monkeypatch.setattr(node, name, file)
    before = faults_told(root, State(HEALTHY))
    with pytest.raises(StateError, match="a value that its key does not take"):
        node.write(states.changed(HEALTHY, ["port.mlx5_0=down", change]))
    assert (state.read_text(), kmsg.read_text()) == (HEALTHY, "boots\n")
    facts = told_by(lambda probe: fabric(probe, root / "class/net", root / "class/infiniband", root / "pci"))
    assert {(o.subject, o.quantity): o.value for o in facts.observations} == before
    node.write(states.changed(HEALTHY, ["xids=79@1"]))
    assert "Xid (PCI:0000:43:00): 79" in kmsg.read_text()


def test_each_kind_of_xid_is_read_from_the_kernel_log_with_its_gpu():
    state = changed(f"xids={'|'.join(f'{number}@5' for number in trees.XIDS)}")
    lines = trees.kernel_log(state, "6,0,0,-;Linux boots\n")
    assert lines.startswith("6,0,0,-;Linux boots\n")
    counts, _, xids = kernel_log.events(kernel_log.of_kmsg(lines))
    assert xids == len(trees.XIDS)
    kinds = [f"xid_{number}{'_nonfatal' if number == 145 else ''}" for number in trees.XIDS]
    assert counts == {("PCI:0000:c3:00", kind): 1 for kind in kinds}
    assert trees.kernel_log(State(HEALTHY), "6,0,0,-;Linux boots\n") == "6,0,0,-;Linux boots\n"


# --- what the judge knows of it


def test_the_judge_knows_a_simulated_gpu_by_its_uuid():
    assert states.STAND_IN == stand_ins.GPU
    assert State(HEALTHY).gpu(1, "uuid") == GPU_1
    every = {State(states.healthy("h100", host, 8)).gpu(index, "uuid") for host in ("n0", "n1") for index in range(8)}
    assert len(every) == 16
    assert all(each.startswith(stand_ins.GPU) for each in every)


@for_each(*states.models())
def test_each_model_has_a_profile_that_expects_what_it_says(model):
    state = State(states.healthy(model, "n1", 8))
    expected = profiles.load(f"simulated-{model}").expect
    assert expected["discovery.gpu.nvlinks"].equals == int(state.first("gpu.nvlinks"))
    active = expected["discovery.rdma.active"]
    assert active.at_least == len(state.ports)
    assert str(active.at).removesuffix("Gb/s") == state.first("port.rate").split()[0]


def test_topo_m_of_the_stand_in_is_read_as_that_of_a_cluster():
    smi = nvidia_smi()
    parsed = topology.parse(smi.topology(State(HEALTHY)), "raw/topo", "n0")
    faults_told = {o.quantity: o.value for o in parsed.observations}
    assert parsed.problems == []
    nearest = "8 GPUs, NV18 between them; nearest NICs: GPU0 mlx5_0 PXB, GPU1 mlx5_1"
    assert str(faults_told["discovery.topology"]).startswith(nearest)
    add_derived(parsed)
    assert {o.quantity: o.value for o in parsed.observations}["discovery.topology.nic"] == "PXB"
    far = add_derived(topology.parse(smi.topology(changed("gpu3.nic_path=SYS")), "raw/topo", "n0"))
    assert {o.quantity: (o.value, o.why) for o in far.observations}["discovery.topology.nic"] == ("SYS", "GPU3")
