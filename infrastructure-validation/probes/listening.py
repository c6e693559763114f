"""TCP between two nodes: who listens, and who connects. socket.create_server listens the same, since Python 3.8."""

import socket
import time

TIMED_OUT = (socket.timeout, TimeoutError)  # two classes before Python 3.10


def listen(port, backlog):
    """On all addresses. A port that an earlier step has just left is free."""
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", port))
        server.listen(backlog)
    except OSError:
        server.close()
        raise
    return server


def accepted(port, patience_s, answer_s):
    """The connection of the one partner that comes, whose answers may take answer_s."""
    with listen(port, backlog=1) as server:
        server.settimeout(patience_s)
        connection, _ = server.accept()
    return _quick(connection, answer_s)


def connected(partner, port, patience_s, answer_s):
    """The partner may start later than we do: until the deadline a refusal is no answer."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            connection = socket.create_connection((partner, port), timeout=max(0.1, deadline - time.monotonic()))
            return _quick(connection, answer_s)
        except (ConnectionRefusedError, *TIMED_OUT, socket.gaierror):
            if time.monotonic() > deadline - 0.1:
                raise
            time.sleep(0.05)


def _quick(connection, answer_s):
    connection.settimeout(answer_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
