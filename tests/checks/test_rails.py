"""RDMA ports one by one: perftest's output, two probes that arrange the tests, and the NIC that a verdict names."""

import os
import socket
import sys
from pathlib import Path

import beside
import perftest
import pytest
from bringup.kernel import judge
from bringup.kernel.facts import facts
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.plan import rounds
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.records import Kind, Outcome, Verdict
from bringup.run.healthy_rest import unhealthy_nodes
from factory import a_run, a_verdict, judged_of
from loops import case_for_each, for_each
from programs import PROBES, begun, free_port, on_path, program, ran, tree
from runs_for_tests import FAIL, FIXTURES, OPEN, PASS, WARN, Fact, judged
from showing import check, check_each, shows_failing

REAL = FIXTURES / "perftest"
DURATION = "../real/perftest/ib-write-bw-duration.txt"
RATE = 400.0


def verdicts(seen: Parsed | list[Fact], nodes: tuple[str, ...], phase: str = "nccl_pairwise") -> dict[str, Verdict]:
    """Gate, and subject where it is a node -> verdict."""
    by_gate = judged(seen, phase, nodes, gpus=8)
    return {which.removeprefix("fabric.").removesuffix(" job"): verdict for which, verdict in by_gate.items()}


def measured(nodes: tuple[str, ...], slow: dict[str, float], **lacking: str) -> dict[str, Verdict]:
    """The verdicts on a ring of nodes. slow: `mlx5_3:1 n1->n0` or `mlx5_3:1 n1` (all that it sends and gets) -> Gb/s;
    lacking: a node -> the port that it lacks."""
    names = [f"mlx5_{number}:1" for number in range(8)]
    met = [(node, name) for node in nodes for name in names if lacking.get(node) != name]
    seen: list[Fact] = [(f"rail.rate@{name}", node, RATE) for node, name in met]
    for first, second in rounds.ring(nodes):
        seen.append(("rail.met", f"{first}--{second}", True))
        for name in names:
            if name in (lacking.get(first), lacking.get(second)):
                continue
            for source, target in ((first, second), (second, first)):
                keys = (f"{name} {source}->{target}", f"{name} {source}", f"{name} {target}")
                speed = next((slow[key] for key in keys if key in slow), 386.0)
                seen.append((f"rail.bandwidth@{name}", f"{source}->{target}", speed))
            kinds = ("together", "crossed")
            seen += [(f"rail.{kind}@{name}", f"{first}->{second}", slow.get(kind, 0.9)) for kind in kinds]
            seen.append((f"rail.latency@{name}", f"{first}->{second}", 2.1))
    return verdicts(seen, nodes)


# --- what perftest prints


@for_each(("write-bw-gbits.txt", 111.71), (DURATION, 58.07), ("write-bw-frequency.txt", 3.03))
def test_the_average_of_real_output_is_read_in_its_unit(name, gbps):
    assert perftest.bandwidth((REAL / name).read_text()) == gbps


def test_the_typical_latency_is_read_and_ports_are_the_fastest_that_are_active(tmp_path):
    """Of the table of latencies, later columns run together."""
    text = (REAL / "write-lat.txt").read_text()
    assert perftest.latency(text) == 1.47
    assert perftest.latency(text.replace("0.00            1.57 ", "2465.901216.65 ")) == 1.47
    assert perftest.ports(hcas(tmp_path, (UP, NDR), (DOWN, NDR), (UP, EDR))) == {"mlx5_0:1": 400.0}


@for_each(perftest.bandwidth, perftest.latency)
def test_output_without_a_table_is_no_measurement(reader):
    for text, says in (
        ("Couldn't connect to n0:18515\n", "Couldn't connect to n0:18515"),
        # perftest 6.06: the reason was hidden by the line behind it
        (" Multiple QPs only available on bw tests\n Parser function exited with Error\n", "Multiple QPs only"),
        ((REAL / "write-bw-gbits.txt").read_text().split(" 65536")[0], "was printed"),
    ):
        with pytest.raises(perftest.Failed, match=says):
            reader(text)


