#!/usr/bin/env python3
"""Hold back every frame between two interfaces: a delay for kernels without sch_netem. Ends when one of them is gone.

Usage, on the login host, for node n1 (its end of the cable is vn1, the bridge's is br0):
  ip link add dl0 type veth peer name dl1; ip link set dl0 master br0 up; ip link set dl1 up; ip link set vn1 nomaster
  delay_link.py vn1 dl1 MILLISECONDS
Undo: ip link del dl0; ip link set vn1 master br0
One Python process: it bounds the bandwidth as well.
"""

from __future__ import annotations

import collections
import contextlib
import select
import socket
import sys
import time

# from linux/if_packet.h. Frames keep their virtio-net header: checksum and segmentation offload on veth stay valid
SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING, ETH_P_ALL = 263, 15, 23, 3
LARGEST_FRAME = 70_000  # bytes, of a segmentation offload
RECEIVE_BUFFER = 8 << 20
AT_ONCE = 64


def tap(interface: str) -> socket.socket:
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    link.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    link.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    link.bind((interface, 0))
    link.setblocking(False)
    return link


def forward(first: socket.socket, second: socket.socket, delay_s: float) -> None:
    """Until an interface is gone (OSError from recv)."""
    peer = {first: second, second: first}
    # in order: the delay is constant
    waiting: collections.deque[tuple[float, socket.socket, bytes]] = collections.deque()
    while True:
        patience_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select([first, second], [], [], patience_s)
        due = time.monotonic() + delay_s
        for link in readable:
            with contextlib.suppress(BlockingIOError):
                for _ in range(AT_ONCE):
                    waiting.append((due, peer[link], link.recv(LARGEST_FRAME)))
        while waiting and waiting[0][0] <= time.monotonic():
            _, out, frame = waiting.popleft()
            with contextlib.suppress(OSError):  # a full interface drops, as a wire would
                out.send(frame)


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit("usage: delay_link.py INTERFACE INTERFACE MILLISECONDS")
    with contextlib.suppress(OSError):
        forward(tap(sys.argv[1]), tap(sys.argv[2]), float(sys.argv[3]) / 1000)


if __name__ == "__main__":
    main()
