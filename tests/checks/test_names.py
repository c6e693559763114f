"""Names of nodes: where they lead, on each node and over the fleet."""

import socket
import threading
from pathlib import Path
from typing import Any

import addresses
import names
import pytest
from bringup.evidence import facts
from bringup.evidence.parsed import Parsed
from factory import a_run
from probing import told_by
from runs_for_tests import add_derived


def table_of(**led: str | None) -> Parsed:
    parsed = Parsed()
    for name, address in led.items():
        parsed.saw("names.address", name, address, "text", "f:1", None if address else "its own name")
    parsed.saw("probe.names_table.finished", "n0", True, "flag", "f:9")
    return parsed


def add_table(parsed: Parsed, node: str, own: str, *differs: str, count: int | None = None) -> None:
    parsed.saw("names.different", node, len(differs) if count is None else count, "count", "f:2")
    parsed.saw("names.differ", node, list(differs), "text", "f:3")
    parsed.saw("names.own_addresses", node, [own], "text", "f:4")


def derived(parsed: Parsed, quantity: str) -> dict[str, tuple[Any, str]]:
    add_derived(parsed, a_run())
    differing = [
        observation for observation in parsed.observations if observation.quantity == f"discovery.names.{quantity}"
    ]
    return {observation.subject: (observation.value, observation.why or "") for observation in differing}


def four(*, n0: tuple[str, ...] = (), n1: tuple[str, ...] = (), n3: tuple[str, ...] = ()) -> Parsed:
    """The node that made the table never compares its own name, and all others know it."""
    parsed = table_of(n0=None, n1="10.0.0.1", n2="10.0.0.2", n3="10.0.0.3")
    add_table(parsed, "n0", "10.0.0.0", *n0)
    add_table(parsed, "n1", "10.0.0.1", "n0 10.0.0.0", *n1)
    add_table(parsed, "n2", "10.0.0.2", "n0 10.0.0.0")
    add_table(parsed, "n3", "10.0.0.3", "n0 10.0.0.0", *n3)
    return parsed


def test_names_that_lead_alike_differ_nowhere():
    assert {value for value, _ in derived(four(), "differ").values()} == {0}
    assert {value for value, _ in derived(four(), "own").values()} == {True}


def test_one_node_that_knows_another_address_is_named_and_the_others_are_not():
    observations = derived(four(n1=("n2 10.0.0.99",)), "differ")
    assert observations["n1"] == (1, "n2 is 10.0.0.99, and should be 10.0.0.2")
    assert {observations[node][0] for node in ("n0", "n2", "n3")} == {0}


def test_a_name_that_leads_nowhere_is_no_other_address():
    assert derived(four(n1=("n2 none",)), "differ")["n1"][0] == 0


def test_of_a_large_fleet_a_node_looks_up_the_names_after_its_own_and_counts_as_a_witness_of_no_other(monkeypatch):
    monkeypatch.setattr(names, "MOST_LOOKED_UP", 2)
    assert names.names_after("n3", [f"n{number}" for number in range(5)]) == ["n4", "n0"]
    assert names.names_after("elsewhere", ["n0", "n1", "n2"]) == ["n0", "n1"]
    # n1's address is wrong in the table; n0 alone asked for it besides n4, of five who would all agree with the table
    parsed = table_of(n0=None, n1="10.0.0.99", n2="10.0.0.2", n3="10.0.0.3", n4="10.0.0.4")
    for node, differs in {
        "n0": (),
        "n1": (),
        "n2": (),
        "n3": ("n0 10.0.0.0",),
        "n4": ("n0 10.0.0.0", "n1 10.0.0.1"),
    }.items():
        add_table(parsed, node, f"10.0.0.{node[1]}", *differs)
        parsed.saw("names.looked_up", node, 2, "count", "f:5")
    assert {node: value for node, (value, _) in derived(parsed, "differ").items()} == {
        "n0": 1,
        "n1": 0,
        "n2": 0,
        "n3": 0,
        "n4": 0,
    }


def test_where_nodes_disagree_the_address_that_the_node_has_is_right():
    parsed = four(n1=("n2 10.0.0.99",), n3=("n2 10.0.0.99",))
    observations = derived(parsed, "differ")
    assert [observations[node][0] for node in ("n0", "n1", "n3")] == [0, 1, 1]
    assert derived(parsed, "own")["n2"][0] is True


def test_a_name_that_leads_all_to_an_address_that_the_node_has_not_speaks_against_the_node():
    parsed = table_of(n0=None, n1="10.0.0.99", n2="10.0.0.2")
    add_table(parsed, "n0", "10.0.0.0")
    add_table(parsed, "n1", "10.0.0.1", "n0 10.0.0.0")
    add_table(parsed, "n2", "10.0.0.2", "n0 10.0.0.0")
    assert derived(parsed, "own")["n1"] == (False, "others reach it at 10.0.0.99; it has 10.0.0.1")
    assert {value for value, _ in derived(parsed, "differ").values()} == {0}


def test_one_of_two_addresses_that_the_node_has_not_is_one_too_many():
    parsed = table_of(n0=None, n1="10.0.0.1,10.0.0.99", n2="10.0.0.2")
    add_table(parsed, "n0", "10.0.0.0")
    add_table(parsed, "n1", "10.0.0.1", "n0 10.0.0.0")
    add_table(parsed, "n2", "10.0.0.2", "n0 10.0.0.0")
    assert derived(parsed, "own")["n1"][0] is False


