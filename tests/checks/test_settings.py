"""Settings, names and the network of nodes, compared, and who keeps their clocks."""

import contextlib
import socket
import threading
from pathlib import Path
from typing import Any

import addresses
import names
import settings
import timekeeping
from bringup.kernel import judge
from bringup.kernel.facts import facts
from bringup.kernel.plan import profile
from factory import a_run
from loops import for_each
from probing import answers_of
from programs import tree
from runs_for_tests import PASS, WARN, Fact, add_derived, discovery, parsed_of, reseal
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
    ([["a=bbr", "b=1"], ["a=cubic", "b=1"], ["a=bbr", "b=1"]], [ALIKE_2, (1, "a: cubic, 2 of 3 have bbr"), ALIKE_2]),
    (
        [["a=1", "b=1", "c=1"], ["a=2", "b=1", "c=1"], ["a=1", "b=2", "c=1"], ["a=1", "b=1", "c=2"]],
        [0, 1, 1, 1],  # those that each differ in another setting do not make the rest differ
    ),
    ([["a=1"], ["a=2"]], [(1, "a: 1, 2 different values and no majority"), 1]),
    ([["a=absent", "b=1"], ["a=absent", "b=1"]], [ALIKE, ALIKE]),
    ([["a=1"], ["a=1"], ["a=absent"]], [ALIKE, ALIKE, (1, "a: absent, 2 of 3 have 1")]),
    ([["a=absent"], ["a=absent"]], [(None, "no node has one")] * 2),
    ([["a=1"], None], [(None, "no other node was there to compare with"), (None, A_NO)]),
    # a node that gave one list of two is not compared by that one
    ([["a=1", "/", "b=1"], ["a=2", "/"], ["a=1", "/", "b=1"]], [0, None, 0]),
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
    (interface(net, "bond0", uevent="DEVTYPE=bond\nINTERFACE=bond0") / "lower_eth0").symlink_to(net / "eth0")
    interface(net, "veth1")
    (interface(net, "docker0", uevent="DEVTYPE=bridge") / "lower_veth1").symlink_to(net / "veth1")
    bond = "bond, 100000 Mb/s full duplex, MTU 9000=1"
    assert settings.network(net, routes, {"bond0", "docker0"}) == [bond, "default route over=none"]
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
    governors = {"cpu0": "performance", "cpu1": "powersave", "cpu9": "performance"}
    tree(tmp_path, {f"{cpu}/cpufreq/scaling_governor": name for cpu, name in governors.items()})
    assert settings.governor(tmp_path) == "performance+powersave"
    assert settings.governor(tmp_path / "nowhere") == "absent"


def test_the_settings_of_this_machine_fit_on_their_lines():
    seen = {name: value for name, (value, _) in answers_of(settings.settings).items() if not name.startswith("probe.")}
    assert seen.keys() == {*(f"inventory.settings.{name}" for name in ("net", "kernel", "task")), "inventory.network"}
    assert all(isinstance(value, list) for value in seen.values())


# ---- the clock


@for_each(
    (0x2001, 12000, True, ""),  # STA_NANO, STA_PLL
    (0x40, 16_000_000, False, "off by 16 s at most"),
    (0x40, 12000, True, ""),  # chronyd without rtcsync: a false alarm of each node
    (None, 0, None, "Operation not permitted"),
)
def test_what_the_kernel_says_of_its_clock(monkeypatch, status, error, value, why):
    def kernel_clock():
        if status is None:
            raise PermissionError(1, "Operation not permitted")
        return timekeeping.Timex(status=status, maxerror=error)

    monkeypatch.setattr(timekeeping, "kernel_clock", kernel_clock)
    synchronised = answers_of(timekeeping.timekeeping)["discovery.clock.synchronised"]
    assert synchronised[0] is value
    assert why in synchronised[1]


def test_daemons_that_keep_a_clock_are_seen_and_the_kernel_of_this_machine_answers_without_root(tmp_path):
    with contextlib.suppress(PermissionError):
        assert timekeeping.kernel_clock().tick > 0
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
    assert {verdict.outcome for verdict in warnings} == {WARN, PASS}
    assert not any(judge.stops(verdict) for verdict in warnings)


# ---- names of nodes: where they lead, on each node and over the fleet

NAMES = {"n0": None, "n1": "10.0.0.1", "n2": "10.0.0.2", "n3": "10.0.0.3"}  # n0 made the table, and all know it
N0 = "n0 10.0.0.0"
WRONG = "n2 10.0.0.99"


