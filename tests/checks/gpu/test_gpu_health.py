"""What GPUs say about themselves: a fake NVML, and texts of nvidia-smi; healthy, degraded, cut off, empty, absent."""

import json
import subprocess
import sys
from types import SimpleNamespace

import nvml
import pytest
import smi
from bringup import judge
from bringup.derive.observed import derive
from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Outcome
from factory import a_run
from loops import for_each
from nvml_for_tests import HEALTHY, FakeNvml
from probing import told_by
from runs_for_tests import FIXTURES, about, add_derived, gpu_run
from showing import shows_failing


def seen(read) -> Parsed:
    """The probe's lines for node n0, as the judge reads them."""
    return add_derived(told_by(read))


def through_nvml(*gpus, **changes) -> Parsed:
    return seen(lambda probe: nvml.read(probe, FakeNvml(*(gpus or ({**HEALTHY}, {**HEALTHY, **changes})))))


def outcomes(parsed: Parsed) -> dict[str, Outcome]:
    """Gate -> outcome on n0, of the gates that only the GPUs' own words decide."""
    parsed.saw("discovery.gpu.count", "n0", 2, "count", "f")
    verdicts = judge.judge(*gpu_run(), parsed)
    return {v.gate: v.outcome for v in verdicts.verdicts if v.gate.startswith("discovery.gpu.")}


def test_healthy_gpus_pass_every_gate():
    by_gate = outcomes(through_nvml())
    assert len(by_gate) >= 11
    assert set(by_gate.values()) == {Outcome.PASS}


@pytest.mark.parametrize(
    ("changes", "gate"),
    [
        pytest.param({"ecc": 2}, "discovery.gpu.ecc", marks=shows_failing("discovery.gpu.ecc")),
        pytest.param({"pending": 1}, "discovery.gpu.remap_pending", marks=shows_failing("discovery.gpu.remap_pending")),
        pytest.param({"failed": 1}, "discovery.gpu.remap_failed", marks=shows_failing("discovery.gpu.remap_failed")),
        pytest.param({"width": 8}, "discovery.gpu.pcie", marks=shows_failing("discovery.gpu.pcie")),
        pytest.param({"links": 17}, "discovery.gpu.nvlinks", marks=shows_failing("discovery.gpu.nvlinks")),
        pytest.param({"fabric": 2}, "discovery.gpu.fabric", marks=shows_failing("discovery.gpu.fabric")),
        pytest.param({"status": 1}, "discovery.gpu.fabric", marks=shows_failing("discovery.gpu.fabric")),
        pytest.param({"reasons": 0x48}, "discovery.gpu.slowdown", marks=shows_failing("discovery.gpu.slowdown")),
        pytest.param(
            {"recoveries": 1}, "discovery.gpu.nvlink_recoveries", marks=shows_failing("discovery.gpu.nvlink_recoveries")
        ),
        pytest.param({"mig": 1}, "discovery.gpu.mig", marks=shows_failing("discovery.gpu.mig")),
        pytest.param({"memory": 79}, "discovery.gpu.memory", marks=shows_failing("discovery.gpu.memory")),
        pytest.param({"processes": 1}, "discovery.gpu.free", marks=shows_failing("discovery.gpu.free")),
        pytest.param({"name": "NVIDIA H200"}, "discovery.gpu.model", marks=shows_failing("discovery.gpu.model")),
    ],
)
def test_one_sick_gpu_fails_its_gate_alone_and_is_named(changes, gate):
    parsed = through_nvml(**changes)
    assert {name for name, outcome in outcomes(parsed).items() if outcome is not Outcome.PASS} == {gate}
    verdict = next(v for v in judge.judge(*gpu_run(), parsed).verdicts if v.gate == gate)
    assert verdict.outcome is Outcome.FAIL
    assert "GPU-b" in verdict.observed or gate in ("discovery.gpu.model", "discovery.gpu.memory")


@shows_failing("discovery.gpu.power_cap")
def test_a_lowered_power_limit_is_a_warning_and_a_raised_one_is_none():
    assert outcomes(through_nvml(power=500_000))["discovery.gpu.power_cap"] is Outcome.WARN
    assert outcomes(through_nvml(power=750_000))["discovery.gpu.power_cap"] is Outcome.PASS
    power = SMI["healthy"]["power"]
    for answer, outcome in (("700.00, 500.00", Outcome.WARN), ("700.00, [N/A]", Outcome.INCOMPLETE)):
        by_gate = outcomes(through_smi({**SMI["healthy"], "power": power.replace("700.00, 700.00", answer, 1)}))
        assert by_gate["discovery.gpu.power_cap"] is outcome


