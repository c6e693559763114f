"""The stand-in for NVML answers the real pynvml from a state file; the stand-in for nvidia-smi says the same."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import state as states
from loops import case_for_each
from nvml_for_tests import SIMULATED, library_folder
from programs import PROBES, begun, ran
from tiers import first

MODELS = {"a100", "b200", "h100", "h100-efa", "h200"}
THROUGH = {"nvml": "import nvml; nvml.read(facts, nvml.library()[0])"}
THROUGH["smi"] = "import smi; smi.read(facts, lambda *_: None)"

Facts = dict[tuple[str, str], Any]  # (GPU or node, quantity without its beginning) -> value, or the reason


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("with a space")
    shutil.copy(library_folder() / "libnvidia-ml.so.1", folder)
    return folder


@pytest.fixture
def printed(library: Path, tmp_path: Path) -> Callable[..., str]:
    """What a program prints on a node with these GPUs and changes."""

    def python(program: str, *changes: str, model: str = "h100", gpus: int = 8) -> str:
        file = tmp_path / "state.conf"
        file.write_text(states.changed(states.healthy(model, "n1", gpus), ["devices=all", *changes]))
        return run(program, file, library)

    return python


@pytest.fixture
def ask(printed: Callable[..., str]) -> Callable[..., Facts]:
    """What the inventory finds out of the GPUs of a node: ask("gpu2.ecc=2")."""

    def inventory(*changes: str, through: str = "nvml", **node: Any) -> Facts:
        return facts_in(printed(f"from facts import Facts; facts = Facts('x'); {THROUGH[through]}", *changes, **node))

    return inventory


def run(program: str, file: Path, library: Path) -> str:
    (library / "bin").mkdir(exist_ok=True)
    tool = library / "bin/nvidia-smi"
    if not tool.exists():
        tool.symlink_to(SIMULATED / "bin/nvidia-smi")
    own = {"BRINGUP_SIMULATED_STATE": str(file), "LD_LIBRARY_PATH": str(library), "PYTHONPATH": str(PROBES)}
    path = {"PATH": f"{library / 'bin'}:{os.environ['PATH']}"}
    done = ran([sys.executable, "-c", program], env={**os.environ, **own, **path})
    assert done.returncode == 0, done.stderr
    return done.stdout


def facts_in(lines: str) -> Facts:
    facts: Facts = {}
    for line in lines.splitlines():
        fact = json.loads(line)
        value = fact["value"] if fact["value"] is not None else f"? {fact['why']}"
        facts[fact["subject"].partition("/")[2], fact["quantity"].removeprefix("discovery.gpu.")] = value
    return facts


def uuid(index: int) -> str:
    return states.State(states.healthy("h100", "n1", 8)).gpu(index, "uuid")


def of(facts: Facts, index: int) -> dict[str, Any]:
    """What GPU `index` said, without what tells one GPU from another."""
    own = ("pci", "inventory.gpu.serial")
    return {name: value for (gpu, name), value in facts.items() if gpu == uuid(index) and name not in own}


def test_healthy_gpus_answer_every_question(ask):
    facts = ask()
    assert facts["", "answering"] == 8
    assert facts["", "driver"] == "570.86.15"
    assert [value for value in facts.values() if str(value).startswith("?")] == []
    assert len(of(facts, 0)) >= 19
    assert all(of(facts, index) == of(facts, 0) for index in range(8))


def test_the_models_differ_in_what_they_are(ask):
    answers = {model: ask(model=model, gpus=1) for model in MODELS}
    assert set(states.models()) == MODELS
    assert {model: facts["", "answering"] for model, facts in answers.items()} == dict.fromkeys(MODELS, 1)
    assert {tuple(of(facts, 0)[name] for name in ("model", "memory", "nvlinks")) for facts in answers.values()} == {
        ("NVIDIA A100-SXM4-80GB", 80.0, 12),
        ("NVIDIA H100 80GB HBM3", 79.65, 18),
        ("NVIDIA H200", 140.4, 18),
        ("NVIDIA B200", 178.35, 18),
    }


FAULTS = {
    "ecc=2": {"ecc": 2},
    "ecc_corrected=17": {"ecc_corrected": 17},
    "remapped=3": {"remapped_uncorrected": 3},
    "remapped_corrected=4": {"remapped_corrected": 4},
    "remap_pending=1": {"remap_pending": True},
    "remap_failed=1": {"remap_failed": True},
    "recovery_action=4": {"recovery_action": "Drain and Reset"},
    "pcie_width=8": {"pcie": 8},
    "pcie_generation=3": {"pcie_generation": 3},
    "persistence=off": {"persistence": False},
    "application_clock=1410": {"clock_cap": 570},
    "ecc_mode=off": {"ecc_mode": "off"},
    "mig=on": {"mig": "on"},
    "throttle=hw_thermal": {"slowdown": "hardware slowdown, hardware thermal"},
    "throttle=sw_power_cap": {},
    "fabric=in_progress": {"fabric": "in progress"},
    "fabric=not_supported": {"fabric": "not supported"},
    "processes=4711 4712": {"free": 2},
    "name=NVIDIA H100 PCIe": {"model": "NVIDIA H100 PCIe"},
    "memory=84446101504": {"memory": 78.65},
}
NO_LINK = "no NVLink is up, so that none counts errors"
LINKS = {
    "nvlink5=down": {"nvlinks": 17},
    "nvlink=down": {"nvlinks": 0}
    | dict.fromkeys(("nvlink_recoveries", "nvlink_replays", "nvlink_crc_errors"), f"? {NO_LINK}"),
    "nvlink5.recoveries=1": {"nvlink_recoveries": 1},
    "nvlink17.replays=4": {"nvlink_replays": 4},
    "nvlink.crc=1": {"nvlink_crc_errors": 18},
    "fabric=failed": {"fabric": "completed with status 999"},
}


@pytest.mark.parametrize("fault", [*first([*FAULTS]), *first([*LINKS])])
def test_a_fault_shows_in_its_own_answer_on_its_own_gpu(ask, fault):
    facts = ask(f"gpu3.{fault}")
    healthy = of(facts, 0)
    assert {name: value for name, value in of(facts, 3).items() if healthy[name] != value} == {**FAULTS, **LINKS}[fault]
    assert all(of(facts, index) == healthy for index in (1, 2, 4, 5, 6, 7))


def test_a_b200_counts_errors_of_its_links_as_nvlink_5_does(ask):
    facts = ask("gpu3.nvlink5.recovery_events=2", "gpu3.nvlink.received_errors=1", model="b200")
    names = ("nvlink_recoveries", "nvlink_crc_errors")
    assert [of(facts, index)[name] for index in (0, 3) for name in names] == [0, 0, 2, 18]
    assert of(facts, 0)["nvlink_replays"] == "? NVML: Not Supported"


@pytest.mark.parametrize("part", first(range(0, len(FAULTS), 8)))
def test_nvidia_smi_says_what_nvml_says(ask, part):
    """Eight faults at a time, each on a GPU of its own."""
    changes = [f"gpu{index}.{fault}" for index, fault in enumerate([*FAULTS][part : part + 8])]
    through_nvml, through_smi = ask(*changes), ask(*changes, through="smi")
    assert len(through_smi) > 100
    assert through_smi == {key: through_nvml[key] for key in through_smi}


def test_a_gpu_that_is_lost_is_still_counted_and_says_nothing(ask):
    facts = ask("gpu7.lost=1")
    assert facts["", "answering"] == 7
    assert facts["gpu7", "model"] == "? GPU 7: GPU is lost"
    assert ask("gpu7.lost=1", through="smi")["", "answering"].endswith("Reboot the system to recover this GPU")


@case_for_each(("gpu1.ecc=error:16", "GPU requires restart"), ("gpu1.nvlink0.replays=error:3", "Not Supported"))
def test_an_answer_may_be_an_error_of_nvml(ask, change, words):
    assert [value for value in of(ask(change), 1).values() if str(value).startswith("?")] == [f"? NVML: {words}"]


@pytest.mark.parametrize("through", ["nvml", "smi"])
def test_a_driver_590_leaves_no_question_about_a_healthy_gpu_open(ask, through):
    facts = ask("driver=590.48.01", "gpu.application_clock=error:26", "gpu.clock_default=error:26", through=through)
    assert of(facts, 0)["clock_cap"] == 0
    assert [value for value in facts.values() if str(value).startswith("?")] == []


def test_a_retired_setting_leaves_the_others_of_the_gpus(printed):
    program = "import devices, nvml; from facts import Facts; devices.of_gpus(Facts('x'), nvml.library()[0])"
    values = json.loads(printed(program, "gpu.application_clock=error:26"))["value"]
    assert any(value == "application clock=not supported" for value in values), values
    assert any(value.startswith("VBIOS=96") for value in values), values


def test_a_word_or_a_key_that_nobody_knows_does_not_pass_for_health(ask, library, tmp_path):
    assert of(ask("gpu1.fabric=complete"), 1)["fabric"] == "? NVML: Unknown Error"
    assert of(ask("gpu1.ecc=none"), 1)["ecc"] == "? NVML: Unknown Error"
    file = tmp_path / "without.conf"
    file.write_text(states.healthy("h100", "n1", 8).replace("gpu.ecc=0\n", "") + "devices=all\n")
    facts = facts_in(run(f"from facts import Facts; facts = Facts('x'); {THROUGH['nvml']}", file, library))
    assert of(facts, 0)["ecc"] == "? NVML: Unknown Error"


@case_for_each(
    (["init=error:18"], "NVML: RM has detected an NVML/RM version mismatch."), (None, "NVML: Driver Not Loaded")
)
def test_a_driver_that_does_not_start_says_why(library, tmp_path, change, why):
    file = tmp_path / "state.conf"
    if change is not None:
        file.write_text(states.changed(states.healthy("h100", "n1", 8), change))
    assert run("import nvml; print(nvml.library()[1])", file, library).strip() == why


def test_a_gpu_whose_device_may_not_be_opened_is_not_there(ask):
    """On a node the devices cgroup decides; here there is no device at all."""
    if Path("/dev/nvidia0").exists():
        pytest.fail("this test needs a machine without GPUs")
    assert ask("devices=check")["", "answering"] == 0


def test_a_gpu_falls_ill_while_somebody_watches(printed, tmp_path):
    file = tmp_path / "state.conf"
    program = f"""
