"""Every node by itself: the same bits, a load that lasts, and collectives inside."""

import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from bringup import judge
from bringup.derive.observed import derive
from bringup.evidence.parsed import Parsed, Seen
from bringup.plan import profile
from bringup.records import Outcome, Value, Verdict
from factory import a_run
from nvml_for_tests import HEALTHY, FakeNvml
from probing import told_by
from showing import shows_failing

sys.path.append(str(Path(__file__).resolve().parents[2] / "infrastructure-validation/probes"))
import node_sweep
import nvml
import seeded_step
import sustained_load

NODES = ("n0", "n1", "n2")
H100 = "h100-8x400g"
Fact = tuple[str, str, Value | None]


def verdicts(facts: Iterable[Fact], profile_name: str = H100, nodes: tuple[str, ...] = NODES) -> dict[str, Verdict]:
    """`gate subject` -> verdict, of a run with two GPUs a node."""
    parsed, facts = Parsed(), list(facts)
    for quantity, subject, value in facts:
        unit = {"drift": "ratio", "device": "text", "busbw": "GB/s"}.get(quantity.rpartition(".")[2], "count")
        parsed.saw(quantity, subject, value, unit, "raw/x.jsonl:1", "not read" if value is None else None)
    devices = {subject for _, subject, _ in facts if "/GPU" in subject or "/task" in subject}
    gpus = max(sum(device.startswith(f"{node}/") for device in devices) for node in nodes) or 1
    run = a_run("node_sweep", nodes, gpus=gpus, profile=profile_name)
    parsed.add(derive(Seen(parsed.observations), run))
    judged = judge.judge(run, profile.load(profile_name), parsed)
    return {f"{verdict.gate} {verdict.subject}": verdict for verdict in judged.verdicts}


def of_gpus(quantity: str, values: dict[str, Value | None]) -> list[Fact]:
    return [(quantity, subject, value) for subject, value in values.items()]


def on_gpus(nodes: tuple[str, ...] = NODES, ranks: int = 2) -> list[Fact]:
    ranks_of = [f"{node}/GPU-{rank}" for node in nodes for rank in range(ranks)]
    return [
        fact
        for rank in ranks_of
        for fact in (("sweep.gpu.device", rank, "cuda"), ("sweep.gpu.device.fallback", rank, 0))
    ]


def ended(nodes: tuple[str, ...] = NODES, ranks: int = 2) -> list[Fact]:
    parts = ("sweep_device", "seeded_step", "sustained_load", "node_sweep")
    return on_gpus(nodes, ranks) + [
        (f"probe.{part}.finished", node, True) for part in parts for node in nodes for _ in range(ranks)
    ]


def steps(bits: dict[str, str], where: str = "gpu", kind: str = "H100") -> list[Fact]:
    """What the repetitions of each device gave: one letter each."""
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
    by_gate = verdicts(facts)
    assert by_gate["sweep.ranks n0"].outcome is Outcome.PASS
    assert by_gate["sweep.ranks n1"].outcome is Outcome.FAIL
    assert "node_sweep: 1 finished" in by_gate["sweep.ranks n1"].observed


@shows_failing("sweep.device", "sweep.device.fallback")
def test_a_rank_on_the_cpu_of_a_node_with_gpus_fails() -> None:
    facts: list[Fact] = [
        *of_gpus("sweep.gpu.device", {"n0/GPU-a": "cuda", "n0/GPU-b": "cuda", "n1/GPU-a": "cuda", "n1/task1": "cpu"}),
        *of_gpus("sweep.gpu.device.fallback", {"n0/GPU-a": 0, "n0/GPU-b": 0, "n1/GPU-a": 0, "n1/task1": 1}),
    ]
    by_gate = verdicts(facts)
    assert by_gate["sweep.device n0"].outcome is by_gate["sweep.device.fallback n0"].outcome is Outcome.PASS
    assert by_gate["sweep.device n1"].outcome is by_gate["sweep.device.fallback n1"].outcome is Outcome.FAIL
    assert "task1" in by_gate["sweep.device.fallback n1"].observed


