"""The profile `auto`: the numbers of what a discovery saw, and nothing of what it did not see."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from bringup.domains import auto, parts
from bringup.domains.auto import Nodes
from bringup.kernel import results
from bringup.kernel.judge import judge_folder
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.profile import PROFILES, Profile
from bringup.kernel.records import Observation, Outcome, SlurmCluster
from bringup.run import auto_profile, slurm
from loops import for_each
from runs_for_tests import unpacked

H100 = Nodes("NVIDIA H100 80GB HBM3", 8, "InfiniBand", 8, 400)
SIMULATED = {"gpus": 2, "simulated": True, "cluster": "bringup-simulated"}
EFA = {"layer": "Unspecified", "rate": 100, "virtual": True}
MACHINES = {
    "h100-8x400g": H100,
    "h100-roce-8x400g": replace(H100, layer="Ethernet"),
    "h100-azure-ndv5": replace(H100, virtual=True),
    "h100-efa-p5": replace(H100, ports=32, **EFA),
    "h200-8x400g": replace(H100, model="NVIDIA H200"),
    "h200-efa-p5en": replace(H100, model="NVIDIA H200", ports=16, **EFA),
    "h200-gcp-a3-ultra": replace(H100, model="NVIDIA H200", layer="Ethernet", virtual=True),
    "a100-8x200g": replace(H100, model="NVIDIA A100-SXM4-80GB", rate=200),
    "b200-8x400g": replace(H100, model="NVIDIA B200"),
    "b200-efa-p6": replace(H100, model="NVIDIA B200", ports=8, **EFA),
    "gb200-nvl72": replace(H100, model="NVIDIA GB200", gpus=4, ports=4),
    "simulated-h100": replace(H100, **SIMULATED),
    "simulated-a100": replace(H100, model="NVIDIA A100-SXM4-80GB", rate=200, **SIMULATED),
    "local-cpu": Nodes(None, 2, cluster="bringup-local"),
    "local-virtual": Nodes(None, 1, "Ethernet", 1, 2, cluster="bringup-virtual"),
}


def said_by(name: str) -> set[str]:
    """Gates that the file of a profile speaks of itself, each with its source."""
    profile = profiles.parse((PROFILES / f"{name}.yaml").read_text(), name)
    return {*profile.expect, *(entry.gate for entry in profile.not_applicable)}


def numbers(profile: Profile) -> dict[str, object]:
    known = {gate: entry.model_dump(exclude={"source"}) for gate, entry in profile.expect.items()}
    return known | {entry.gate: "not applicable" for entry in profile.not_applicable}


@for_each(*sorted(MACHINES))
def test_auto_gives_the_numbers_of_the_profile_of_each_machine_but_where_its_file_says_another(name):
    made, known = auto.completed(MACHINES[name], strict=True), profiles.load(name)
    ours, theirs = numbers(made), numbers(known)
    assert {gate for gate in {*ours, *theirs} if ours.get(gate) != theirs.get(gate)} <= said_by(name)
    for key, fact in known.machine:
        assert (fact and fact.value) == (getattr(made.machine, key) and getattr(made.machine, key).value), key
    assert (made.workload and made.workload.arguments) == (known.workload and known.workload.arguments)
    assert made.recognised


def test_every_profile_of_a_machine_is_compared_with_auto():
    bases = {"auto", "efa", "generic", "gpu-nodes", "local-nodes", "programs-on-cpu", "example"}
    of_stand_ins = {path.stem for path in PROFILES.glob("simulated-*.yaml")}  # one mechanism; two of them are above
    # the second looks like a fault: it is never chosen, only named
    of_stand_ins |= {"placeholder-gpus", "local-cpu-unconfined"}
    without_ports = {"h100-gcp-a3-mega"}  # its NICs are no RDMA devices to the kernel, so that no discovery sees them
    named = {path.stem for path in PROFILES.glob("*.yaml") if ".site" not in path.name}
    assert named - bases - of_stand_ins - without_ports <= set(MACHINES)


def facts(nodes: int, *, gpus: int, promised: int, active: int, down: int = 0, mig: str = "off") -> list[Observation]:
    """Return the facts of a discovery whose nodes are all alike. down: ports that have no link."""
    known = []

    def saw(quantity: str, subject: str, value: object) -> None:
        known.append(Observation(quantity=quantity, subject=subject, value=value, unit="text", evidence="f:1"))

    for node in (f"n{number}" for number in range(nodes)):
        saw("discovery.gpu.count", node, gpus)
        saw("slurm.node.gpus", node, promised)
        saw("discovery.rdma.ports", node, active + down)
        for gpu in range(gpus):
            saw("discovery.gpu.model", f"{node}/GPU-{gpu}", H100.model)
            saw("discovery.gpu.mig", f"{node}/GPU-{gpu}", mig)
        for port in range(active + down):
            saw("discovery.rdma.layer", f"{node}/mlx5_{port}:1", "InfiniBand")
            saw("discovery.rdma.rate", f"{node}/mlx5_{port}:1", "400 Gb/sec (4X NDR)" if port < active else "10 Gb/sec")
        for rate in (10, 100, 200, 400):
            saw(f"discovery.rdma.active@{rate}Gb/s", node, active)
    return known


def seen(**what: int | str) -> Nodes:
    return auto.seen(facts(2, **what), ["n0", "n1"], "ours")


def test_what_slurm_promises_and_no_node_shows_lowers_no_expectation():
    assert seen(gpus=7, promised=8, active=8).gpus == 8
    made = auto.completed(seen(gpus=7, promised=8, active=8))
    assert made.machine.gpus_per_node.value == 8
    assert made.machine.nvlink_busbw.value == 480


@for_each(
    *((8, 0, 8), (7, 0, 8), (7, 1, 8), (10, 0, 8), (5, 0, 4), (5, 3, 8), (4, 0, 4), (4, 4, 4), (3, 0, 2), (3, 1, 4)),
    *((16, 0, 16), (1, 0, 1)),
)
def test_a_port_that_all_nodes_lack_is_expected_and_one_for_storage_is_not(active, down, expected):
    """Four of five ports carry collectives, where none is down; the second ports of four cards are spare."""
    made = auto.completed(seen(gpus=8, promised=8, active=active, down=down))
    assert made.expect["discovery.rdma.active"].at_least == expected
    assert made.expect["discovery.rdma.active"].at == "400Gb/s"
    assert made.machine.nic_gb_per_s.value == 48


def test_ports_that_are_down_on_every_node_are_expected_all_the_same():
    """A subnet manager that is gone takes the ports of all nodes, and no peer shows it."""
    made = auto.completed(seen(gpus=8, promised=8, active=0, down=8))
    assert made.expect["discovery.rdma.active"].at_least == 8
    assert made.expect["nccl.transport"].one_of == ["rdma-verbs"]


def test_ports_for_storage_of_another_layer_do_not_name_the_fabric():
    known = facts(2, gpus=8, promised=8, active=4)
    for node in ("n0", "n1"):
        for port in range(6):
            at = {"subject": f"{node}/eth{port}:1", "unit": "text", "evidence": "f:1"}
            known.append(Observation(quantity="discovery.rdma.layer", value="Ethernet", **at))
            known.append(Observation(quantity="discovery.rdma.rate", value="25 Gb/sec (1X EDR)", **at))
    assert auto.seen(known, ["n0", "n1"], "ours").layer == "InfiniBand"


def test_the_parts_of_divided_gpus_are_no_gpus_beside_which_a_port_is_missing():
    nodes = seen(gpus=8, promised=14, active=8, mig="on")
    assert (nodes.gpus, nodes.ports) == (8, 8)


def test_nodes_that_all_have_no_port_are_asked_nothing_of_one_and_silence_is_no_absence():
    none = seen(gpus=8, promised=8, active=0)
    assert none.has_no_ports
    assert auto.completed(none).reason_not_applicable("nccl.gdr") == "no node has an RDMA port"
    assert "no RDMA port" in auto.completed(none).recognised
    silent = auto.seen(facts(1, gpus=8, promised=8, active=0), ["n0", "n1"], "ours")
    assert not silent.has_no_ports
    assert auto.completed(silent).reason_not_applicable("nccl.gdr") is None


def test_without_a_driver_and_on_a_cluster_of_another_name_nothing_is_excused():
    """A real cluster whose driver is not loaded looks like placeholder GPUs, but for Slurm's name of it."""
    made = auto.completed(Nodes(None, 8, cluster="ours"))
    assert not [entry.gate for entry in made.not_applicable if entry.gate.startswith("discovery.gpu")]
    assert made.recognised.endswith("without numbers: no driver named a GPU, no fast RDMA port was seen")
    # nor are simulated nodes whose driver is gone everywhere taken for placeholders
    made = auto.completed(Nodes(None, 2, cluster="bringup-simulated"))
    assert made.reason_not_applicable("discovery.gpu.driver") is None
    assert "no driver named a GPU" in made.recognised