def fleet(led=NAMES, own: dict[str, str] | None = None, **differ: tuple[str | int, ...]) -> list[Fact]:
    """led: where the table says that the names lead; own: the address of each node; differ: a node -> what is otherwise
    there, and how many of these there are, if not so many."""
    seen: list[Fact] = [("names.address", name, at, None if at else "its own") for name, at in led.items()]
    for node, address in (own or {f"n{number}": f"10.0.0.{number}" for number in range(len(led))}).items():
        *entries, count = (*(() if node == "n0" else (N0,)), *differ.get(node, ()), None)
        if entries and isinstance(entries[-1], int):
            count = entries.pop()
        seen.append(("names.different", node, len(entries) if count is None else count))
        seen.append(("names.differ", node, entries))
        seen.append(("names.own_addresses", node, [address]))
    return [*seen, ("probe.names_table.finished", "n0", True)]


def derived(seen: list[Fact], quantity: str) -> dict[str, tuple[Any, str]]:
    observations = add_derived(parsed_of(seen), a_run()).observations
    return {s.subject: (s.value, s.why or "") for s in observations if s.quantity == f"discovery.names.{quantity}"}


def own(seen: list[Fact]) -> list[Any]:
    return [value for value, _ in derived(seen, "own").values()]


@for_each(
    ({}, [0, 0, 0, 0], {}),
    ({"n1": (WRONG,)}, [0, 1, 0, 0], {"n1": "n2 is 10.0.0.99, and should be 10.0.0.2"}),
    ({"n1": ("n2 none",)}, [0, 0, 0, 0], {}),  # it leads nowhere
    # where nodes disagree, the address that the node has is right
    ({"n1": (WRONG,), "n3": (WRONG,)}, [0, 1, 0, 1], {}),
    # more names than a line holds
    ({"n3": ("n1 10.9.9.1", 40)}, [0, 0, 0, 40], {"n3": "n1 is 10.9.9.1, and should be 10.0.0.1; and 37 more"}),
)
def test_one_node_that_knows_another_address_is_named_and_the_others_are_not(differ, counts, why):
    seen = derived(fleet(**differ), "differ")
    assert [seen[node][0] for node in NAMES] == counts
    assert {node: seen[node][1] for node in why} == why
    assert set(own(fleet(**differ))) == {True}


def test_a_name_that_leads_to_an_address_that_the_node_has_not_speaks_against_the_node():
    for led in ("10.0.0.99", "10.0.0.1,10.0.0.99"):
        seen = fleet({"n0": None, "n1": led, "n2": "10.0.0.2"})
        assert derived(seen, "own")["n1"][0] is False
        assert {value for value, _ in derived(seen, "differ").values()} == {0}
    seen = fleet({"n0": None, "n1": "10.0.0.99", "n2": "10.0.0.2"})
    assert derived(seen, "own")["n1"] == (False, "others reach it at 10.0.0.99; it has 10.0.0.1")


def test_of_a_large_fleet_a_node_looks_up_the_names_after_its_own_and_counts_as_a_witness_of_no_other(monkeypatch):
    monkeypatch.setattr(names, "MOST_LOOKED_UP", 2)
    assert names.names_after("n3", [f"n{number}" for number in range(5)]) == ["n4", "n0"]
    assert names.names_after("elsewhere", ["n0", "n1", "n2"]) == ["n0", "n1"]
    # n1's address is wrong in the table; n0 alone asked for it besides n4, of five who would all agree with the table
    table = {"n0": None, "n1": "10.0.0.99", "n2": "10.0.0.2", "n3": "10.0.0.3", "n4": "10.0.0.4"}
    seen = [*fleet(table, n4=("n1 10.0.0.1",)), *(("names.looked_up", node, 2) for node in table)]
    assert {node: value for node, (value, _) in derived(seen, "differ").items()} == dict.fromkeys(table, 0) | {"n0": 1}


def test_a_first_node_that_knows_other_addresses_than_all_others_is_the_odd_one():
    others = {f"n{number}": f"10.9.9.{number}" for number in range(1, 60)}
    seen = derived(fleet({"n0": None, **others}, **dict.fromkeys(others, ("n2 10.0.0.2", 59))), "differ")
    assert seen["n0"][0] == 59
    assert {seen[node][0] for node in others} == {None}


def test_a_node_that_could_not_read_the_table_and_a_node_alone_were_compared_with_nobody():
    why = "the table of names cannot be read"
    assert derived([*fleet(), ("names.different", "n4", None, why)], "differ")["n4"] == (None, why)
    alone = fleet({"n0": None, "n1": "10.0.0.1"}, {"n0": "10.0.0.0"})
    assert derived(alone, "differ") == {"n0": (None, "no other node answered")}
    assert derived(alone, "own") == {}


# ---- the probe


