"""Settings and firmware of GPUs, NICs and PCIe that should be equal on all nodes, as lists of NAME=VALUE.

A user may read all of it but the registers of PCIe, which the kernel shows to root alone: then it says so.
"""

import re
from pathlib import Path

import absent
from fabric import gbps, interface, roce
from facts import read
from patience import NoAnswer, seconds, within
from roce import flow_control

HCAS = Path("/sys/class/infiniband")
PCI = Path("/sys/bus/pci/devices")
CMDLINE = Path("/proc/cmdline")
MODULES = Path("/proc/modules")
DRIVER = Path("/proc/driver/nvidia/version")
NVIDIA, DISPLAY = "0x10de", ("0x0300", "0x0302")
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
HIDDEN = "not readable by users"
OF_PCI = ("iommu", "intel_iommu", "amd_iommu", "pci", "pcie_aspm")  # on the kernel's command line
PEERMEM = ("nvidia_peermem", "nv_peer_mem")
COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
POINTER, EXPRESS, CONTROL = 0x34, 0x10, 8  # PCI Express Base: the list of capabilities, the one of PCIe, Device Control
LINK = re.compile(r"(\d+(?:\.\d+)?) GT/s")
MOST_CAPABILITIES = 64  # of a list that may be a circle
EXTENDED, ACS, ACS_CONTROL, REDIRECTS = 0x100, 0x000D, 6, 0x1C


def devices(facts, hcas=HCAS, pci=PCI):
    nics = sorted(hcas.iterdir()) if hcas.is_dir() else []
    facts.saw("inventory.devices.nics", of_nics(nics) + of_roce(roce(hcas)), "text")
    cards = sorted(pci.iterdir()) if pci.is_dir() else []
    gpus = [card for card in cards if read(card / "vendor") == NVIDIA and _class(card).startswith(DISPLAY)]
    registers = [*gpus, *(nic / "device" for nic in nics)]
    cmdline = [word for word in (read(CMDLINE) or "").split() if word.partition("=")[0] in OF_PCI]
    modules = [line.split()[0] for line in (read(MODULES) or "").splitlines() if line.startswith(PEERMEM)]
    values = {
        "IOMMU of GPUs and NICs": [read(card / "iommu_group/type") or "none" for card in registers],
        "PCIe options of the kernel": [" ".join(cmdline) or "none"],
        "MaxPayload and MaxReadReq": [payloads(_bytes(card / "config")) for card in registers],
        "ACS of PCIe switches": [acs(_bytes(port / "config")) for port in switches_above(registers)],
        "peer memory module": modules[:1] or ["none"],
        "GPU driver": ["open" if "Open" in (read(DRIVER) or "") else "closed"] if gpus else [],
    }
    facts.saw("inventory.devices.pci", _entries(values), "text")


def of_gpus(facts, nvml):
    """Of all GPUs that answer: of one that does not, others tell."""
    values = {name: [] for name, _ in OF_GPU}
    try:
        for index in range(within(seconds(), nvml.nvmlDeviceGetCount)):
            gpu = within(seconds(), lambda index=index: nvml.nvmlDeviceGetHandleByIndex(index))
            for name, question in OF_GPU:
                values[name].append(within(seconds(), lambda ask=question, gpu=gpu: _answer(nvml, ask, gpu)))
    except (nvml.NVMLError, NoAnswer) as error:
        facts.unknown("inventory.devices.gpus", "text", f"NVML: {error}")
        return
    facts.saw("inventory.devices.gpus", _entries(values), "text")


def _answer(nvml, question, gpu):
    try:
        return question(nvml, gpu)
    except AttributeError:
        return "not supported"
    except nvml.NVMLError as error:
        if absent.kind_of_error(nvml, error) is None:
            raise
        return "not supported"


