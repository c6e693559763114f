"""What NCCL's own RAS service says of a job that hangs, kept before anything is killed.

Every NCCL process since 2.24 runs a RAS thread, and one process per node listens on port 28028 of the loopback
interface. It answers for the whole job, so that a witness on the first node and one on the last are enough: either may
be the one that hangs. The protocol is lines of text (NCCL's user guide, "RAS", and src/ras/client.cc). The answer
corroborates and proves nothing: RAS has called a job healthy in which a collective timed out (NVIDIA/nccl issue 1730).
"""

import os
import socket
import sys
import time
from pathlib import Path

DEFAULT = "localhost:28028"
ANSWER_S = 5  # how long it may wait for the other processes
LONGEST_S = 20  # for the whole conversation: the rank that asks is about to be ended
MOST_BYTES = 2**25


def is_witness(node, nodes, local_rank):
    """node: index of this node."""
    return local_rank == 0 and node in (0, nodes - 1)


def keep(file):
    """Writes what the service answers; nothing when there is none. Never raises."""
    try:
        answer = ask(os.environ.get("NCCL_RAS_ADDR") or DEFAULT)
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_bytes(answer)
    except (OSError, ValueError) as error:
        print(f"NCCL's RAS service did not answer: {error}", file=sys.stderr, flush=True)


def ask(address):
    """The verbose status, as bytes. Raises OSError, ValueError."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + LONGEST_S
    with socket.create_connection((host.strip("[]") or "localhost", int(port)), timeout=ANSWER_S) as connection:
        connection.settimeout(ANSWER_S + 5)
        with connection.makefile("rb") as lines:
            _request(connection, lines, b"CLIENT PROTOCOL 2\n", b"SERVER PROTOCOL")
            _request(connection, lines, b"TIMEOUT %d\n" % ANSWER_S, b"OK")
            connection.sendall(b"VERBOSE STATUS\n")
            answer = b""
            while time.monotonic() < deadline and len(answer) < MOST_BYTES:
                more = lines.read1(65536)
                if not more:
                    break
                answer += more
    if not answer:
        raise ValueError(f"{address} closed the connection without a status")
    return answer


def _request(connection, lines, line, expected):
    connection.sendall(line)
    answer = lines.readline(1000)
    if not answer.startswith(expected):
        raise ValueError(f"{answer[:60]!r} came after {line!r}, expected {expected!r}")
