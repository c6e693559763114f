#!/usr/bin/env python3
"""How far this node's clock is from the clock of the reference node, and the way between: round trips over TCP.

A sample is: this node's time, the reference's time, this node's time again. The reference read its clock between the
two readings here, so their middle is wrong by at most half the round trip. The sample with the shortest round trip is
used. One small message is on its way at a time, so that none is lost because the network is busy; the kernel counts
what it sent again. Proves: the difference of two clocks, with its uncertainty; how long a packet takes at least, there
and back; whether packets are lost. Does not prove: which of the two clocks is right, or that NTP runs; bandwidth.
Run: srun --ntasks-per-node=1 --label python3 clock.py --reference NODE --port PORT
"""

import argparse
import os
import socket
import struct
import threading
import time
from collections import namedtuple

import listening
from facts import Facts, node_name
from faults import hits

SAMPLES, MOST_SAMPLES = 40, 400  # the second for as long as ENOUGH_S
ENOUGH_S = 1.5
ALL_SAMPLES = 20000  # that the reference answers: of 4,096 nodes five each, in some 3 s
CONNECT_S = 5.0  # a reference that is not there by then is unreachable
REPLY_S = 2.0
NODES_A_SECOND = 200  # that the reference is sure to have accepted and answered
TIME = struct.Struct("!dI")  # the reference's time, and how many of its replies so far it had to send again
TCP_INFO = struct.Struct("=68xI28xI44xI64xI")  # tcpi_rtt, total_retrans, min_rtt (Linux 4.6), dsack_dups (4.20)
Way = namedtuple("Way", "trip_s lost words")  # between two nodes, as a kernel saw it: the least round trip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reference", required=True, help="the node whose clock the others are compared with")
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    facts = Facts("clock")
    others = int(os.environ.get("SLURM_NTASKS", "1")) - 1
    try:
        if node_name() == arguments.reference:
            offset, uncertainty, way, remark = be_the_reference(arguments.port, others)
        else:
            deaf = hits("clock-deaf", node_name())
            offset, uncertainty, way = measure(arguments.reference, arguments.port + deaf, others)
            remark = f"measured against {arguments.reference}"
    except OSError as error:
        why = f"nothing was measured against {arguments.reference}: {error.strerror or error}"
        facts.unknown("discovery.clock.behind_reference", "s", why)
        facts.unknown("discovery.network.round_trip", "s", why)
        facts.unknown("discovery.network.lost", "count", why)
    else:
        facts.saw("discovery.clock.behind_reference", round(offset, 6), "s", remark=remark)
        facts.saw("discovery.clock.uncertainty", round(uncertainty, 6), "s")
        facts.saw("discovery.network.round_trip", way.trip_s, "s", remark=way.words)
        facts.saw("discovery.network.lost", way.lost, "count", remark=way.words)
    facts.finish()


def be_the_reference(port, others):
    """Its own distance is zero; a reference that nobody asked was compared with nobody. Its way is the best one that it
    has to any node: on the others, the fault may be theirs."""
    ways = serve(port, others)
    if others > 0 and not ways:
        raise TimeoutError(f"none of {others} other nodes asked this one")
    best = Way(min(way.trip_s for way in ways), min(way.lost for way in ways), "") if ways else Way(0.0, 0, "")
    remark = f"the reference, asked by {len(ways)} of {others} other nodes"
    return 0.0, 0.0, best._replace(words=f"the least of what it saw: {remark}"), remark


def samples(others, most=SAMPLES):
    return max(5, min(most, ALL_SAMPLES // max(others, 1)))


def reply_s(others):
    """How long a reply may take: the reference has one interpreter for all who ask."""
    return REPLY_S + others / NODES_A_SECOND


def serve(port, others):
    """Answer `others` nodes, a thread each, and return the ways to those that were done before the deadline."""
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
    return list(done)


def answer(connection, done, others):
    """Until the other side ends the connection."""
    with connection:
        connection.settimeout(reply_s(others))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        (trip_s, lost), before, count = (0.0, 0), sent_again(connection), 0
        try:
            while connection.recv(1) == b"?":
                trip_s, lost = least_trip(connection), max(0, sent_again(connection) - before)
                connection.sendall(TIME.pack(time.time(), lost))
                count += 1
        except OSError:
            return  # the other side says so itself
        if count >= samples(others):
            done.append(Way(trip_s, lost, ""))


def measure(reference, port, others=1):
    """(how far this clock is behind the reference's, uncertainty, both in seconds; the way). Raises OSError."""
    with listening.connected(reference, port, CONNECT_S, reply_s(others)) as connection:
        before, trips, until = sent_again(connection), [], time.monotonic() + ENOUGH_S
        while len(trips) < samples(others) or (len(trips) < samples(others, MOST_SAMPLES) and time.monotonic() < until):
            *trip, there = round_trip(connection)
            trips.append(trip)
        trip_s, here = least_trip(connection), max(0, sent_again(connection) - before)
    duration, offset = min(trips)
    words = f"of {len(trips)} questions to {reference} {here} were sent again, and of its answers {there}"
    return offset, duration / 2, Way(trip_s, here + there, words)


def sent_again(connection):
    """How many segments this side sent again, without those of which the other side said that they came twice."""
    _, again, _, twice = tcp_info(connection)
    return again - min(again, twice)


def least_trip(connection):
    """In seconds, by the kernel's own times: whoever answers late has acknowledged before."""
    mean, _, least, _ = tcp_info(connection)
    return (least or mean) / 1e6


def tcp_info(connection):
    """Return the four numbers of TCP_INFO. A number that an older kernel lacks is 0."""
    return TCP_INFO.unpack(
        connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO.size).ljust(TCP_INFO.size, b"\0")
    )


def round_trip(connection):
    """(duration, offset) of one question, and how many replies were sent again. The duration comes from the monotonic
    clock."""
    begun, before = time.monotonic(), time.time()
    connection.sendall(b"?")
    reply = b""
    while len(reply) < TIME.size:
        part = connection.recv(TIME.size - len(reply))
        if not part:
            raise ConnectionResetError("it hung up in the middle")
        reply += part
    duration = time.monotonic() - begun
    there, lost = TIME.unpack(reply)
    return duration, there - (before + duration / 2), lost


if __name__ == "__main__":
    main()
