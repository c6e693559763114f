"""The addresses of this node, by interface, as the kernel gives them. No tool, no root."""

import array
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

SIOCGIFCONF = 0x8912  # netdevice(7)
IFREQ = struct.Struct("16s HH4s 16x")  # name, sockaddr_in: family, port, address
ROOM = 1024 * IFREQ.size
IF_INET6 = Path("/proc/net/if_inet6")


def by_interface():
    """{interface: [addresses]}, without loopback and without addresses that hold on one link only."""
    of_interface = {}
    for interface, address in [*_ipv4(), *_ipv6(IF_INET6)]:
        if not (address.is_loopback or address.is_link_local):
            of_interface.setdefault(interface, []).append(str(address))
    return of_interface


def _ipv4():
    entries = array.array("B", bytes(ROOM))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        request = struct.pack("iP", ROOM, entries.buffer_info()[0])
        used = struct.unpack("iP", fcntl.ioctl(asking.fileno(), SIOCGIFCONF, request))[0]
    for name, _, _, address in IFREQ.iter_unpack(entries.tobytes()[:used]):
        interface = name.rstrip(b"\0").decode(errors="replace").partition(":")[0]  # eth0:1 is a label of eth0
        yield interface, ipaddress.IPv4Address(address)


def _ipv6(file):
    if not file.exists():  # IPv6 is switched off
        return
    for line in file.read_text().splitlines():
        fields = line.split()  # address, number of the interface, prefix, scope, flags, name
        yield fields[5], ipaddress.IPv6Address(int(fields[0], 16))
