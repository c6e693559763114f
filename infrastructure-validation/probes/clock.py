#!/usr/bin/env python3
"""How far this node's clock is from the clock of the reference node, measured: round trips over TCP.

A sample is: this node's time, the reference's time, this node's time again. The reference read its clock between the
two readings here, so their middle is wrong by at most half the round trip. The sample with the shortest round trip is
used. Proves: the difference of two clocks, with its uncertainty. Does not prove: which of the two is right, or that NTP
runs. Run: srun --ntasks-per-node=1 --label python3 clock.py --reference NODE --port PORT
"""

import argparse
import os
import socket
import struct
import threading
import time

import listening
from facts import Facts, node_name
from faults import hits

SAMPLES = 40
ALL_SAMPLES = 20000  # that the reference answers: of 4,096 nodes five each, in some 3 s
CONNECT_S = 5.0  # a reference that is not there by then is unreachable
REPLY_S = 2.0
NODES_A_SECOND = 200  # that the reference is sure to have accepted and answered
TIME = struct.Struct("!d")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reference", required=True, help="the node whose clock the others are compared with")
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    facts = Facts("clock")
    others = int(os.environ.get("SLURM_NTASKS", "1")) - 1
    try:
        if node_name() == arguments.reference:
            offset, uncertainty, remark = be_the_reference(arguments.port, others)
        else:
            deaf = hits("clock-deaf", node_name())
            offset, uncertainty = measure(arguments.reference, arguments.port + deaf, others)
            remark = f"measured against {arguments.reference}"
    except OSError as error:
        why = f"nothing was measured against {arguments.reference}: {error.strerror or error}"
        facts.unknown("discovery.clock.behind_reference", "s", why)
    else:
        facts.saw("discovery.clock.behind_reference", round(offset, 6), "s", remark=remark)
        facts.saw("discovery.clock.uncertainty", round(uncertainty, 6), "s")
    facts.finish()


def be_the_reference(port, others):
    """Its own distance is zero; a reference that nobody asked was compared with nobody."""
    served = serve(port, others)
    if others > 0 and served == 0:
        raise TimeoutError(f"none of {others} other nodes asked this one")
    return 0.0, 0.0, f"the reference, asked by {served} of {others} other nodes"


def samples(others):
    return max(5, min(SAMPLES, ALL_SAMPLES // max(others, 1)))


def reply_s(others):
    """How long a reply may take: the reference has one interpreter for all who ask."""
    return REPLY_S + others / NODES_A_SECOND


def serve(port, others):
    """Answer `others` nodes, a thread each, and return how many were done before the deadline."""
    done = []
    deadline = time.monotonic() + CONNECT_S + reply_s(others)
    with listening.listen(port, backlog=max(others, 1)) as server:
        threads = []
        while len(threads) < others and time.monotonic() < deadline:
            server.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                connection, _ = server.accept()
            except listening.TIMED_OUT:
                break
            threads.append(threading.Thread(target=answer, args=(connection, done, others), daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
    return len(done)


def answer(connection, done, others):
    with connection:
        connection.settimeout(reply_s(others))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for _ in range(samples(others)):
                if connection.recv(1) != b"?":
                    return
                connection.sendall(TIME.pack(time.time()))
        except OSError:
            return  # the other side says so itself
        done.append(1)


def measure(reference, port, others=1):
    """(how far this clock is behind the reference's, uncertainty), both in seconds. Raises OSError."""
    with listening.connected(reference, port, CONNECT_S, reply_s(others)) as connection:
        trips = [round_trip(connection) for _ in range(samples(others))]
    duration, offset = min(trips)
    return offset, duration / 2


def round_trip(connection):
    """(duration, offset) of one question. The duration comes from the monotonic clock."""
    begun, before = time.monotonic(), time.time()
    connection.sendall(b"?")
    reply = b""
    while len(reply) < TIME.size:
        part = connection.recv(TIME.size - len(reply))
        if not part:
            raise ConnectionResetError("it hung up in the middle")
        reply += part
    duration = time.monotonic() - begun
    return duration, TIME.unpack(reply)[0] - (before + duration / 2)


if __name__ == "__main__":
    main()
