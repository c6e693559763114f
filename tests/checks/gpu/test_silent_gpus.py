"""GPUs that are lost, that hang, a driver that does not start, tools that may not be run: who and why is said."""

import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

import counters
import dcgm
import imex
import inventory
import monitor
import nvml
import patience
import perftest
import pytest
import smi
from bringup import judge
from bringup.derive.blame import blame
from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Action, Verdict
from loops import for_each
from nvml_for_tests import GPUS, HEALTHY, FakeNvml
from probing import answers_of, told_by
from runs_for_tests import FAIL, OPEN, PASS, add_derived, gpu_run, in_words, parsed_of

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


def answering(parsed: Parsed) -> tuple[object, str]:
    verdicts = judge.judge(*gpu_run(), add_derived(parsed)).verdicts
    return in_words(next(v for v in verdicts if v.gate == "discovery.gpu.answering" and v.subject == "n0"))


@for_each(
    ("gpus", "listed", "says"),
    [
        ((HEALTHY, LOST), (), "1 (NVML; GPU 1: GPU is lost)"),
        ((HEALTHY, LOST), GPUS, "1 (NVML; GPU 1: GPU is lost; no answer from GPU-b)"),  # the driver still lists it
        ((HEALTHY,), (*GPUS, "GPU-c"), "1 (NVML)"),  # this job may not open the others
    ],
)
def test_the_verdict_names_the_gpu_that_is_lost(gpus, listed, says):
    fake = FakeNvml(*({**gpu} for gpu in gpus))
    assert answering(told_by(lambda probe: nvml.read(probe, fake, listed=listed))) == (FAIL, says)


@for_each("at", ["name", "ecc", "processes"])
def test_a_gpu_that_hangs_is_named_and_costs_neither_the_others_nor_the_probe(at, released):
    """22 questions of 20 s each would take a probe past the time limit of its job."""
    parsed = told_by(lambda probe: nvml.read(probe, Hanging(at, released)))
    assert answering(parsed) == (FAIL, "1 (NVML; GPU 1: no answer within 0.2 s)")
    assert [o.value for o in parsed.observations if (o.quantity, o.subject) == ("discovery.gpu.ecc", "n0/GPU-a")] == [0]
    if at == "ecc":
        unknown = [o.why for o in parsed.observations if o.subject == "n0/GPU-b" and o.value is None]
        assert unknown[0] == "NVML: no answer within 0.2 s"
        assert len(unknown) > 10
        assert set(unknown[1:]) == {"not asked: GPU 1 did not answer discovery.gpu.ecc"}


def test_why_nvml_and_nvidia_smi_did_not_start_reaches_the_verdict(released):
    calls = []

    def mismatch(command, **_):
        raise subprocess.CalledProcessError(18, command, output=f"{TOOL}\n")

    def hang(command, **_):
        calls.append(command)
        released.wait()

    for run, says in ((mismatch, TOOL), (hang, "no answer within 0.6 s")):
        parsed = told_by(lambda probe, run=run: smi.read(probe, lambda *_: None, run, nvml_said="NVML: no"))
        assert {o.value for o in parsed.observations if o.quantity.startswith("discovery.gpu.")} == {None}
        assert answering(parsed) == (OPEN, f"not found out: NVML: no; nvidia-smi: {says}")
    assert len(calls) == 1  # it is waited for once


def test_a_driver_that_hangs_when_it_is_started_is_said_so(monkeypatch, released):
    fake = SimpleNamespace(nvmlInit=released.wait, NVMLError=FakeNvml.NVMLError)
    monkeypatch.setitem(__import__("sys").modules, "pynvml", fake)
    assert nvml.library() == (None, "NVML: no answer within 0.2 s")


def test_the_inventory_tells_the_rest_of_the_node_when_a_gpu_hangs_and_counters_name_it(monkeypatch, released):
    monkeypatch.setattr(nvml, "library", lambda: (Hanging("name", released), ""))
    facts = answers_of(lambda probe: inventory.gpu(probe, None))
    assert {"discovery.gpu.count", "discovery.gpu.answering", "discovery.nvidia_smi.q"} <= facts.keys()
    for at in ("name", "ecc"):
        monkeypatch.setattr(nvml, "library", lambda at=at: (Hanging(at, released), ""))
        parsed = told_by(lambda probe: counters.of_gpus(counters.Counters(probe, "before")))
        assert [o.value for o in parsed.observations if o.quantity.endswith(".gpus")] == [1]
        assert [o.why for o in parsed.observations if o.subject == "n0/gpu1"] == ["NVML: no answer within 0.2 s"]


