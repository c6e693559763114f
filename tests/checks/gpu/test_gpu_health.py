"""What GPUs say about themselves: a fake NVML, and texts of nvidia-smi; healthy, degraded, cut off, empty, absent."""

import json
import subprocess
import sys
from types import SimpleNamespace

import nvml
import smi
from bringup.kernel import judge
from bringup.kernel.facts.observations import derive
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.records import Outcome, Verdict
from loops import for_each
from nvml_for_tests import HEALTHY, FakeNvml
from probing import told_by
from runs_for_tests import FAIL, FIXTURES, OPEN, PASS, WARN, add_derived, failing, gpu_run, judged, parsed_of
from showing import shows_failing

SMI = json.loads((FIXTURES / "nvidia-smi.json").read_text())["healthy"]
NO_VALUE = "Requested functionality has been deprecated"
LACKING = FakeNvml.NVMLError_NotSupported("Not Supported")
RETIRED = FakeNvml.NVMLError_Deprecated(NO_VALUE)
LOST = FakeNvml.NVMLError("GPU is lost")
OLD_NVLINK = {"recoveries": LACKING, "crc": LACKING}
NVLINK_5 = {206: 0, 208: 0, 215: 0}


def through_nvml(*gpus, **changes) -> Parsed:
    fake = FakeNvml(*(gpus or ({**HEALTHY}, {**HEALTHY, **changes})))
    return told_by(lambda probe: nvml.read(probe, fake))


def through_smi(kept: dict[str, str] | None = None, **changes: str | None) -> Parsed:
    words = {
        "serial": "identity",
        "compute-apps": "processes",
        "memory.used": "used",
        "remapped": "remapped",
        "mig": "mig",
        "fabric": "fabric",
        "clocks.app": "clock",
        "clocks": "slowdown",
        "ecc.mode": "ecc",
        "power": "power",
        "recovery": "recovery",
    }

    def run(command, **_):
        answer = {**SMI, **changes}[next((name for word, name in words.items() if word in command[1]), "gpu")]
        if answer is None:
            raise FileNotFoundError("nvidia-smi")
        if answer.startswith("Field "):
            raise subprocess.CalledProcessError(2, command, output=answer)
        return SimpleNamespace(stdout=answer)

    keep = {} if kept is None else kept
    return told_by(lambda probe: smi.read(probe, lambda name, text: keep.update({name: text}), run))


def verdicts(parsed: Parsed) -> dict[str, Verdict]:
    """Gate -> verdict on n0, of the gates that only the GPUs' own words decide."""
    parsed.saw("discovery.gpu.count", "n0", 2, "count", "f")
    of_gpus = judge.judge(*gpu_run(), add_derived(parsed)).verdicts
    return {v.gate.removeprefix("discovery.gpu."): v for v in of_gpus if v.gate.startswith("discovery.gpu.")}


def outcomes(parsed: Parsed) -> dict[str, Outcome]:
    return {gate: verdict.outcome for gate, verdict in verdicts(parsed).items()}


def sick(parsed: Parsed) -> dict[str, Outcome]:
    """Those that do not pass."""
    return {gate: outcome for gate, outcome in outcomes(parsed).items() if outcome is not PASS}


def values(parsed: Parsed, gpu: str = "n0/GPU-b") -> dict[str, object]:
    return {fact.quantity: fact.value for fact in parsed.observations if fact.subject == gpu}