UP, DOWN = "4: ACTIVE", "1: DOWN"
NDR, EDR = "400 Gb/sec (4X NDR)", "100 Gb/sec (4X EDR)"


def hcas(place: Path, *ports: tuple[str, str]) -> Path:
    """ports: the state and the rate of each."""
    for number, (state, rate) in enumerate(ports or ((UP, NDR), (UP, NDR))):
        tree(place / f"sys/mlx5_{number}/ports/1", {"state": state, "rate": rate})
    return place / "sys"


# --- the probes


def started(place: Path, probe: str, argument: str, node: str, environment: dict[str, str], says: str = ""):
    """The probe with RDMA ports of the test's own. says: on its standard input."""
    (place / "says").write_text(says)
    code = (
        f"import sys, pathlib; sys.path.insert(0, {str(PROBES)!r}); import perftest, {probe}; "
        f"perftest.ports.__defaults__ = (pathlib.Path({str(place / 'sys')!r}),); "
        f"sys.argv = {['x', argument]!r}; {probe}.main()"
    )
    command, own = [sys.executable, "-c", code], environment | {"SLURMD_NODENAME": node}
    with (place / "says").open() as stdin:
        return begun(command, env=own, stdin=stdin)


def of_two_nodes(place: Path, **state: str) -> dict[str, Verdict]:
    """Two probes on this machine, under two names that lead to it."""
    hcas(place)
    environment = on_path(place, **{"rail_mlx5_0": "386", "rail_mlx5_1": "386", **state})
    nodes = ("localhost", socket.gethostname())
    port = str(free_port())
    probes = [started(place, "rails", port, node, environment, ",".join(nodes)) for node in nodes]
    output = [probe.communicate(timeout=240) for probe in probes]
    assert [probe.returncode for probe in probes] == [0, 0], output
    said_by = "".join(f"{number}: {line}\n" for number, (out, _) in enumerate(output) for line in out.splitlines())
    parsed = facts.parse(said_by, "raw/x.jsonl")
    assert parsed.problems == []
    return verdicts(parsed, nodes)


@case_for_each(
    ({}, {"slowest": (PASS, 0.965, "386 of 400 Gb/s"), "latency": (PASS, 2.1, "")}),
    pytest.param(
        {"rail_mlx5_1": "180", "rail_mlx5_0.latency": "40"},
        {"slowest": (FAIL, 0.45, "mlx5_1:1 "), "latency": (FAIL, 40.0, "mlx5_0:1 ")},
        marks=shows_failing("fabric.rail.slowest", "fabric.rail.latency"),
    ),
    pytest.param(
        {"rail_mlx5_1.mlx5_0": "fail"},  # ports of different names that do not meet; all at once share nothing
        {"crossed": (WARN, 0.0, "mlx5_1:1 "), "together": (PASS, 0.965, "")},
        marks=shows_failing("fabric.rail.crossed"),
    ),
    ({"rail_mlx5_1": "fail"}, {"slowest": (FAIL, 0.0, "ib_write_bw ended with 1: Completion with error at client")}),
)
def test_two_nodes_measure_every_rail_in_both_directions(tmp_path, state, expected):
    by_gate = of_two_nodes(tmp_path / "a place", **state)
    for rail, (outcome, value, says) in expected.items():
        verdict = by_gate[f"rail.{rail}"]
        assert (verdict.outcome, verdict.value) == (outcome, value), rail
        assert says in f"{verdict.observed} {verdict.cause}"


def looped(place: Path, environment: dict[str, str]) -> Verdict:
    hcas(place)
    out, err = started(place, "nic_loopback", str(free_port()), "n1", environment).communicate(timeout=240)
    assert err == ""
    return verdicts(facts.parse(out, "raw/x.jsonl"), ("n1",), "node_sweep")["loopback n1"]


