"""Gates of nodes: who answered, what should be equal, libraries. Every gate without a drill is shown failing."""

import json
from pathlib import Path

import pytest
from bringup import judge
from bringup.evidence.parsed import Parsed
from bringup.plan import profile
from bringup.records import Kind, Outcome, Verdict
from factory import a_run
from runs_for_tests import about, add_derived, discovery, reseal
from showing import shows_failing

INVENTORY = "raw/inventory.jsonl"


def edited(folder: Path, good: str, bad: str, *, times: int = 1) -> Path:
    """As if the nodes had said so before the run was closed."""
    path = folder / INVENTORY
    text = path.read_text()
    assert good in text
    path.write_text(text.replace(good, bad, times))
    return reseal(folder)


def verdicts_of(gate: str, folder: Path, name: str = "generic") -> dict[str, Verdict]:
    """By subject."""
    verdicts = judge.judge_folder(folder, profile.load(name)).verdicts.verdicts
    return {verdict.subject: verdict for verdict in verdicts if verdict.gate == gate}


# ---- libraries


LIBRARIES = ("libcuda", "libnccl", "libibverbs")


def said_of(library: str, value: str) -> str:
    return f'inventory.library.{library}", "value": "{value}"'


def said_in(folder: Path, library: str) -> str:
    lines = [json.loads(line[3:]) for line in (folder / INVENTORY).read_text().splitlines()]
    return next(line["value"] for line in lines if line.get("quantity") == f"inventory.library.{library}")


@pytest.mark.parametrize("name", ["generic", "h100-8x400g"])
@pytest.mark.parametrize("library", [*LIBRARIES, "libmunge"])
def test_a_library_that_no_node_has_is_not_the_same_on_all_nodes(tmp_path, monkeypatch, name, library):
    folder = discovery(tmp_path, monkeypatch)
    edited(folder, said_of(library, said_in(folder, library)), said_of(library, "absent"), times=2)
    verdicts = verdicts_of(f"discovery.library.{library}", folder, name)
    assert {subject: verdict.outcome for subject, verdict in verdicts.items()} == {
        "n0": Outcome.INCOMPLETE,
        "n1": Outcome.INCOMPLETE,
    }
    assert {verdict.cause for verdict in verdicts.values()} == {"not found out: no node has it"}


def test_a_library_that_no_node_needs_may_be_absent_from_all(tmp_path, monkeypatch):
    """No RDMA port, no driver: an ordinary cluster of CPUs, or one on Ethernet."""
    folder = discovery(tmp_path, monkeypatch)
    for library in ("libcuda", "libibverbs"):
        verdicts = verdicts_of(f"discovery.library.{library}", folder)
        assert {(verdict.outcome, str(verdict.value).partition(":")[0]) for verdict in verdicts.values()} == {
            (Outcome.PASS, "absent")
        }


def test_what_no_node_has_stops_no_later_phase(tmp_path, monkeypatch):
    verdicts = verdicts_of("discovery.library.libnccl", discovery(tmp_path, monkeypatch))
    assert {(verdict.outcome, judge.stops(verdict)) for verdict in verdicts.values()} == {(Outcome.INCOMPLETE, False)}


@pytest.mark.parametrize(
    "library", [pytest.param(name, marks=shows_failing(f"discovery.library.{name}")) for name in LIBRARIES]
)
def test_a_library_that_one_of_two_nodes_has_fails_on_both(tmp_path, monkeypatch, library):
    folder = discovery(tmp_path, monkeypatch)
    absent = said_in(folder, library)
    edited(folder, said_of(library, absent), said_of(library, f"{library}.so.1 1 bytes a"))
    verdicts = verdicts_of(f"discovery.library.{library}", folder)
    assert {verdict.outcome for verdict in verdicts.values()} == {Outcome.FAIL}
    assert sorted(str(verdict.value) for verdict in verdicts.values()) == [absent, f"{library}.so.1 1 bytes a"]


def of_four(*values: str | None) -> dict[str, Outcome]:
    nodes = [f"n{number}" for number in range(len(values))]
    parsed = Parsed()
    for node, value in zip(nodes, values, strict=True):
        why = "no answer" if value is None else None
        parsed.saw("inventory.library.libnccl", node, value, "text", "f:1", why)
    run = a_run(nodes=nodes)
    verdicts = about("discovery.library.libnccl", add_derived(parsed, run), run, "generic")
    return {node: verdict.outcome for node, verdict in verdicts.items()}


