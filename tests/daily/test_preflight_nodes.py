"""Which nodes preflight accuses, and which are the best."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from bringup.kernel import judge
from bringup.kernel.judge import Judged
from bringup.kernel.plan import catalogue
from bringup.kernel.plan import profile as profiles
from bringup.kernel.records import Kind, Outcome, Verdict
from bringup.preflight import checks
from bringup.preflight.allocation import Allocation
from bringup.run import slurm
from factory import a_run, a_verdict, judged_of
from loops import for_each
from runs_for_tests import unpacked

NODES = ["n0", "n1", "n2", "n3"]


def bad(gate: str, subject: str, outcome: Outcome = Outcome.FAIL, kind: Kind = Kind.JUDGED) -> Verdict:
    return a_verdict(gate=gate, subject=subject, outcome=outcome, kind=kind)


def accused(*verdicts: Verdict, phase: str = "discovery", nodes: Sequence[str] = NODES) -> checks.Accusation:
    return checks.accuse(judged_of(*verdicts, run=a_run(phase, list(nodes))))


FLEET = next(gate.id for gate in catalogue.GATES.values() if gate.per == "node" and gate.rule == "all_equal")
MISSING = (Outcome.INCOMPLETE, Kind.ABSENT)


@for_each(
    ([bad("discovery.gpu.count", "n1"), bad("discovery.gpu.count", "n0", Outcome.PASS)], {"n1"}),
    ([bad("discovery.gpu.count", "n1"), bad("discovery.gpu.answering", "n2", *MISSING)], {"n1", "n2"}),
    ([bad("discovery.gpu.answering", "n1", Outcome.INCOMPLETE, Kind.BLOCKED)], set()),  # by another gate
    # it cannot be compared, because its peer is silent
    ([bad(FLEET, "n0", Outcome.INCOMPLETE, Kind.UNKNOWN), bad("discovery.gpu.count", "n1", *MISSING)], {"n1"}),
    ([bad("discovery.gpu.count", node) for node in NODES[:2]], {"n0", "n1"}),  # half of the nodes
    ([bad("discovery.gpu.count", node) for node in NODES[:3]] + [bad("discovery.gpu.answering", "n3")], {"n3"}),
)
def test_a_fault_and_a_missing_answer_accuse_their_own_node(verdicts, nodes):
    result = accused(*verdicts)
    assert set(result.nodes) == nodes
    assert list(result.everywhere.values()) == ([NODES[:3]] if nodes == {"n3"} else [])  # of no single node


def test_what_failed_is_told_before_what_was_not_found_out_for_it():
    """Of a node without the results folder, preflight named only the two answers that this had prevented."""
    unknown = (Outcome.INCOMPLETE, Kind.UNKNOWN)
    unresolved, differ = (bad(f"discovery.names.{what}", "n1", *unknown) for what in ("unresolved", "differ"))
    result = accused(unresolved, differ, bad("discovery.folders.writes", "n1"))
    assert result.nodes["n1"][0].startswith("discovery.folders.writes: ")


def test_slow_pairs_accuse_the_node_that_they_share_and_else_the_link():
    shared = accused(bad("nccl.pair.link", "n0--n1"), bad("nccl.pair.link", "n1--n2"), phase="nccl_pairwise")
    assert set(shared.nodes) == {"n1"} and shared.links == []
    alone = accused(bad("nccl.pair.link", "n0--n1"), phase="nccl_pairwise")
    assert not alone.nodes and alone.links == [("n0", "n1")]
    known = accused(bad("nccl.pair.node", "n1"), bad("nccl.pair.link", "n0--n1"), phase="nccl_pairwise")
    assert set(known.nodes) == {"n1"} and known.links == []
    pairs = ("n0--n1", "n0--n2", "n1--n2")  # ended or never begun: three healthy nodes had no two that might work
    open_pairs = accused(*(bad("nccl.pair.link", pair, *MISSING) for pair in pairs), phase="nccl_pairwise")
    assert not open_pairs.nodes and open_pairs.links == []
    assert open_pairs.remarks[0].startswith("not known of 3 links or pairs: nccl.pair.link: ")
    assert checks.choose(NODES, 3, [("n0", "n1")]) == ["n0", "n2", "n3"]
    assert checks.choose(NODES[:2], 2, [("n0", "n1")]) is None
    assert checks.choose(NODES[:1], 2, []) is None


def test_what_was_slow_once_after_a_bad_end_accuses_no_node_and_what_is_broken_does():
    """On a busy machine a healthy node was exchanged, because one look at the links had been slow."""
    slow = [bad("nccl.pair.node", "n1"), bad("nccl.pair.link", "n2--n3")]
    broken = bad("sweep.load.wrong_values", "n0")
    first, well = accused(*slow, broken), accused()
    assert first.has_slow and not accused(broken).has_slow
    once, twice = first.confirmed_by(well), accused(*slow).confirmed_by(first)
    assert set(once.nodes) == {"n0"} and once.links == []
    again = [line for line in once.remarks if "measured again" in line]
    assert again == [f"{name} was slow, and no more when it was measured again" for name in ("n1", "n2--n3")]
    assert set(twice.nodes) == {"n0", "n1"} and twice.links == [("n2", "n3")]


@for_each((True, 1), (False, 2))
def test_only_after_a_bad_end_a_slow_link_is_measured_again(monkeypatch, tmp_path: Path, is_first: bool, looks: int):
    names: list[str] = []

    def one_phase(setting, phase, nodes, name):
        names.append(name)
        return judged_of(bad("nccl.pair.node", "n1"), run=a_run("nccl_pairwise", NODES))

    monkeypatch.setattr(checks, "_by_slurm", lambda nodes: ([], []))
    monkeypatch.setattr(checks, "_one_phase", one_phase)
    monkeypatch.setattr(checks.opening, "lacks_torch", lambda phase, site: False)
    profile = profiles.load("generic")
    request = checks.Request([], 2, 2, None, ["nccl_pairwise"], profile, "generic", None)
    setting = checks.Setting(request, Allocation("17", NODES, 2, {}), "p", tmp_path, lambda line: None)
    looked, _ = checks.look(setting, NODES, 1, is_first=is_first)
    assert [entry.node for entry in looked.accused] == ["n1"]
    assert names == ["1", "1-again"][:looks]


def test_a_node_that_drains_keeps_its_job_and_a_lost_one_is_accused(monkeypatch: pytest.MonkeyPatch):
    states = {"n0": "ALLOCATED+DRAIN", "n1": "DOWN+NOT_RESPONDING", "n2": "ALLOCATED", "n3": "ALLOCATED+MAINTENANCE"}
    known = {node: slurm.Node(state, "why", 2, "gpu:2") for node, state in states.items()}
    monkeypatch.setattr(checks.slurm, "nodes", lambda nodes: known)
    accusations, remarks = checks._by_slurm(NODES)
    assert [entry.node for entry in accusations] == ["n1"]
    assert remarks == ["n0: Slurm says ALLOCATED+DRAIN: why", "n3: Slurm says ALLOCATED+MAINTENANCE: why"]
    assert not accused(bad("discovery.node.state", "n0")).nodes


def test_a_node_that_answers_late_is_asked_again_and_most_nodes_at_once_are_not_lost(monkeypatch: pytest.MonkeyPatch):
    """On a busy machine Slurm missed the answers of three healthy nodes for a moment, and no spare was left."""

    def asked(*answers: dict[str, str]) -> tuple[list[str], list[str]]:
        left = list(answers)

        def known(nodes: Sequence[str]) -> dict[str, slurm.Node]:
            states = left.pop(0) if len(left) > 1 else left[0]
            return {node: slurm.Node(states.get(node, "ALLOCATED"), "", 2, "gpu:2") for node in nodes}

        monkeypatch.setattr(checks.slurm, "nodes", known)
        monkeypatch.setattr(checks, "SILENT_S", 0 if len(answers) == 1 else 30)
        monkeypatch.setattr(checks.time, "sleep", lambda seconds: None)
        accusations, remarks = checks._by_slurm(NODES)
        return [entry.node for entry in accusations], remarks

    silent = dict.fromkeys(NODES[:3], "ALLOCATED+NOT_RESPONDING")
    assert asked(silent, {}) == ([], [])
    assert asked(silent, {"n2": "DOWN+NOT_RESPONDING"})[0] == ["n2"]
    assert asked({"n2": silent["n2"]})[0] == ["n2"]
    accusations, remarks = asked(silent)
    assert accusations == [] and len(remarks) == 3


# --- which nodes are the best


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Callable[[str], Judged]:
    """Judges a recorded run: `h100-faults/nvlink-replays/golden-nvlink-replays`."""
    folder = tmp_path_factory.mktemp("recorded")
    return lambda name: judge.judge_folder(unpacked(name.partition("/")[0], folder, name.partition("/")[2]))


def test_the_slowest_device_of_a_node_and_its_middle_partner_rank_it(recorded):
    """Of two speeds on n0, 0.0032 and 0.0056, the second one made a node with one slow GPU the fastest."""
    load = recorded("h100-healthy/h100-healthy/node_sweep/h100-healthy-round-1")
    assert checks.speeds([load]) == {"n0": 0.0032, "n1": 0.0028, "n2": 0.0031}
    assert checks.ranked(NODES[:3], [load]) == ["n0", "n2", "n1"]
    assert checks.ranked(["n2", "n1", "n0"], [load]) == ["n2", "n0", "n1"], "n2 and n0 differ by noise"
    slow_pair = recorded("local-faults/slow-pair/golden-slow-pair")
    assert checks.bandwidths([slow_pair]) == pytest.approx({"n0": 0.1154, "n1": 0.11445, "n2": 0.22745, "n3": 0.19065})
    assert checks.ranked(NODES, [slow_pair]) == ["n2", "n3", "n0", "n1"]


def test_load_decides_before_bandwidth_and_bandwidth_before_warnings(recorded):
    load = recorded("h100-healthy/h100-healthy/node_sweep/h100-healthy-round-1")  # n1 is slow
    pairs = recorded("h100-healthy/h100-healthy/nccl_pairwise/h100-healthy-round-1")  # n2 is slow
    replays = recorded("h100-faults/nvlink-replays/golden-nvlink-replays")  # n1 warns
    assert checks.ranked(NODES[:3], [pairs, load]) == ["n0", "n2", "n1"]
    assert checks.ranked(NODES[:3], [replays, pairs]) == ["n0", "n1", "n2"]
    assert checks.ranked(NODES[:3], [replays]) == ["n0", "n2", "n1"]
    unknown = [verdict for verdict in replays.verdicts.verdicts if verdict.outcome is Outcome.INCOMPLETE]
    assert {verdict.subject.partition("/")[0] for verdict in unknown} >= {"n0", "n1", "n2"}
    assert checks.warned([replays]) == {"n1": 1}, "a gate that is not known is no warning"
