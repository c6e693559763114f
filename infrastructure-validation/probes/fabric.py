"""Network interfaces and RDMA ports from sysfs, and which NUMA node NICs and GPUs sit at."""

import re
from pathlib import Path

import hca
from facts import read

NET = Path("/sys/class/net")
HCAS = Path("/sys/class/infiniband")
PCI = Path("/sys/bus/pci/devices")
NVIDIA = "0x10de"
COUNTERS = {  # of a port since its driver was loaded, in sysfs; InfiniBand's own names
    "flaps": ("link_downed", "link_error_recovery"),
    "errors": ("symbol_error", "port_rcv_errors", "local_link_integrity_errors"),
}
ABSENT = "absent"  # the driver of this port has no such counters
NO_PMA = "N/A (no PMA)"  # the same in older kernels' words: drivers/infiniband/core/sysfs.c
NOWHERE = "-1"  # the kernel's word for no NUMA node
DISPLAY = ("0x0300", "0x0302")  # PCI classes of a GPU with and without a screen


def fabric(facts, net=NET, hcas=HCAS, pci=PCI):
    interfaces = sorted(path.name for path in net.iterdir() if path.name != "lo")
    facts.saw("discovery.net.interfaces", interfaces, "text")
    ports = sorted(hcas.glob("*/ports/*")) if hcas.is_dir() else []
    facts.saw("discovery.rdma.ports", len(ports), "count")
    fastest = max((gbps(port) for port in ports), default=0.0)
    for_nccl = hca.named()
    for port in ports:
        device = port.parent.parent
        subject = f"{facts.at}/{device.name}:{port.name}"
        if for_nccl:
            may = hca.allows(for_nccl, f"{device.name}:{port.name}")
            facts.saw("discovery.rdma.compute", may, "flag", subject, f"NCCL_IB_HCA={for_nccl}")
        _saw(facts, "discovery.rdma.state", port / "state", subject)  # "4: ACTIVE"
        _saw(facts, "discovery.rdma.phys_state", port / "phys_state", subject)  # "5: LinkUp"
        _saw(facts, "discovery.rdma.rate", port / "rate", subject)  # "400 Gb/sec (4X NDR)"
        _saw(facts, "discovery.rdma.layer", port / "link_layer", subject)  # InfiniBand or Ethernet
        in_software = not (device / "device").exists()  # rxe, siw: no device, and no cable of its own
        if in_software:
            facts.saw("discovery.rdma.numa", NOWHERE, "text", subject, "a driver in software")
        else:
            _saw(facts, "discovery.rdma.numa", device / "device/numa_node", subject)
        folder = port / ("hw_counters" if in_software else "counters")
        for kind, names in COUNTERS.items():
            lacks = (None, NO_PMA) if in_software else (NO_PMA,)
            names = [name for name in names if read(folder / name) not in lacks]
            if not names or (gbps(port) < fastest and not folder.is_dir()):  # the last: for people, or for storage
                facts.saw(f"inventory.rdma.{kind}", ABSENT, "count", subject)
            else:
                _counted(facts, f"inventory.rdma.{kind}", folder, names, subject)
    for device in sorted(pci.iterdir()) if pci.is_dir() else []:
        if read(device / "vendor") == NVIDIA and (read(device / "class") or "").startswith(DISPLAY):
            _saw(facts, "discovery.numa.gpu", device / "numa_node", f"{facts.at}/{device.name}")


def uses_rdma(hcas=HCAS):
    """Whether a port of this node is active."""
    return any("ACTIVE" in (read(state) or "") for state in hcas.glob("*/ports/*/state"))


def roce(hcas=HCAS):
    """Ports over Ethernet that carry NCCL: those it is told to use, or else the active ones that are as fast as any."""
    active = [port for port in sorted(hcas.glob("*/ports/*")) if "ACTIVE" in (read(port / "state") or "")]
    fastest, named = max(map(gbps, active), default=0.0), hca.named()
    ports = [port for port in active if read(port / "link_layer") == "Ethernet"]
    if named:
        return [port for port in ports if hca.allows(named, f"{port.parent.parent.name}:{port.name}")]
    return [port for port in ports if gbps(port) == fastest]


def interface(port):
    """The network interface of a port over Ethernet. None: it is in another network namespace."""
    device = port.parent.parent
    if not (device / "device").exists():
        return NET / (read(port / "gid_attrs/ndevs/0") or "unknown")
    interfaces = sorted((device / "device/net").glob("*"))
    own = [path for path in interfaces if read(path / "dev_port") == str(int(port.name) - 1)]
    return next(iter(own or interfaces), None)


def gbps(port):
    match = re.match(r"(\d+(?:\.\d+)?) Gb/sec", read(port / "rate") or "")
    return float(match.group(1)) if match else 0.0


def _saw(facts, quantity, path, subject):
    facts.answered(quantity, read(path), "text", f"{path} cannot be read", subject)


def _counted(facts, quantity, folder, names, subject):
    """Their sum, and in the remark each that is not 0."""
    texts = {name: read(folder / name) for name in names}
    unknown = [name for name, text in texts.items() if text is None or not text.isdigit()]
    if unknown:
        facts.unknown(quantity, "count", f"{folder / unknown[0]} says {texts[unknown[0]]}", subject)
        return
    counts = {name: int(text) for name, text in texts.items()}
    remark = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    facts.saw(quantity, sum(counts.values()), "count", subject, remark or None)