def test_four_gpus_without_nvswitch_and_few_nics_are_asked_nothing_of_a_board_of_eight():
    """Four H100 share out 18 links among three peers, 150 GB/s each: the floor of a board of eight is 250."""
    gates = {"smoke.compute.device_to_device", "nccl.nvls", "discovery.topology.nic", "nccl.gdr"}
    assert gates <= auto.completed(H100).expect.keys()
    assert gates.isdisjoint(auto.completed(replace(H100, gpus=4, ports=4)).expect)
    few = auto.completed(replace(H100, ports=2))  # a NIC for two GPUs lies not beside each of them
    assert "discovery.topology.nic" not in few.expect
    assert few.expect["nccl.nvls"].equals is True


def test_other_numbers_of_gpus_have_no_speed_between_them_and_unknown_models_have_no_numbers():
    four = auto.completed(replace(H100, gpus=4, ports=4))
    assert four.limit("nccl.all_reduce.busbw", 2).value is None
    assert four.expect["smoke.compute.tflops"].at_least == 600
    unknown = auto.completed(replace(H100, model="NVIDIA X999"))
    assert "smoke.compute.tflops" not in unknown.expect
    assert "NVIDIA X999 is not known" in unknown.recognised
    mixed = auto.completed(replace(H100, others=("NVIDIA A100-SXM4-80GB",)))
    assert "smoke.compute.tflops" not in mixed.expect
    assert mixed.expect["smoke.compute.device"].one_of == ["cuda"]
    assert "NVIDIA A100-SXM4-80GB beside it" in mixed.recognised


