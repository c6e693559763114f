"""The trees of a simulated node in /proc and /sys, and its kernel's log, as its state says.

They are files in a folder of the node; `simulated.sh` mounts them where programs look.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from state import State

NVIDIA = "0x10de"
PCI = Path("/sys/bus/pci/devices")
CLASS = Path("/sys/class")
PORT_STATES = {  # state and phys_state of a port, as sysfs writes them
    "up": ("4: ACTIVE", "5: LinkUp"),
    "down": ("1: DOWN", "3: Disabled"),
    "polling": ("1: DOWN", "2: Polling"),
}
OVER_ETHERNET = "eth-"  # begins the name of a port's network interface
XIDS = {  # the driver's words; more than one is known for most, and this is one of them
    13: "Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0): Illegal Instruction Encoding",
    31: "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f3a_4c000000. "
    "Fault is of type FAULT_PDE ACCESS_TYPE_READ",
    48: "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 2, "
    "subpartition 0.",
    63: "Row Remapper: New row marked for remapping, reset gpu to activate.",
    64: "Row Remapper: Failed to add a row to the remapping table.",
    74: "NVLink: fatal error detected on link 5(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    79: "GPU has fallen off the bus.",
    94: "Contained: SM (0x1). RST: No, D-RST: No",
    95: "Uncontained: FBHUB. RST: Yes, D-RST: No",
    119: "Timeout after 6s of waiting for RPC response from GPU0 GSP!",
    145: "RLW_REMAP Nonfatal XC0 i0 Link 05 (0x00000004 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
}


def address(state: State, index: int) -> str:
    return f"0000:{state.gpu(index, 'bus')}:00.0"


def make(root: Path, pci: Path = PCI, classes: Path = CLASS) -> None:
    """What does not change with the state: the machine's own devices, as links into its /sys/devices."""
    (root / "driver/nvidia/gpus").mkdir(parents=True)
    (root / "pci").mkdir()
    for link in pci.iterdir() if pci.is_dir() else ():
        if _read(link / "vendor") != NVIDIA:  # a GPU of the machine is not the node's
            (root / "pci" / link.name).symlink_to(link.readlink())
    (root / "class/infiniband").mkdir(parents=True)
    (root / "class/nvme").mkdir()
    for folder in classes.iterdir():
        if folder.is_dir() and folder.name not in ("infiniband", "nvme"):
            (root / "class" / folder.name).mkdir()
            if folder.name == "net":  # mounted: interfaces come and go
                continue
            for entry in folder.iterdir():
                if entry.is_symlink():
                    (root / "class" / folder.name / entry.name).symlink_to(entry.readlink())


def render(state: State, root: Path) -> None:
    """All that the state says of GPUs and ports."""
    there = {address(state, index): index for index in state.driver_lists}
    for removed in {path.name for path in (root / "driver/nvidia/gpus").iterdir()} - there.keys():
        shutil.rmtree(root / "driver/nvidia/gpus" / removed)
        shutil.rmtree(root / "pci" / removed)
    _write(root / "driver/nvidia/version", f"NVRM version: NVIDIA UNIX Open Kernel Module  {state.first('driver')}")
    for at, index in there.items():
        _write(
            root / "driver/nvidia/gpus" / at / "information",
            f"Model: \t\t {state.gpu(index, 'name')}\nGPU UUID: \t {state.gpu(index, 'uuid')}\nBus Type: \t PCIe\n"
            f"Bus Location: \t {at}\nDevice Minor: \t {index}",
        )
        device = root / "pci" / at
        if device.is_symlink():  # the machine has a device at this address
            device.unlink()
        for name, text in (
            ("vendor", NVIDIA),
            ("device", state.gpu(index, "device_id")),
            ("class", "0x030200"),
            ("numa_node", state.gpu(index, "numa")),
        ):
            _write(device / name, text)
        _write_bytes(device / "config", config(state.gpu(index, "max_payload"), state.gpu(index, "max_read_request")))
    names = state.ports
    for removed in {path.name for path in (root / "class/infiniband").iterdir()} - set(names):
        shutil.rmtree(root / "class/infiniband" / removed)
    for name in names:
        _port(state, name, root / "class/infiniband" / name)
    for removed in {path.name for path in (root / "class/nvme").iterdir()} - {f"nvme{index}" for index in state.drives}:
        shutil.rmtree(root / "class/nvme" / removed)
    for index in state.drives:
        _drive(state, index, root / "class/nvme" / f"nvme{index}")


