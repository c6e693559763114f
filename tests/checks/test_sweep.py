"""Every node by itself: the same bits, a load that lasts, collectives inside, and counters that do not rise."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from bringup import judge
from bringup.checks.sweep import derive
from bringup.evidence.parsed import Parsed, Seen
from bringup.plan import profile
from bringup.records import Outcome, Value, Verdict
from factory import a_run
from showing import shows_failing

sys.path.append(str(Path(__file__).resolve().parents[2] / "infrastructure-validation/probes"))
import seeded_step
import sustained_load

NODES = ("n0", "n1", "n2")
H100 = "h100-8x400g"
Fact = tuple[str, str, Value | None]


def verdicts(facts: Iterable[Fact], profile_name: str = H100, nodes: tuple[str, ...] = NODES) -> dict[str, Verdict]:
    """`gate subject` -> verdict, of a run with two GPUs a node."""
    parsed, facts = Parsed(), list(facts)
    for quantity, subject, value in facts:
        unit = "ratio" if quantity.endswith(".drift") else "count"
        parsed.saw(quantity, subject, value, unit, "raw/x.jsonl:1", "not read" if value is None else None)
    devices = {subject for _, subject, _ in facts if "/GPU" in subject or "/task" in subject}
    gpus = max(sum(device.startswith(f"{node}/") for device in devices) for node in nodes) or 1
    run = a_run("node_sweep", nodes, gpus=gpus, profile=profile_name)
    parsed.add(derive.derive(Seen(parsed.observations), run))
    judged = judge.judge(run, profile.load(profile_name), parsed)
    return {f"{verdict.gate} {verdict.subject}": verdict for verdict in judged.verdicts}


def of_gpus(quantity: str, values: dict[str, Value | None]) -> list[Fact]:
    return [(quantity, subject, value) for subject, value in values.items()]


def ended(nodes: tuple[str, ...] = NODES, ranks: int = 2) -> list[Fact]:
    parts = ("sweep_device", "seeded_step", "sustained_load", "node_sweep")
    begun: list[Fact] = [("sweep.gpu.device", f"{node}/GPU-{rank}", "cuda") for node in nodes for rank in range(ranks)]
    return begun + [(f"probe.{part}.finished", node, True) for part in parts for node in nodes for _ in range(ranks)]


def steps(bits: dict[str, str], where: str = "gpu", kind: str = "H100") -> list[Fact]:
    """Of each device what its repetitions gave: one letter each."""
    return [
        fact
        for subject, letters in bits.items()
        for fact in (
            (f"sweep.gpu.step.{where}.kind", subject, kind),
            *((f"sweep.gpu.step.{where}", subject, letter) for letter in letters),
        )
    ]


def outcome(facts: Iterable[Fact], which: str, profile_name: str = H100) -> tuple[Outcome, str]:
    """(outcome, what was observed; why nothing was, where it is incomplete)."""
    verdict = verdicts(facts, profile_name)[which]
    return verdict.outcome, (verdict.cause or "") if verdict.outcome is Outcome.INCOMPLETE else verdict.observed


@shows_failing("sweep.ranks")
def test_a_rank_that_did_not_come_to_the_end_is_missed_and_its_part_is_named() -> None:
    facts = ended()
    facts.remove(("probe.node_sweep.finished", "n1", True))
    found = verdicts(facts)
    assert found["sweep.ranks n0"].outcome is Outcome.PASS
    assert found["sweep.ranks n1"].outcome is Outcome.FAIL
    assert "node_sweep: 1 came to its end" in found["sweep.ranks n1"].observed


@shows_failing("sweep.device", "sweep.device.fallback")
def test_a_rank_on_the_cpu_of_a_node_with_gpus_fails() -> None:
    facts: list[Fact] = [
        *of_gpus("sweep.gpu.device", {"n0/GPU-a": "cuda", "n0/GPU-b": "cuda", "n1/GPU-a": "cuda", "n1/task1": "cpu"}),
        *of_gpus("sweep.gpu.device.fallback", {"n0/GPU-a": 0, "n0/GPU-b": 0, "n1/GPU-a": 0, "n1/task1": 1}),
    ]
    found = verdicts(facts)
    assert found["sweep.device n0"].outcome is found["sweep.device.fallback n0"].outcome is Outcome.PASS
    assert found["sweep.device n1"].outcome is found["sweep.device.fallback n1"].outcome is Outcome.FAIL
    assert "task1" in found["sweep.device.fallback n1"].observed


class TestSameBits:
    def test_devices_that_agree_pass(self) -> None:
        found = verdicts(steps({"n0/GPU-a": "xxx", "n1/GPU-a": "xxx", "n2/GPU-a": "xxx"}))
        assert {found[f"sweep.step.gpu {node}"].outcome for node in NODES} == {Outcome.PASS}

    @shows_failing("sweep.step.gpu")
    def test_a_gpu_that_differs_from_most_of_its_kind_is_the_odd_one(self) -> None:
        found = verdicts(steps({"n0/GPU-a": "xxx", "n1/GPU-a": "yyy", "n2/GPU-a": "xxx"}))
        assert [found[f"sweep.step.gpu {node}"].outcome for node in NODES] == [Outcome.PASS, Outcome.FAIL, Outcome.PASS]
        assert "GPU-a differs from 2 of 3 of its kind" in found["sweep.step.gpu n1"].observed

    @shows_failing("sweep.step.cpu")
    def test_a_device_that_differs_from_itself_needs_no_peer(self) -> None:
        facts = steps({"n0/task0": "xxy"}, where="cpu")
        assert outcome(facts, "sweep.step.cpu n0") == (Outcome.FAIL, "1 (task0 differs from itself)")

    def test_devices_of_another_kind_may_round_differently(self) -> None:
        facts = [*steps({"n0/GPU-a": "xxx", "n1/GPU-a": "xxx"}), *steps({"n2/GPU-a": "yyy"}, kind="A100")]
        assert {verdicts(facts)[f"sweep.step.gpu {node}"].outcome for node in NODES} == {Outcome.PASS}

    def test_of_two_that_differ_both_fail_and_nobody_is_called_right(self) -> None:
        found = verdicts(steps({"n0/GPU-a": "xxx", "n1/GPU-a": "yyy"}))
        assert found["sweep.step.gpu n0"].outcome is found["sweep.step.gpu n1"].outcome is Outcome.FAIL
        assert "no majority" in found["sweep.step.gpu n0"].observed

    def test_a_gpu_without_an_answer_leaves_its_node_open(self) -> None:
        facts: list[Fact] = [*steps({"n0/GPU-a": "xxx", "n1/GPU-a": "xxx"}), ("sweep.gpu.step.gpu", "n1/GPU-b", None)]
        assert verdicts(facts)["sweep.step.gpu n1"].outcome is Outcome.INCOMPLETE


class TestLoad:
    @shows_failing("sweep.load.drift")
    def test_the_gpu_that_lost_most_counts(self) -> None:
        facts = [*ended(), *of_gpus("sweep.gpu.load.drift", {"n0/GPU-0": 0.99, "n0/GPU-1": 0.98, "n1/GPU-0": 0.7})]
        found = verdicts(facts)
        assert found["sweep.load.drift n0"].outcome is Outcome.PASS
        assert found["sweep.load.drift n1"].outcome is Outcome.FAIL
        assert "GPU-0" in found["sweep.load.drift n1"].observed

    @shows_failing("sweep.load.peers")
    def test_a_node_is_compared_with_the_median_of_all(self) -> None:
        right = [("sweep.gpu.load.wrong_values", f"{node}/GPU-{gpu}", 0) for node in NODES for gpu in (0, 1)]
        speeds = of_gpus(
            "sweep.gpu.load.tflops", {"n0/GPU-0": 700.0, "n1/GPU-0": 500.0, "n1/GPU-1": 690.0, "n2/GPU-0": 710.0}
        )
        found = verdicts([*ended(), *right, *speeds])
        assert [found[f"sweep.load.peers {node}"].outcome for node in NODES] == [
            Outcome.PASS,
            Outcome.FAIL,
            Outcome.PASS,
        ]
        assert "500 count, the median of 3 nodes is 700" in found["sweep.load.peers n1"].observed

    @shows_failing("sweep.load.wrong_values", "sweep.inside.wrong_values")
    @pytest.mark.parametrize("what", ["load", "inside"])
    def test_a_wrong_value_is_found_and_its_gpu_named(self, what: str) -> None:
        for each in ("load", "inside"):  # both gates belong to this test
            facts = of_gpus(
                f"sweep.gpu.{each}.wrong_values", {"n0/GPU-0": 0, "n0/GPU-1": 0, "n1/GPU-0": 0, "n1/GPU-1": 3}
            )
            assert outcome(facts, f"sweep.{each}.wrong_values n0")[0] is Outcome.PASS
            assert outcome(facts, f"sweep.{each}.wrong_values n1") == (Outcome.FAIL, "3 (on GPU-1)")

    def test_a_rank_that_said_nothing_leaves_its_node_open(self) -> None:
        facts = of_gpus("sweep.gpu.load.wrong_values", {"n0/GPU-0": 0, "n0/GPU-1": 0, "n1/GPU-0": 0})
        assert outcome(facts, "sweep.load.wrong_values n1") == (
            Outcome.INCOMPLETE,
            "not found out: 1 of 2 ranks said it",
        )
        bits = [*steps({"n0/GPU-0": "xxx", "n0/GPU-1": "xxx", "n1/GPU-0": "xxx"})]
        assert outcome(bits, "sweep.step.gpu n1")[0] is Outcome.INCOMPLETE

    def test_a_gpu_that_did_not_report_is_not_taken_for_right(self) -> None:
        facts = of_gpus("sweep.gpu.load.wrong_values", {"n0/GPU-0": 0, "n0/GPU-1": None})
        assert outcome(facts, "sweep.load.wrong_values n0")[0] is Outcome.INCOMPLETE

    def test_drift_compares_the_ends_of_the_time_and_leaves_the_warm_up_out(self) -> None:
        steady = [(float(second), 100.0) for second in range(1, 30)]
        assert sustained_load.Load([(0.0, 10.0), *steady], 0).drift == 1.0
        fading = [(float(second), 100.0 if second < 15 else 60.0) for second in range(30)]
        assert sustained_load.Load(fading, 0).drift == 0.6
        slow_at_once = [(0.0, 100.0), (1.0, 100.0), (2.0, 100.0), (3.0, 5.0)]  # one long window at the end
        assert sustained_load.Load(slow_at_once, 0).drift == 0.05

    def test_the_load_on_this_machine_multiplies_rightly(self) -> None:
        load = sustained_load.run(torch, torch.device("cpu"), 0, None)
        assert load.wrong == 0
        assert load.tflops > 0
        assert sustained_load.run(torch, torch.device("cpu"), 0, "wrong").wrong > 0


@shows_failing("sweep.inside.peers")
def test_of_two_nodes_the_slower_one_is_compared_with_the_faster_one() -> None:
    right = [("sweep.gpu.inside.wrong_values", f"{node}/GPU-{gpu}", 0) for node in ("n0", "n1") for gpu in (0, 1)]
    facts = [*ended(("n0", "n1")), *right, ("sweep.inside.busbw", "n0", 300.0), ("sweep.inside.busbw", "n1", 450.0)]
    found = verdicts(facts, nodes=("n0", "n1"))
    assert found["sweep.inside.peers n0"].outcome is Outcome.FAIL
    assert found["sweep.inside.peers n1"].outcome is Outcome.PASS


class TestCounters:
    @staticmethod
    def around(name: str, before: int | None, after: int | None, device: str = "n0/GPU-a") -> list[Fact]:
        node = device.partition("/")[0]
        return [
            ("sweep.counter.before.gpus", node, 8),
            ("sweep.counter.after.gpus", node, 8),
            (f"sweep.counter.before.{name}", device, before),
            (f"sweep.counter.after.{name}", device, after),
        ]

    @shows_failing("sweep.gpu_faults", "sweep.gpu_corrected", "sweep.node_faults", "sweep.node_corrected")
    def test_a_counter_that_rose_under_load_is_named_and_an_old_count_is_not(self) -> None:
        for gate, name, bad in (
            ("sweep.gpu_faults", "ecc_uncorrected", Outcome.FAIL),
            ("sweep.gpu_corrected", "pcie_replays", Outcome.WARN),
            ("sweep.node_faults", "link_downed", Outcome.FAIL),
            ("sweep.node_corrected", "symbol_error", Outcome.WARN),
        ):
            assert outcome(self.around(name, 5, 5), f"{gate} n0")[0] is Outcome.PASS
            assert outcome(self.around(name, 5, 7), f"{gate} n0") == (bad, f"2 ({name} on GPU-a went from 5 to 7)")

    def test_a_gpu_or_a_link_that_is_gone_after_the_load_is_a_fault(self) -> None:
        lost: list[Fact] = [("sweep.counter.before.gpus", "n0", 8), ("sweep.counter.after.gpus", "n0", 7)]
        assert outcome(lost, "sweep.gpu_faults n0") == (Outcome.FAIL, "1 (gpus fell from 8 to 7)")
        assert outcome(self.around("nvlinks", 18, 17), "sweep.gpu_faults n0")[0] is Outcome.FAIL

    def test_a_counter_that_was_read_once_says_nothing(self) -> None:
        facts = self.around("ecc_uncorrected", 0, None)
        assert outcome(facts, "sweep.gpu_faults n0")[0] is Outcome.INCOMPLETE
        once = [fact for fact in facts if ".after.ecc" not in fact[0]]
        assert "was not read after the load" in outcome(once, "sweep.gpu_faults n0")[1]

    def test_a_node_without_any_such_counter_is_not_healthy_by_that(self) -> None:
        facts: list[Fact] = [("probe.counters.finished", "n0", True)]
        assert outcome(facts, "sweep.node_faults n0") == (
            Outcome.INCOMPLETE,
            "not found out: this node lists no such counter",
        )

    def test_gpus_that_count_no_errors_are_not_healthy_by_that(self) -> None:
        facts: list[Fact] = [("sweep.counter.before.gpus", "n0", 8), ("sweep.counter.after.gpus", "n0", 8)]
        assert outcome(facts, "sweep.gpu_faults n0")[0] is Outcome.INCOMPLETE
        assert outcome(facts, "sweep.gpu_corrected n0")[0] is Outcome.INCOMPLETE

    @shows_failing("sweep.kernel_log")
    def test_an_xid_that_came_under_load_counts_and_an_old_one_does_not(self) -> None:
        log: list[Fact] = [("sweep.counter.before.xid", "n0", 1), ("sweep.counter.after.xid", "n0", 2)]
        old: list[Fact] = [
            ("sweep.counter.before.xid_79", "n0/PCI:1", 1),
            ("sweep.counter.after.xid_79", "n0/PCI:1", 1),
        ]
        assert outcome([*log, *old], "sweep.kernel_log n0")[0] is Outcome.PASS
        new: list[Fact] = [("sweep.counter.after.xid_79", "n0/PCI:2", 1)]
        assert outcome([*log, *old, *new], "sweep.kernel_log n0") == (
            Outcome.FAIL,
            "1 (Xid 79 on PCI:2: reboot the node)",
        )
        harmless: list[Fact] = [("sweep.counter.after.xid_31", "n0/PCI:2", 4)]
        assert outcome([*log, *harmless], "sweep.kernel_log n0")[0] is Outcome.PASS

    def test_a_log_that_cannot_be_read_stops_no_later_phase(self) -> None:
        verdict = verdicts([("sweep.counter.before.xid", "n0", None), ("sweep.counter.after.xid", "n0", None)])[
            "sweep.kernel_log n0"
        ]
        assert verdict.outcome is Outcome.INCOMPLETE
        assert not judge.stops(verdict)


class TestSeededStep:
    def test_every_repetition_gives_the_same_bits(self) -> None:
        found = seeded_step.digests(torch, torch.device("cpu"), spoiled=False)
        assert len(found) == seeded_step.REPEATS
        assert len(set(found)) == 1

    def test_one_bit_of_one_gradient_is_seen(self) -> None:
        *right, spoiled = seeded_step.digests(torch, torch.device("cpu"), spoiled=True)
        assert len(set(right)) == 1
        assert spoiled != right[0]
        assert spoiled.split(" gradients ")[0] == right[0].split(" gradients ")[0]

    def test_it_leaves_torch_as_it_was(self) -> None:
        before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
        seeded_step.digests(torch, torch.device("cpu"), spoiled=False)
        assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before
