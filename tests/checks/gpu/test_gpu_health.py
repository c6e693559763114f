"""What GPUs say about themselves, through NVML and nvidia-smi: healthy, degraded, cut off, empty, absent."""

import json
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import nvml
import pynvml
import smi
from bringup.kernel import judge
from bringup.kernel.facts.observations import derive
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.records import Outcome, Verdict
from loops import for_each
from nvml_for_tests import Driver, driver_of
from probing import told_by
from runs_for_tests import FAIL, FIXTURES, OPEN, PASS, WARN, add_derived, failing, gpu_run, judged, parsed_of
from showing import shows_failing

SMI = json.loads((FIXTURES / "nvidia-smi.json").read_text())["healthy"]
NO_VALUE = "Requested functionality has been deprecated"
NVLINK_5 = ("nvlink.recoveries=error:3", "nvlink.crc=error:3", "nvlink.recovery_events=0", "nvlink.malformed=0")
NVLINK_5 += ("nvlink.received_errors=0",)


def through_nvml(*changes: str) -> Parsed:
    """changes: of GPU-b."""
    with driver_of(*(f"gpu1.{change}" for change in changes)) as driver:
        return told_by(lambda probe: nvml.read(probe, driver))


def through_smi(kept: dict[str, str] | None = None, **changes: str | None) -> Parsed:
    words = {"serial": "identity", "compute-apps": "processes", "memory.used": "used", "remapped": "remapped"}
    words |= {"mig": "mig", "fabric": "fabric", "clocks.app": "clock", "clocks": "slowdown", "ecc.mode": "ecc"}
    words |= {"power": "power", "recovery": "recovery"}

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
    ("ecc", FAIL, ["ecc=2"]),
    ("remap_pending", FAIL, ["remap_pending=1"]),
    ("remap_failed", FAIL, ["remap_failed=1"]),
    ("pcie", FAIL, ["pcie_width=8"]),
    ("nvlinks", FAIL, ["nvlink5=down"]),
    ("fabric", FAIL, ["fabric=in_progress"]),
    ("fabric", FAIL, ["fabric=failed"]),
    *(("fabric", FAIL, [f"fabric_health={mask}"]) for mask in (0b01, 0b0100, 0b010000, 0x500, 0x8000)),
    ("fabric", PASS, ["fabric_health=0x41AA"]),  # bandwidth, routes, place, fabric manager: all known, nothing wrong
    ("slowdown", FAIL, ["throttle=hw_thermal"]),
    *(("recovery_action", FAIL, [f"recovery_action={action}"]) for action in (1, 2, 3, 4, 7, 99)),
    *(("recovery_action", PASS, [f"recovery_action=error:{old}"]) for old in (2, 3)),
    ("recovery_action", OPEN, ["recovery_action=error:999"]),
    ("nvlink_recoveries", FAIL, ["nvlink5.recoveries=1"]),
    ("mig", FAIL, ["mig=on"]),
    ("memory", FAIL, [f"memory={79 * 2**30}"]),
    ("free", FAIL, ["processes=4711", f"memory_used={8 * 2**30}"]),  # then its memory is not left over
    ("model", FAIL, ["name=NVIDIA H200"]),
    # what the hardware corrected itself, and settings
    ("nvlink_replays", WARN, ["nvlink5.replays=3"]),
    ("ecc_corrected", WARN, ["ecc_corrected=5000"]),
    ("remapped_corrected", WARN, ["remapped_corrected=9"]),
    ("remapped_uncorrected", WARN, ["remapped=9"]),
    ("nvlink_crc_errors", WARN, ["nvlink5.crc=2"]),
    ("power_cap", WARN, ["power_limit=500000"]),
    ("power_cap", PASS, ["power_limit=750000"]),
    ("clock_cap", WARN, ["application_clock=1410"]),
    *(("clock_cap", PASS, [f"application_clock=error:{code}"]) for code in (3, 26)),
    *(("ecc_mode", WARN, [f"ecc_mode={words}"]) for words in ("off", "on_after_reset", "off_after_reset")),
    *(("ecc_mode", PASS, [f"ecc_mode={words}"]) for words in ("on", "error:3")),
    ("persistence", WARN, ["persistence=off"]),
    ("left", WARN, [f"memory_used={8 * 2**30}"]),
    ("left", PASS, [f"memory_used={3 * 2**29}"]),  # the driver's, and that of MPS
    # what a GPU does not say is neither healthy nor sick, and the other questions are answered
    *(("ecc", OPEN, [f"ecc=error:{code}"]) for code in (15, 26)),
    ("mig", OPEN, ["mig=error:26"]),
    ("fabric", OPEN, ["fabric=error:26"]),
    ("nvlink_recoveries", OPEN, ["nvlink.recoveries=error:3"]),
    # NVLink 5 counts in fields of its own: B200 and GB200 refuse the old question
    ("nvlink_recoveries", PASS, NVLINK_5),
    ("nvlink_recoveries", FAIL, [*NVLINK_5, "nvlink5.recovery_events=7"]),
    ("nvlink_crc_errors", WARN, [*NVLINK_5, "nvlink5.malformed=7"]),
    ("nvlink_crc_errors", WARN, [*NVLINK_5, "nvlink5.received_errors=7"]),
    ("nvlink_recoveries", OPEN, [*NVLINK_5, "nvlink.recovery_events=error:3"]),
    ("nvlink_crc_errors", OPEN, [*NVLINK_5, "nvlink.malformed=error:3"]),
    ("nvlink_crc_errors", OPEN, [*NVLINK_5, "nvlink.received_errors=error:3"]),
]