ROWS = [  # a gate, the outcome that it alone has, what one of two GPUs says
    ("ecc", FAIL, {"ecc": 2}),
    ("remap_pending", FAIL, {"pending": 1}),
    ("remap_failed", FAIL, {"failed": 1}),
    ("pcie", FAIL, {"width": 8}),
    ("nvlinks", FAIL, {"links": 17}),
    ("fabric", FAIL, {"fabric": 2}),
    ("fabric", FAIL, {"status": 1}),
    *(("fabric", FAIL, {"health": mask}) for mask in (0b01, 0b0100, 0b010000, 0x500, 0x8000)),
    ("fabric", PASS, {"health": 0x41AA}),  # all known, and nothing wrong: bandwidth, routes, place, fabric manager
    ("slowdown", FAIL, {"reasons": 0x48}),
    *(("recovery_action", FAIL, {"recovery": action}) for action in (1, 2, 3, 4, 7, 99)),
    *(("recovery_action", PASS, {"recovery": old}) for old in (-2, -3, FakeNvml.NVMLError_InvalidArgument())),
    ("recovery_action", OPEN, {"recovery": -999}),
    ("nvlink_recoveries", FAIL, {"recoveries": 1}),
    ("mig", FAIL, {"mig": 1}),
    ("memory", FAIL, {"memory": 79}),
    ("free", FAIL, {"processes": 1, "used": 8}),  # then its memory is not left over
    ("model", FAIL, {"name": "NVIDIA H200"}),
    # what the hardware corrected itself, and settings
    ("nvlink_replays", WARN, {"replays": 3}),
    ("ecc_corrected", WARN, {"corrected": 5000}),
    ("remapped_corrected", WARN, {"rows": (9, 0)}),
    ("remapped_uncorrected", WARN, {"rows": (0, 9)}),
    ("nvlink_crc_errors", WARN, {"crc": 2}),
    ("power_cap", WARN, {"power": 500_000}),
    ("power_cap", PASS, {"power": 750_000}),
    ("clock_cap", WARN, {"clock": 1410}),
    ("clock_cap", PASS, {"clock": LACKING}),
    ("clock_cap", PASS, {"clock": RETIRED}),
    ("ecc_mode", WARN, {"ecc_mode": (0, 0)}),
    ("ecc_mode", WARN, {"ecc_mode": (1, 0)}),
    ("ecc_mode", PASS, {"ecc_mode": (1, 1)}),
    ("ecc_mode", PASS, {"ecc_mode": LACKING}),
    ("persistence", WARN, {"persistence": 0}),
    ("left", WARN, {"used": 8}),
    ("left", PASS, {"used": 1.5}),  # the driver's, and that of MPS
    # what a GPU does not say is neither healthy nor sick, and the other questions are answered
    ("ecc", OPEN, {"ecc": LOST}),
    ("ecc", OPEN, {"ecc": RETIRED}),
    ("mig", OPEN, {"mig": RETIRED}),
    ("fabric", OPEN, {"fabric": RETIRED}),
    ("nvlink_recoveries", OPEN, {"recoveries": LACKING}),
    # NVLink 5 counts in fields of its own: B200 and GB200 refuse the old question
    ("nvlink_recoveries", PASS, {**OLD_NVLINK, "fields": NVLINK_5}),
    ("nvlink_recoveries", FAIL, {**OLD_NVLINK, "fields": {**NVLINK_5, 215: 7}}),
    ("nvlink_crc_errors", WARN, {**OLD_NVLINK, "fields": {**NVLINK_5, 206: 7}}),
    ("nvlink_crc_errors", WARN, {**OLD_NVLINK, "fields": {**NVLINK_5, 208: 7}}),
    ("nvlink_recoveries", OPEN, {**OLD_NVLINK, "fields": {206: 0, 208: 0}}),
    ("nvlink_crc_errors", OPEN, {**OLD_NVLINK, "fields": {208: 0, 215: 0}}),
    ("nvlink_crc_errors", OPEN, {**OLD_NVLINK, "fields": {206: 0, 215: 0}}),
]


def test_healthy_gpus_pass_every_gate():
    assert len(outcomes(through_nvml())) >= 11
    assert sick(through_nvml()) == {}


@shows_failing(*failing(ROWS, "discovery.gpu."))
@for_each(*ROWS)
def test_what_one_gpu_says_decides_its_gate_alone_and_it_is_named(gate, outcome, changes):
    assert sick(through_nvml(**changes)) == ({} if outcome is PASS else {gate: outcome})
    if outcome is FAIL and gate not in ("model", "memory"):
        assert "GPU-b" in verdicts(through_nvml(**changes))[gate].observed


