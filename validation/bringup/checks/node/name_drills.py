"""Faults of name resolution, each on one of four nodes. Data only."""

from __future__ import annotations

from typing import Any

from bringup.checks.faults import ALL, login
from bringup.plan.drill import FOUR_NODES, Command, Drill
from bringup.records import Outcome


def _hosts(edit: str) -> Command:
    """n1 has a hosts file of its own."""
    return ("on", "n1", "bash", "-c", f"sed '{edit}' /etc/hosts >/tmp/hosts && mount --bind /tmp/hosts /etc/hosts")


_HOSTS_AGAIN: Command = ("on", "n1", "umount", "/etc/hosts")

# It answers after so many seconds. It knows the IPv4 address of n2, and says of every other name that there is none.
_NAME_SERVER = """import socket, time
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
while True:
    asked, who = server.recvfrom(512)
    time.sleep(SECONDS)
    known = asked[12:16] == b"\\x02n2\\x00" and asked[16:18] == b"\\x00\\x01"
    reply = asked[:2] + (b"\\x81\\x80" if known else b"\\x81\\x83") + asked[4:6] + bytes([0, known, 0, 0, 0, 0])
    reply += asked[12:20] + (b"\\xc0\\x0c" + asked[16:20] + bytes([0, 0, 0, 9, 0, 4, 10, 77, 1, 12]) if known else b"")
    server.sendto(reply, who)
"""


def _name_server(seconds: int) -> Command:
    """n1 asks its own name server about n2; no other node does.

    By default a lookup gives up after 20 s, as the probe does, and it is chance who is first: here it waits longer.
    """
    program = _NAME_SERVER.replace("SECONDS", str(seconds))
    return (
        "on",
        "n1",
        "bash",
        "-c",
        "printf 'nameserver 127.0.0.1\\noptions timeout:30\\n' >/tmp/resolv.conf && "
        "mount --bind /tmp/resolv.conf /etc/resolv.conf && "
        f"{{ setsid python3 -c '{program}' >/dev/null 2>&1 </dev/null & echo $! >/tmp/named.pid; }}",
    )


_NO_NAME_SERVER: Command = ("on", "n1", "bash", "-c", 'umount /etc/resolv.conf; kill "$(</tmp/named.pid)"')


def _on_n1(id: str, fault: str, gate: str, says: str, **rest: Any) -> Drill:
    settled: dict[str, Any] = {"outcome": Outcome.FAIL, "silent": ALL}
    return Drill(
        **{**settled, **rest},
        id=id,
        fault=fault,
        phase="discovery",
        shape=FOUR_NODES,
        gate=f"discovery.names.{gate}",
        subject="n1",
        says=says,
    )


DRILLS: tuple[Drill, ...] = (
    _on_n1(
        "name-elsewhere",
        "on one node the name of another one has an old address",
        "differ",
        "n2 is 10.77.1.99",
        inject=(_hosts("s/^10.77.1.12 /10.77.1.99 /"),),
        undo=(_HOSTS_AGAIN,),
    ),
    _on_n1(
        "name-unknown",
        "one node does not know the name of another one",
        "unresolved",
        "n2",
        inject=(_hosts("/ n2$/d"),),
        undo=(_HOSTS_AGAIN,),
        consequences=(("discovery.names.slowest", "n1"),),  # where a name server is asked that does not answer
    ),
    _on_n1(
        "name-slow",
        "the name server of one node takes 3 s for an answer",
        "slowest",
        "n2",
        inject=(_hosts("/ n2$/d"), _name_server(3)),
        undo=(_NO_NAME_SERVER, _HOSTS_AGAIN),
        outcome=Outcome.WARN,
        between=(2.9, 5),
    ),
    _on_n1(
        "name-server-hangs",
        "the name server of one node does not answer",
        "unresolved",
        "no answer within 20 s",
        inject=(_hosts("/ n2$/d"), _name_server(600)),
        undo=(_NO_NAME_SERVER, _HOSTS_AGAIN),
        consequences=(("discovery.names.slowest", "n1"),),
        waits=True,
    ),
    _on_n1(
        "name-not-its-own",
        "all nodes know an address of one node that it does not have",
        "own",
        "others reach it at 10.77.1.99",
        inject=(
            login(
                'file="$BRINGUP_CLUSTER/etc/hosts"; cp "$file" "$file.good"; '
                'sed "s/^10.77.1.11 /10.77.1.99 /" "$file.good" >"$file"'
            ),
        ),
        undo=(login('file="$BRINGUP_CLUSTER/etc/hosts"; cat "$file.good" >"$file"; rm "$file.good"'),),
    ),
    _on_n1(
        "name-loopback",
        "one node knows itself as 127.0.1.1",
        "reachable",
        "127.0.1.1",
        inject=(_hosts("s/^10.77.1.11 /127.0.1.1 /"),),
        undo=(_HOSTS_AGAIN,),
        outcome=Outcome.WARN,
    ),
)
