"""Settings and the network of nodes, compared name by name, and who keeps their clocks."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import settings
import timekeeping
from bringup import judge
from bringup.plan import profile
from factory import a_run
from loops import for_each
from probing import answers_of
from programs import tree
from runs_for_tests import PASS, WARN, add_derived, discovery, parsed_of, reseal
from showing import shows_failing

ROUTES = """Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
ib0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0
eth1\t00000000\t0100000A\t0003\t0\t0\t200\t00000000\t0\t0\t0
eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0
"""
A_NO = "it does not fit"
ALIKE = (0, "of 1 that were compared")
ALIKE_2 = (0, "of 2 that were compared")


@for_each(
    ("nodes", "expected"),
    [
        (
            [["a=bbr", "b=1"], ["a=cubic", "b=1"], ["a=bbr", "b=1"]],
            [ALIKE_2, (1, "a: cubic, 2 of 3 have bbr"), ALIKE_2],
        ),
        (
            [["a=1", "b=1", "c=1"], ["a=2", "b=1", "c=1"], ["a=1", "b=2", "c=1"], ["a=1", "b=1", "c=2"]],
            [0, 1, 1, 1],  # those that each differ in another setting do not make the rest differ
        ),
        ([["a=1"], ["a=2"]], [(1, "a: 1, 2 different values and no majority"), 1]),
        ([["a=absent", "b=1"], ["a=absent", "b=1"]], [ALIKE, ALIKE]),
        ([["a=1"], ["a=1"], ["a=absent"]], [ALIKE, ALIKE, (1, "a: absent, 2 of 3 have 1")]),
        ([["a=1"], None], [(None, "no other node was there to compare with"), (None, A_NO)]),
        # a node that gave one list of two is not compared by that one
        ([["a=1", "/", "b=1"], ["a=2", "/"], ["a=1", "/", "b=1"]], [0, None, 0]),
    ],
)
def test_a_node_that_differs_is_named_with_the_setting_and_what_the_others_have(nodes, expected):
    facts = []
    for number, entries in enumerate(nodes):
        lists = [part.split() for part in " ".join(entries or []).split("/")]
        for name, of_list in zip(("net", "kernel"), lists, strict=False):
            facts.append((f"inventory.settings.{name}", f"n{number}", of_list or None, None if of_list else A_NO))
    run = a_run("discovery", [f"n{number}" for number in range(len(nodes))])
    observations = add_derived(parsed_of(facts), run).observations
    seen = {s.subject: (s.value, s.why or "") for s in observations if s.quantity == "discovery.settings"}
    for number, wanted in enumerate(expected):
        value, why = seen[f"n{number}"]
        assert wanted == ((value, why) if isinstance(wanted, tuple) else value)


# ---- the probe


def interface(net: Path, name: str, driver: str | None = None, **files: str) -> Path:
    tree(net / name, {"speed": "100000", "duplex": "full", "mtu": "9000", "operstate": "up", **files})
    if driver is not None:
        (net.parent / "drivers" / driver).mkdir(parents=True, exist_ok=True)
        (net / name / "device").mkdir()
        (net / name / "device/driver").symlink_to(net.parent / "drivers" / driver)
    return net / name


def test_interfaces_are_counted_by_kind_whatever_they_are_called(tmp_path):
    net, routes = tmp_path / "net", tmp_path / "route"
    routes.write_text(ROUTES)
    interface(net, "eth0", "mlx5_core", mtu="1500")
    for number in range(8):
        interface(net, f"rdma{number}", "mlx5_core")
    interface(net, "docker0")
    interface(net, "eth9", "e1000e", speed="-1", operstate="down")
    assert settings.network(net, routes, {path.name for path in net.iterdir()}) == [
        "e1000e, speed unknown, MTU 9000, no carrier=1",
        "mlx5_core, 100000 Mb/s full duplex, MTU 1500=1",
        "mlx5_core, 100000 Mb/s full duplex, MTU 9000=8",
        "default route over=mlx5_core",
    ]
    assert settings.default_route(routes) == "eth0"  # the least metric
    assert settings.default_route(tmp_path / "nowhere") is None


def test_a_bond_counts_and_a_bridge_of_containers_does_not_and_in_a_container_all_do(tmp_path):
    net, routes = tmp_path / "net", tmp_path / "route"
    interface(net, "eth0", "ice")
    bond = interface(net, "bond0", uevent="DEVTYPE=bond\nINTERFACE=bond0")
    (bond / "lower_eth0").symlink_to(net / "eth0")
    interface(net, "veth1")
    bridge = interface(net, "docker0", uevent="DEVTYPE=bridge")
    (bridge / "lower_veth1").symlink_to(net / "veth1")
    assert settings.network(net, routes, {"bond0", "docker0"}) == [
        "bond, 100000 Mb/s full duplex, MTU 9000=1",
        "default route over=none",
    ]
    interface(tmp_path / "container", "eth0")
    assert settings.network(tmp_path / "container", routes, {"eth0"})[0].startswith("virtual, ")


def test_a_setting_is_one_line_and_one_that_is_not_there_is_absent(tmp_path):
    tree(tmp_path, {"net/ipv4/tcp_rmem": "4096\t131072\t6291456", "fs/file-max": "2412345"})
    for name, printed in (
        ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
        ("net.ipv4.tcp_wmem", "absent"),
        ("fs.file-max", "1000000 or more"),  # the kernel makes it from the memory
    ):
        assert settings.sysctl(name, tmp_path) == printed
    assert settings.sysctl("fs.file-max", tree(tmp_path, {"fs/file-max": "65536"})) == "65536"


def test_governors_of_all_cpus_are_told(tmp_path):
    governors = {f"cpu{n}/cpufreq/scaling_governor": f"{name}" for n, name in enumerate(("performance", "powersave"))}
    assert settings.governor(tree(tmp_path, {**governors, "cpu9/cpufreq/scaling_governor": "performance"})) == (
        "performance+powersave"
    )
    assert settings.governor(tmp_path / "nowhere") == "absent"


def test_the_settings_of_this_machine_fit_on_their_lines():
    seen = {name: value for name, (value, _) in answers_of(settings.settings).items() if not name.startswith("probe.")}
    assert seen.keys() == {*(f"inventory.settings.{name}" for name in ("net", "kernel", "task")), "inventory.network"}
    assert all(isinstance(value, list) for value in seen.values())


# ---- the clock


@for_each(
    ("status", "value", "why"),
    [
        (0x2001, True, ""),  # STA_NANO, STA_PLL
        (0x40, False, "off by 0.012 s at most"),
        (None, None, "Operation not permitted"),
    ],
)
def test_what_the_kernel_says_of_its_clock(monkeypatch: pytest.MonkeyPatch, status: int, value: Any, why: str) -> None:
    def kernel_clock():
        if status is None:
            raise PermissionError(1, "Operation not permitted")
        return timekeeping.Timex(status=status, maxerror=12000)

    monkeypatch.setattr(timekeeping, "kernel_clock", kernel_clock)
    synchronised = answers_of(timekeeping.timekeeping)["discovery.clock.synchronised"]
    assert synchronised[0] is value
    assert why in synchronised[1]


def test_the_kernel_of_this_machine_answers_without_root_or_refuses():
    with contextlib.suppress(PermissionError):
        assert timekeeping.kernel_clock().tick > 0


def test_daemons_that_keep_a_clock_are_seen(tmp_path):
    tree(tmp_path, {f"{n}/comm": name for n, name in enumerate(("bash", "chronyd", "systemd-timesyn"))})
    assert timekeeping.daemons(tmp_path) == "running: chronyd, systemd-timesyn"
    assert timekeeping.daemons(tmp_path / "nowhere").endswith("no daemon that is known to keep a clock")


@shows_failing("discovery.clock.synchronised")
def test_a_clock_that_nobody_keeps_warns_and_stops_nothing(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    path, fact = folder / "raw/inventory.jsonl", 'clock.synchronised", "value": '
    path.write_text(path.read_text().replace(f"{fact}true", f"{fact}false", 1))
    verdicts = judge.judge_folder(reseal(folder), profile.load("generic")).verdicts.verdicts
    warnings = [verdict for verdict in verdicts if verdict.gate == "discovery.clock.synchronised"]
    assert sorted(verdict.outcome for verdict in warnings) == sorted([WARN, PASS])
    assert not any(judge.stops(verdict) for verdict in warnings)
