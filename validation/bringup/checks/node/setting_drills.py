"""Faults of settings: the network and the kernel of one node of four are set otherwise. Data only."""

from __future__ import annotations

from bringup.checks.faults import ALL
from bringup.plan.drill import FOUR_NODES, Command, Drill
from bringup.records import Outcome


def _written(setting: str, value: str) -> Command:
    """Of the network namespace of n1; others belong to the kernel that all nodes share."""
    path, old = f"/proc/sys/{setting}", f"/tmp/{setting.replace('/', '.')}"
    return ("on", "n1", "bash", "-euc", f"cat {path} >{old} && echo {value} >{path}")


def _written_back(setting: str) -> Command:
    return ("on", "n1", "bash", "-euc", f"cat /tmp/{setting.replace('/', '.')} >/proc/sys/{setting}")


DRILLS: tuple[Drill, ...] = (
    Drill(
        id="mtu-drift",
        fault="the interface of one node has another MTU",
        phase="discovery",
        shape=FOUR_NODES,
        inject=(("on", "n1", "ip", "link", "set", "eth0", "mtu", "1400"),),
        undo=(("on", "n1", "ip", "link", "set", "eth0", "mtu", "1500"),),
        gate="discovery.network",
        subject="n1",
        outcome=Outcome.FAIL,
        says="MTU 1400",
        silent=ALL,
    ),
    Drill(
        id="settings-drift",
        fault="one node accepts fewer connections at once, and has another congestion control",
        phase="discovery",
        shape=FOUR_NODES,
        inject=(
            _written("net/core/somaxconn", "16"),
            _written("net/ipv4/tcp_congestion_control", "reno"),
        ),
        undo=(
            _written_back("net/core/somaxconn"),
            _written_back("net/ipv4/tcp_congestion_control"),
        ),
        gate="discovery.settings",
        subject="n1",
        outcome=Outcome.WARN,
        value=2,
        says="tcp_congestion_control: reno",
        silent=ALL,
    ),
)
