"""RDMA ports one by one: perftest's output, two probes that arrange the tests, and the NIC that a verdict names."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import perftest
import pytest
from bringup import judge
from bringup.derive.observed import derive
from bringup.evidence import facts
from bringup.evidence.parsed import Parsed, Seen
from bringup.plan import profile, rounds
from bringup.records import Outcome, Verdict
from bringup.run.train_here import free_port
from factory import a_run
from loops import for_each
from runs_for_tests import FIXTURES
from showing import shows_failing
from simulated_tools import PROBES, on_path

REAL = FIXTURES / "perftest"
RATE = 400.0


def verdicts(parsed: Parsed, phase: str, nodes: tuple[str, ...]) -> dict[str, Verdict]:
    """`gate subject` -> verdict."""
    run = a_run(phase, nodes, gpus=8, profile="h100-8x400g")
    parsed.add(derive(Seen(parsed.observations), run))
    judged = judge.judge(run, profile.load("h100-8x400g"), parsed).verdicts
    return {f"{verdict.gate} {verdict.subject}": verdict for verdict in judged if verdict.gate.startswith("fabric.")}


def measured(nodes: tuple[str, ...], slow: dict[str, float], rails: int = 8, **lacking: str) -> dict[str, Verdict]:
    """The verdicts on a ring of nodes. slow: `mlx5_3:1 n1->n0` or `mlx5_3:1 n1` (all that it sends and gets) -> Gb/s;
    lacking: a node -> the port that it lacks."""
    parsed = Parsed()
    names = [f"mlx5_{number}:1" for number in range(rails)]
    for node in nodes:
        for name in names:
            if lacking.get(node) != name:
                parsed.saw(f"rail.rate@{name}", node, RATE, "Gb/s", "raw/x.jsonl:1")
    for first, second in rounds.ring(nodes):
        parsed.saw("rail.met", f"{first}--{second}", True, "flag", "raw/x.jsonl:2")
        for name in names:
            if name in (lacking.get(first), lacking.get(second)):
                continue
            for source, target in ((first, second), (second, first)):
                keys = (f"{name} {source}->{target}", f"{name} {source}", f"{name} {target}")
                speed = next((slow[key] for key in keys if key in slow), 386.0)
                parsed.saw(f"rail.bandwidth@{name}", f"{source}->{target}", speed, "Gb/s", "raw/x.jsonl:3")
            for kind in ("together", "crossed"):
                parsed.saw(f"rail.{kind}@{name}", f"{first}->{second}", slow.get(kind, 0.9), "share", "raw/x.jsonl:5")
            parsed.saw(f"rail.latency@{name}", f"{first}->{second}", slow.get(f"{name} us", 2.1), "us", "raw/x.jsonl:4")
    return verdicts(parsed, "nccl_pairwise", nodes)


# --- what perftest prints


@pytest.mark.parametrize(
    ("name", "gbps"),
    [
        ("write-bw-gbits.txt", 111.71),
        ("../real/perftest/ib-write-bw-duration.txt", 58.07),
        ("write-bw-frequency.txt", 3.03),
    ],
)
def test_the_average_of_real_output_is_read_in_its_unit(name: str, gbps: float) -> None:
    assert perftest.bandwidth((REAL / name).read_text()) == gbps


def test_the_typical_latency_is_read_also_where_later_columns_run_together() -> None:
    text = (REAL / "write-lat.txt").read_text()
    assert perftest.latency(text) == 1.47
    assert perftest.latency(text.replace("0.00            1.57 ", "2465.901216.65 ")) == 1.47


@pytest.mark.parametrize("reader", [perftest.bandwidth, perftest.latency])
def test_output_without_a_table_is_no_measurement(reader) -> None:
    with pytest.raises(perftest.Failed, match="Couldn't connect to n0:18515"):
        reader("Couldn't connect to n0:18515\n")
    cut = (REAL / "write-bw-gbits.txt").read_text().split(" 65536")[0]
    with pytest.raises(perftest.Failed, match="was printed"):
        reader(cut)


def test_ports_are_the_fastest_that_are_active(tmp_path: Path) -> None:
    for name, rate, state in (
        ("mlx5_0", "400 Gb/sec (4X NDR)", "4: ACTIVE"),
        ("mlx5_1", "400 Gb/sec (4X NDR)", "1: DOWN"),
        ("mlx5_2", "100 Gb/sec (4X EDR)", "4: ACTIVE"),
    ):
        port = tmp_path / name / "ports/1"
        port.mkdir(parents=True)
        (port / "rate").write_text(f"{rate}\n")
        (port / "state").write_text(f"{state}\n")
    assert perftest.ports(tmp_path) == {"mlx5_0:1": 400.0}


# --- the probes


def hcas(place: Path, devices: int = 2) -> Path:
    for number in range(devices):
        port = place / f"sys/mlx5_{number}/ports/1"
        port.mkdir(parents=True)
        (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
        (port / "state").write_text("4: ACTIVE\n")
    return place / "sys"


def started(place: Path, program: str, arguments: list[str], node: str, environment: dict[str, str]):
    """The probe with RDMA ports of the test's own."""
    code = (
        f"import sys, pathlib; sys.path.insert(0, {str(PROBES)!r}); import perftest, {program}; "
        f"perftest.ports.__defaults__ = (pathlib.Path({str(place / 'sys')!r}),); "
        f"sys.argv = {['x', *arguments]!r}; {program}.main()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment | {"SLURMD_NODENAME": node},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def of_two_nodes(place: Path, **state: str) -> dict[str, Verdict]:
    """Two probes on this machine, under two names that lead to it."""
    hcas(place)
    for number in range(2):
        state.setdefault(f"rail_mlx5_{number}", "386")
    environment, nodes = on_path(place, **state), ("localhost", socket.gethostname())
    pair = [",".join(nodes), str(free_port())]
    probes = [started(place, "rails", pair, node, environment) for node in nodes]
    output = [probe.communicate(timeout=240) for probe in probes]
    assert [probe.returncode for probe in probes] == [0, 0], output
    parsed = facts.parse(
        "".join(f"{number}: {line}\n" for number, (out, _) in enumerate(output) for line in out.splitlines()),
        "raw/x.jsonl",
    )
    assert parsed.problems == []
    return verdicts(parsed, "nccl_pairwise", nodes)


def test_two_nodes_measure_every_rail_in_both_directions(tmp_path: Path) -> None:
    by_gate = of_two_nodes(tmp_path / "a place")
    slowest, latency = by_gate["fabric.rail.slowest job"], by_gate["fabric.rail.latency job"]
    assert (slowest.outcome, slowest.value) == (Outcome.PASS, 0.965)
    assert (latency.outcome, latency.value) == (Outcome.PASS, 2.1)
    assert "386 of 400 Gb/s" in slowest.observed


@shows_failing("fabric.rail.slowest", "fabric.rail.latency")
def test_a_slow_rail_and_a_late_one_are_named(tmp_path: Path) -> None:
    by_gate = of_two_nodes(tmp_path / "a place", **{"rail_mlx5_1": "180", "rail_mlx5_0.latency": "40"})
    slowest, latency = by_gate["fabric.rail.slowest job"], by_gate["fabric.rail.latency job"]
    assert (slowest.outcome, slowest.value) == (Outcome.FAIL, 0.45)
    assert "mlx5_1:1 " in slowest.observed
    assert "180 of 400 Gb/s" in slowest.observed
    assert (latency.outcome, latency.value) == (Outcome.FAIL, 40.0)
    assert "mlx5_0:1 " in latency.observed


@shows_failing("fabric.rail.crossed")
def test_ports_of_different_names_that_do_not_meet_warn_and_all_at_once_share_nothing(tmp_path: Path) -> None:
    by_gate = of_two_nodes(tmp_path / "a place", **{"rail_mlx5_1.mlx5_0": "fail"})
    crossed, together = by_gate["fabric.rail.crossed job"], by_gate["fabric.rail.together job"]
    assert (crossed.outcome, crossed.value) == (Outcome.WARN, 0.0)
    assert "mlx5_1:1 " in (crossed.cause or "")
    assert (together.outcome, together.value) == (Outcome.PASS, 0.965)


@shows_failing("fabric.rail.together")
def test_ports_that_are_slow_at_once_fail_where_each_alone_is_fast() -> None:
    for alone, outcome in ((386.0, Outcome.FAIL), (90.0, Outcome.INCOMPLETE)):
        by_gate = measured(("n0", "n1", "n2"), {"mlx5_0:1 n1->n2": alone, "together": 0.5})
        assert by_gate["fabric.rail.together job"].outcome is outcome


def test_transfers_that_fail_are_a_bandwidth_of_zero_with_the_reason(tmp_path: Path) -> None:
    slowest = of_two_nodes(tmp_path / "a place", rail_mlx5_1="fail")["fabric.rail.slowest job"]
    assert (slowest.outcome, slowest.value) == (Outcome.FAIL, 0.0)
    assert "ib_write_bw ended with 1: Completion with error at client" in slowest.observed


def test_without_perftest_it_is_incomplete_and_says_so(tmp_path: Path) -> None:
    place = tmp_path / "a place"
    hcas(place)
    probe = started(place, "nic_loopback", [str(free_port())], "n1", on_path(place) | {"PATH": str(tmp_path)})
    out, err = probe.communicate(timeout=240)
    by_gate = verdicts(facts.parse(out, "raw/x.jsonl"), "node_sweep", ("n1",))["fabric.loopback n1"]
    assert by_gate.outcome is Outcome.INCOMPLETE, err
    assert "mlx5_0:1: not found out (ib_write_bw is not installed)" in (by_gate.cause or "")


@shows_failing("fabric.loopback")
def test_a_port_that_is_slow_with_itself_is_named(tmp_path: Path) -> None:
    place = tmp_path / "a place"
    hcas(place)
    environment = on_path(place, rail_mlx5_0="386", rail_mlx5_1="386", loopback_mlx5_1="126")
    out, err = started(place, "nic_loopback", [str(free_port())], "n1", environment).communicate(timeout=240)
    by_gate = verdicts(facts.parse(out, "raw/x.jsonl"), "node_sweep", ("n1",))["fabric.loopback n1"]
    assert (by_gate.outcome, by_gate.value) == (Outcome.FAIL, 0.315), err
    assert "mlx5_1:1: 126 of 400 Gb/s" in by_gate.observed


# --- which node, which NIC


@shows_failing("fabric.rail.nic")
def test_a_bad_nic_accuses_its_node_and_not_its_partners() -> None:
    by_gate = measured(("n0", "n1", "n2", "n3"), {"mlx5_3:1 n1": 180.0})
    outcomes = {node: by_gate[f"fabric.rail.nic {node}"].outcome for node in ("n0", "n1", "n2", "n3")}
    assert outcomes == {"n0": Outcome.PASS, "n1": Outcome.FAIL, "n2": Outcome.PASS, "n3": Outcome.PASS}
    assert "mlx5_3:1 " in by_gate["fabric.rail.nic n1"].observed
    assert by_gate["fabric.rail.slowest job"].outcome is Outcome.FAIL


def test_a_bad_cable_between_two_nodes_accuses_neither() -> None:
    by_gate = measured(("n0", "n1", "n2"), {"mlx5_0:1 n1->n2": 90.0})
    assert {by_gate[f"fabric.rail.nic {node}"].outcome for node in ("n0", "n1", "n2")} == {Outcome.PASS}
    assert "mlx5_0:1 n1->n2: 90 of 400 Gb/s" in by_gate["fabric.rail.slowest job"].observed


def test_a_node_without_a_port_that_the_others_have_is_incomplete() -> None:
    by_gate = measured(("n0", "n1", "n2"), {}, n2="mlx5_5:1")
    assert by_gate["fabric.rail.nic n2"].outcome is Outcome.INCOMPLETE
    assert "n2 has no active port mlx5_5:1" in (by_gate["fabric.rail.slowest job"].cause or "")
    assert by_gate["fabric.rail.nic n0"].outcome is Outcome.PASS


def test_nodes_whose_ports_never_met_are_incomplete_with_the_reason() -> None:
    parsed = Parsed()
    for node in ("n0", "n1"):
        parsed.saw("rail.rate@mlx5_0:1", node, RATE, "Gb/s", "raw/x.jsonl:1")
    parsed.saw("rail.met", "n0--n1", False, "flag", "raw/x.jsonl:2", "n1 did not answer in 60 s")
    slowest = verdicts(parsed, "nccl_pairwise", ("n0", "n1"))["fabric.rail.slowest job"]
    assert slowest.outcome is Outcome.INCOMPLETE
    assert "n0--n1: n1 did not answer in 60 s" in (slowest.cause or "")


def test_a_planned_link_between_nodes_without_any_port_is_incomplete_with_the_reason() -> None:
    parsed = Parsed()
    parsed.saw("rail.met", "n0--n1", True, "flag", "raw/x.jsonl:2")
    slowest = verdicts(parsed, "nccl_pairwise", ("n0", "n1"))["fabric.rail.slowest job"]
    assert slowest.outcome is Outcome.INCOMPLETE
    assert "n0 has no active RDMA port" in (slowest.cause or "")


def test_a_link_that_was_not_exercised_is_incomplete() -> None:
    assert verdicts(Parsed(), "nccl_pairwise", ("n0", "n1"))["fabric.rail.slowest job"].outcome is Outcome.INCOMPLETE


@for_each("count", [2, 3, 4, 5, 8, 9, 64])
def test_neighbours_meet_in_few_rounds_with_as_many_links_as_nodes(count: int) -> None:
    nodes = [f"n{number}" for number in range(count)]
    pairs = rounds.ring(nodes)
    assert len(pairs) == (count if count > 2 else 1)
    assert len(rounds.in_rounds(pairs)) <= 3
    partners = [sum(node in pair for pair in pairs) for node in nodes]
    assert set(partners) == {2 if count > 2 else 1}
