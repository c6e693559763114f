#!/usr/bin/env python3
"""The network switch of the virtual nodes: frames between QEMU's datagram sockets in their owner's folder.

switch.py FOLDER    listens at FOLDER/switch; each machine is known by the socket that it sends from
"""

import contextlib
import socket
import struct
import sys
from pathlib import Path

MOST_WAIT_US = 50_000  # for one frame


def main():
    """Forward each frame to the machine that has its address, or else to all others. Who does not read loses frames;
    a socket holds ten of them (net.unix.max_dgram_qlen), so that a machine which is busy is waited for."""
    own = Path(sys.argv[1]) / "switch"
    own.unlink(missing_ok=True)
    plug = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    plug.bind(str(own))
    plug.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, MOST_WAIT_US))
    machines = {}  # the socket of a machine, by the MAC address that frames came from
    while True:
        frame, sender = plug.recvfrom(1 << 17)
        if not sender or len(frame) < 14:
            continue
        machines[frame[6:12]] = sender
        known = machines.get(frame[:6])
        for receiver in {known} if known else set(machines.values()) - {sender}:
            with contextlib.suppress(OSError):
                plug.sendto(frame, receiver)


main()
