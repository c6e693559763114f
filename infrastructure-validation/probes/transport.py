"""What carried the bytes between hosts, as the hosts themselves count it. NCCL's own words are read by parsers/nccl_log.py."""

from pathlib import Path

RDMA = Path("/sys/class/infiniband")


def interface_bytes():
    """{interface: bytes sent}, without the loopback."""
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    return {name.strip(): int(cells.split()[8])
            for name, _, cells in (line.partition(":") for line in lines) if name.strip() != "lo"}


def sent_since(before):
    return {name: sent - before.get(name, 0) for name, sent in interface_bytes().items()}


def active_rdma_devices():
    """Names of the RDMA devices of this host that have an active port: mlx5_0."""
    states = sorted(RDMA.glob("*/ports/*/state"))  # 4: ACTIVE
    return sorted({path.parts[-4] for path in states if "ACTIVE" in path.read_text(errors="replace")})


def carriers(moved, least_bytes):
    """(interfaces that carried at least `least_bytes` out of a host, joined; None) or (None, why). moved: one dict per rank."""
    if least_bytes == 0:
        return "inside one host", None
    busiest = [max(host.items(), key=lambda item: item[1], default=("none", 0)) for host in moved]
    silent = sum(sent < least_bytes for _, sent in busiest)
    if silent:
        return None, f"no interface carried {least_bytes} bytes on {silent} ranks' hosts"
    return "+".join(sorted({f"tcp:{name}" for name, _ in busiest})), None