class TestSameBits:
    def test_devices_that_agree_pass(self) -> None:
        by_gate = verdicts(steps({"n0/GPU-a": "xxx", "n1/GPU-a": "xxx", "n2/GPU-a": "xxx"}))
        assert {by_gate[f"sweep.step.gpu {node}"].outcome for node in NODES} == {Outcome.PASS}

    @shows_failing("sweep.step.gpu")
    def test_a_gpu_that_differs_from_most_of_its_kind_is_the_odd_one(self) -> None:
        by_gate = verdicts(steps({"n0/GPU-a": "xxx", "n1/GPU-a": "yyy", "n2/GPU-a": "xxx"}))
        assert [by_gate[f"sweep.step.gpu {node}"].outcome for node in NODES] == [
            Outcome.PASS,
            Outcome.FAIL,
            Outcome.PASS,
        ]
        assert "GPU-a differs from 2 of 3 of its kind" in by_gate["sweep.step.gpu n1"].observed

    @shows_failing("sweep.step.cpu")
    def test_a_device_that_differs_from_itself_needs_no_peer(self) -> None:
        facts = steps({"n0/task0": "xxy"}, where="cpu")
        assert outcome(facts, "sweep.step.cpu n0") == (Outcome.FAIL, "1 (task0 differs from itself)")

    def test_devices_of_another_kind_may_round_differently(self) -> None:
        facts = [*steps({"n0/GPU-a": "xxx", "n1/GPU-a": "xxx"}), *steps({"n2/GPU-a": "yyy"}, kind="A100")]
        assert {verdicts(facts)[f"sweep.step.gpu {node}"].outcome for node in NODES} == {Outcome.PASS}

    def test_of_two_that_differ_both_fail_and_nobody_is_called_right(self) -> None:
        by_gate = verdicts(steps({"n0/GPU-a": "xxx", "n1/GPU-a": "yyy"}))
        assert by_gate["sweep.step.gpu n0"].outcome is by_gate["sweep.step.gpu n1"].outcome is Outcome.FAIL
        assert "no majority" in by_gate["sweep.step.gpu n0"].observed

    def test_a_gpu_without_an_answer_leaves_its_node_open(self) -> None:
        facts: list[Fact] = [*steps({"n0/GPU-a": "xxx", "n1/GPU-a": "xxx"}), ("sweep.gpu.step.gpu", "n1/GPU-b", None)]
        assert verdicts(facts)["sweep.step.gpu n1"].outcome is Outcome.INCOMPLETE


