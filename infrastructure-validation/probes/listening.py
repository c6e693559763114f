"""A TCP socket that listens on this node. socket.create_server makes the same, and came with Python 3.8."""

import socket

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