def test_a_resolver_that_hangs_is_said_and_does_not_hold_up_the_probe():
    never = threading.Event()

    def look_up(name: str) -> str:
        if name == "slow":
            never.wait()
        return "10.0.0.1"

    try:
        answers = names.look_up_all(["slow", "quick"], look_up, deadline_s=0.2)
    finally:
        never.set()
    assert answers["quick"].address == "10.0.0.1"
    assert answers["slow"].address is None
    assert answers["slow"].why == "no answer within 0.2 s, in which 1 of 2 names were answered"


def test_what_a_resolver_says_is_an_answer(monkeypatch):
    def refuse(*_):
        raise UnicodeError("label too long")

    def ipv6_only(name, port, family):
        if family == socket.AF_INET:
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", ("fd00::2", 0, 0, 0))]

    monkeypatch.setattr(names.socket, "getaddrinfo", refuse)
    assert names.look_up_all(["x" * 70])["x" * 70].why == "label too long"
    monkeypatch.setattr(names.socket, "getaddrinfo", ipv6_only)
    assert names.address_of("n1") == "fd00::2"
    entries = [(0, 0, 0, "", (f"10.0.0.{last}", 0)) for last in (2, 1, 2)]  # their order says nothing
    monkeypatch.setattr(names.socket, "getaddrinfo", lambda *_: entries)
    assert names.address_of("n1") == "10.0.0.1,10.0.0.2"


@for_each(("127.0.1.1", False), ("10.0.0.1,127.0.1.1", True), ("fe80::1%eth0", True), (None, False))
def test_a_host_name_that_is_only_loopback_reaches_nobody(monkeypatch, address, reachable):
    answer = names.Answer(address, "unknown", 0)
    monkeypatch.setattr(names, "look_up_all", lambda asked: dict.fromkeys(asked, answer))
    assert answers_of(lambda probe: names.say_own(probe, False))["discovery.names.reachable"][0] is reachable


def test_a_table_is_compared_as_it_was_written(tmp_path, monkeypatch):
    led = {"n1": "10.0.0.1", "n2": "10.0.0.2"}
    monkeypatch.setattr(names, "address_of", lambda name: led.get(name) or "10.0.0.9")
    monkeypatch.setattr(names, "node_name", lambda: "n0")
    path = tmp_path / "names-table.jsonl"
    with path.open("w") as stream:
        probe = names.Facts("names_table", stream)
        names.table(probe, ["n0", "n1", "n2"])
        probe.finish()
    assert facts.parse(path.read_text(), "f").problems == []
    led["n2"] = "10.0.0.99"
    monkeypatch.setattr(names, "node_name", lambda: "n1")
    compared = answers_of(lambda probe: names.compare(probe, path))
    assert sorted(compared["names.differ"][0]) == ["n0 10.0.0.9", WRONG]
    assert compared["discovery.names.unresolved"][0] == 0
    cut, empty = tmp_path / "cut.jsonl", tmp_path / "empty.jsonl"
    cut.write_text("".join(path.read_text().splitlines(keepends=True)[:-2]))
    empty.write_text("")
    for lost in (tmp_path / "nowhere", cut, empty):
        missing = answers_of(lambda probe, lost=lost: names.compare(probe, lost))
        assert missing["names.different"][0] is None
        assert missing["discovery.names.unresolved"][0] is None, "a question that was never put is no 0"


def test_as_many_names_are_told_as_a_line_holds():
    entries = [f"queue-dynamic-p5-48xlarge-training-{number} 10.0.0.{number}" for number in range(100)]
    kept = list(names.fitting(entries))
    assert 5 < len(kept) < 20
    assert kept == entries[: len(kept)]


def test_the_kernel_tells_the_addresses_of_a_node_without_a_tool(tmp_path, monkeypatch):
    assert "lo" not in addresses.by_interface()
    assert all(Path(f"/sys/class/net/{interface}").exists() for interface in addresses.by_interface())
    monkeypatch.setattr(addresses, "_ipv4", lambda: iter([("eth0", addresses.ipaddress.IPv4Address("10.0.0.1"))]))
    monkeypatch.setattr(addresses, "IF_INET6", tmp_path / "if_inet6")
    addresses.IF_INET6.write_text(
        "fd000000000000000000000000000002 02 40 00 80     eth0\n"
        "fe800000000000000000000000000002 02 40 20 80     eth0\n"
        "00000000000000000000000000000001 01 80 10 80       lo\n"
    )
    assert addresses.by_interface() == {"eth0": ["10.0.0.1", "fd00::2"]}
    addresses.IF_INET6.unlink()
    assert addresses.by_interface() == {"eth0": ["10.0.0.1"]}
