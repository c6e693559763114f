#!/usr/bin/env python3
"""Two nodes and nothing between them: bandwidth and losses in both directions, and latency, over one TCP connection.
Standard library only.

Each task of the step finds its pair in the round on its standard input; the first node of a pair listens, the second
connects and reports.
Proves: what these two nodes do over the path that their names resolve to. Does not prove: anything about RDMA or NCCL.
Run: srun --ntasks-per-node=1 python3 pair.py PORT <<<"n0,n3 n1,n2"
"""

import socket
import statistics
import struct
import sys
import time

import listening
from facts import Facts, node_name

PATIENCE_S = 8.0  # for the partner's start, and for each answer; then it counts as no answer
TRANSFER_S = 0.7
TRANSFER_BYTES = 64 * 2**20
ROUND_TRIPS = 50
PING = b"p" * 64
CHUNK = bytes(256 * 2**10)
# offsets in struct tcp_info (linux/tcp.h), in segments; the second is there since Linux 4.6
TOTAL_RETRANSMITS, DATA_SEGMENTS_SENT = 100, 156


def read_exactly(connection, count):
    received = bytearray()
    while len(received) < count:
        part = connection.recv(count - len(received))
        if not part:
            raise ConnectionError("the partner ended the connection")
        received += part
    return bytes(received)


def send_bulk(connection):
    """Chunks until the time or the bytes are used up; a length of 0 ends it. Waits until the partner has it all."""
    begun, sent = time.monotonic(), 0
    while sent < TRANSFER_BYTES and time.monotonic() - begun < TRANSFER_S:
        connection.sendall(b"\1" + CHUNK)
        sent += len(CHUNK)
    connection.sendall(b"\0")
    return struct.unpack("!d", read_exactly(connection, 8))[0]


def receive_bulk(connection):
    """GB/s as the receiver sees it, from the first byte to the last; told to the sender."""
    received, begun = 0, None
    while read_exactly(connection, 1) == b"\1":
        begun = begun or time.monotonic()
        received += len(read_exactly(connection, len(CHUNK)))
    speed = received / max(1e-9, time.monotonic() - (begun or 0)) / 1e9
    connection.sendall(struct.pack("!d", speed))
    return speed


def sent_again(connection):
    """The share of this end's segments with data that it sent again. NaN where the kernel is too old to count them."""
    information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    if len(information) < DATA_SEGMENTS_SENT + 4:
        return float("nan")
    again, sent = (struct.unpack_from("I", information, at)[0] for at in (TOTAL_RETRANSMITS, DATA_SEGMENTS_SENT))
    return again / max(1, sent)


def listen(port):
    with listening.accepted(port, PATIENCE_S, PATIENCE_S) as connection:
        for _ in range(ROUND_TRIPS):
            connection.sendall(read_exactly(connection, len(PING)))
        receive_bulk(connection)
        send_bulk(connection)
        connection.sendall(struct.pack("!d", sent_again(connection)))


def measure(facts, here, partner, port):
    """Facts about one pair, told by the node that connects. No answer is a bandwidth of 0, with the reason."""
    link, towards, back = f"{partner}--{here}", f"{here}->{partner}", f"{partner}->{here}"
    reported = set()
    try:
        with listening.connected(partner, port, PATIENCE_S, PATIENCE_S) as connection:
            trips = []
            for _ in range(ROUND_TRIPS):
                begun = time.perf_counter()
                connection.sendall(PING)
                read_exactly(connection, len(PING))
                trips.append((time.perf_counter() - begun) * 1e6)
            facts.saw("pair.latency_p50", round(statistics.median(trips), 1), "us", link)
            facts.saw("pair.latency_p95", round(sorted(trips)[int(0.95 * ROUND_TRIPS)], 1), "us", link)
            facts.saw("pair.bandwidth", float(f"{send_bulk(connection):.4g}"), "GB/s", towards)
            reported.add(towards)
            facts.saw("pair.bandwidth", float(f"{receive_bulk(connection):.4g}"), "GB/s", back)
            reported.add(back)
            theirs = struct.unpack("!d", read_exactly(connection, 8))[0]
            for direction, share in ((towards, sent_again(connection)), (back, theirs)):
                share = round(share, 6) if share == share else None  # NaN
                facts.answered("pair.sent_again", share, "ratio", "the kernel is older than 4.6", direction)
    except OSError as error:  # a timeout is one too
        for direction in sorted({towards, back} - reported):
            facts.saw("pair.bandwidth", 0.0, "GB/s", direction, f"no answer: {error}")


def main():
    if len(sys.argv) != 2:
        sys.exit('usage: pair.py PORT <<<"n0,n3 n1,n2"')
    here, facts = node_name(), Facts("pair")
    for pair in sys.stdin.read().split():
        first, second = pair.split(",")
        if here == second:
            measure(facts, here, first, int(sys.argv[1]))
        elif here == first:
            try:
                listen(int(sys.argv[1]))
            except OSError as error:  # the other node reports it
                print(f"{here}: {error}", file=sys.stderr)
    facts.finish()


if __name__ == "__main__":
    main()
