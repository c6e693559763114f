"""Faults of nodes and of links between nodes, found by pairs. Data only.

Each fault is deterministic. Lost packets are chosen by a counter, every seventh, not by chance.
"""

from __future__ import annotations

from typing import Any

from bringup.plan.drill import FOUR_NODES, Command, Drill
from bringup.records import Outcome

NORMAL_SPEED = ("tc", "qdisc", "del", "dev", "eth0", "root")
# of 50 round trips 7 wait 200 ms for a packet; the 95th percentile is the third
_EVERY_SEVENTH = "numgen inc mod 7 == 0"
_HEALTHY = ("n0", "n2", "n3")
_OTHER_LINKS = ("n0--n2", "n0--n3", "n2--n3", "n1--n2", "n1--n3")
_SLOWEST = (("nccl.pair.slowest", "job"),)  # the slowest pair of all is this one
_LINKS_OF_N1 = ("nccl.pair.link*", "*n1*")
_LOST_PACKET_US = (1e5, 2e6)
# who sent to a node that loses packets, sent them again
_SENT_AGAIN = ("load.tcp_sent_again", "*")


def slowed_to(rate: str) -> tuple[str, ...]:
    return ("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "64kb", "latency", "50ms")


def _filter(hook: str, rule: str, node: str = "n1") -> dict[str, tuple[Command, ...]]:
    """Drop packets that enter (`input`) or leave (`output`) the node and match the rule."""
    table = f"table inet drill {{ chain lossy {{ type filter hook {hook} priority 0; {rule} drop; }}; }}"
    return _nft(table, node)


def _nft(table: str, node: str) -> dict[str, tuple[Command, ...]]:
    return {
        "inject": (("on", node, "nft", table),),
        "undo": (("on", node, "nft", "delete", "table", "inet", "drill"),),
    }


def _on_n1(*commands: str) -> tuple[Command, ...]:
    return tuple(("on", "n1", *command.split()) for command in commands)


_SLOW_TO_N0 = _on_n1(
    "tc qdisc add dev eth0 root handle 1: htb default 10",
    "tc class add dev eth0 parent 1: classid 1:10 htb rate 10gbit",
    "tc class add dev eth0 parent 1: classid 1:20 htb rate 50mbit burst 32k",
    "tc filter add dev eth0 protocol ip parent 1: prio 1 u32 match ip dst 10.77.1.10/32 flowid 1:20",
)

# on n0: of the connections that it accepts from n1, on the ports of the pairs, every second one is slow
_EVERY_SECOND_CONNECTION = (
    "table inet drill { set slow { type inet_service; flags dynamic; }; "
    "chain out { type filter hook output priority 0; ip daddr 10.77.1.11 tcp sport 20000-32767 "
    "tcp flags & (syn|ack) == (syn|ack) numgen inc mod 2 == 0 add @slow { tcp dport }; }; "
    "chain in { type filter hook input priority 0; ip saddr 10.77.1.11 tcp sport @slow "
    "limit rate over 2 mbytes/second burst 128 kbytes drop; }; }"
)

# a frame forwarder between n1's end of the cable and the bridge: the kernel may have no netem
_DELAY = (
    "ip link add dl0 type veth peer name dl1 && ip link set dl0 master br0 up && ip link set dl1 up && "
    "ip link set vn1 nomaster && { setsid python3 infrastructure-validation/local-cluster/delay_link.py vn1 dl1 120 "
    "</dev/null >/dev/null 2>&1 & }"
)


def _pairs(id: str, fault: str, gate: str, subject: str, says: str, **rest: Any) -> Drill:
    settled = {"phase": "nccl_pairwise", "shape": FOUR_NODES, "outcome": Outcome.FAIL}
    return Drill(**{**settled, **rest}, id=id, fault=fault, gate=gate, subject=subject, says=says)


DRILLS: tuple[Drill, ...] = (
    # a node
    _pairs(
        "slow-sender",
        "one node sends at 50 Mbit/s",
        "nccl.pair.node",
        "n1",
        "sends at 0.0…",
        inject=(("on", "n1", *slowed_to("50mbit")),),
        undo=(("on", "n1", *NORMAL_SPEED),),
        silent=(*_HEALTHY, *_OTHER_LINKS, "n0--n1"),
        also=_SLOWEST,
    ),
    _pairs(
        "slow-receiver",
        "one node receives no more than 6 MB/s",
        "nccl.pair.node",
        "n1",
        "receives at 0.0…",
        **_filter("input", 'iif "eth0" limit rate over 6 mbytes/second burst 512 kbytes'),
        silent=(*_HEALTHY, *_OTHER_LINKS, "n0--n1"),
        also=_SLOWEST,
        consequences=(_SENT_AGAIN,),
    ),
    _pairs(
        "slow-delay",
        "everything that one node sends and receives takes 120 ms longer",
        "nccl.pair.node.latency",
        "n1",
        "us",
        waits=True,
        inject=(("sh", "bash", "-c", _DELAY),),
        undo=(("sh", "bash", "-c", "ip link del dl0; ip link set vn1 master br0"),),
        between=_LOST_PACKET_US,
        consequences=(*_SLOWEST, ("nccl.pair.node", "n1"), _LINKS_OF_N1),
    ),
    _pairs(
        "packet-loss",
        "one node loses every seventh packet that it receives",
        "nccl.pair.node.latency",
        "n1",
        "us",
        waits=True,
        **_filter("input", f'iif "eth0" {_EVERY_SEVENTH}'),
        silent=(*_HEALTHY, "n2--n3", "n0--n2"),
        between=_LOST_PACKET_US,
        # a large transfer recovers at once, so that the node may be as fast as the others
        consequences=(("nccl.pair.node", "n1"), *_SLOWEST, _LINKS_OF_N1, _SENT_AGAIN),
    ),
    _pairs(
        "one-way-loss",
        "one node loses every seventh packet that it sends, and none that it receives",
        "nccl.pair.node.latency",
        "n1",
        "us",
        waits=True,
        **_filter("output", f'oif "eth0" {_EVERY_SEVENTH}'),
        between=_LOST_PACKET_US,
        consequences=(("nccl.pair.node", "n1"), *_SLOWEST, _LINKS_OF_N1),
    ),
    # a link
    _pairs(
        "slow-pair",
        "one node sends at 50 Mbit/s to one other node only",
        "nccl.pair.link",
        "n0--n1",
        "n1->n0",
        inject=_SLOW_TO_N0,
        undo=(("on", "n1", *NORMAL_SPEED),),
        silent=(*_HEALTHY, "n1", *_OTHER_LINKS),
        also=_SLOWEST,
    ),
    _pairs(
        "unsteady-pair",
        "every second connection from one node to one other node carries 2 MB/s",
        "nccl.pair.link.steady",
        "n0--n1",
        "n1->n0 at 0.0…",
        **_nft(_EVERY_SECOND_CONNECTION, "n0"),
        silent=(*_HEALTHY, "n1", *_OTHER_LINKS),
        outcome=Outcome.WARN,
        consequences=(*_SLOWEST, _SENT_AGAIN),
    ),
    _pairs(
        "dead-pair",
        "two nodes cannot reach each other",
        "nccl.pair.link",
        "n0--n1",
        "no answer",
        waits=True,
        **_filter("input", "ip saddr 10.77.1.10 tcp sport 20000-32767"),
        silent=(*_HEALTHY, "n1", *_OTHER_LINKS),
        consequences=_SLOWEST,
    ),
    _pairs(
        "name-leads-elsewhere",
        "on one node the name of another one has a wrong address",
        "nccl.pair.link",
        "n0--n1",
        "no answer",
        waits=True,
        inject=(
            (
                "on",
                "n1",
                "bash",
                "-c",
                "sed 's/^10.77.1.10 /10.77.1.99 /' /etc/hosts >/tmp/hosts && mount --bind /tmp/hosts /etc/hosts",
            ),
        ),
        undo=(("on", "n1", "umount", "/etc/hosts"),),
        consequences=_SLOWEST,
    ),
    _pairs(
        "slow-pair-latency",
        "one node loses every seventh packet from one other node only",
        "nccl.pair.link.latency",
        "n0--n1",
        "us",
        waits=True,
        **_filter("input", f"ip saddr 10.77.1.10 {_EVERY_SEVENTH}"),
        silent=("n2", "n3", *_OTHER_LINKS),
        between=_LOST_PACKET_US,
        consequences=(*_SLOWEST, ("nccl.pair.link*", "n0--n1"), _SENT_AGAIN),
    ),
)
