"""Which machine this is: a hash of what its makers wrote into it. A reboot and a new system do not change it."""

import hashlib
from pathlib import Path

from fabric import HCAS, NET
from facts import read

MACHINE_ID = Path("/etc/machine-id")  # diskless nodes may share one, or get a new one at each boot
ETHERNET, BURNED_IN = "1", "0"  # type, addr_assign_type of an interface


def machine(facts, net=NET, hcas=HCAS, machine_id=MACHINE_ID):
    """A hash of the addresses of its NICs and HCAs; where it has none, of its machine id."""
    marks = [read(hca / "node_guid") for hca in hcas.glob("*") if _is_hardware(hca)]
    marks += [_address(nic) for nic in net.glob("*") if _is_hardware(nic)]
    marks = sorted(filter(None, marks)) or list(filter(None, [read(machine_id)]))
    own_hash = hashlib.sha256("\n".join(marks).encode()).hexdigest() if marks else None
    why = f"no NIC has an address of its maker, and {machine_id} no id"
    facts.answered("inventory.machine", own_hash, "text", why)


def is_virtual(cpuinfo):
    """An x86 kernel says so among the flags of a CPU; another one does not say."""
    return any(line.startswith("flags") and "hypervisor" in line.split() for line in cpuinfo.splitlines())


def _is_hardware(interface):
    """A virtual function (physfn) gets its address when it is made."""
    return (interface / "device").exists() and not (interface / "device/physfn").exists()


def _address(nic):
    """None: it is not Ethernet, or the address was set. A bond gives all its interfaces one address."""
    if read(nic / "type") != ETHERNET:
        return None
    burned_in = read(nic / "address") if read(nic / "addr_assign_type") == BURNED_IN else None
    return read(nic / "bonding_slave/perm_hwaddr") or burned_in