def test_a_first_node_that_knows_other_addresses_than_all_others_is_the_odd_one():
    parsed = table_of(n0=None, **{f"n{number}": f"10.9.9.{number}" for number in range(1, 60)})
    add_table(parsed, "n0", "10.0.0.0")
    for number in range(1, 60):
        add_table(parsed, f"n{number}", f"10.0.0.{number}", "n0 10.0.0.0", "n2 10.0.0.2", count=59)
    observations = derived(parsed, "differ")
    assert observations["n0"][0] == 59
    assert {observations[f"n{number}"][0] for number in range(1, 60)} == {None}


def test_a_node_that_differs_in_more_names_than_a_line_holds_is_the_odd_one_of_many():
    parsed = four()
    parsed.observations = [
        observation
        for observation in parsed.observations
        if observation.subject != "n3" or observation.quantity == "names.address"
    ]
    add_table(parsed, "n3", "10.0.0.3", "n1 10.9.9.1", count=40)
    observations = derived(parsed, "differ")
    assert observations["n3"] == (40, "n1 is 10.9.9.1, and should be 10.0.0.1; and 37 more")
    assert {observations[node][0] for node in ("n0", "n1", "n2")} == {0}


def test_a_node_that_could_not_read_the_table_was_not_compared():
    parsed = four()
    parsed.saw("names.different", "n4", None, "count", "f:7", "the table of names cannot be read")
    assert derived(parsed, "differ")["n4"] == (None, "the table of names cannot be read")


def test_a_node_alone_was_compared_with_nobody():
    parsed = table_of(n0=None, n1="10.0.0.1")
    add_table(parsed, "n0", "10.0.0.0")
    assert derived(parsed, "differ") == {"n0": (None, "no other node answered")}
    assert derived(parsed, "own") == {}


# ---- the probe


def test_a_resolver_that_hangs_is_said_and_does_not_hold_up_the_probe():
    never = threading.Event()

    def look_up(name: str) -> str:
        if name == "slow":
            never.wait()
        return "10.0.0.1"

    try:
        addresses = names.look_up_all(["slow", "quick"], look_up, deadline_s=0.2)
    finally:
        never.set()
    assert addresses["quick"].address == "10.0.0.1"
    assert addresses["slow"].address is None
    assert addresses["slow"].why == "no answer within 0.2 s, in which 1 of 2 names were answered"


def test_a_name_that_no_resolver_takes_is_an_answer(monkeypatch):
    def refuse(*_):
        raise UnicodeError("label too long")

    monkeypatch.setattr(names.socket, "getaddrinfo", refuse)
    assert names.look_up_all(["x" * 70])["x" * 70].why == "label too long"


def test_the_order_of_the_addresses_says_nothing(monkeypatch):
    entries = [(0, 0, 0, "", ("10.0.0.2", 0)), (0, 0, 0, "", ("10.0.0.1", 0)), (0, 0, 0, "", ("10.0.0.2", 0))]
    monkeypatch.setattr(names.socket, "getaddrinfo", lambda *_: entries)
    assert names.address_of("n1") == "10.0.0.1,10.0.0.2"


def test_a_name_without_ipv4_leads_to_its_ipv6_address(monkeypatch):
    def ipv6_only(name, port, family):
        if family == socket.AF_INET:
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", ("fd00::2", 0, 0, 0))]

    monkeypatch.setattr(names.socket, "getaddrinfo", ipv6_only)
    assert names.address_of("n1") == "fd00::2"


def seen(question) -> dict[str, Any]:
    return {
        observation.quantity: (observation.value, observation.why) for observation in told_by(question).observations
    }


@pytest.mark.parametrize(
    ("address", "reachable"),
    [("127.0.1.1", False), ("10.0.0.1,127.0.1.1", True), ("fe80::1%eth0", True), (None, False)],
)
def test_a_host_name_that_is_only_loopback_reaches_nobody(monkeypatch, address, reachable):
    monkeypatch.setattr(
        names, "look_up_all", lambda asked: {name: names.Answer(address, "unknown", 0) for name in asked}
    )
    assert seen(lambda probe: names.say_own(probe, False))["discovery.names.reachable"][0] is reachable


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
    facts_by_name = seen(lambda probe: names.compare(probe, path))
    assert sorted(facts_by_name["names.differ"][0]) == ["n0 10.0.0.9", "n2 10.0.0.99"]
    assert facts_by_name["discovery.names.unresolved"][0] == 0
    cut, empty = tmp_path / "cut.jsonl", tmp_path / "empty.jsonl"
    cut.write_text("".join(path.read_text().splitlines(keepends=True)[:-2]))
    empty.write_text("")
    for lost in (tmp_path / "nowhere", cut, empty):
        missing = seen(lambda probe, lost=lost: names.compare(probe, lost))
        assert missing["names.different"][0] is None
        assert missing["discovery.names.unresolved"][0] is None, "a question that was never put is no 0"


def test_as_many_names_are_told_as_a_line_holds(monkeypatch):
    entries = [f"queue-dynamic-p5-48xlarge-training-{number} 10.0.0.{number}" for number in range(100)]
    kept = list(names.fitting(entries))
    assert 5 < len(kept) < 20
    assert kept == entries[: len(kept)]


def test_the_kernel_tells_the_addresses_of_a_node(tmp_path, monkeypatch):
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


def test_the_addresses_of_this_machine_are_found_without_a_tool():
    assert "lo" not in addresses.by_interface()
    assert all(Path(f"/sys/class/net/{interface}").exists() for interface in addresses.by_interface())