WORDS = {"[N/A]": PASS, "[Not Supported]": PASS, "[GPU requires reset]": OPEN, "[Unknown Error]": OPEN, "ERR!": OPEN}
SMI_ROWS = [  # a gate, its outcome, an answer of nvidia-smi, what in it is another
    ("power_cap", WARN, "power", "700.00, 700.00", "700.00, 500.00"),
    ("power_cap", OPEN, "power", "700.00, 700.00", "700.00, [N/A]"),
    ("power_cap", PASS, "power", "700.00, 700.00", "700.00, 750.00"),
    ("clock_cap", WARN, "clock", "1980, 1980", "1980, 1410"),
    ("clock_cap", PASS, "clock", "1980, 1980", "[N/A], [N/A]"),
    ("clock_cap", PASS, "clock", "1980, 1980", f"[{NO_VALUE}], [{NO_VALUE}]"),
    ("clock_cap", OPEN, "clock", "1980, 1980", f"[{NO_VALUE}], 1410"),
    ("ecc_mode", WARN, "ecc", SMI["ecc"], "GPU-a, Disabled\nGPU-b, [N/A]\n"),
    ("mig", FAIL, "mig", "Disabled", "Enabled"),
    ("memory", FAIL, "gpu", "81920", "40960"),
    ("ecc", FAIL, "gpu", "0, 3, 16, 16", "7, 3, 16, 16"),
    ("ecc", OPEN, "gpu", "0, 3, 16, 16", "[N/A], [N/A], 16, 16"),
    ("pcie", FAIL, "gpu", "3, 16, 16", "3, 8, 16"),
    ("pcie", PASS, "gpu", "3, 16, 16, 5", "3, 16, 8, 5"),  # above its greatest width
    ("slowdown", FAIL, "slowdown", "0x0000000000000001", "0x0000000000000080"),
    ("fabric", FAIL, "fabric", "Completed", "In Progress"),
    ("recovery_action", FAIL, "recovery", "None", "Drain and Reset"),
    (
        "recovery_action",
        PASS,
        "recovery",
        SMI["recovery"],
        'Field "gpu_recovery_action" is not a valid field to query.\n',
    ),
    ("recovery_action", OPEN, "recovery", SMI["recovery"], "Field of another error\n"),
    ("recovery_action", OPEN, "recovery", SMI["recovery"], "GPU-a, None\n"),
    ("recovery_action", OPEN, "recovery", "None", "[Unknown Error]"),
    ("remap_pending", FAIL, "remapped", ", 0, 0, 0", ", 0, 1, 0"),
    ("remap_failed", FAIL, "remapped", ", 0, 0, 0", ", 0, 0, 1"),
    ("remap_failed", FAIL, "remapped", ", 0, 0, 0", ", 0, No, Yes"),
    ("remap_pending", FAIL, "remapped", ", 0, 0, 0", ", 0, Yes, No"),
    ("remap_pending", OPEN, "remapped", ", 0, 0, 0", ", 0, Perhaps, 0"),
    # Yes and No were read as a number: both gates were unknown on healthy GPUs
    *(("remap_pending", PASS, "remapped", ", 0, 0, 0", f", 0, {word}, {word}") for word in ("No", "no", "Not Active")),
    ("remap_failed", PASS, "remapped", ", 0, 0, 0", ", 0, Disabled, Disabled"),
    ("free", FAIL, "processes", SMI["processes"], "GPU-b, 4711\n"),
    ("free", OPEN, "processes", SMI["processes"], "GPU-b"),
    ("free", OPEN, "processes", SMI["processes"], "[GPU requires reset], 4711\n"),
    ("free", OPEN, "processes", SMI["processes"], "Unable to determine the processes\n"),
    ("left", WARN, "used", "614", "8192"),
    ("left", PASS, "used", "614", "615"),
    ("left", OPEN, "used", "614", "[N/A]"),
    # a GPU that one answer leaves out
    *(
        (gate, OPEN, query, SMI[query], "".join(SMI[query].splitlines(True)[:-1]))
        for gate, query in (("slowdown", "slowdown"), ("fabric", "fabric"), ("remap_failed", "remapped"))
    ),
    # what a GPU has not got is an answer, and a GPU that does not answer is none
    *(
        (query, outcome, query, whole, word)
        for query, whole in (("mig", "Disabled"), ("fabric", "Completed"))
        for word, outcome in WORDS.items()
    ),
    ("fabric", OPEN, "fabric", SMI["fabric"], 'Field "fabric.state" is not a valid field to query.\n'),
    # a cut off, empty or shifted answer is never all GPUs
    *(("answering", FAIL, "gpu", SMI["gpu"], text) for text in ("", "No devices were found\n")),
    ("answering", FAIL, "gpu", SMI["gpu"], SMI["gpu"][: len(SMI["gpu"]) * 2 // 3]),
    ("answering", FAIL, "gpu", SMI["gpu"], SMI["gpu"].replace("H100 ", "H100, ")),
]


@for_each(*SMI_ROWS)
def test_an_answer_of_nvidia_smi_decides_its_gate(gate, outcome, query, old, new):
    assert old in SMI[query]
    by_gate = outcomes(through_smi(**{query: SMI[query].replace(old, new, 1)}))
    assert by_gate[gate] is outcome
    if query != "gpu":
        assert by_gate["ecc"] is PASS
    elif gate == "answering":
        assert by_gate["ecc"] is OPEN


def test_a_retired_question_is_a_remark_words_in_brackets_are_no_serial_number_and_more_than_the_most_is_no_loss():
    clock = SMI["clock"].replace("1980, 1980", f"[{NO_VALUE}], [{NO_VALUE}]")
    for parsed in (through_nvml(clock=RETIRED), through_smi(clock=clock)):
        remarks = [fact.why or "" for fact in parsed.observations if fact.quantity == "discovery.gpu.clock_cap"]
        assert any(remark.startswith("this driver has retired the question") for remark in remarks)
    seen = values(through_smi(identity=f"GPU-a, [{NO_VALUE}], [GPU is lost]\nGPU-b, 1, 2\n"), "n0/GPU-a")
    assert [value for name, value in seen.items() if "inventory.gpu" in name] == [None, None]
    power = "GPU-a, 700.00, 750.00\nGPU-b, 700.00, 700.00\n"
    seen = values(through_smi(power=power, gpu=SMI["gpu"].replace("0, 3, 16, 16, 5", "0, 3, 16, 8, 5")), "n0/GPU-a")
    assert seen["discovery.gpu.power_cap"] == seen["discovery.gpu.pcie"] == 0


def test_links_that_are_down_count_no_errors_and_that_is_no_health():
    facts = [fact for fact in through_nvml(links=0).observations if fact.subject == "n0/GPU-b"]
    errors = [(fact.value, fact.why) for fact in facts if fact.quantity.startswith("discovery.gpu.nvlink_")]
    assert errors == [(None, "no NVLink is up, so that none counts errors")] * 3


@for_each(
    ({"fabric": LACKING, "links": LACKING}, "not supported"),
    ({"fabric": 0, "status": 999}, "not supported"),
    ({"fabric": 1, "status": 999}, "not started"),
    ({"fabric": 2, "status": 999}, "in progress"),
    ({"fabric": 3, "status": 0}, "completed"),
    ({"fabric": 3, "status": 999}, "completed with status 999"),
    ({"fabric": 7, "status": 999}, "state 7"),
)
def test_the_status_of_a_fabric_says_nothing_before_its_state_is_completed(changes, answer):
    seen = values(through_nvml(**changes))
    assert (seen["discovery.gpu.fabric"], seen["discovery.gpu.nvlinks"]) == (answer, 0 if "links" in changes else 18)


class Broken(FakeNvml):
    def nvmlDeviceGetCount(self):
        raise self.NVMLError("Unknown Error")


class Old(FakeNvml):
    def __getattr__(self, function):
        if function == "nvmlDeviceGetCurrentClocksEventReasons":
            raise AttributeError(function)
        return super().__getattr__(function)


@shows_failing("discovery.gpu.answering")
@for_each(
    (FakeNvml({**HEALTHY}, {**HEALTHY, "name": LOST}), {"answering": FAIL, "ecc": OPEN}),
    (FakeNvml({**HEALTHY, "mig": 1}), {"answering": FAIL, "mig": FAIL}),  # also where Slurm counts its slices
    (Broken(), {"answering": OPEN}),
    (Old({**HEALTHY}, {**HEALTHY}), {"answering": PASS, "slowdown": OPEN}),
)
def test_a_driver_that_does_not_answer_for_a_gpu_is_unknown_or_lacks_it_and_is_no_crash(fake, expected):
    by_gate = outcomes(told_by(lambda probe: nvml.read(probe, fake)))
    assert {gate: by_gate[gate] for gate in expected} == expected


def test_a_tool_that_is_absent_leaves_everything_unknown():
    by_gate = outcomes(through_smi(**dict.fromkeys(SMI)))
    assert by_gate.pop("count") is PASS
    assert set(by_gate.values()) == {OPEN}


@shows_failing("discovery.gpu.distinct", "discovery.gpu.driver")
def test_nodes_are_compared_by_their_uuids_and_their_driver():
    facts = [
        fact
        for node, gpus, driver in (("n0", "ad", "570.86"), ("n1", "ab", "550.54"), ("n2", "ce", "570.86"))
        for fact in (
            ("discovery.gpu.driver", node, driver),
            ("discovery.gpu.count", node, 2),
            ("discovery.gpu.answering", node, 2),
            *(("discovery.gpu.model", f"{node}/GPU-{gpu}", "H100") for gpu in gpus),
        )
    ]
    by_gate = judged(facts)
    assert [by_gate[f"discovery.gpu.distinct {node}"].value for node in ("n0", "n1", "n2")] == [1, 1, 0]
    assert [by_gate[f"discovery.gpu.driver {node}"].outcome for node in ("n0", "n1", "n2")] == [PASS, FAIL, PASS]


def test_uuids_of_many_nodes_are_compared_in_linear_time():
    """Each node was compared with every GPU of all nodes. Counted in lines of Python, not in seconds."""

    def lines_run(count: int) -> int:
        parsed = parsed_of(
            ("discovery.gpu.model", f"n{node}/GPU-{node}-{gpu}", "H100") for node in range(count) for gpu in range(8)
        )
        seen, run, lines = Seen(parsed.observations), gpu_run()[0], 0

        def count_lines(frame, event, argument):
            nonlocal lines
            lines += event == "line"
            return count_lines

        before = sys.gettrace()
        sys.settrace(count_lines)
        try:
            derive(seen, run)
        finally:
            sys.settrace(before)
        return lines

    assert lines_run(100) < 2.5 * lines_run(50)


def test_nvidia_smi_says_the_same_as_nvml():
    kept: dict[str, str] = {}
    by_smi = {(fact.subject, fact.quantity): fact.value for fact in through_smi(kept).observations}
    by_nvml = {(fact.subject, fact.quantity): fact.value for fact in through_nvml().observations}
    errors = {f"discovery.gpu.nvlink_{name}" for name in ("recoveries", "replays", "crc_errors")}
    only_nvml = errors | {f"discovery.gpu.{name}" for name in ("nvlinks", "cuda")}
    only_nvml |= {f"inventory.gpu.{name}" for name in ("mig_devices", "board")}
    assert {key: value for key, value in by_nvml.items() if key[1] not in only_nvml} == by_smi
    assert kept == SMI