def test_absence_is_never_what_is_usual():
    fails, incomplete = Outcome.FAIL, Outcome.INCOMPLETE
    assert list(of_four("nccl 1", "nccl 1", "nccl 1", "absent").values()) == [Outcome.PASS] * 3 + [fails]
    assert set(of_four("absent", "absent", "absent", "nccl 1").values()) == {fails}
    assert set(of_four("absent", "absent", "absent", None).values()) == {incomplete}
    assert set(of_four("absent", "absent", "nccl 1", "nccl 1").values()) == {fails}


# ---- drift


@pytest.mark.parametrize(
    ("gate", "good", "bad"),
    [
        pytest.param(
            "discovery.python", "CPython 3", "CPython 2", marks=shows_failing("discovery.python"), id="discovery.python"
        ),
        pytest.param(
            "discovery.cpu.model",
            '"AMD EPYC"',
            '"Intel Xeon"',
            marks=shows_failing("discovery.cpu.model"),
            id="discovery.cpu.model",
        ),
    ],
)
def test_a_node_that_differs_fails(tmp_path, monkeypatch, gate, good, bad):
    verdicts = verdicts_of(gate, edited(discovery(tmp_path, monkeypatch), good, bad))
    # of two, nobody knows which one is right
    assert {verdict.outcome for verdict in verdicts.values()} == {Outcome.FAIL}


def test_a_node_with_half_the_memory_fails_and_the_other_does_not(tmp_path, monkeypatch):
    verdicts = verdicts_of(
        "discovery.memory", edited(discovery(tmp_path, monkeypatch), '"value": 23.541', '"value": 11.7')
    )
    assert all("23.54" in verdict.observed for verdict in verdicts.values())
    assert {verdict.unit for verdict in verdicts.values()} == {"share"}
    assert (verdicts["n0"].outcome, verdicts["n1"].outcome) == (Outcome.PASS, Outcome.FAIL)


# ---- who answered


def test_every_node_that_a_launch_error_names_fails(tmp_path, monkeypatch):
    """srun speaks of several nodes at once: n[0-1]."""
    folder = discovery(tmp_path, monkeypatch)
    (folder / INVENTORY).unlink()
    (folder / "raw/inventory.err").write_text("srun: error: n[0-1]: tasks 0-1: Exited with exit code 127\n")
    verdicts = verdicts_of("discovery.node.answered", reseal(folder))
    assert {verdict.outcome for verdict in verdicts.values()} == {Outcome.FAIL}
    assert {verdict.kind for verdict in verdicts.values()} == {Kind.JUDGED}


def test_the_evidence_is_the_line_that_grep_gives(tmp_path, monkeypatch):
    """A progress bar ends its lines with a carriage return."""
    folder = discovery(tmp_path, monkeypatch)
    (folder / INVENTORY).unlink()
    (folder / "raw/inventory.err").write_bytes(b"10%\r20%\r30%\nsrun: error: n1: task 1: Killed\n")
    assert verdicts_of("discovery.node.answered", reseal(folder))["n1"].evidence == "raw/inventory.err:2"


def test_a_state_of_a_node_is_a_gate_of_discovery_alone(tmp_path, monkeypatch):
    observed = {
        observation.quantity for observation in judge.judge_folder(discovery(tmp_path, monkeypatch)).observations
    }
    assert {"discovery.node.state", "discovery.node.answered"} <= observed
    parsed = Parsed()
    parsed.saw("slurm.node.state", "n0", "IDLE", "text", "f:1")
    assert [observation.quantity for observation in add_derived(parsed, a_run("smoke")).observations] == [
        "slurm.node.state"
    ]


def test_a_healthy_run_of_the_fixture_has_all_facts_that_the_gates_want(tmp_path, monkeypatch):
    verdicts = judge.judge_folder(discovery(tmp_path, monkeypatch)).verdicts.verdicts
    assert {v.outcome for v in verdicts} == {Outcome.PASS}
    assert {v.fix.partition("#")[0] for v in verdicts} == {
        f"docs/gates/{page}.md" for page in ("nodes", "gpus", "fabric", "slurm", "filesystem", "run")
    }
