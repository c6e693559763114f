"""Settings of the kernel and of the network that should be equal on all nodes, as lists of NAME=VALUE."""

import resource
from collections import Counter
from pathlib import Path

import addresses
from facts import read

SYSCTL = Path("/proc/sys")
CPUS = Path("/sys/devices/system/cpu")
NET = Path("/sys/class/net")
ROUTES = Path("/proc/net/route")
ABSENT = "absent"  # this kernel, or this network namespace, has no such setting

NAMES = {
    "net": (
        "net.core.rmem_max",
        "net.core.wmem_max",
        "net.core.somaxconn",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_wmem",
        "net.ipv4.tcp_congestion_control",
        "net.ipv4.ip_local_port_range",
    ),
    "kernel": (
        "vm.swappiness",
        "vm.zone_reclaim_mode",
        "vm.overcommit_memory",
        "vm.max_map_count",
        "kernel.numa_balancing",
        "kernel.pid_max",
        "fs.file-max",
    ),
}
# the kernel makes it from the memory, which differs a little between equal boards; beyond this it never matters
ENOUGH = {"fs.file-max": 1000000}
ANY = "00000000"


def settings(facts):
    for group, names in NAMES.items():
        facts.saw(f"inventory.settings.{group}", [f"{name}={sysctl(name)}" for name in names], "text")
    facts.saw("inventory.settings.task", [f"ulimit -l={memlock()}", f"CPU governor={governor(CPUS)}"], "text")
    facts.saw("inventory.network", network(NET, ROUTES, set(addresses.by_interface())), "text")


def sysctl(name, root=None):
    try:
        text = ((root or SYSCTL) / name.replace(".", "/")).read_text()
    except FileNotFoundError:
        return ABSENT
    except OSError as error:
        return error.strerror
    value = " ".join(text.split())
    enough = ENOUGH.get(name)
    return f"{enough} or more" if enough is not None and value.isdigit() and int(value) >= enough else value


def memlock():
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return "unlimited" if soft == resource.RLIM_INFINITY else str(soft)


def governor(cpus):
    """The frequency governors of the CPUs; absent in most virtual machines, and where the firmware decides."""
    governors = {path.read_text().strip() for path in cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    return "+".join(sorted(governors)) or ABSENT


def network(net, routes, addressed):
    """How many interfaces of each kind have an address, whatever they are called, and what the default route uses.

    Only those that end in a device: bridges and tunnels of containers come and go. In a container none does, and all
    count."""
    paths = [net / name for name in sorted(addressed) if (net / name).exists()]
    counted = Counter(kind(path) for path in ([path for path in paths if is_real(path)] or paths))
    interface = default_route(routes)
    over = "none" if interface is None else driver(net / interface)
    return [f"{name}={count}" for name, count in sorted(counted.items())] + [f"default route over={over}"]


def is_real(path):
    """A device, or made of one: a bond, a VLAN."""
    return (path / "device").exists() or any(is_real(path.parent / lower.name[6:]) for lower in path.glob("lower_*"))


def kind(path):
    speed, duplex, mtu = (read(path / name) for name in ("speed", "duplex", "mtu"))
    fast = f"{speed} Mb/s {duplex or '?'} duplex" if speed is not None and int(speed) > 0 else "speed unknown"
    return f"{driver(path)}, {fast}, MTU {mtu}" + (", no carrier" if read(path / "operstate") == "down" else "")


def driver(path):
    """Its driver; of what has no device the type: bond, vlan."""
    link = path / "device/driver"
    if link.exists():
        return link.resolve().name
    for line in (read(path / "uevent") or "").splitlines():
        if line.startswith("DEVTYPE="):
            return line.partition("=")[2]
    return "virtual"


def default_route(routes):
    """The interface of the IPv4 route to everywhere with the least metric; None: there is none."""
    rows = [line.split() for line in (read(routes) or "").splitlines()[1:]]
    routes_to_any = [(int(row[6]), row[0]) for row in rows if len(row) > 7 and row[1] == ANY and row[7] == ANY]
    return min(routes_to_any)[1] if routes_to_any else None
