#!/usr/bin/env python3
"""The network switch of the virtual nodes: frames between QEMU's datagram sockets in one folder, which only their owner can enter.

    switch.py FOLDER    listens at FOLDER/switch; each machine is known by the socket that it sends from
"""
import os
import socket
import sys


def main():
    """Forward each frame to the machine that has its address, or to all others; one that does not read loses frames, as on a cable."""
    folder = sys.argv[1]
    own = os.path.join(folder, "switch")
    if os.path.exists(own):
        os.unlink(own)
    plug = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    plug.bind(own)
    plug.setblocking(True)
    machines = {}  # the socket of a machine, by the MAC address that frames came from
    while True:
        frame, sender = plug.recvfrom(1 << 17)
        if not sender or len(frame) < 14:
            continue
        machines[frame[6:12]] = sender
        known = machines.get(frame[:6])
        for receiver in {known} if known else set(machines.values()) - {sender}:
            try:
                plug.sendto(frame, socket.MSG_DONTWAIT, receiver)
            except OSError:
                pass


main()
