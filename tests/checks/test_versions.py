"""Versions of a node: known faults of what is installed, and the fabric manager beside the driver."""

import fabric_manager
import pytest
import yaml
from bringup.domains import node
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.records import SiteUsed, Verdict
from bringup.readers.known import vendors
from factory import a_run
from loops import for_each
from probing import answers_of, told_by
from programs import on_path
from pydantic import TypeAdapter, ValidationError
from runs_for_tests import FAIL, H100, OPEN, PASS, WARN, about, add_derived, in_words, parsed_of
from showing import shows_failing

FAULTS = "discovery.versions.faults"
CONTAINER = SiteUsed(name="lab", says={"container": {"image": "/images/torch.sqsh"}})


OF_EACH = [("discovery.gpu.driver", "/GPU-a", "580.105.08"), ("inventory.devices.nics", "", ["MTU of RoCE=9000"])]
TRAITS = dict.fromkeys(("gpus", "rdma", "RoCE", "x86", "arm"), True)


def of(parsed: Parsed, gate: str, site: SiteUsed | None = None) -> Verdict:
    run = a_run("discovery", ("n0",)).model_copy(update={"site": site})
    return about(gate, add_derived(parsed, run), run, H100)["n0"]


def judged_with(*facts: tuple[str, str, object], site: SiteUsed | None = None) -> tuple[object, str]:
    return in_words(of(parsed_of(facts), FAULTS, site))


def packages(*entries: str) -> tuple[str, str, list[str]]:
    return "inventory.packages", "n0", [*entries]


ARM, X86 = ("discovery.cpu.model", "n0", "aarch64 implementer 0x41"), ("discovery.cpu.model", "n0", "AMD EPYC")
B200 = ("discovery.gpu.model", "n0/GPU-a", "NVIDIA B200")
AN_H100 = ("discovery.gpu.model", "n0/GPU-a", "NVIDIA H100 80GB HBM3")
UNDECIDED = "not found out: the node did not say what decides"
DRIVER = ("discovery.gpu.driver", "n0/GPU-a", "580.105.08")
ROCE = ("inventory.devices.nics", "n0", ["firmware of MT_1=28.46.1006+28.39.1002", "MTU of RoCE=9000"])


@shows_failing(FAULTS)
@for_each(
    ([packages("torch=2.7.0+cu126", "torch's CUDA=12.6")], WARN, "1 (torch 2.7.0+cu126: collectives hang now and then"),
    ([packages("torch=2.7.1+cu126")], PASS, "0 (none is known of torch 2.7.1+cu126)"),
    ([packages("torch=absent", "numpy=2.3.1"), DRIVER, AN_H100], PASS, "0 (none is known of driver 580.105.08)"),
    ([DRIVER], OPEN, f"{UNDECIDED} whether it is hit: driver 580.105.08: nvidia-smi"),
    ([packages("nvidia_nccl_cu12=2.28.9")], OPEN, UNDECIDED),
    ([packages("nvidia_nccl_cu12=2.26.2")], WARN, "1 (NCCL 2.26.2: ncclCommSplit may corrupt memory"),
    ([packages("nvidia_nccl_cu12=2.28.9"), ARM], WARN, "1 (NCCL 2.28.9: collectives hang without an error"),
    ([packages("nvidia_nccl_cu12=2.28.9"), X86], PASS, "0 (none is known of NCCL 2.28.9)"),
    ([("inventory.library.libnccl", "n0", "libnccl.so.2.18.1 9 bytes a1b2")], WARN, "1 (NCCL 2.18.1: Tree with LL128"),
    ([DRIVER, B200], WARN, "1 (driver 580.105.08: nvidia-smi hangs after 66 days"),
    ([ROCE], WARN, "1 (NIC firmware 28.46.1006: congestion control is set for all"),
    ([("slurm.node.version", "n0", "25.05.0")], WARN, "2 (Slurm 25.05.0: one GPU is given to several jobs"),
    ([("slurm.node.version", "n0", "25.05.4-1"), packages()], PASS, "0 (none is known of Slurm 25.05.4-1)"),
)
def test_a_known_fault_of_a_version_is_named_with_what_avoids_it_and_its_address(facts, outcome, says):
    seen, words = judged_with(*facts)
    assert (seen, words[: len(says)].removesuffix(")")) == (outcome, says.removesuffix(")"))
    assert outcome is PASS or ("; avoid it: " in words and "(https://" in words)


def test_slurms_word_alone_is_no_word_of_the_node():
    assert judged_with(("slurm.node.version", "n0", "25.05.4-1")) == (OPEN, "no evidence arrived")


def test_what_a_container_brings_is_not_judged_by_the_nodes_own():
    torch, firmware = packages("torch=2.7.0"), ROCE
    assert judged_with(torch, firmware, site=CONTAINER)[1].startswith("1 (NIC firmware 28.46.1006")