@shows_failing("discovery.gpu.clock_cap")
def test_a_lowered_clock_for_applications_is_a_warning_and_a_gpu_without_one_has_none():
    assert outcomes(through_nvml(clock=1410))["discovery.gpu.clock_cap"] is Outcome.WARN
    without = through_nvml(clock=FakeNvml.NVMLError_NotSupported("Not Supported"))
    assert outcomes(without)["discovery.gpu.clock_cap"] is Outcome.PASS
    for answer, outcome in (("1980, 1410", Outcome.WARN), ("[N/A], [N/A]", Outcome.PASS)):
        by_gate = outcomes(
            through_smi({**SMI["healthy"], "clock": SMI["healthy"]["clock"].replace("1980, 1980", answer, 1)})
        )
        assert by_gate["discovery.gpu.clock_cap"] is outcome


NO_VALUE = "Requested functionality has been deprecated"


def test_a_driver_that_retired_the_clock_for_applications_holds_no_gpu_below_it_and_says_so():
    clocks = {**SMI["healthy"], "clock": SMI["healthy"]["clock"].replace("1980, 1980", f"[{NO_VALUE}], [{NO_VALUE}]")}
    for parsed in (through_nvml(clock=FakeNvml.NVMLError_Deprecated(NO_VALUE)), through_smi(clocks)):
        assert outcomes(parsed)["discovery.gpu.clock_cap"] is Outcome.PASS
        remarks = [fact.why or "" for fact in parsed.observations if fact.quantity == "discovery.gpu.clock_cap"]
        assert any(remark.startswith("this driver has retired the question") for remark in remarks)


def test_a_clock_that_stands_beside_a_retired_default_is_unknown():
    clocks = {**SMI["healthy"], "clock": SMI["healthy"]["clock"].replace("1980, 1980", f"[{NO_VALUE}], 1410", 1)}
    assert outcomes(through_smi(clocks))["discovery.gpu.clock_cap"] is Outcome.INCOMPLETE


@pytest.mark.parametrize(("key", "quantity"), [("mig", "mig"), ("fabric", "fabric"), ("ecc", "ecc")])
def test_a_retired_question_about_health_is_incomplete_alone(key, quantity):
    """Nobody may take it for health, nor for a GPU without the thing; the other questions are answered."""
    by_gate = outcomes(through_nvml(**{key: FakeNvml.NVMLError_Deprecated(NO_VALUE)}))
    assert by_gate.pop(f"discovery.gpu.{quantity}") is Outcome.INCOMPLETE
    left = {gate for gate, outcome in outcomes(through_nvml()).items() if by_gate.get(gate, outcome) is not outcome}
    assert left == set()


def test_words_in_brackets_are_no_serial_number():
    answers = {**SMI["healthy"], "identity": f"GPU-a, [{NO_VALUE}], [GPU is lost]\nGPU-b, 1, 2\n"}
    facts = {(fact.subject, fact.quantity): fact.value for fact in through_smi(answers).observations}
    own = [value for (gpu, name), value in facts.items() if gpu.endswith("GPU-a") and "inventory.gpu" in name]
    assert own == [None, None]


@shows_failing("discovery.gpu.ecc_mode")
def test_memory_errors_that_are_not_corrected_are_a_warning_and_what_a_gpu_lacks_is_none():
    for mode, outcome in (((0, 0), Outcome.WARN), ((1, 0), Outcome.WARN), ((1, 1), Outcome.PASS)):
        assert outcomes(through_nvml(ecc_mode=mode))["discovery.gpu.ecc_mode"] is outcome, mode
    lacking = FakeNvml.NVMLError_NotSupported("Not Supported")
    assert outcomes(through_nvml(ecc_mode=lacking))["discovery.gpu.ecc_mode"] is Outcome.PASS
    by_gate = outcomes(through_smi({**SMI["healthy"], "ecc": "GPU-a, Disabled\nGPU-b, [N/A]\n"}))
    assert by_gate["discovery.gpu.ecc_mode"] is Outcome.WARN


@shows_failing("discovery.gpu.persistence")
def test_a_driver_that_is_not_kept_loaded_is_a_warning():
    assert outcomes(through_nvml(persistence=0))["discovery.gpu.persistence"] is Outcome.WARN