def test_healthy_gpus_pass_every_gate():
    assert len(outcomes(through_nvml())) >= 11
    assert sick(through_nvml()) == {}


@shows_failing(*failing(ROWS, "discovery.gpu."))
@for_each(*ROWS)
def test_what_one_gpu_says_decides_its_gate_alone_and_it_is_named(gate, outcome, changes):
    assert sick(through_nvml(*changes)) == ({} if outcome is PASS else {gate: outcome})
    if outcome is FAIL and gate not in ("model", "memory"):
        assert "GPU-b" in verdicts(through_nvml(*changes))[gate].observed


NO_FIELD = 'Field "{}" is not a valid field to query.\n'
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
    ("recovery_action", PASS, "recovery", SMI["recovery"], NO_FIELD.format("gpu_recovery_action")),
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
    ("fabric", OPEN, "fabric", SMI["fabric"], NO_FIELD.format("fabric.state")),
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
    for parsed in (through_nvml("application_clock=error:26"), through_smi(clock=clock)):
        remarks = [fact.why or "" for fact in parsed.observations if fact.quantity == "discovery.gpu.clock_cap"]
        assert any(remark.startswith("this driver has retired the question") for remark in remarks)
    seen = values(through_smi(identity=f"GPU-a, [{NO_VALUE}], [GPU is lost]\nGPU-b, 1, 2\n"), "n0/GPU-a")
    assert [value for name, value in seen.items() if "inventory.gpu" in name] == [None, None]
    power = "GPU-a, 700.00, 750.00\nGPU-b, 700.00, 700.00\n"
    seen = values(through_smi(power=power, gpu=SMI["gpu"].replace("0, 3, 16, 16, 5", "0, 3, 16, 8, 5")), "n0/GPU-a")
    assert seen["discovery.gpu.power_cap"] == seen["discovery.gpu.pcie"] == 0


def test_links_that_are_down_count_no_errors_and_that_is_no_health():
    facts = [fact for fact in through_nvml("nvlink=down").observations if fact.subject == "n0/GPU-b"]
    errors = [(fact.value, fact.why) for fact in facts if fact.quantity.startswith("discovery.gpu.nvlink_")]
    assert errors == [(None, "no NVLink is up, so that none counts errors")] * 3