class TestLoad:
    @shows_failing("sweep.load.drift")
    def test_the_gpu_that_lost_most_counts(self) -> None:
        facts = [*ended(), *of_gpus("sweep.gpu.load.drift", {"n0/GPU-0": 0.99, "n0/GPU-1": 0.98, "n1/GPU-0": 0.7})]
        by_gate = verdicts(facts)
        assert by_gate["sweep.load.drift n0"].outcome is Outcome.PASS
        assert by_gate["sweep.load.drift n1"].outcome is Outcome.FAIL
        assert "GPU-0" in by_gate["sweep.load.drift n1"].observed

    @shows_failing("sweep.load.peers")
    def test_a_node_is_compared_with_the_median_of_all(self) -> None:
        right = [("sweep.gpu.load.wrong_values", f"{node}/GPU-{gpu}", 0) for node in NODES for gpu in (0, 1)]
        speeds = of_gpus(
            "sweep.gpu.load.tflops", {"n0/GPU-0": 700.0, "n1/GPU-0": 500.0, "n1/GPU-1": 690.0, "n2/GPU-0": 710.0}
        )
        by_gate = verdicts([*ended(), *right, *speeds])
        assert [by_gate[f"sweep.load.peers {node}"].outcome for node in NODES] == [
            Outcome.PASS,
            Outcome.FAIL,
            Outcome.PASS,
        ]
        assert "500 count, the median of 3 nodes is 700" in by_gate["sweep.load.peers n1"].observed

    @shows_failing("sweep.load.wrong_values", "sweep.inside.wrong_values")
    @pytest.mark.parametrize("what", ["load", "inside"])
    def test_a_wrong_value_is_found_and_its_gpu_named(self, what: str) -> None:
        for each in ("load", "inside"):  # both gates belong to this test
            facts = on_gpus() + of_gpus(
                f"sweep.gpu.{each}.wrong_values", {"n0/GPU-0": 0, "n0/GPU-1": 0, "n1/GPU-0": 0, "n1/GPU-1": 3}
            )
            assert outcome(facts, f"sweep.{each}.wrong_values n0")[0] is Outcome.PASS
            assert outcome(facts, f"sweep.{each}.wrong_values n1") == (Outcome.FAIL, "3 (on GPU-1)")

    @shows_failing("sweep.load.pcie")
    def test_a_gpu_whose_pcie_link_stays_slow_under_load_is_named(self) -> None:
        facts = of_gpus("sweep.gpu.load.pcie", {"n0/GPU-0": 0, "n0/GPU-1": 0, "n1/GPU-0": 0, "n1/GPU-1": 1})
        assert outcome(facts, "sweep.load.pcie n0")[0] is Outcome.PASS
        assert outcome(facts, "sweep.load.pcie n1") == (Outcome.FAIL, "1 (on GPU-1)")
        unknown = of_gpus("sweep.gpu.load.pcie", {"n0/GPU-0": 0, "n0/GPU-1": None, "n1/GPU-0": 0})
        for node in ("n0", "n1"):
            verdict = verdicts(unknown)[f"sweep.load.pcie {node}"]
            assert verdict.outcome is Outcome.INCOMPLETE
            assert not judge.stops(verdict)

    @pytest.mark.parametrize(
        ("changes", "slow", "says"),
        [
            ({}, 0, "generation 5 of 5, 16 of 16 lanes"),
            ({"generation": 3}, 1, "generation 3 of 5, 16 of 16 lanes"),
            ({"width": 8}, 1, "generation 5 of 5, 8 of 16 lanes"),
        ],
    )
    def test_the_link_is_asked_for_while_the_device_is_busy(
        self, changes: dict[str, int], slow: int, says: str
    ) -> None:
        gpu = {**HEALTHY, "generation": 1}
        ask = nvml.link_of(FakeNvml(gpu), gpu)

        def busy() -> object:  # idle it was of generation 1
            gpu.update({"generation": 5, **changes})
            return ask()

        load = sustained_load.run(torch, torch.device("cpu"), 0, None, busy)
        parsed = told_by(lambda facts: node_sweep.say_pcie(facts, "n0/GPU-a", load.watched, ""))
        (fact,) = [fact for fact in parsed.observations if fact.quantity == "sweep.gpu.load.pcie"]
        assert (fact.value, fact.why) == (slow, says)

    def test_a_moment_of_rest_is_not_a_slow_link_and_a_link_that_fell_back_for_good_is(self) -> None:
        full, less = ((5, 16), (5, 16)), ((1, 16), (5, 16))
        windows = [(float(second), 100.0) for second in range(9)]
        for watched, slow in (([less, *[full] * 7, less], 0), ([*[full] * 6, less, less, less], 1), ([], None)):
            load = sustained_load.Load(windows, 0, watched)
            parsed = told_by(
                lambda facts, load=load: node_sweep.say_pcie(facts, "n0/GPU-a", load.watched, "no pynvml")  # type: ignore[misc]
            )
            assert [
                observation.value
                for observation in parsed.observations
                if observation.quantity == "sweep.gpu.load.pcie"
            ] == [slow]

    def test_without_nvml_the_link_is_unknown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(nvml, "library", lambda: (None, "pynvml is not installed"))
        assert nvml.pcie_links("GPU-a") == (None, "pynvml is not installed")

    def test_a_gpu_that_does_not_answer_under_load_is_unknown_and_the_load_goes_on(self) -> None:
        """The error once ended the rank, and with it all that the node said."""
        gpu = dict(HEALTHY)
        library = FakeNvml(gpu)
        ask = nvml.link_of(library, gpu)

        def silent(handle: object) -> int:
            raise library.NVMLError("GPU is lost")

        library.nvmlDeviceGetCurrPcieLinkWidth = silent  # type: ignore[method-assign]
        load = sustained_load.run(torch, torch.device("cpu"), 0, None, ask)
        parsed = told_by(lambda facts: node_sweep.say_pcie(facts, "n0/GPU-a", load.watched, ""))
        (fact,) = [fact for fact in parsed.observations if fact.quantity == "sweep.gpu.load.pcie"]
        assert (fact.value, fact.why) == (None, "NVML did not say it under load")

    def test_a_rank_that_said_nothing_leaves_its_node_open(self) -> None:
        answers = {"n0/GPU-0": 0, "n0/GPU-1": 0, "n1/GPU-0": 0}
        facts = on_gpus() + of_gpus("sweep.gpu.load.wrong_values", answers)
        assert outcome(facts, "sweep.load.wrong_values n1") == (
            Outcome.INCOMPLETE,
            "not found out: 1 of 2 answered",
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


@shows_failing("sweep.inside.busbw")
def test_nodes_that_are_equally_slow_inside_fail_the_floor_and_not_each_other() -> None:
    right = [("sweep.gpu.inside.wrong_values", f"{node}/GPU-{gpu}", 0) for node in ("n0", "n1") for gpu in (0, 1)]
    speeds = [("sweep.inside.busbw", node, 0.002) for node in ("n0", "n1")]
    by_gate = verdicts([*ended(("n0", "n1")), *right, *speeds], "local-cpu", ("n0", "n1"))
    for node in ("n0", "n1"):
        assert by_gate[f"sweep.inside.busbw {node}"].outcome is Outcome.FAIL
        assert by_gate[f"sweep.inside.peers {node}"].outcome is Outcome.PASS


@shows_failing("sweep.inside.peers")
def test_of_two_nodes_the_slower_one_is_compared_with_the_faster_one() -> None:
    right = [("sweep.gpu.inside.wrong_values", f"{node}/GPU-{gpu}", 0) for node in ("n0", "n1") for gpu in (0, 1)]
    facts = [*ended(("n0", "n1")), *right, ("sweep.inside.busbw", "n0", 300.0), ("sweep.inside.busbw", "n1", 450.0)]
    by_gate = verdicts(facts, nodes=("n0", "n1"))
    assert by_gate["sweep.inside.peers n0"].outcome is Outcome.FAIL
    assert by_gate["sweep.inside.peers n1"].outcome is Outcome.PASS


class TestSeededStep:
    def test_every_repetition_gives_the_same_bits(self) -> None:
        digests = seeded_step.digests(torch, torch.device("cpu"), spoiled=False)
        assert len(digests) == seeded_step.REPEATS
        assert len(set(digests)) == 1

    def test_one_bit_of_one_gradient_is_seen(self) -> None:
        *right, spoiled = seeded_step.digests(torch, torch.device("cpu"), spoiled=True)
        assert len(set(right)) == 1
        assert spoiled != right[0]
        assert spoiled.split(" gradients ")[0] == right[0].split(" gradients ")[0]

    def test_a_part_of_a_gpu_makes_small_steps_and_is_compared_with_its_kind(self) -> None:
        def of(gib: int) -> tuple[tuple[int, ...], str]:
            properties = SimpleNamespace(
                name="A100", multi_processor_count=14, major=8, minor=0, total_memory=gib * 2**30
            )
            version = SimpleNamespace(cuda="13.0")
            mine = SimpleNamespace(
                cuda=SimpleNamespace(get_device_properties=lambda device: properties),
                __version__="2",
                version=version,
            )
            device = torch.device("cuda", 0)
            return seeded_step.shape(mine, device), seeded_step.kind(mine, device)

        assert of(40) == (seeded_step.LARGE, "A100, 14 SMs, compute 8.0, torch 2, CUDA 13.0")
        assert of(2) == (seeded_step.SMALL, "A100, 14 SMs, compute 8.0, torch 2, CUDA 13.0, small steps")

    def test_it_leaves_torch_as_it_was(self) -> None:
        before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
        seeded_step.digests(torch, torch.device("cpu"), spoiled=False)
        assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before