@pytest.mark.parametrize(
    ("changes", "gate"),
    [
        pytest.param(
            {"replays": 3}, "discovery.gpu.nvlink_replays", marks=shows_failing("discovery.gpu.nvlink_replays")
        ),
        pytest.param(
            {"corrected": 5000}, "discovery.gpu.ecc_corrected", marks=shows_failing("discovery.gpu.ecc_corrected")
        ),
        pytest.param(
            {"rows": (9, 0)},
            "discovery.gpu.remapped_corrected",
            marks=shows_failing("discovery.gpu.remapped_corrected"),
        ),
        pytest.param(
            {"rows": (0, 9)},
            "discovery.gpu.remapped_uncorrected",
            marks=shows_failing("discovery.gpu.remapped_uncorrected"),
        ),
        pytest.param(
            {"crc": 2}, "discovery.gpu.nvlink_crc_errors", marks=shows_failing("discovery.gpu.nvlink_crc_errors")
        ),
    ],
)
def test_errors_that_the_hardware_corrected_itself_are_a_warning(changes, gate):
    by_gate = outcomes(through_nvml(**changes))
    assert {name: outcome for name, outcome in by_gate.items() if outcome is not Outcome.PASS} == {gate: Outcome.WARN}


def test_a_counter_that_this_generation_has_not_got_is_unknown_and_not_zero():
    parsed = through_nvml(recoveries=FakeNvml.NVMLError_NotSupported("Not Supported"))
    by_gate = outcomes(parsed)
    assert {gate for gate, outcome in by_gate.items() if outcome is not Outcome.PASS} == {
        "discovery.gpu.nvlink_recoveries"
    }
    assert by_gate["discovery.gpu.nvlink_recoveries"] is Outcome.INCOMPLETE


def test_nvlink_5_counts_in_fields_of_its_own():
    """B200 and GB200 refuse the old question: three incomplete gates on every node, for ever."""
    refused = FakeNvml.NVMLError_NotSupported("Not Supported")
    old, healthy = {"recoveries": refused, "crc": refused}, {206: 0, 208: 0, 215: 0}
    assert set(outcomes(through_nvml(**old, fields=healthy)).values()) == {Outcome.PASS}
    for field, gate, outcome in (
        (215, "discovery.gpu.nvlink_recoveries", Outcome.FAIL),
        (206, "discovery.gpu.nvlink_crc_errors", Outcome.WARN),
        (208, "discovery.gpu.nvlink_crc_errors", Outcome.WARN),
    ):
        assert outcomes(through_nvml(**old, fields={**healthy, field: 7}))[gate] is outcome
        lacking = {number: 0 for number in healthy if number != field}
        assert outcomes(through_nvml(**old, fields=lacking))[gate] is Outcome.INCOMPLETE


def test_links_that_are_down_count_no_errors_and_that_is_no_health():
    parsed = through_nvml(links=0)
    errors = {
        fact.quantity: (fact.value, fact.why)
        for fact in parsed.observations
        if fact.subject == "n0/GPU-b" and fact.quantity.startswith("discovery.gpu.nvlink_")
    }
    assert set(errors.values()) == {(None, "no NVLink is up, so that none counts errors")}
    assert len(errors) == 3


def test_what_a_gpu_does_not_say_is_incomplete_and_not_healthy():
    by_gate = outcomes(through_nvml(ecc=FakeNvml.NVMLError("GPU is lost")))
    assert {gate for gate, outcome in by_gate.items() if outcome is not Outcome.PASS} == {"discovery.gpu.ecc"}
    assert by_gate["discovery.gpu.ecc"] is Outcome.INCOMPLETE


def test_a_gpu_without_a_fabric_or_nvlink_says_so():
    parsed = through_nvml(fabric=FakeNvml.NVMLError_NotSupported("no"), links=FakeNvml.NVMLError_NotSupported("no"))
    values = {fact.quantity: fact.value for fact in parsed.observations if fact.subject == "n0/GPU-b"}
    assert (values["discovery.gpu.fabric"], values["discovery.gpu.nvlinks"]) == ("not supported", 0)