@for_each(
    ("not_supported", "not supported"),
    ("not_started", "not started"),
    ("in_progress", "in progress"),
    ("completed", "completed"),
    ("failed", "completed with status 999"),
)
def test_the_status_of_a_fabric_says_nothing_before_its_state_is_completed(fabric, answer):
    seen = values(through_nvml(f"fabric={fabric}", "fabric_health=0x500" if fabric == "in_progress" else "numa=0"))
    assert seen["discovery.gpu.fabric"] == answer


def test_a_gpu_without_nvlink_has_none_and_that_is_an_answer():
    assert values(through_nvml("nvlinks=0", "fabric=not_supported"))["discovery.gpu.nvlinks"] == 0


def broken(driver: Driver) -> None:
    driver.nvmlDeviceGetCount = refusing(pynvml.NVMLError_Unknown())


def old(driver: Driver) -> None:
    driver.nvmlDeviceGetCurrentClocksEventReasons = refusing(AttributeError("no such function"))


def older(driver: Driver) -> None:
    """It refuses a field that it does not know with the whole question."""
    driver.nvmlDeviceGetFieldValues = refusing(pynvml.NVMLError_InvalidArgument())


def refusing(error: Exception) -> Callable[..., None]:
    def refuse(*_: object) -> None:
        raise error

    return refuse


@shows_failing("discovery.gpu.answering")
@for_each(
    (["gpu1.lost=1"], None, {"answering": FAIL, "ecc": OPEN}),
    (["gpus=1", "gpu0.mig=on"], None, {"answering": FAIL, "mig": FAIL}),  # also where Slurm counts its slices
    ([], broken, {"answering": OPEN}),
    ([], old, {"answering": PASS, "slowdown": OPEN}),
    ([], older, {"answering": PASS, "recovery_action": PASS}),
)
def test_a_driver_that_does_not_answer_for_a_gpu_is_unknown_or_lacks_it_and_is_no_crash(changes, how, expected):
    with driver_of(*changes) as driver:
        if how is not None:
            how(driver)
        by_gate = outcomes(told_by(lambda probe: nvml.read(probe, driver)))
    assert {gate: by_gate[gate] for gate in expected} == expected


def test_a_tool_that_is_absent_leaves_everything_unknown():
    by_gate = outcomes(through_smi(**dict.fromkeys(SMI)))
    assert by_gate.pop("count") is PASS
    assert set(by_gate.values()) == {OPEN}


@shows_failing("discovery.gpu.distinct", "discovery.gpu.driver")
def test_nodes_are_compared_by_their_uuids_and_their_driver():
    facts = []
    for node, gpus, driver in (("n0", "ad", "570.86"), ("n1", "ab", "550.54"), ("n2", "ce", "570.86")):
        of_node = {"driver": driver, "count": 2, "answering": 2}
        facts += [(f"discovery.gpu.{name}", node, value) for name, value in of_node.items()]
        facts += [("discovery.gpu.model", f"{node}/GPU-{gpu}", "H100") for gpu in gpus]
    by_gate = judged(facts)
    assert [by_gate[f"discovery.gpu.distinct {node}"].value for node in ("n0", "n1", "n2")] == [1, 1, 0]
    assert [by_gate[f"discovery.gpu.driver {node}"].outcome for node in ("n0", "n1", "n2")] == [PASS, FAIL, PASS]


def test_uuids_of_many_nodes_are_compared_in_linear_time():
    """Each node was compared with every GPU of all nodes. Counted in lines of Python, not in seconds."""

    def lines_run(count: int) -> int:
        gpus = (f"n{node}/GPU-{node}-{gpu}" for node in range(count) for gpu in range(8))
        parsed = parsed_of(("discovery.gpu.model", gpu, "H100") for gpu in gpus)
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