@shows_failing("fabric.loopback")
def test_a_port_that_is_slow_with_itself_is_named_and_without_perftest_it_is_incomplete(tmp_path):
    place = tmp_path / "a place"
    slow = looped(place, on_path(place, rail_mlx5_0="386", rail_mlx5_1="386", loopback_mlx5_1="126"))
    check(slow, FAIL, "mlx5_1:1: 126 of 400 Gb/s")
    assert slow.value == 0.315
    lacking = looped(tmp_path / "another", on_path(tmp_path / "another") | {"PATH": str(tmp_path)})
    check(lacking, OPEN, "mlx5_0:1: not found out (ib_write_bw is not installed)")


# --- which node, which NIC


@shows_failing("fabric.rail.nic")
def test_a_bad_nic_accuses_its_node_and_a_bad_cable_neither_of_its_two():
    by_gate = measured(("n0", "n1", "n2", "n3"), {"mlx5_3:1 n1": 180.0})
    check_each([by_gate[f"rail.nic n{number}"] for number in range(4)], PASS, (FAIL, "mlx5_3:1 "), PASS, PASS)
    check(by_gate["rail.slowest"], FAIL)
    by_gate = measured(("n0", "n1", "n2"), {"mlx5_0:1 n1->n2": 90.0})
    check_each([by_gate[f"rail.nic n{number}"] for number in range(3)], PASS, PASS, PASS)
    check(by_gate["rail.slowest"], FAIL, "mlx5_0:1 n1->n2: 90 of 400 Gb/s")


@shows_failing("fabric.rail.together")
def test_ports_that_are_slow_at_once_fail_where_each_alone_is_fast_and_a_missing_one_is_incomplete():
    by_gate = measured(("n0", "n1", "n2"), {}, n2="mlx5_5:1")
    assert [by_gate[f"rail.nic n{number}"].outcome for number in (0, 2)] == [PASS, OPEN]
    assert "n2 has no active port mlx5_5:1" in (by_gate["rail.slowest"].cause or "")
    for alone, outcome in ((386.0, FAIL), (90.0, OPEN)):
        by_gate = measured(("n0", "n1", "n2"), {"mlx5_0:1 n1->n2": alone, "together": 0.5})
        assert by_gate["rail.together"].outcome is outcome


PAIR, MET = ("n0", "n1"), ("rail.met", "n0--n1", True)
BOTH_WAYS = [("rail.bandwidth@mlx5_0:1", way, 96.0) for way in ("n0->n1", "n1->n0")]


def rates(of: str, *rails: str) -> list[Fact]:
    return [(f"{of}.rate@{rail}", node, 100.0) for node in PAIR for rail in rails]


SLOWEST, SILENT = "rail.slowest", "n1 did not answer in 60 s"
UNLIKE = [("rail.rate@mlx5_0:1", "n0", RATE), *rates("rail", "mlx5_0:1")[1:]]  # the slower side decides
LOOPS = [*rates("loopback", "a:1", "b:1"), ("loopback.bandwidth@a:1", "n0", 96.0), ("loopback.ports", "n0", 2)]


@for_each(
    (SLOWEST, [*rates("rail", "mlx5_0:1"), ("rail.met", "n0--n1", False, SILENT)], OPEN, f"n0--n1: {SILENT}"),
    (SLOWEST, [MET], OPEN, "n0 has no active RDMA port"),
    (SLOWEST, [], OPEN, ""),  # it was not exercised
    (SLOWEST, [MET, *rates("rail", "mlx5_0:1", "mlx5_1:1"), *BOTH_WAYS], OPEN, "mlx5_1:1 n0->n1: no transfer arrived"),
    (SLOWEST, [MET, *UNLIKE, *BOTH_WAYS], PASS, "96 of 100 Gb/s"),
    ("loopback n0", LOOPS, OPEN, "b:1: no transfer to itself arrived"),
)
def test_ports_without_a_transfer_are_incomplete_with_the_reason(gate, seen, expected, why):
    phase = "node_sweep" if gate.startswith("loopback") else "nccl_pairwise"
    check(verdicts(seen, PAIR, phase)[gate], expected, why)