import monitor
read = monitor.gpu_reader()
print(read())
open({str(file)!r}, "a").write("gpu1.throttle=hw_power_brake\\n")
print(read()[1][1][5])
open({str(file)!r}, "a").write("gpu1.lost=1\\n")
print(read())
"""
    first, second, third = printed(program, gpus=2).splitlines()
    assert first.startswith("([0, 142, 31], [['GPU-00000000-0000-")
    assert second == "hardware slowdown+hardware power brake"
    assert third.startswith("(['', '', ''], [['GPU-00000000-0000-")


def test_a_gpu_that_is_lost_before_the_monitor_starts_costs_its_own_samples_alone(printed):
    summary, each = eval(printed("import monitor; print(monitor.gpu_reader()())", "gpu1.lost=1", gpus=2))
    assert summary == ["", "", ""]
    assert [cells[0] for cells in each] == [uuid(0)]


def test_the_counters_of_a_load_are_answered(printed):
    program = "import counters, facts; counters.of_gpus(counters.Counters(facts.Facts('x'), 'before'))"
    facts = map(json.loads, printed(program, "gpu.pcie_replays=5", gpus=1).splitlines())
    no_errors = "ecc_uncorrected ecc_corrected rows_remapped_uncorrectable rows_remapped_correctable remap_failed"
    of_links = "nvlink_recoveries nvlink_replays nvlink_crc_errors"
    counted = dict.fromkeys(f"{no_errors} {of_links}".split(), 0) | {"pcie_replays": 5, "nvlinks": 18, "gpus": 1}
    assert {fact["quantity"].rpartition(".")[2]: fact["value"] for fact in facts} == counted


def test_the_link_of_a_gpu_is_found_by_its_uuid(printed):
    program = f"import nvml; ask, why = nvml.pcie_links({uuid(1)!r}); print(ask(), why)"
    assert printed(program, "gpu1.pcie_generation=4", gpus=2).strip() == "((4, 16), (5, 16))"


def test_a_question_that_nvidia_smi_does_not_know_is_refused(library, tmp_path):
    file = tmp_path / "state.conf"
    file.write_text(states.changed(states.healthy("h100", "n1", 1), ["devices=all"]))
    tool = shutil.which("python3") or sys.executable
    for options in (["--query-gpu=uuid,gizmo", "--format=csv"], ["dmon"]):
        command = [tool, SIMULATED / "bin/nvidia-smi", *options]
        done = ran(command, env={**os.environ, "BRINGUP_SIMULATED_STATE": str(file)})
        assert done.returncode == 2
        assert "gizmo" in done.stdout or "dmon" in done.stdout


def test_a_divided_gpu_lists_its_parts(ask, library, tmp_path):
    facts = ask("gpu1.mig=on", "gpu1.mig_devices=2", gpus=2)
    assert [facts[uuid(index), "inventory.gpu.mig_devices"] for index in (0, 1)] == [0, 2]
    listed = run("import subprocess; subprocess.run(['nvidia-smi', '-L'])", tmp_path / "state.conf", library)
    assert [line.split()[0] for line in listed.splitlines()] == ["GPU", "GPU", "MIG", "MIG"]
    program = (
        "import pynvml as n; n.nvmlInit(); gpu = n.nvmlDeviceGetHandleByIndex(1); "
        "print(*(n.nvmlDeviceGetUUID(n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, part)) for part in (0, 1)))"
    )
    parts = run(program, tmp_path / "state.conf", library).split()
    assert parts == [f"MIG{uuid(1)[3:-1]}{number}" for number in (1, 2)]
    assert all(part in listed for part in parts)


NO_EVENT = "this GPU has none for an Xid"
OF_MIG = "of a GPU in MIG mode, they tell an ordinary user about the whole GPU alone"


class TestEvents:
    """Xids as NVML reports them to who waits: probes/xids.py, through the real pynvml."""

    @staticmethod
    def watched(file: Path, library: Path, *steps: str) -> dict[tuple[str, str], Any]:
        """What the probe says; each step is written into the state file while it watches."""
        own = {"BRINGUP_SIMULATED_STATE": str(file), "LD_LIBRARY_PATH": str(library), "SLURMD_NODENAME": "n1"}
        with begun([sys.executable, PROBES / "xids.py"], env=os.environ | own, stdin=subprocess.PIPE) as probe:
            lines = [probe.stdout.readline()]  # it has begun
            for step in steps:
                part = file.with_suffix(".part")
                part.write_text(f"{file.read_text()}{step}\n")
                part.replace(file)  # the probe must not meet half a file
                lines.append(probe.stdout.readline())
            probe.stdin.close()
            lines += probe.stdout.readlines()
        events = [fact for fact in map(json.loads, lines) if fact.get("quantity", "").startswith("load.event.")]
        seen = {}
        for fact in events:
            name = (fact["subject"].removeprefix("n1/"), fact["quantity"].removeprefix("load.event."))
            seen[name] = f"? {fact['why']}" if fact["value"] is None else fact["value"]
        return seen

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        file = tmp_path / "state.conf"
        file.write_text(states.changed(states.healthy("h100", "n1", 2), ["devices=all", "xids=31@0"]))
        return file

    def test_what_came_before_is_not_reported_and_what_comes_is_with_its_gpu(self, file: Path, library: Path) -> None:
        reported = self.watched(file, library, "xids=31@0|79@1", "xids=31@0|79@1|79@1|63@0")
        assert 0 <= reported.pop(("n1", "seconds")) < 60
        assert reported == {("n1", "gpus"): 2, (uuid(1), "xid_79"): True, (uuid(0), "xid_63"): True}

    def test_a_lost_gpu_is_named_and_the_watch_has_a_gap(self, file: Path, library: Path) -> None:
        """NVML does not give the UUID of a lost GPU, and then says so at once to all questions."""
        reported = self.watched(file, library, "xids=31@0|79@1\ngpu1.lost=1", "xids=31@0|79@1|63@0")
        seconds = reported.pop(("n1", "seconds"))
        assert seconds.startswith("?") and seconds.endswith(" s: GPU is lost")
        assert reported == {("n1", "gpus"): 2, (uuid(1), "xid_79"): True, (uuid(0), "xid_63"): True}

    @case_for_each(
        ("gpu.events=error:3", {("n1", "gpus"): "? NVML's events: Not Supported"}),
        ("gpu.events=error:4", {("n1", "gpus"): "? NVML's events: Insufficient Permissions"}),
        ("gpu.events=none", {("n1", "gpus"): "? NVML's events: " + NO_EVENT}),
        ("gpu.mig=on", {("n1", "gpus"): f"? NVML's events: {OF_MIG}"}),
        ("gpu1.events=none", {("n1", "gpus"): 1, (uuid(1), "watched"): f"? NVML's events: {NO_EVENT}"}),
    )
    def test_a_gpu_that_reports_none_is_not_watched(self, file, library, change, reported):
        file.write_text(f"{file.read_text()}{change}\n")
        facts = self.watched(file, library)
        facts.pop(("n1", "seconds"), None)
        assert facts == reported


def test_it_starts_by_the_name_that_torch_calls(printed):
    """torch.cuda.device_count asks by nvmlInit; without that name it takes the driver's count for not known."""
    assert printed("import ctypes; print(ctypes.CDLL('libnvidia-ml.so.1').nvmlInit())") == "0\n"
