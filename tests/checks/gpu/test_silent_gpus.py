"""GPUs that are lost, that hang, and a driver that does not start: who it is and why reaches the verdict."""

import subprocess
import threading
from types import SimpleNamespace

import counters
import inventory
import monitor
import nvml
import patience
import pytest
import smi
from bringup import judge
from bringup.evidence.parsed import Parsed
from bringup.records import Outcome, Verdict
from nvml_for_tests import GPUS, HEALTHY, FakeNvml
from probing import told_by
from runs_for_tests import add_derived, gpu_run

LOST = {**HEALTHY, "name": FakeNvml.NVMLError("GPU is lost")}
TOOL = "Failed to initialize NVML: Driver/library version mismatch"


class Hanging(FakeNvml):
    """GPU-b never answers the question that `at` names; at the end of the test it does."""

    def __init__(self, at: str, released: threading.Event) -> None:
        super().__init__({**HEALTHY}, {**HEALTHY})
        self.at, self.released = at, released

    def _of(self, gpu, key):
        if key == self.at and gpu is self.gpus[1]:
            self.released.wait()
        return super()._of(gpu, key)


@pytest.fixture
def released():
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setenv("BRINGUP_GPU_S", "0.2")


def answering(parsed: Parsed) -> Verdict:
    verdicts = judge.judge(*gpu_run(), add_derived(parsed)).verdicts
    return next(v for v in verdicts if v.gate == "discovery.gpu.answering" and v.subject == "n0")


def test_the_verdict_names_the_gpu_that_is_lost():
    verdict = answering(told_by(lambda probe: nvml.read(probe, FakeNvml({**HEALTHY}, LOST))))
    assert verdict.outcome is Outcome.FAIL
    assert verdict.observed == "1 (NVML; GPU 1: GPU is lost)"


def test_the_lost_gpu_is_named_by_its_uuid_where_the_driver_still_lists_it():
    verdict = answering(told_by(lambda probe: nvml.read(probe, FakeNvml({**HEALTHY}, LOST), listed=GPUS)))
    assert verdict.observed == "1 (NVML; GPU 1: GPU is lost; no answer from GPU-b)"


def test_gpus_that_this_job_may_not_open_are_not_missed():
    parsed = told_by(lambda probe: nvml.read(probe, FakeNvml({**HEALTHY}), listed=(*GPUS, "GPU-c")))
    assert answering(parsed).observed == "1 (NVML)"


@pytest.mark.parametrize("at", ["name", "ecc", "processes"])
def test_a_gpu_that_hangs_is_named_and_costs_neither_the_others_nor_the_probe(at, released):
    parsed = told_by(lambda probe: nvml.read(probe, Hanging(at, released)))
    verdict = answering(parsed)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.observed == "1 (NVML; GPU 1: no answer within 0.2 s)"
    assert [o.value for o in parsed.observations if (o.quantity, o.subject) == ("discovery.gpu.ecc", "n0/GPU-a")] == [0]


def test_a_gpu_that_hangs_is_waited_for_once(released):
    """22 questions of 20 s each would take a probe past the time limit of its job."""
    parsed = told_by(lambda probe: nvml.read(probe, Hanging("ecc", released)))
    unknown = [o.why for o in parsed.observations if o.subject == "n0/GPU-b" and o.value is None]
    assert unknown[0] == "NVML: no answer within 0.2 s"
    assert len(unknown) > 10
    assert set(unknown[1:]) == {"not asked: GPU 1 did not answer discovery.gpu.ecc"}


def test_why_nvml_did_not_start_reaches_the_verdict():
    def run(command, **_):
        raise subprocess.CalledProcessError(18, command, output=f"{TOOL}\n")

    parsed = told_by(lambda probe: smi.read(probe, lambda *_: None, run, nvml_said="NVML: version mismatch"))
    verdict = answering(parsed)
    assert verdict.outcome is Outcome.INCOMPLETE
    assert verdict.cause == f"not found out: NVML: version mismatch; nvidia-smi: {TOOL}"


def test_an_nvidia_smi_that_hangs_is_waited_for_once(released):
    calls = []

    def run(command, **_):
        calls.append(command)
        released.wait()

    parsed = told_by(lambda probe: smi.read(probe, lambda *_: None, run, nvml_said="NVML: no"))
    assert len(calls) == 1
    assert answering(parsed).cause == "not found out: NVML: no; nvidia-smi: no answer within 0.6 s"
    assert {o.value for o in parsed.observations if o.quantity.startswith("discovery.gpu.")} == {None}


def test_a_driver_that_hangs_when_it_is_started_is_said_so(monkeypatch, released):
    fake = SimpleNamespace(nvmlInit=released.wait, NVMLError=FakeNvml.NVMLError)
    monkeypatch.setitem(__import__("sys").modules, "pynvml", fake)
    assert nvml.library() == (None, "NVML: no answer within 0.2 s")


def test_the_inventory_tells_the_rest_of_the_node_when_a_gpu_hangs(monkeypatch, released):
    monkeypatch.setattr(nvml, "library", lambda: (Hanging("name", released), ""))
    parsed = told_by(lambda probe: inventory.gpu(probe, None))
    quantities = {o.quantity for o in parsed.observations}
    assert {"discovery.gpu.count", "discovery.gpu.answering", "discovery.nvidia_smi.q"} <= quantities


@pytest.mark.parametrize("at", ["name", "ecc"])
def test_counters_name_a_gpu_that_hangs(monkeypatch, released, at):
    monkeypatch.setattr(nvml, "library", lambda: (Hanging(at, released), ""))
    parsed = told_by(lambda probe: counters.of_gpus(counters.Counters(probe, "before")))
    known = {o.quantity.rpartition(".")[2]: o for o in parsed.observations}
    assert known["gpus"].value == 1
    assert [o.why for o in parsed.observations if o.subject == "n0/gpu1"] == ["NVML: no answer within 0.2 s"]


# --- the monitor


@pytest.mark.parametrize("count", [FakeNvml.NVMLError("GPU is lost"), AttributeError("an old pynvml")])
def test_a_driver_that_cannot_count_its_gpus_does_not_end_the_samples(count):
    class Broken(FakeNvml):
        def nvmlDeviceGetCount(self):
            raise count

    assert monitor.gpu_reader(Broken())() == (["", "", ""], [])


def test_a_gpu_that_is_lost_before_the_monitor_starts_leaves_the_samples_of_the_others():
    summary, each = monitor.gpu_reader(FakeNvml({**HEALTHY}, LOST))()
    assert [cells[0] for cells in each] == ["GPU-a"]
    assert summary == ["", "", ""]


def test_a_gpu_that_hangs_does_not_hold_up_the_samples_of_the_node(released):
    read = monitor.gpu_reader(Hanging("reasons", released))
    assert read() == (["", "", ""], [])
    assert read() == (["", "", ""], []), "it is not waited for again"


def test_what_a_question_raises_is_raised():
    with pytest.raises(FakeNvml.NVMLError, match="lost"):
        patience.within(5, lambda: FakeNvml(LOST).nvmlDeviceGetHandleByIndex(0))
