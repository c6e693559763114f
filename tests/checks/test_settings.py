"""Settings and the network of nodes, compared name by name, and who keeps their clocks."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import settings
import timekeeping
from bringup import judge
from bringup.evidence.parsed import Parsed
from bringup.plan import profile
from bringup.records import Outcome
from factory import a_run
from probing import told_by
from runs_for_tests import add_derived, discovery, reseal
from showing import shows_failing

ROUTES = """Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
ib0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0
eth1\t00000000\t0100000A\t0003\t0\t0\t200\t00000000\t0\t0\t0
eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0
"""


def differences(**nodes: list[str] | None) -> dict[str, tuple[Any, str]]:
    parsed = Parsed()
    for node, entries in nodes.items():
        parsed.saw("inventory.settings.net", node, entries, "text", "f:1", None if entries else "it does not fit")
    add_derived(parsed, a_run())
    listed_entries = [
        observation for observation in parsed.observations if observation.quantity == "discovery.settings"
    ]
    return {observation.subject: (observation.value, observation.why or "") for observation in listed_entries}


def test_a_node_that_differs_is_named_with_the_setting_and_what_the_others_have():
    differs = differences(n0=["a=bbr", "b=1"], n1=["a=cubic", "b=1"], n2=["a=bbr", "b=1"])
    assert differs["n1"] == (1, "a: cubic, 2 of 3 have bbr")
    assert differs["n0"] == differs["n2"] == (0, "of 2 that were compared")


def test_nodes_that_each_differ_in_another_setting_do_not_make_the_rest_differ():
    usual = ["a=1", "b=1", "c=1"]
    differs = differences(n0=usual, n1=["a=2", "b=1", "c=1"], n2=["a=1", "b=2", "c=1"], n3=["a=1", "b=1", "c=2"])
    assert [differs[node][0] for node in sorted(differs)] == [0, 1, 1, 1]


def test_without_a_majority_nobody_is_right():
    differs = differences(n0=["a=1"], n1=["a=2"])
    assert differs["n0"] == (1, "a: 1, 2 different values and no majority")
    assert differs["n1"][0] == 1


def test_a_setting_that_no_node_has_is_not_compared():
    assert differences(n0=["a=absent", "b=1"], n1=["a=absent", "b=1"])["n0"] == (0, "of 1 that were compared")


def test_a_setting_that_one_node_lacks_differs():
    assert differences(n0=["a=1"], n1=["a=1"], n2=["a=absent"])["n2"] == (1, "a: absent, 2 of 3 have 1")


def test_a_node_alone_was_compared_with_nobody():
    assert differences(n0=["a=1"], n1=None) == {
        "n0": (None, "no other node was there to compare with"),
        "n1": (None, "it does not fit"),
    }


def test_a_node_that_gave_one_list_of_two_is_not_compared_by_that_one():
    parsed = Parsed()
    for node in ("n0", "n1", "n2"):
        parsed.saw("inventory.settings.net", node, ["a=2" if node == "n1" else "a=1"], "text", "f:1")
        kernel = None if node == "n1" else ["b=1"]
        parsed.saw(
            "inventory.settings.kernel", node, kernel, "text", "f:2", "it does not fit" if kernel is None else None
        )
    add_derived(parsed, a_run("discovery", ("n0", "n1", "n2")))
    seen = [(fact.subject, fact.value) for fact in parsed.observations if fact.quantity == "discovery.settings"]
    assert sorted(seen, key=str) == [("n0", 0), ("n1", None), ("n2", 0)]


# ---- the probe


def interface(net: Path, name: str, driver: str | None = None, **files: str) -> Path:
    path = net / name
    path.mkdir(parents=True)
    for file, text in {"speed": "100000", "duplex": "full", "mtu": "9000", "operstate": "up", **files}.items():
        (path / file).write_text(f"{text}\n")
    if driver is not None:
        (net.parent / "drivers" / driver).mkdir(parents=True, exist_ok=True)
        (path / "device").mkdir()
        (path / "device/driver").symlink_to(net.parent / "drivers" / driver)
    return path


def test_interfaces_are_counted_by_kind_whatever_they_are_called(tmp_path):
    net, routes = tmp_path / "net", tmp_path / "route"
    routes.write_text(ROUTES)
    interface(net, "eth0", "mlx5_core", mtu="1500")
    for number in range(8):
        interface(net, f"rdma{number}", "mlx5_core")
    interface(net, "docker0")
    interface(net, "eth9", "e1000e", speed="-1", operstate="down")
    addressed = {path.name for path in net.iterdir()}
    assert settings.network(net, routes, addressed) == [
        "e1000e, speed unknown, MTU 9000, no carrier=1",
        "mlx5_core, 100000 Mb/s full duplex, MTU 1500=1",
        "mlx5_core, 100000 Mb/s full duplex, MTU 9000=8",
        "default route over=mlx5_core",
    ]


def test_a_bond_counts_and_a_bridge_of_containers_does_not(tmp_path):
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


def test_in_a_container_all_interfaces_count(tmp_path):
    interface(tmp_path / "net", "eth0")
    assert settings.network(tmp_path / "net", tmp_path / "route", {"eth0"})[0].startswith("virtual, ")


def test_the_default_route_with_the_least_metric_counts(tmp_path):
    (tmp_path / "route").write_text(ROUTES)
    assert settings.default_route(tmp_path / "route") == "eth0"
    assert settings.default_route(tmp_path / "nowhere") is None


def test_a_setting_is_one_line_and_one_that_is_not_there_is_absent(tmp_path):
    (tmp_path / "net/ipv4").mkdir(parents=True)
    (tmp_path / "net/ipv4/tcp_rmem").write_text("4096\t131072\t6291456\n")
    assert settings.sysctl("net.ipv4.tcp_rmem", tmp_path) == "4096 131072 6291456"
    assert settings.sysctl("net.ipv4.tcp_wmem", tmp_path) == "absent"


@pytest.mark.parametrize(("text", "printed"), [("2412345\n", "1000000 or more"), ("65536\n", "65536")])
def test_a_setting_that_the_kernel_makes_from_the_memory_is_not_compared_to_the_last_digit(tmp_path, text, printed):
    (tmp_path / "fs").mkdir()
    (tmp_path / "fs/file-max").write_text(text)
    assert settings.sysctl("fs.file-max", tmp_path) == printed


def test_governors_of_all_cpus_are_told(tmp_path):
    for number, name in enumerate(("performance", "performance", "powersave")):
        folder = tmp_path / f"cpu{number}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{name}\n")
    assert settings.governor(tmp_path) == "performance+powersave"
    assert settings.governor(tmp_path / "nowhere") == "absent"


def test_the_settings_of_this_machine_fit_on_their_lines():
    parsed = told_by(settings.settings).observations
    settings_read = {
        observation.quantity: observation.value
        for observation in parsed
        if not observation.quantity.startswith("probe.")
    }
    assert set(settings_read) == {
        "inventory.settings.net",
        "inventory.settings.kernel",
        "inventory.settings.task",
        "inventory.network",
    }
    assert all(isinstance(value, list) for value in settings_read.values())


# ---- the clock


def clock(monkeypatch, status: int | None) -> tuple[Any, str]:
    def kernel_clock():
        if status is None:
            raise PermissionError(1, "Operation not permitted")
        return timekeeping.Timex(status=status, maxerror=12000)

    monkeypatch.setattr(timekeeping, "kernel_clock", kernel_clock)
    observation = told_by(timekeeping.timekeeping).observations[0]
    return observation.value, observation.why or ""


def test_what_the_kernel_says_of_its_clock(monkeypatch):
    assert clock(monkeypatch, 0x2001)[0] is True  # STA_NANO, STA_PLL
    value, why = clock(monkeypatch, 0x40)
    assert value is False
    assert why.startswith("off by 0.012 s at most")
    value, why = clock(monkeypatch, None)
    assert value is None
    assert "Operation not permitted" in why


def test_the_kernel_of_this_machine_answers_without_root_or_refuses():
    with contextlib.suppress(PermissionError):
        assert timekeeping.kernel_clock().tick > 0


def test_daemons_that_keep_a_clock_are_seen(tmp_path):
    for number, name in enumerate(("bash", "chronyd", "systemd-timesyn")):
        (tmp_path / str(number)).mkdir()
        (tmp_path / f"{number}/comm").write_text(f"{name}\n")
    assert timekeeping.daemons(tmp_path) == "running: chronyd, systemd-timesyn"
    assert timekeeping.daemons(tmp_path / "nowhere").endswith("no daemon that is known to keep a clock")


@shows_failing("discovery.clock.synchronised")
def test_a_clock_that_nobody_keeps_warns_and_stops_nothing(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    path = folder / "raw/inventory.jsonl"
    path.write_text(
        path.read_text().replace('clock.synchronised", "value": true', 'clock.synchronised", "value": false', 1)
    )
    verdicts = judge.judge_folder(reseal(folder), profile.load("generic")).verdicts.verdicts
    warnings = [verdict for verdict in verdicts if verdict.gate == "discovery.clock.synchronised"]
    assert sorted(verdict.outcome for verdict in warnings) == sorted([Outcome.WARN, Outcome.PASS])
    assert not any(judge.stops(verdict) for verdict in warnings)