@for_each(
    ("state", "status", "answer"),
    [
        (0, 999, "not supported"),
        (1, 999, "not started"),
        (2, 999, "in progress"),
        (3, 0, "completed"),
        (3, 999, "completed with status 999"),
        (7, 999, "state 7"),
    ],
)
def test_the_status_of_a_fabric_says_nothing_before_its_state_is_completed(state, status, answer):
    values = {fact.quantity: fact.value for fact in through_nvml(fabric=state, status=status).observations}
    assert values["discovery.gpu.fabric"] == answer


@shows_failing("discovery.gpu.answering")
def test_a_gpu_that_does_not_answer_fails_the_count_and_nothing_else_is_judged():
    by_gate = outcomes(through_nvml({**HEALTHY}, {**HEALTHY, "name": FakeNvml.NVMLError("GPU is lost")}))
    assert by_gate["discovery.gpu.answering"] is Outcome.FAIL
    assert by_gate["discovery.gpu.ecc"] is Outcome.INCOMPLETE


def test_a_driver_that_cannot_count_its_gpus_is_unknown():
    class Broken(FakeNvml):
        def nvmlDeviceGetCount(self):
            raise self.NVMLError("Unknown Error")

    assert outcomes(seen(lambda probe: nvml.read(probe, Broken())))["discovery.gpu.answering"] is Outcome.INCOMPLETE


def test_an_old_pynvml_is_unknown_and_no_crash():
    class Old(FakeNvml):
        def __getattr__(self, function):
            if function == "nvmlDeviceGetCurrentClocksEventReasons":
                raise AttributeError(function)
            return super().__getattr__(function)

    parsed = seen(lambda probe: nvml.read(probe, Old({**HEALTHY}, {**HEALTHY})))
    assert outcomes(parsed)["discovery.gpu.slowdown"] is Outcome.INCOMPLETE


@shows_failing("discovery.gpu.distinct")
def test_a_uuid_on_two_nodes_fails_on_both():
    parsed = Parsed()
    for node, gpus in (("n0", "ad"), ("n1", "ab"), ("n2", "ce")):
        for gpu in gpus:
            parsed.saw("discovery.gpu.model", f"{node}/GPU-{gpu}", "H100", "text", "f:1")
        parsed.saw("discovery.gpu.count", node, 2, "count", "f:1")
        parsed.saw("discovery.gpu.answering", node, 2, "count", "f:1")
    run = a_run(nodes=["n0", "n1", "n2"])
    verdicts = about("discovery.gpu.distinct", add_derived(parsed, run), run, "h100-8x400g")
    assert {node: verdict.value for node, verdict in verdicts.items()} == {"n0": 1, "n1": 1, "n2": 0}


def test_uuids_of_many_nodes_are_compared_in_linear_time():
    """Each node was compared with every GPU of all nodes. Counted in lines of Python, not in seconds."""

    def lines_run(count: int) -> int:
        parsed = Parsed()
        for node in range(count):
            for gpu in range(8):
                parsed.saw("discovery.gpu.model", f"n{node}/GPU-{node}-{gpu}", "H100", "text", "f:1")
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


@shows_failing("discovery.gpu.driver")
def test_a_node_with_another_driver_is_the_odd_one():
    run, parsed = a_run(nodes=["n0", "n1", "n2"]), Parsed()
    for node, driver in (("n0", "570.86"), ("n1", "550.54"), ("n2", "570.86")):
        parsed.saw("discovery.gpu.driver", node, driver, "text", "f:1")
    verdicts = about("discovery.gpu.driver", parsed, run, "h100-8x400g")
    assert {node: verdict.outcome for node, verdict in verdicts.items()} == {
        "n0": Outcome.PASS,
        "n1": Outcome.FAIL,
        "n2": Outcome.PASS,
    }


# ---- nvidia-smi

SMI = json.loads((FIXTURES / "nvidia-smi.json").read_text())


def through_smi(answers, kept=None) -> Parsed:
    def run(command, **_):
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
        }
        name = next((name for word, name in words.items() if word in command[1]), "gpu")
        answer = answers[name]
        if answer is None:
            raise FileNotFoundError("nvidia-smi")
        if answer.startswith("Field "):
            raise subprocess.CalledProcessError(2, command, output=answer)
        return SimpleNamespace(stdout=answer)

    return seen(
        lambda probe: smi.read(probe, lambda name, text: (kept if kept is not None else {}).update({name: text}), run)
    )