def test_the_versions_that_are_pinned_here_have_no_known_fault():
    pinned = ("torch", "2.13.0"), ("transformers", "5.23.0"), ("accelerate", "1.15.0")
    assert [vendors.faults(*pair, TRAITS, ["NVIDIA B200"]) for pair in pinned] == [([], [])] * 3


class Counting(Seen):
    asked = 0

    def of(self, quantity, step=None):
        self.asked += 1
        return super().of(quantity, step)


@pytest.mark.parametrize("derive", [node.known_version_faults, node.right_settings])
def test_facts_are_gone_through_as_often_for_many_nodes_as_for_one(derive):
    """Each node went through those of all nodes: 4,096 nodes took 100 s."""
    asked = []
    for count in (1, 40):
        nodes = [f"n{number}" for number in range(count)]
        facts = [(name, f"{node}{at}", value) for name, at, value in OF_EACH for node in nodes]
        observed = Counting(parsed_of(facts).observations)
        derive(derived := Parsed(), observed, a_run("discovery", nodes))
        assert len(derived.observations) == count
        asked.append(observed.asked)
    assert asked[0] == asked[1] > 0


def test_the_table_is_read_strictly_and_each_row_has_its_own_address():
    assert len(vendors.version_faults()) >= 20
    assert all(fault.source.startswith("https://") for fault in vendors.version_faults())
    assert {fault.component for fault in vendors.version_faults()} == set(vendors.Component.__args__)
    row = vendors.version_faults()[0].model_dump()
    for change in ({"harms": "x"}, {"versions": ["before 2.18"]}, {"component": "CUDA"}, {"where": ["cloud"]}):
        with pytest.raises(ValidationError):
            TypeAdapter(vendors.VersionFault).validate_python(row | change)


@for_each(
    ("2.28.2", False), ("2.28.3", True), ("2.28.8+cuda12.9", True), ("2.28.9", False), ("2.28", False), ("?", False)
)
def test_a_range_has_its_first_version_and_not_its_last(version, has):
    text = "{component: NCCL, versions: [2.28.3 .. 2.28.9], hits: a, avoid: b, source: c}"
    assert vendors.VersionFault.model_validate(yaml.safe_load(text)).has(version) is has


# --- the fabric manager

MANAGER = "discovery.fabric_manager"
JOINED = [("discovery.gpu.fabric", "n0/GPU-a", "completed")]
ALONE = [("discovery.gpu.fabric", "n0/GPU-a", "not supported")]


def manager(version: str | None, driver: str | None = "570.86.15", switches: int | None = 0, fabric=JOINED) -> Verdict:
    facts = [("inventory.fabric_manager", "n0", version), ("inventory.nvswitches", "n0", switches)]
    facts += [("discovery.gpu.driver", "n0/GPU-a", driver), ("discovery.gpu.count", "n0", 8)]
    return of(parsed_of([*facts, *fabric]), MANAGER)


@shows_failing(MANAGER)
@for_each(
    (lambda: manager("570.86.15"), PASS, "as the driver (fabric manager 570.86.15, driver 570.86.15)"),
    (lambda: manager("570.86.10"), WARN, "another one (fabric manager 570.86.10, driver 570.86.15)"),
    (lambda: manager("570.86.10", switches=4, fabric=ALONE), WARN, "another one"),  # HGX A100
    (lambda: manager("570.86.10", fabric=ALONE), PASS, "no NVSwitch"),
    (lambda: manager("570.86.15", switches=None, fabric=ALONE), OPEN, "not found out: the node did not say whether"),
    (lambda: manager("570.86.15", fabric=[]), OPEN, "not found out: the node did not say whether"),
    (lambda: manager("not installed"), PASS, "not installed"),  # it runs in another virtual machine
    (lambda: manager("570.86.10", driver=None), OPEN, "not found out: fabric manager 570.86.10, driver ?"),
    (lambda: manager(None), OPEN, "not found out"),
)
def test_the_fabric_manager_has_the_version_of_the_driver(verdict, outcome, says):
    seen, words = in_words(verdict())
    assert (seen, words[: len(says)]) == (outcome, says)
    assert seen is not FAIL


@for_each(
    ({"driver": "570.86.15"}, "570.86.15"),
    ({"driver": "570.86.15", "manager_version": "570.86.10"}, "570.86.10"),
    ({}, None),
    (None, "not installed"),
)
def test_the_program_says_its_version(tmp_path, monkeypatch, state, value):
    path = str(tmp_path) if state is None else on_path(tmp_path / "node", **state)["PATH"]
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("BRINGUP_SIMULATED_STATE", str(tmp_path / "node/state.conf"))
    for name in ("nvidia-nvswitch0", "nvidia-nvswitch1", "nvidia-nvswitchctl"):
        (tmp_path / name).touch()
    monkeypatch.setattr(fabric_manager, "SWITCHES", tmp_path)
    known = answers_of(fabric_manager.fabric_manager)
    assert (known["inventory.fabric_manager"][0], known["inventory.nvswitches"][0]) == (value, 2)
    assert told_by(fabric_manager.fabric_manager).problems == []