OF_GPU = (
    ("compute mode", lambda nvml, gpu: COMPUTE_MODES.get(nvml.nvmlDeviceGetComputeMode(gpu), "unknown")),
    ("VBIOS", lambda nvml, gpu: _text(nvml.nvmlDeviceGetVbiosVersion(gpu))),
    ("InfoROM", lambda nvml, gpu: _text(nvml.nvmlDeviceGetInforomImageVersion(gpu))),
    ("ECC", lambda nvml, gpu: "on" if nvml.nvmlDeviceGetEccMode(gpu)[0] else "off"),
    ("application clock", lambda nvml, gpu: f"{nvml.nvmlDeviceGetApplicationsClock(gpu, 1)} MHz"),  # 1: of the SMs
    ("power limit", lambda nvml, gpu: f"{nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000:g} W"),
)


def of_nics(nics):
    """Firmware and PCIe link by kind of board: two kinds have two firmwares. And whether each link carries the rate of
    its fastest port that is up: of two ports a slot may be made for one."""
    values = {}
    for nic in nics:
        board = read(nic / "board_id") or read(nic / "hca_type") or "NIC"
        link = [read(nic / "device" / f"current_link_{what}") for what in ("speed", "width")]
        values.setdefault(f"firmware of {board}", []).append(read(nic / "fw_ver") or HIDDEN)
        values.setdefault(f"PCIe link of {board}", []).append(f"{link[0]} x{link[1]}" if all(link) else HIDDEN)
        rate = max((gbps(port) for port in nic.glob("ports/*") if "ACTIVE" in (read(port / "state") or "")), default=0)
        speed = LINK.match(link[0] or "")
        if rate and speed and (link[1] or "").isdigit():
            coded = 128 / 130 if float(speed[1]) > 5 else 8 / 10  # PCI Express Base, 4.2: bits of data in those sent
            is_enough = float(speed[1]) * int(link[1]) * coded >= rate
            shown = "enough" if is_enough else f"{link[0]} x{link[1]} for {rate:g} Gb/s"
            values.setdefault("PCIe link for a NIC's rate", []).append(shown)
    return _entries(values)


def of_roce(ports):
    """MTU and flow control of the interfaces behind ports that carry NCCL over Ethernet."""
    interfaces = [interface(port) for port in ports]
    values = {
        "MTU of RoCE": [(read(path / "mtu") or HIDDEN) if path else HIDDEN for path in interfaces],
        "flow control of RoCE": [flow_control(path) if path else "unknown" for path in interfaces],
    }
    return _entries(values)


def switches_above(cards):
    """Ports of switches between these devices and the CPU. Above each port of the CPU itself nothing is shared."""
    ports = set()
    for card in cards:
        above = [path for path in card.resolve().parents if ADDRESS.fullmatch(path.name)]
        ports.update(above[:-1])
    return sorted(ports)


def payloads(config):
    """Bytes at most in a packet, and in a read request, from the registers of a device."""
    if len(config) <= 64:  # what the kernel shows to users
        return HIDDEN
    at = config[POINTER]
    for _ in range(MOST_CAPABILITIES):
        if not 64 <= at < len(config) - CONTROL - 1:
            break
        if config[at] == EXPRESS:
            control = int.from_bytes(config[at + CONTROL : at + CONTROL + 2], "little")
            return f"{128 << (control >> 5 & 7)} and {128 << (control >> 12 & 7)} bytes"
        at = config[at + 1]
    return "no PCIe"


def acs(config):
    """Say whether a switch's port sends packets between the devices below it up to the CPU."""
    if len(config) <= 256:
        return HIDDEN
    at = EXTENDED
    for _ in range(MOST_CAPABILITIES):
        if not EXTENDED <= at < len(config) - ACS_CONTROL - 1:
            break
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == ACS:
            control = int.from_bytes(config[at + ACS_CONTROL : at + ACS_CONTROL + 2], "little")
            return "redirects" if control & REDIRECTS else "off"
        at = header >> 20
    return "none"


def _entries(values):
    """`VBIOS=96.00.74.00.01`; where devices of the node differ, each value once."""
    return [f"{name}={'+'.join(sorted(set(several)))}" for name, several in values.items() if several]


def _class(card):
    return read(card / "class") or ""


def _text(value):
    return value.decode() if isinstance(value, bytes) else value


def _bytes(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""