# --- the monitor

NOTHING = ["", "", ""]


@for_each("count", [FakeNvml.NVMLError("GPU is lost"), AttributeError("an old pynvml")])
def test_a_driver_that_cannot_count_its_gpus_does_not_end_the_samples(count):
    class Broken(FakeNvml):
        def nvmlDeviceGetCount(self):
            raise count

    assert monitor.gpu_reader(Broken())() == (NOTHING, [])


def test_a_gpu_that_is_lost_or_hangs_leaves_the_samples_of_the_others(released):
    summary, each = monitor.gpu_reader(FakeNvml({**HEALTHY}, LOST))()
    assert [cells[0] for cells in each] == ["GPU-a"]
    assert summary == NOTHING
    read = monitor.gpu_reader(Hanging("reasons", released))
    assert read() == (NOTHING, [])
    assert read() == (NOTHING, []), "it is not waited for again"


def test_what_a_question_raises_is_raised():
    with pytest.raises(FakeNvml.NVMLError, match="lost"):
        patience.within(5, lambda: FakeNvml(LOST).nvmlDeviceGetHandleByIndex(0))


# --- a node whose GPUs are divided (MIG), where Slurm counts the parts: one cause, and no GPU is missing


def divided(parts: int, devices: int = 1) -> dict[str, Verdict]:
    """Slurm counts 2. devices: of GPUs, each divided into so many parts."""
    run, profile = gpu_run()
    facts = [("discovery.gpu.count", "n0", devices), ("discovery.gpu.answering", "n0", devices, "NVML")]
    facts += [("inventory.gpu.mig_devices", f"n0/GPU-{index}", parts) for index in range(devices)]
    parsed = parsed_of([*facts, ("discovery.gpu.mig", "n0", "on", "GPU-0")])
    return {v.gate: v for v in blame(judge.judge(run, profile, parsed), Seen(parsed.observations), run).verdicts}


def test_what_slurm_counts_are_parts_and_no_reboot_is_proposed_and_a_gpu_that_is_missing_beside_them_is_missing():
    verdicts = divided(parts=2)
    for gate in ("discovery.gpu.count", "discovery.gpu.answering"):
        expected = (FAIL, "its GPUs are divided: discovery.gpu.mig", Action.CONFIGURE)
        assert (verdicts[gate].outcome, verdicts[gate].cause, verdicts[gate].action) == expected
    cause = "Slurm counts 2 parts as GPUs; ranks on them have neither NVLink nor NCCL between them"
    assert verdicts["discovery.gpu.mig"].cause == cause
    missing = divided(parts=3)["discovery.gpu.count"]  # the parts do not explain the count
    assert (missing.outcome, missing.cause, missing.action) == (FAIL, None, Action.REBOOT)
    right = divided(parts=1, devices=2)["discovery.gpu.count"]
    assert (right.outcome, right.cause) == (PASS, None)


# --- tools that are not installed, where the PATH has something that may not be run: exec says EACCES then


def test_a_tool_that_may_not_be_run_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an ordinary user such a folder may not be searched; a file that nobody may run gives root the same answer."""
    for tool in ("nvidia-imex-ctl", "dcgmi", "ib_write_bw", "nvidia-smi"):
        (tmp_path / tool).write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert answers_of(imex.imex)["discovery.imex"] == (imex.NONE, "nvidia-imex-ctl is not installed")
    diagnosed = answers_of(lambda facts: dcgm.diagnose(facts, "2", 1, None))
    assert diagnosed["dcgm.ended"] == (None, "dcgmi is not installed")
    with pytest.raises(perftest.NotThere):
        perftest.call("ib_write_bw", "mlx5_0:1", 20000, "n0")
    assert smi._why(PermissionError(13, "Permission denied")) == "nvidia-smi is not installed"