@for_each(2, 3, 4, 5, 8, 9, 64)
def test_neighbours_meet_in_few_rounds_with_as_many_links_as_nodes(count):
    nodes = [f"n{number}" for number in range(count)]
    pairs = rounds.ring(nodes)
    assert len(pairs) == (count if count > 2 else 1)
    assert len(rounds.in_rounds(pairs)) <= 3
    assert {sum(node in pair for pair in pairs) for node in nodes} == {2 if count > 2 else 1}


def test_a_port_that_was_not_tested_stops_nothing_and_leaves_no_node_out_and_one_that_failed_stops():
    """A cluster without perftest: its ports stay unproven."""
    rails = [gate for gate in GATES.values() if gate.id.startswith(("fabric.rail.", "fabric.loopback"))]
    unproven = []
    for gate in rails:
        subject = "n1" if gate.per == "node" else "job"
        unproven.append(a_verdict(gate.id, subject, OPEN, "nothing", kind=Kind.ABSENT))
        assert not judge.stops(unproven[-1])
        if gate.severity is Outcome.FAIL:
            assert judge.stops(a_verdict(gate.id, subject, FAIL, "0.4"))
    assert unhealthy_nodes(judged_of(*unproven, run=a_run("nccl_pairwise", ("n0", "n1", "n2", "n3"), plan={}))) == []


# --- transfers start on the cores of their device, with memory of its NUMA node; what cannot be set is left

SAYS = "import os; print(sorted(os.sched_getaffinity(0)), open('/proc/self/numa_maps').readline().split()[1])"
ROW = "cpus = sorted(os.sched_getaffinity(0))\nprint(8, 1000, 1.0, 2.0, cpus[0] + 0.5 if len(cpus) == 1 else 99.0)\n"


def device(root: Path, cpulist: int, node: str) -> Path:
    return tree(root, {"local_cpulist": str(cpulist), "numa_node": node})


def of_a_program() -> str:
    return ran([sys.executable, "-c", SAYS], check=True).stdout.strip()


def test_a_program_that_is_started_beside_a_device_has_its_cores_and_they_are_given_back(tmp_path):
    allowed = os.sched_getaffinity(0)
    core = max(allowed)
    with beside.beside(device(tmp_path / "nic", core, "-1")):
        assert of_a_program().startswith(f"[{core}]")
    assert os.sched_getaffinity(0) == allowed
    # of cores that the task was not given, and of devices that say nothing, nothing changes
    for folder in (device(tmp_path / "far", core + 1, "-1"), tmp_path / "nothing"):
        with beside.beside(folder):
            assert os.sched_getaffinity(0) == allowed


@pytest.mark.skipif(not Path("/proc/self/numa_maps").exists(), reason="a kernel without NUMA")
def test_its_memory_is_of_the_node_of_the_device(tmp_path):
    with beside.beside(device(tmp_path / "nic", 0, "0")):
        assert of_a_program().endswith(("prefer:0", "default"))  # default: a sandbox refuses the call
    assert of_a_program().endswith("default")


def test_both_sides_of_a_test_of_a_port_start_on_the_cores_of_its_nic(tmp_path, monkeypatch):
    """They ran on one core of socket 0 for the NICs of socket 1, too."""
    core = max(os.sched_getaffinity(0))
    device(tmp_path / "mlx5_3/device", core, "-1")
    program(tmp_path / "ib_write_lat", f"import os\nprint('t_typical[usec]')\n{ROW}", "/usr/bin/env python3")
    monkeypatch.setattr(perftest, "HCAS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert perftest.call(perftest.LATENCY, "mlx5_3:1", 1, "localhost") == core + 0.5


def test_the_steps_of_perftest_have_the_cores_of_all_sockets():
    scripts = PROBES.parent / "scripts"
    for script, probe in (("node_sweep.sbatch", "nic_loopback.py"), ("nccl_pairwise.sbatch", "rails.py")):
        text = (scripts / script).read_text().replace("\\\n", " ")
        line = next(line for line in text.splitlines() if f"probes/{probe}" in line)
        assert '--cpu-bind=none --cpus-per-task="$(cpus_per_rank 1)"' in line
