"""Gates of nodes: who answered, what should be equal, libraries. Every gate without a drill is shown failing."""

import json
from pathlib import Path

import pytest
from bringup import judge
from bringup.evidence.parsed import Parsed
from bringup.plan import profile
from bringup.records import Kind, Outcome, Verdict
from factory import a_run
from loops import for_each
from runs_for_tests import FAIL, OPEN, PASS, add_derived, discovery, judged, reseal
from showing import shows_failing

INVENTORY = "raw/inventory.jsonl"


@pytest.fixture
def healthy(tmp_path, monkeypatch) -> Path:
    return discovery(tmp_path, monkeypatch)


def edited(folder: Path, good: str, bad: str, *, times: int = 1) -> Path:
    """As if the nodes had said so before the run was closed."""
    path = folder / INVENTORY
    text = path.read_text()
    assert good in text
    path.write_text(text.replace(good, bad, times))
    return reseal(folder)


def verdicts_of(gate: str, folder: Path, name: str = "generic") -> list[Verdict]:
    """Of n0 and n1."""
    verdicts = judge.judge_folder(folder, profile.load(name)).verdicts.verdicts
    return [verdict for verdict in verdicts if verdict.gate == f"discovery.{gate}"]


# ---- libraries

LIBRARIES = ("libcuda", "libnccl", "libibverbs")


def fact(library: str, value: str) -> str:
    return f'inventory.library.{library}", "value": "{value}"'


def value_in(folder: Path, library: str) -> str:
    lines = [json.loads(line[3:]) for line in (folder / INVENTORY).read_text().splitlines()]
    return next(line["value"] for line in lines if line.get("quantity") == f"inventory.library.{library}")


def test_a_library_that_no_node_has_is_not_the_same_on_all_nodes_and_one_that_none_needs_may_be_absent(healthy):
    """No RDMA port, no driver: an ordinary cluster of CPUs, or one on Ethernet."""
    for library in ("libcuda", "libibverbs"):
        verdicts = verdicts_of(f"library.{library}", healthy)
        assert {(v.outcome, str(v.value).partition(":")[0]) for v in verdicts} == {(PASS, "absent")}
    assert {judge.stops(verdict) for verdict in verdicts_of("library.libnccl", healthy)} == {False}
    for library in (*LIBRARIES, "libmunge"):
        edited(healthy, fact(library, value_in(healthy, library)), fact(library, "absent"), times=2)
        for name in ("generic", "h100-8x400g"):
            verdicts = verdicts_of(f"library.{library}", healthy, name)
            assert [(v.outcome, v.cause) for v in verdicts] == [(OPEN, "not found out: no node has it")] * 2


@shows_failing(*(f"discovery.library.{name}" for name in LIBRARIES))
def test_a_library_that_one_of_two_nodes_has_fails_on_both(healthy):
    for library in LIBRARIES:
        absent, there = value_in(healthy, library), f"{library}.so.1 1 bytes a"
        verdicts = verdicts_of(f"library.{library}", edited(healthy, fact(library, absent), fact(library, there)))
        assert {verdict.outcome for verdict in verdicts} == {FAIL}
        assert sorted(str(verdict.value) for verdict in verdicts) == [absent, there]


@for_each(
    ("values", "outcomes"),
    [
        (["nccl 1", "nccl 1", "nccl 1", "absent"], [PASS, PASS, PASS, FAIL]),
        (["absent", "absent", "absent", "nccl 1"], [FAIL] * 4),
        (["absent", "absent", "absent", None], [OPEN] * 4),
        (["absent", "absent", "nccl 1", "nccl 1"], [FAIL] * 4),
    ],
)
def test_absence_is_never_what_is_usual(values: list[str | None], outcomes: list[Outcome]):
    facts = [("inventory.library.libnccl", f"n{number}", value) for number, value in enumerate(values)]
    by_gate = judged(facts, nodes=[f"n{number}" for number in range(4)], profile_name="generic")
    assert [by_gate[f"discovery.library.libnccl n{number}"].outcome for number in range(4)] == outcomes


# ---- drift


@shows_failing("discovery.python", "discovery.cpu.model")
def test_a_node_that_differs_fails_and_of_two_nobody_knows_which_one_is_right(healthy):
    for gate, good, bad in (("python", "CPython 3", "CPython 2"), ("cpu.model", '"AMD EPYC"', '"Intel Xeon"')):
        assert [verdict.outcome for verdict in verdicts_of(gate, edited(healthy, good, bad))] == [FAIL, FAIL]


def test_a_node_with_half_the_memory_fails_and_the_other_does_not(healthy):
    verdicts = verdicts_of("memory", edited(healthy, '"value": 23.541', '"value": 11.7'))
    assert all("23.54" in verdict.observed for verdict in verdicts)
    assert [(v.outcome, v.unit) for v in verdicts] == [(PASS, "share"), (FAIL, "share")]


# ---- who answered


def test_every_node_that_a_launch_error_names_fails_and_the_evidence_is_the_line_that_grep_gives(healthy):
    """srun speaks of several nodes at once: n[0-1]. A progress bar ends its lines with a carriage return."""
    (healthy / INVENTORY).unlink()
    errors = healthy / "raw/inventory.err"
    errors.write_text("srun: error: n[0-1]: tasks 0-1: Exited with exit code 127\n")
    verdicts = verdicts_of("node.answered", reseal(healthy))
    assert [(verdict.outcome, verdict.kind) for verdict in verdicts] == [(FAIL, Kind.JUDGED)] * 2
    errors.write_bytes(b"10%\r20%\r30%\nsrun: error: n1: task 1: Killed\n")
    assert verdicts_of("node.answered", reseal(healthy))[1].evidence == "raw/inventory.err:2"


def test_a_state_of_a_node_is_a_gate_of_discovery_alone(healthy):
    observed = {observation.quantity for observation in judge.judge_folder(healthy).observations}
    assert {"discovery.node.state", "discovery.node.answered"} <= observed
    parsed = Parsed()
    parsed.saw("slurm.node.state", "n0", "IDLE", "text", "f:1")
    assert len(add_derived(parsed, a_run("smoke")).observations) == 1


def test_a_healthy_run_of_the_fixture_has_all_facts_that_the_gates_want(healthy):
    verdicts = judge.judge_folder(healthy).verdicts.verdicts
    assert {v.outcome for v in verdicts} == {PASS}
    pages = ("nodes", "gpus", "fabric", "slurm", "filesystem", "run")
    assert {v.fix.partition("#")[0] for v in verdicts} == {f"docs/gates/{page}.md" for page in pages}
