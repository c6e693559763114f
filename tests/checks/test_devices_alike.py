"""Firmware and settings of GPUs, NICs and PCIe: read as a user and as root reads them, and compared between nodes."""

from pathlib import Path

import devices
import trees
from bringup.evidence.parsed import Parsed
from bringup.records import Outcome, Value, Verdict
from factory import a_run
from loops import for_each
from nvml_for_tests import HEALTHY, FakeNvml
from probing import told_by
from runs_for_tests import about, add_derived
from showing import shows_failing

NODES = ("n0", "n1", "n2")


def node(root: Path, firmware: str = "28.39.1002", payload: str = "256", users: bool = False) -> Path:
    """sysfs of a node with one NIC, one GPU and one bridge. users: the kernel shows 64 bytes of their registers."""
    registers = trees.config(payload, "512")[: 64 if users else None]
    for file, content in {
        "ib/mlx5_0/fw_ver": firmware,
        "ib/mlx5_0/board_id": "MT_0000000838",
        "ib/mlx5_0/device/current_link_speed": "32.0 GT/s PCIe",
        "ib/mlx5_0/device/current_link_width": "16",
        "pci/0000:1b:00.0/vendor": "0x10de",
        "pci/0000:1b:00.0/class": "0x030200",
        "pci/0000:1b:00.0/iommu_group/type": "identity",
        "pci/0000:00:01.0/class": "0x060400",
    }.items():
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    for device in ("ib/mlx5_0/device", "pci/0000:1b:00.0", "pci/0000:00:01.0"):
        (root / device / "config").write_bytes(registers)
    return root


def told_of(root: Path, at: str = "n0", **gpu: object) -> Parsed:
    parsed = told_by(lambda facts: devices.devices(facts, root / "ib", root / "pci"), at)
    parsed.add(told_by(lambda facts: devices.of_gpus(facts, FakeNvml({**HEALTHY, **gpu})), at))
    return parsed


def verdicts(*nodes: Parsed) -> dict[str, Verdict]:
    parsed = Parsed()
    for node_facts in nodes:
        parsed.add(node_facts)
    run = a_run("discovery", NODES, profile="h100-8x400g")
    return about("discovery.devices", add_derived(parsed, run), run)


@shows_failing("discovery.devices")
def test_other_firmware_and_another_setting_warn_on_their_node_and_are_named(tmp_path: Path) -> None:
    parts: dict[str, tuple[dict[str, str], dict[str, object], str]] = {
        "firmware of a NIC": ({"firmware": "28.36.1010"}, {}, "28.36.1010, 2 of 3 have 28.39.1002"),
        "PCIe": ({"payload": "128"}, {}, "128 and 512 bytes+256 and 512 bytes"),
        "VBIOS": ({}, {"vbios": "96.00.61.00.01"}, "VBIOS: 96.00.61.00.01"),
        "ECC": ({}, {"ecc_mode": (0, 0)}, "ECC: off"),
    }
    for name, (files, gpu, words) in parts.items():
        healthy = [told_of(node(tmp_path / name / at), at) for at in ("n0", "n2")]
        odd = node(tmp_path / name / "n1", **files)
        if files.get("payload"):  # of the GPU alone
            (odd / "ib/mlx5_0/device/config").write_bytes(trees.config("256", "512"))
        by_node = verdicts(*healthy, told_of(odd, "n1", **gpu))
        assert {at: verdict.outcome for at, verdict in by_node.items()} == {
            "n0": Outcome.PASS,
            "n1": Outcome.WARN,
            "n2": Outcome.PASS,
        }, name
        assert words in by_node["n1"].observed, name


def test_gpus_that_do_not_answer_leave_the_comparison_open(tmp_path: Path) -> None:
    lost = told_of(node(tmp_path / "n1"), "n1", name=FakeNvml.NVMLError("GPU is lost"))
    by_node = verdicts(told_of(node(tmp_path / "n0"), "n0"), lost, told_of(node(tmp_path / "n2"), "n2"))
    assert by_node["n1"].outcome is Outcome.INCOMPLETE
    assert "GPU is lost" in str(by_node["n1"].cause)
    assert by_node["n0"].outcome is Outcome.PASS


def test_registers_that_the_kernel_hides_from_users_are_said_to_be_hidden(tmp_path: Path) -> None:
    value_of: dict[str, Value | None] = {
        fact.quantity: fact.value for fact in told_of(node(tmp_path, users=True)).observations
    }
    assert value_of["inventory.devices.nics"] == [
        "firmware of MT_0000000838=28.39.1002",
        "PCIe link of MT_0000000838=32.0 GT/s PCIe x16",
    ]
    entries = value_of["inventory.devices.pci"]
    assert isinstance(entries, list)
    assert {"MaxPayload and MaxReadReq=not readable by users", "ACS of bridges=not readable by users"} <= set(entries)
    assert "IOMMU of GPUs and NICs=identity+none" in entries


ACS = bytes(256) + (devices.ACS | 1 << 16).to_bytes(4, "little") + (0x1F).to_bytes(2, "little")


@for_each(
    ("config", "says"),
    [
        (bytes(64), devices.HIDDEN),
        (bytes(4096), "none"),
        (ACS + (0x1D).to_bytes(2, "little") + bytes(64), "redirects"),
        (ACS + bytes(66), "off"),
        (
            bytes(256) + (0x0001 | 0x148 << 20).to_bytes(4, "little") + bytes(68) + ACS[256:] + b"\x04\0" + bytes(9),
            "redirects",
        ),
    ],
)
def test_acs_is_read_from_the_extended_registers(config: bytes, says: str) -> None:
    assert devices.acs(config) == says


@for_each(
    "config",
    [
        bytes(256),
        b"\xff" * 256,
        bytes(52) + b"\x40" + bytes(203),
        bytes(52) + b"\x40" + bytes(12) + b"\x40" + bytes(190),
    ],
)
def test_registers_without_sense_end_no_probe(config: bytes) -> None:
    assert devices.payloads(config) == "no PCIe"
    assert devices.acs(config + b"\xff" * 64) in ("none", devices.HIDDEN)