def test_nvidia_smi_says_the_same_as_nvml():
    kept: dict[str, str] = {}
    by_smi = {(fact.subject, fact.quantity): fact.value for fact in through_smi(SMI["healthy"], kept).observations}
    by_nvml = {(fact.subject, fact.quantity): fact.value for fact in through_nvml().observations}
    only_nvml = {
        "discovery.gpu.nvlinks",
        "discovery.gpu.cuda",
        "inventory.gpu.mig_devices",
        "inventory.gpu.board",
        "discovery.gpu.nvlink_recoveries",
        "discovery.gpu.nvlink_replays",
        "discovery.gpu.nvlink_crc_errors",
    }
    assert {key: value for key, value in by_nvml.items() if key[1] not in only_nvml} == by_smi
    assert kept == SMI["healthy"]


@for_each(
    ("query", "old", "new", "gate"),
    [
        ("mig", "Disabled", "Enabled", "discovery.gpu.mig"),
        ("gpu", "81920", "40960", "discovery.gpu.memory"),
        ("gpu", "0, 3, 16, 16", "7, 3, 16, 16", "discovery.gpu.ecc"),
        ("gpu", "3, 16, 16", "3, 8, 16", "discovery.gpu.pcie"),
        ("slowdown", "0x0000000000000001", "0x0000000000000080", "discovery.gpu.slowdown"),
        ("fabric", "Completed", "In Progress", "discovery.gpu.fabric"),
        ("remapped", ", 0, 0, 0", ", 0, 1, 0", "discovery.gpu.remap_pending"),
        ("remapped", ", 0, 0, 0", ", 0, 0, 1", "discovery.gpu.remap_failed"),
        ("remapped", ", 0, 0, 0", ", 0, No, Yes", "discovery.gpu.remap_failed"),
        ("remapped", ", 0, 0, 0", ", 0, Yes, No", "discovery.gpu.remap_pending"),
    ],
)
def test_a_degraded_answer_fails_its_gate(query, old, new, gate):
    answers = {**SMI["healthy"], query: SMI["healthy"][query].replace(old, new, 1)}
    assert answers != SMI["healthy"]
    assert outcomes(through_smi(answers))[gate] is Outcome.FAIL


@for_each("words", ["No, No", "no, no", "Not Active, Not Active", "Disabled, Disabled", "0, 0"])
def test_a_healthy_flag_passes_in_every_spelling(words):
    """--query-remapped-rows answers Yes and No, and was read as a number: both gates were unknown on healthy GPUs."""
    remapped = SMI["healthy"]["remapped"].replace("0, 0, 0", f"0, {words}")
    by_gate = outcomes(through_smi({**SMI["healthy"], "remapped": remapped}))
    assert by_gate["discovery.gpu.remap_pending"] is by_gate["discovery.gpu.remap_failed"] is Outcome.PASS


def test_a_flag_in_a_word_that_nobody_knows_is_unknown():
    remapped = SMI["healthy"]["remapped"].replace("0, 0, 0", "0, Perhaps, 0", 1)
    assert (
        outcomes(through_smi({**SMI["healthy"], "remapped": remapped}))["discovery.gpu.remap_pending"]
        is Outcome.INCOMPLETE
    )


def test_what_is_above_its_greatest_value_has_lost_nothing():
    """A width of 16 lanes of 8, or a power limit above the default."""
    answers = {**SMI["healthy"], "power": "GPU-a, 700.00, 750.00\nGPU-b, 700.00, 700.00\n"}
    answers["gpu"] = SMI["healthy"]["gpu"].replace("0, 3, 16, 16, 5", "0, 3, 16, 8, 5")
    facts = through_smi(answers).observations
    for quantity in ("discovery.gpu.power_cap", "discovery.gpu.pcie"):
        of_gpus = [fact.value for fact in facts if fact.quantity == quantity and "/" in fact.subject]
        assert of_gpus == [0, 0], quantity


def test_a_foreign_process_is_found():
    assert outcomes(through_smi({**SMI["healthy"], "processes": "GPU-b, 4711\n"}))["discovery.gpu.free"] is Outcome.FAIL


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) * 2 // 3],
        lambda text: "No devices were found\n",
        lambda text: text.replace("H100 ", "H100, "),  # a name that counts as two columns moves all behind it
    ],
)
def test_a_cut_off_shifted_or_empty_answer_is_never_all_gpus(damage):
    by_gate = outcomes(through_smi({**SMI["healthy"], "gpu": damage(SMI["healthy"]["gpu"])}))
    assert by_gate["discovery.gpu.answering"] is Outcome.FAIL
    assert by_gate["discovery.gpu.ecc"] is Outcome.INCOMPLETE