@for_each(
    ("NVIDIA B300 SXM6 AC", "b300", 2250),
    ("NVIDIA GB300", "gb300", 2500),
    ("NVIDIA H20", "h20", 148),
    ("NVIDIA H800", "h800", 989.4),
    ("NVIDIA A800-SXM4-80GB", "a800", 312),
    ("NVIDIA L40S", "l40s", 362.05),
    ("NVIDIA L4", "l4", 121),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000", None),
    ("NVIDIA GH200 480GB", "gh200", 989.4),
    ("NVIDIA H100 NVL", "h100-nvl", 835),
    ("NVIDIA H200", "h200", 989.4),
)
def test_gpus_are_known_by_the_drivers_name_of_them(name, part, tflops):
    assert parts.gpu_called(name).part == part
    peak = parts.of_gpu(part).machine.peak_bf16_tflops
    assert (None if peak is None else peak.value) == tflops


def test_names_of_other_cards_are_not_taken_for_known_ones():
    for name in ("NVIDIA L40", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA A100-SXM-64GB", "Tesla V100-SXM2-32GB"):
        assert parts.gpu_called(name) is None, name
    joined = {gpu.part for gpu in parts.index().gpus if gpu.joined is not None}
    assert joined == {path.stem for path in (parts.PARTS / "nodes").glob("*.yaml")}
    assert {gpu.part for gpu in parts.index().gpus} == {path.stem for path in (parts.PARTS / "gpus").glob("*.yaml")}


AUTO = profiles.load("auto")


@pytest.fixture
def recorded(tmp_path, monkeypatch) -> Path:
    """A discovery of two simulated nodes of H100, in a tree of its own."""
    folder = tmp_path / "validation/results/discovery/recorded"
    folder.parent.mkdir(parents=True)
    unpacked("h100-healthy", tmp_path, "h100-healthy/discovery/h100-healthy-round-1").rename(folder)
    monkeypatch.setattr(results, "REPOSITORY", tmp_path)
    monkeypatch.setattr(slurm, "this_cluster", lambda: SlurmCluster(None, None))
    return folder


def test_later_phases_have_the_numbers_of_the_newest_discovery_of_their_nodes(recorded):
    made = auto_profile.profile(AUTO, ["n0"])
    assert made.expect["discovery.gpu.nvlinks"].equals == 18
    assert made.description.endswith("(discovery h100-healthy-round-1)")
    assert auto_profile.profile(AUTO, ["n0", "n9"]).is_open  # a node that it did not see
    named = profiles.load("h100-8x400g")
    assert auto_profile.profile(named, ["n0"]) is named


def test_a_discovery_that_somebody_changed_gives_no_numbers(recorded):
    path = next((recorded / "raw").glob("inventory*"))
    path.write_text(path.read_text().replace("H100", "H200"))
    assert auto_profile.profile(AUTO, ["n0"]).is_open


def test_a_discovery_is_judged_with_the_numbers_of_what_it_saw(recorded):
    judged = judge_folder(recorded, AUTO)
    assert judged.verdicts.recognised.startswith("2 x NVIDIA H100 80GB HBM3 per node, 8 x 400 Gb/s InfiniBand")
    links = [verdict for verdict in judged.verdicts.verdicts if verdict.gate == "discovery.gpu.nvlinks"]
    assert {verdict.outcome for verdict in links} == {Outcome.PASS}
    path, links = next((recorded / "raw").glob("inventory*")), '"discovery.gpu.nvlinks", "value": '
    path.write_text(path.read_text().replace(f"{links}18", f"{links}17"))
    again = judge_folder(recorded, AUTO).verdicts.verdicts
    assert {verdict.outcome for verdict in again if verdict.gate == "discovery.gpu.nvlinks"} == {Outcome.FAIL}


def test_a_profile_that_extends_auto_has_the_numbers_of_what_was_seen_and_then_its_own(recorded, tmp_path):
    """It had those of `generic`: the discovery was never asked."""
    gate, other = "nccl.all_reduce.busbw", "nccl.all_gather.busbw"
    for name, base, own in (("first", "auto", gate), ("second", "first.yaml", other)):
        limit = {"at_least": len(name), "unit": "GB/s", "source": "ours"}
        data = {"schema_version": 1, "name": name, "description": "ours", "extends": base, "expect": {own: limit}}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(data))
    opened = profiles.load(str(tmp_path / "second.yaml"))
    assert opened.is_open and profiles.parse(profiles.dump(opened), "the copy of a run").is_open
    made = auto_profile.profile(opened, ["n0", "n1"])
    assert (made.name, made.is_open) == ("second", False)
    known = auto_profile.profile(AUTO, ["n0", "n1"])
    assert (made.recognised, made.expect[gate].at_least, made.expect[other].at_least) == (known.recognised, 5, 6)
    assert {key for key, number in numbers(made).items() if numbers(known).get(key) != number} == {gate, other}
    judged = judge_folder(recorded, opened).verdicts
    assert (judged.profile, judged.recognised) == ("second", known.recognised)


def test_runs_that_are_there_are_not_judged_with_auto_which_has_no_numbers_of_them(recorded, refused):
    """`judge --profile auto` would have judged them with those of `generic`."""
    assert "leave --profile out" in refused("judge", recorded, "--profile", "auto")
