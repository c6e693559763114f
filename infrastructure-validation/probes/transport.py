"""What carried the bytes between hosts, as the hosts themselves count it. NCCL's own words are read by
readers/nccl_log.py of the package."""

from pathlib import Path

RDMA = Path("/sys/class/infiniband")
# bytes per count, sent, received: InfiniBand and RoCE count words of 4 bytes; EFA counts bytes
COUNTERS = (
    (4, "counters/port_xmit_data", "counters/port_rcv_data"),
    (1, "hw_counters/tx_bytes", "hw_counters/rx_bytes"),
)


def interface_traffic():
    """{interface: (bytes sent, received)}, without the loopback."""
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    return {
        name.strip(): (int(cells.split()[8]), int(cells.split()[0]))
        for name, _, cells in (line.partition(":") for line in lines)
        if name.strip() != "lo"
    }


def interface_bytes():
    """{interface: bytes sent}, without the loopback."""
    return {name: sent for name, (sent, _) in interface_traffic().items()}


def sent_since(before):
    return {name: sent - before.get(name, 0) for name, sent in interface_bytes().items()}


def active_rdma_devices():
    """Names of the RDMA devices of this host that have an active port: mlx5_0."""
    states = sorted(RDMA.glob("*/ports/*/state"))  # 4: ACTIVE
    return sorted({path.parts[-4] for path in states if "ACTIVE" in path.read_text(errors="replace")})


def rdma_reader(rdma=RDMA):
    """A function that returns {device: (bytes sent, received)} of all active RDMA ports, which /proc/net/dev does not
    see; None instead of the two where a port does not count. A second port of a device is called mlx5_0/2."""
    active = [
        path.parent for path in sorted(rdma.glob("*/ports/*/state")) if "ACTIVE" in path.read_text(errors="replace")
    ]
    counters = {
        port.parts[-3] if port.name == "1" else f"{port.parts[-3]}/{port.name}": _counters(port) for port in active
    }

    def count(files):
        try:
            unit, *counted = files
            return tuple(unit * int(file.read_text()) for file in counted)
        except (OSError, ValueError):
            return None

    return lambda: {name: files and count(files) for name, files in counters.items()}


def total(devices):
    """(sent, received) over all of them. (None, None) where there is none, or one does not count: a sum without one
    of them would be a wrong number."""
    if not devices or None in devices.values():
        return None, None
    return tuple(sum(counts) for counts in zip(*devices.values()))


def _counters(port):
    """(bytes per count, file of what was sent, of what was received) of a port; None when it counts no bytes."""
    for unit, *names in COUNTERS:
        files = [port / name for name in names]
        try:
            [int(path.read_text()) for path in files]  # a port that cannot count says `N/A (no PMA)`
        except (OSError, ValueError):
            continue
        return (unit, *files)
    return None


def carriers(moved, least_bytes):
    """(interfaces that carried at least `least_bytes` out of a host, joined; None) or (None, why). moved: one dict per
    rank."""
    if least_bytes == 0:
        return "inside one host", None
    busiest = [max(host.items(), key=lambda item: item[1], default=("none", 0)) for host in moved]
    silent = sum(sent < least_bytes for _, sent in busiest)
    if silent:
        return None, f"no interface carried {least_bytes} bytes on {silent} ranks' hosts"
    return "+".join(sorted({f"tcp:{name}" for name, _ in busiest})), None