@pytest.mark.parametrize(
    ("query", "gate"),
    [
        ("slowdown", "discovery.gpu.slowdown"),
        ("fabric", "discovery.gpu.fabric"),
        ("remapped", "discovery.gpu.remap_failed"),
    ],
)
def test_a_gpu_that_one_answer_leaves_out_is_incomplete_there_and_not_as_well_as_the_others(query, gate):
    whole = SMI["healthy"][query].splitlines(True)
    by_gate = outcomes(through_smi({**SMI["healthy"], query: "".join(whole[:-1])}))
    assert by_gate[gate] is Outcome.INCOMPLETE
    assert by_gate["discovery.gpu.ecc"] is Outcome.PASS


@pytest.mark.parametrize("answer", ["GPU-b", "[GPU requires reset], 4711\n", "Unable to determine the processes\n"])
def test_a_list_of_processes_that_cannot_be_read_is_not_a_free_gpu(answer):
    assert outcomes(through_smi({**SMI["healthy"], "processes": answer}))["discovery.gpu.free"] is Outcome.INCOMPLETE


@shows_failing("discovery.gpu.left")
def test_memory_of_a_gpu_without_a_process_is_a_warning_and_that_of_a_process_is_none():
    def of(by_gate):
        return by_gate["discovery.gpu.left"]

    assert of(outcomes(through_nvml(used=8))) is Outcome.WARN
    assert of(outcomes(through_nvml(used=1.5))) is Outcome.PASS  # the driver's, and that of MPS
    assert of(outcomes(through_nvml(used=8, processes=1))) is Outcome.PASS  # discovery.gpu.free fails
    for answer, outcome in (("8192", Outcome.WARN), ("614", Outcome.PASS), ("[N/A]", Outcome.INCOMPLETE)):
        used = SMI["healthy"]["used"].replace("614", answer)
        assert of(outcomes(through_smi({**SMI["healthy"], "used": used}))) is outcome


def test_a_tool_that_is_absent_leaves_everything_unknown():
    by_gate = outcomes(through_smi(dict.fromkeys(SMI["healthy"])))
    assert by_gate.pop("discovery.gpu.count") is Outcome.PASS
    assert set(by_gate.values()) == {Outcome.INCOMPLETE}


@pytest.mark.parametrize(
    ("query", "gate", "whole"),
    [("mig", "discovery.gpu.mig", "Disabled"), ("fabric", "discovery.gpu.fabric", "Completed")],
)
def test_what_a_gpu_has_not_got_is_an_answer_and_a_gpu_that_does_not_answer_is_none(query, gate, whole):
    for word, outcome in (
        ("[N/A]", Outcome.PASS),
        ("[Not Supported]", Outcome.PASS),
        ("[GPU requires reset]", Outcome.INCOMPLETE),
        ("[Unknown Error]", Outcome.INCOMPLETE),
        ("ERR!", Outcome.INCOMPLETE),
    ):
        by_gate = outcomes(through_smi({**SMI["healthy"], query: SMI["healthy"][query].replace(whole, word, 1)}))
        assert by_gate[gate] is outcome, word


def test_mig_fails_even_where_slurm_counts_its_slices():
    by_gate = outcomes(seen(lambda probe: nvml.read(probe, FakeNvml({**HEALTHY, "mig": 1}))))
    assert by_gate["discovery.gpu.answering"] is Outcome.FAIL  # one GPU, and Slurm says two
    assert by_gate["discovery.gpu.mig"] is Outcome.FAIL


def test_a_field_that_this_version_does_not_know_leaves_the_others():
    by_gate = outcomes(
        through_smi({**SMI["healthy"], "fabric": 'Field "fabric.state" is not a valid field to query.\n'})
    )
    assert by_gate["discovery.gpu.fabric"] is Outcome.INCOMPLETE
    assert by_gate["discovery.gpu.ecc"] is Outcome.PASS


def test_what_is_not_available_is_unknown():
    answers = {**SMI["healthy"], "gpu": SMI["healthy"]["gpu"].replace("0, 3, 16, 16", "[N/A], [N/A], 16, 16")}
    assert outcomes(through_smi(answers))["discovery.gpu.ecc"] is Outcome.INCOMPLETE