def _drive(state: State, index: int, drive: Path) -> None:
    for file, key in (
        ("model", "model"),
        ("firmware_rev", "firmware"),
        ("state", "state"),
        ("transport", "transport"),
        ("device/current_link_speed", "link_speed"),
        ("device/current_link_width", "link_width"),
        (f"{drive.name}n1/size", "sectors"),
        (f"{drive.name}n1/ro", "read_only"),
    ):
        _write(drive / file, state.drive(index, key))


def _port(state: State, name: str, hca: Path) -> None:
    port = hca / "ports/1"
    for file, key in (
        ("device/numa_node", "numa"),
        ("fw_ver", "firmware"),
        ("board_id", "board"),
        ("device/current_link_speed", "link_speed"),
        ("device/current_link_width", "link_width"),
    ):
        _write(hca / file, state.port(name, key))
    _write_bytes(hca / "device/config", config(state.port(name, "max_payload"), state.port(name, "max_read_request")))
    for file, text in zip(("state", "phys_state"), PORT_STATES[state.port(name)], strict=True):
        _write(port / file, text)
    _write(port / "rate", state.port(name, "rate"))
    _write(port / "link_layer", state.port(name, "layer"))
    interface = hca / "device/net" / f"{OVER_ETHERNET}{name}"
    shutil.rmtree(interface / "ecn", ignore_errors=True)
    if state.port(name, "layer") == "Ethernet":
        _write(interface / "mtu", state.port(name, "mtu"))
        _write(interface / "dev_port", "0")
        for what in ("roce_np", "roce_rp") if state.port(name, "ecn") != "hidden" else ():
            for priority in range(8):
                is_on = priority == 3 and state.port(name, "ecn") == "on"
                _write(interface / "ecn" / what / "enable" / str(priority), str(int(is_on)))
    for key in state.values:
        kind, _, counter = key.removeprefix("port.").partition(".")
        if key.startswith("port.") and kind in state.port(name, "folders").split():
            _write(port / kind / counter, state.port(name, f"{kind}.{counter}"))


def config(payload: str, read_request: str) -> bytes:
    """Registers of a PCIe device, as root reads them: the list of capabilities has one, of PCIe."""
    registers = bytearray(256)
    registers[0x34], registers[0x40] = 0x40, 0x10
    control = (int(payload) // 128).bit_length() - 1 << 5 | (int(read_request) // 128).bit_length() - 1 << 12
    registers[0x48:0x4A] = control.to_bytes(2, "little")
    return bytes(registers)


def kernel_log(state: State, boot: str) -> str:
    """What it says at boot, and the driver's lines."""
    now_us = int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1e6)
    lines = []
    for xid in filter(None, state.first("xids").split("|")):
        number, _, rest = xid.partition("@")
        index, _, words = rest.partition(":")
        words = words or XIDS.get(int(number), "")
        pci = address(state, int(index)).removesuffix(".0")
        lines.append(
            f"4,7,{now_us},-;NVRM: Xid (PCI:{pci}): {number}, pid='<unknown>', name=<unknown>, {words}".rstrip(", ")
        )
    return boot + "".join(f"{line}\n" for line in lines)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _write(path: Path, text: str) -> None:
    _write_bytes(path, f"{text}\n".encode())


def _write_bytes(path: Path, content: bytes) -> None:
    """In one step: a probe must never meet half a file. A file that says so already stays."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(path)
