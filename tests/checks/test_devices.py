"""A cluster whose GPUs torch cannot see computes on the CPU, rightly, with exit code 0: that is a failure."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from bringup import judge
from bringup.evidence.parsed import Parsed
from bringup.plan import planned, profile
from bringup.plan.catalogue import GATES
from bringup.records import Action, Outcome, Verdict
from factory import a_run
from probing import told_by
from runs_for_tests import about
from showing import shows_failing
from trained_runs import rank_said, run_of

sys.path.append(str(Path(__file__).resolve().parents[2] / "infrastructure-validation/probes"))
import collectives
import compute
import cuda_start
import gpus


def verdict(phase: str, parsed: Parsed, gate: str, subject: str, profile_name: str) -> Verdict:
    return about(gate, parsed, a_run(phase, gpus=2), profile_name)[subject]


def test_the_driver_counts_the_gpus_that_it_lists_and_none_without_one(tmp_path: Path) -> None:
    assert gpus.driver_count(tmp_path / "none") == 0
    for address in ("0000:1b:00.0", "0000:43:00.0"):
        (tmp_path / address).mkdir()
    assert gpus.driver_count(tmp_path) == 2


@pytest.mark.parametrize(
    ("kinds", "listed", "expected", "device", "fallback"),
    [
        (("cuda", "cuda"), (8, 8), "h100-8x400g", Outcome.PASS, Outcome.PASS),
        pytest.param(
            ("cpu", "cpu"),
            (8, 8),
            "h100-8x400g",
            Outcome.FAIL,
            Outcome.FAIL,
            marks=shows_failing("nccl.device", "nccl.device.fallback"),
        ),
        (("cpu", "cpu"), (0, 0), "h100-8x400g", Outcome.FAIL, Outcome.PASS),
        (("cuda", "cpu"), (8, 8), "h100-8x400g", Outcome.FAIL, Outcome.FAIL),
        (("cpu", "cpu"), (0, 0), "local-cpu", Outcome.PASS, Outcome.PASS),
        (("cpu", "cpu"), (8, 8), "generic", Outcome.NO_LIMIT, Outcome.FAIL),
        (("cuda", "cuda"), (8, 8), "generic", Outcome.NO_LIMIT, Outcome.PASS),
    ],
)
def test_collectives_on_the_cpu_of_a_node_with_gpus_fail(kinds, listed, expected, device, fallback) -> None:
    used = [("n0", kind, count, None) for kind, count in zip(kinds, listed, strict=True)]
    parsed = told_by(lambda printed: collectives.say_devices(printed, "2-nodes", used))
    assert verdict("nccl_scaling", parsed, "nccl.device", "2-nodes", expected).outcome is device
    assert verdict("nccl_scaling", parsed, "nccl.device.fallback", "2-nodes", expected).outcome is fallback


def test_a_rank_that_fell_back_is_named_and_holds_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = told_by(
        lambda printed: collectives.say_devices(
            printed, "2-nodes", [("n0", "cuda", 8, None), ("n1", "cpu", 8, "no driver")]
        )
    )
    judged_verdict = verdict("nccl_scaling", parsed, "nccl.device.fallback", "2-nodes", "h100-8x400g")
    assert judged_verdict.observed == "1 (first rank 1 on n1: the driver lists 8 GPUs, torch sees none: no driver)"
    monkeypatch.setattr(gpus, "driver_count", lambda: 8)
    monkeypatch.setattr(gpus, "openable", lambda: (["GPU-a"], []))
    assert collectives.placeholder(0) is None


@pytest.mark.parametrize(
    ("kind", "listed", "expected", "device", "fallback"),
    [
        ("cuda", 8, "h100-8x400g", Outcome.PASS, Outcome.PASS),
        pytest.param(
            "cpu",
            8,
            "h100-8x400g",
            Outcome.FAIL,
            Outcome.FAIL,
            marks=shows_failing("smoke.compute.device", "smoke.compute.device.fallback"),
        ),
        ("cpu", 8, "generic", Outcome.NO_LIMIT, Outcome.FAIL),
        ("cpu", 0, "local-cpu", Outcome.PASS, Outcome.PASS),
    ],
)
def test_products_on_the_cpu_of_a_node_with_gpus_fail(kind, listed, expected, device, fallback) -> None:
    parsed = told_by(lambda printed: compute.say_device(printed, kind, listed))
    assert verdict("smoke", parsed, "smoke.compute.device", "n0", expected).outcome is device
    assert verdict("smoke", parsed, "smoke.compute.device.fallback", "n0", expected).outcome is fallback


ERROR_803 = "system has unsupported display driver / cuda driver combination"


class Stuck:
    """What torch.cuda is where NVML counts eight GPUs, and CUDA does not start."""

    cuda = backends = None

    def __init__(self, built: bool = True) -> None:
        self.cuda = self
        self.backends = SimpleNamespace(cuda=SimpleNamespace(is_built=lambda: built))

    def device_count(self) -> int:
        return 8

    def init(self) -> None:
        raise RuntimeError(f"Unexpected error from cudaGetDeviceCount(). Did you run … Error 803: {ERROR_803}\n(more)")


def test_gpus_that_only_nvml_counts_are_none_and_the_cause_is_in_the_verdict() -> None:
    assert cuda_start.devices(Stuck(built=False)) == (0, "this torch was built without CUDA")
    count, why = cuda_start.devices(Stuck())
    assert (count, why) == (0, f"Error 803: {ERROR_803}")
    parsed = told_by(lambda printed: compute.say_device(printed, "cpu", 8, why))
    for gate in ("smoke.compute.device", "smoke.compute.device.fallback"):
        fails = verdict("smoke", parsed, gate, "n0", "h100-8x400g")
        assert fails.outcome is Outcome.FAIL and ERROR_803 in fails.observed


def test_a_gpu_has_the_name_that_the_driver_gives_it() -> None:
    for uuid, name in (("00a1", "GPU-00a1"), ("GPU-00a1", "GPU-00a1"), (None, None)):
        properties = SimpleNamespace(uuid=uuid) if uuid else SimpleNamespace()
        torch = SimpleNamespace(cuda=SimpleNamespace(get_device_properties=lambda device, of=properties: of))
        assert cuda_start.uuid(torch, 0) == name


def trained(tmp_path: Path, device: str, listed: int | None) -> Path:
    folder = run_of("run_ddp_2node", tmp_path)
    for rank, node in enumerate(("n0", "n0", "n1", "n1")):
        known = {} if listed is None else {"driver_gpus": listed}
        rank_said(folder, node, rank, state="finished", device=device, **known)
    return folder


@pytest.mark.parametrize(
    ("device", "listed", "expected", "outcomes"),
    [
        ("GPU-1", 8, "h100-8x400g", (Outcome.PASS, Outcome.PASS)),
        pytest.param(
            "cpu",
            8,
            "h100-8x400g",
            (Outcome.FAIL, Outcome.FAIL),
            marks=shows_failing("train.device", "train.device.fallback"),
        ),
        ("cpu", 0, "h100-8x400g", (Outcome.FAIL, Outcome.PASS)),
        ("cpu", 8, "generic", (Outcome.NO_LIMIT, Outcome.FAIL)),
        ("cpu", 0, "local-cpu", (Outcome.PASS, Outcome.PASS)),
        ("cpu", None, "local-cpu", (Outcome.PASS, Outcome.INCOMPLETE)),
    ],
)
def test_training_on_the_cpu_of_a_node_with_gpus_fails(tmp_path, device, listed, expected, outcomes) -> None:
    judged = judge.judge_folder(trained(tmp_path, device, listed), profile.load(expected)).verdicts.verdicts
    outcome_of = {v.gate: v.outcome for v in judged if v.gate.startswith("train.device")}
    assert (outcome_of["train.device"], outcome_of["train.device.fallback"]) == outcomes


def test_one_rank_that_fell_back_is_named_and_one_that_says_nothing_is_not_health(tmp_path: Path) -> None:
    folder = trained(tmp_path, "GPU-1", 8)
    rank_said(folder, "n1", 3, state="finished", device="cpu", driver_gpus=8)
    judged = {v.gate: v for v in judge.judge_folder(folder, profile.load("h100-8x400g")).verdicts.verdicts}
    assert judged["train.device"].observed == "cpu and cuda"
    assert judged["train.device.fallback"].observed == "1 (first n1/rank3: the driver lists 8 GPUs, torch sees none)"
    (folder / "raw/rank3.jsonl").write_text("")
    judged = {v.gate: v for v in judge.judge_folder(folder, profile.load("h100-8x400g")).verdicts.verdicts}
    assert judged["train.device"].outcome is judged["train.device.fallback"].outcome is Outcome.INCOMPLETE
    assert "first n1/rank3" in str(judged["train.device"].cause)


def test_the_gates_of_all_three_programs_share_one_guide() -> None:
    ids = {f"{prefix}.device{end}" for prefix in ("train", "nccl", "smoke.compute") for end in ("", ".fallback")}
    assert len({GATES[gate].guide for gate in ids}) == 1
    assert "train.device.fallback" in planned.plan("run_1gpu", ["n0"], 1, set())


@pytest.mark.parametrize(("phase", "listed"), [("smoke", 2), ("smoke", 0), ("node_sweep", 2), ("node_sweep", 0)])
def test_what_a_cpu_computed_in_place_of_a_gpu_accuses_no_gpu(phase: str, listed: int) -> None:
    """Its rate is that of a CPU: nodes were drained to replace a GPU, and torch was only built for another CUDA."""
    parsed = Parsed()
    for node in ("n0", "n1"):
        if phase == "smoke":
            parsed.saw("smoke.compute.device", node, "cpu", "text", "e")
            parsed.saw("smoke.compute.device.fallback", node, int(listed > 0), "count", "e")
            parsed.saw("smoke.compute.tflops", node, 0.0666, "TFLOP/s", "e", "cpu, 9 repetitions")
            parsed.saw("smoke.compute.wrong_values", node, 0, "count", "e")
        else:
            parsed.saw("sweep.device", node, "cpu", "text", "e")
            parsed.saw("sweep.device.fallback", node, 2 * int(listed > 0), "count", "e")
            parsed.saw("sweep.ranks", node, 2, "count", "e")
            for gate in ("tflops", "drift", "peers"):
                parsed.saw(f"sweep.load.{gate}", node, 0.01, GATES[f"sweep.load.{gate}"].unit, "e")
            parsed.saw("sweep.load.wrong_values", node, 0, "count", "e")
    run = a_run(phase, gpus=2, profile="h100-8x400g")
    judged = judge.judge(run, profile.load("h100-8x400g"), parsed)
    failed = {v.gate: v.action for v in judged.verdicts if v.subject == "n0" and v.outcome is Outcome.FAIL}
    device = "smoke.compute.device" if phase == "smoke" else "sweep.device"
    assert set(failed) == {device, *([f"{device}.fallback"] if listed else [])}
    assert set(failed.values()) == {Action.CONFIGURE}
