"""Every node by itself: the same bits, a load that lasts, collectives inside, and the diagnostic of NVIDIA."""

import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import node_sweep
import nvml
import pytest
import seeded_step
import sustained_load
import torch
from bringup.kernel import judge
from bringup.kernel.facts import facts
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.records import Outcome, Value, Verdict
from bringup.readers import dcgm
from loops import case_for_each, for_each
from nvml_for_tests import driver_of
from probing import answers_of
from programs import PROBES, on_path, program, ran
from runs_for_tests import FAIL, FIXTURES, H100, OPEN, PASS, WARN, Fact, failing, judged
from showing import check, check_each, shows_failing

NODES = ("n0", "n1", "n2")
TWO = ("n0", "n1")
CPU = torch.device("cpu")


def verdicts(facts: Iterable[Fact], profile_name: str = H100, nodes: tuple[str, ...] = NODES) -> dict[str, Verdict]:
    """`gate subject` -> verdict, of nodes with as many GPUs as the facts name."""
    facts = list(facts)
    devices = {subject for _, subject, *_ in facts if "/GPU" in subject or "/task" in subject}
    gpus = max(sum(device.startswith(f"{node}/") for device in devices) for node in nodes) or 1
    return judged(facts, "node_sweep", nodes, gpus=gpus, profile_name=profile_name)


def of(quantity: str, *values: Value | None, gpus: int = 2, first: int = 0) -> list[Fact]:
    """What GPU-0 and GPU-1 of n0 say, then of n1, and so on."""
    places = [(f"n{first + place // gpus}/GPU-{place % gpus}", value) for place, value in enumerate(values)]
    return [(f"sweep.gpu.{quantity}", subject, value) for subject, value in places]


def ended(nodes: tuple[str, ...] = NODES) -> list[Fact]:
    devices = len(nodes) * 2
    parts = ("sweep_device", "seeded_step", "sustained_load", "node_sweep")
    finished = [(f"probe.{part}.finished", node, True) for part in parts for node in nodes for _ in range(2)]
    return [*of("device", *["cuda"] * devices), *of("device.fallback", *[0] * devices), *finished]


def steps(*letters: str, where: str = "gpu", kinds: str = "HHH") -> list[Fact]:
    """What the repetitions of the device of each node gave: one letter each."""
    facts = []
    for place, (word, kind) in enumerate(zip(letters, kinds, strict=False)):
        facts.append((f"sweep.gpu.step.{where}.kind", f"n{place}/GPU-0", kind))
        facts += [(f"sweep.gpu.step.{where}", f"n{place}/GPU-0", letter) for letter in word]
    return facts


WITHOUT_ONE = [fact for place, fact in enumerate(ended()) if place != len(ended()) - 3]  # n1's last part of a rank
ON_CPU = [*of("device", "cuda", "cuda", "cuda", "cpu"), *of("device.fallback", 0, 0, 0, 1)]
RIGHT = {what: [*ended(), *of(f"{what}.wrong_values", *[0] * 6)] for what in ("load", "inside")}
SPEEDS = of("load.tflops", 700.0, 700.0, 500.0, 690.0, 710.0, 710.0)
ROWS: list[tuple[str, Outcome, str, list[Fact]]] = [
    ("ranks n0", PASS, "", WITHOUT_ONE),
    ("ranks n1", FAIL, "node_sweep: 1 finished", WITHOUT_ONE),
    ("device n0", PASS, "", ON_CPU),
    ("device n1", FAIL, "cpu", ON_CPU),
    ("device.fallback n0", PASS, "", ON_CPU),
    ("device.fallback n1", FAIL, "GPU-1", ON_CPU),
    *((f"step.gpu {node}", PASS, "", steps("xxx", "xxx", "xxx")) for node in NODES),
    ("step.gpu n0", PASS, "", steps("xxx", "yyy", "xxx")),
    ("step.gpu n1", FAIL, "GPU-0 differs from 2 of 3 of its kind", steps("xxx", "yyy", "xxx")),
    ("step.cpu n0", FAIL, "1 (GPU-0 differs from itself)", steps("xxy", where="cpu")),  # that needs no peer
    *((f"step.gpu {node}", PASS, "", steps("xxx", "xxx", "yyy", kinds="HHA")) for node in NODES),
    *((f"step.gpu {node}", FAIL, "no majority", steps("xxx", "yyy")) for node in TWO),
    ("step.gpu n1", OPEN, "", [*steps("xxx", "xxx"), ("sweep.gpu.step.gpu", "n1/GPU-1", None)]),
    ("step.gpu n1", OPEN, "", [*steps("xxx", "xxx"), ("sweep.gpu.step.gpu", "n0/GPU-1", "x")]),  # it said nothing
    ("load.drift n0", PASS, "", [*ended(), *of("load.drift", 0.99, 0.98, 0.7)]),
    ("load.drift n1", FAIL, "GPU-0", [*ended(), *of("load.drift", 0.99, 0.98, 0.7)]),
    ("load.peers n0", PASS, "", RIGHT["load"] + SPEEDS),
    ("load.peers n1", FAIL, "500 TFLOP/s, the median of 3 nodes is 700", RIGHT["load"] + SPEEDS),
    ("load.peers n2", PASS, "", RIGHT["load"] + SPEEDS),
    *(
        (f"{what}.wrong_values {node}", outcome, says, [*ended(), *of(f"{what}.wrong_values", 0, 0, *of_n1)])
        for what in ("load", "inside")
        for node, outcome, says, of_n1 in (
            ("n0", PASS, "", (0, 3)),
            ("n1", FAIL, "3 (on GPU-1)", (0, 3)),
            ("n1", OPEN, "not found out: 1 of 2 answered", (0,)),
            ("n1", OPEN, "", (0, None)),
        )
    ),
    ("load.pcie n0", PASS, "", of("load.pcie", 0, 0, 0, 1)),
    ("load.pcie n1", FAIL, "1 (on GPU-1)", of("load.pcie", 0, 0, 0, 1)),
    ("load.pcie n0", OPEN, "", of("load.pcie", 0, None, 0)),
    ("load.pcie n1", OPEN, "", of("load.pcie", 0, None, 0)),
]


@shows_failing(*failing(ROWS, "sweep."))
@for_each(*ROWS)
def test_what_the_devices_of_a_node_say_decides_its_gate(which, outcome, says, facts):
    verdict = verdicts(facts)[f"sweep.{which}"]
    check(verdict, outcome, says)
    assert not (which.startswith("load.pcie") and outcome is OPEN and judge.stops(verdict))


INSIDE = [*ended(TWO), *of("inside.wrong_values", *[0] * 4)]


@shows_failing("sweep.inside.busbw", "sweep.inside.peers")
@for_each(
    ("local-cpu", (0.002, 0.002), [FAIL, FAIL], [PASS, PASS]),  # equally slow: the floor and not each other
    (H100, (300.0, 450.0), None, [FAIL, PASS]),  # of two, the slower one is compared with the faster one
)
def test_collectives_inside_a_node_have_a_floor_and_peers(profile_name, speeds, busbw, peers):
    facts = [*INSIDE, *(("sweep.inside.busbw", node, speed) for node, speed in zip(TWO, speeds, strict=True))]
    by_gate = verdicts(facts, profile_name, TWO)
    assert [by_gate[f"sweep.inside.peers {node}"].outcome for node in TWO] == peers
    assert busbw is None or [by_gate[f"sweep.inside.busbw {node}"].outcome for node in TWO] == busbw


# ---- the load, and the PCIe link under it


def pcie(watched, why: str = "") -> tuple[Value | None, str]:
    return answers_of(lambda facts: node_sweep.say_pcie(facts, "n0/GPU-a", watched, why))["sweep.gpu.load.pcie"]


@for_each(
    ([], 0, "generation 5 of 5, 16 of 16 lanes"),
    (["gpu0.pcie_generation=3"], 1, "generation 3 of 5, 16 of 16 lanes"),
    (["gpu0.pcie_width=8"], 1, "generation 5 of 5, 8 of 16 lanes"),
)
def test_the_link_is_asked_for_while_the_device_is_busy(changes, slow, says):
    with driver_of("gpu0.pcie_generation=1") as driver:
        ask = nvml.link_of(driver, driver.nvmlDeviceGetHandleByIndex(0))

        def busy() -> object:  # idle it was of generation 1
            driver.becomes("gpu0.pcie_generation=5", *changes)
            return ask()

        assert pcie(sustained_load.run(torch, CPU, 0, None, busy).watched) == (slow, says)


def test_a_moment_of_rest_is_not_a_slow_link_and_a_link_that_fell_back_for_good_is():
    full, less = ((5, 16), (5, 16)), ((1, 16), (5, 16))
    windows = [(float(second), 100.0) for second in range(9)]
    for watched, slow in (([less, *[full] * 7, less], 0), ([*[full] * 6, less, less, less], 1), ([], None)):
        assert pcie(sustained_load.Load(windows, 0, watched).watched, "no pynvml")[0] == slow


def test_a_link_of_which_nvml_says_nothing_is_unknown_and_the_load_goes_on(monkeypatch):
    """The error once ended the rank, and with it all that the node said."""
    with driver_of() as driver:
        ask = nvml.link_of(driver, driver.nvmlDeviceGetHandleByIndex(0))
        driver.becomes("gpu0.lost=1")
        watched = sustained_load.run(torch, CPU, 0, None, ask).watched
    assert pcie(watched) == (None, "NVML did not say it under load")
    monkeypatch.setattr(nvml, "library", lambda: (None, "pynvml is not installed"))
    assert nvml.pcie_links("GPU-a") == (None, "pynvml is not installed")


def test_drift_compares_the_ends_of_the_time_and_leaves_the_warm_up_out():
    assert sustained_load.Load([(0.0, 10.0), *[(float(second), 100.0) for second in range(1, 30)]], 0).drift == 1.0
    fading = [(float(second), 100.0 if second < 15 else 60.0) for second in range(30)]
    assert sustained_load.Load(fading, 0).drift == 0.6
    slow_at_once = [(0.0, 100.0), (1.0, 100.0), (2.0, 100.0), (3.0, 5.0)]  # one long window at the end
    assert sustained_load.Load(slow_at_once, 0).drift == 0.05


def test_the_load_on_this_machine_multiplies_rightly():
    load = sustained_load.run(torch, CPU, 0, None)
    assert load.wrong == 0
    assert load.tflops > 0
    assert sustained_load.run(torch, CPU, 0, "wrong").wrong > 0


# ---- the seeded step


def test_every_repetition_gives_the_same_bits_and_one_bit_of_one_gradient_is_seen():
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    digests = seeded_step.digests(torch, CPU, spoiled=False)
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before
    assert (len(digests), len(set(digests))) == (seeded_step.REPEATS, 1)
    *right, spoiled = seeded_step.digests(torch, CPU, spoiled=True)
    assert set(right) == set(digests)
    assert spoiled != right[0]
    assert spoiled.split(" gradients ")[0] == right[0].split(" gradients ")[0]


@for_each((40, seeded_step.LARGE, ""), (2, seeded_step.SMALL, ", small steps"))
def test_a_part_of_a_gpu_makes_small_steps_and_is_compared_with_its_kind(gib, shape, end):
    gpu = SimpleNamespace(name="A100", multi_processor_count=14, major=8, minor=0, total_memory=gib * 2**30)
    cuda = SimpleNamespace(get_device_properties=lambda device: gpu)
    mine = SimpleNamespace(cuda=cuda, __version__="2", version=SimpleNamespace(cuda="13.0"))
    device = torch.device("cuda", 0)
    assert seeded_step.shape(mine, device) == shape
    assert seeded_step.kind(mine, device) == f"A100, 14 SMs, compute 8.0, torch 2, CUDA 13.0{end}"


# ---- NVIDIA's diagnostic: its answers of two versions, real ones and those of the stand-in

ALL = ("failed", "doubtful", "gpus")


def read(name: str, *other: str) -> Parsed:
    """A real answer, as n1 gave it. other: what stands in it, and what is there now."""
    parsed = dcgm.parse((FIXTURES / "dcgm" / name).read_text().replace(*(other or ("", ""))), f"raw/{name}", "n1")
    assert parsed.problems == []
    return parsed


def values(parsed: Parsed) -> dict[tuple[str, str], object]:
    return {(fact.quantity.removeprefix("dcgm."), fact.subject): fact.value for fact in parsed.observations}


def of_dcgm(parsed: Parsed, gpus: int = 1) -> dict[str, Verdict]:
    """failed, doubtful and gpus -> verdict about n1."""
    by_gate = judged(parsed, "node_sweep", ("n1",), gpus=gpus)
    return {name: by_gate[f"sweep.dcgm.{name} n1"] for name in ALL}


def probed(place: Path, level: int = 2, limit_s: int = 60, gpus: str = "4", path: str | None = None, **state: str):
    """The of_dcgm about a node where the stand-in answers the probe."""
    raw = place / "run/raw"
    raw.mkdir(parents=True)
    environment = on_path(place, gpus=gpus, **state) | {"RUN_DIR": str(place / "run"), "SLURMD_NODENAME": "n1"}
    command = [sys.executable, PROBES / "dcgm.py", str(level), str(limit_s)]
    done = ran(command, env=environment if path is None else environment | {"PATH": path}, check=True)
    parsed = facts.parse(done.stdout, "raw/dcgm.jsonl")
    for answer in raw.glob("dcgm-*.json"):
        parsed.add(dcgm.parse(answer.read_text(), f"raw/{answer.name}", "n1"))
    return of_dcgm(parsed, int(gpus))


def test_real_answers_are_read_test_by_test_with_the_holes_that_they_have():
    of_dcgm_4 = values(read("4.5.2-level2.json"))
    assert [of_dcgm_4[f"test.{name}", "n1/gpu0"] for name in ("software", "memory", "pcie")] == ["fail", "pass", "pass"]
    assert of_dcgm_4["gpus", "n1"] == 1
    of_dcgm_3 = values(read("3.1.0-software.json"))
    assert {of_dcgm_3["test.persistence_mode", f"n1/gpu{gpu}"] for gpu in range(8)} == {"pass"}
    assert len({quantity for quantity, _ in of_dcgm_3 if quantity.startswith("test.")}) == 10


@shows_failing("sweep.dcgm.failed", "sweep.dcgm.doubtful")
def test_what_a_real_answer_says_becomes_a_verdict_with_gpu_test_and_words():
    by_name = of_dcgm(read("4.2.3-level2-skipped.json"))
    assert [by_name[name].value for name in ALL] == [1, 2, 1]
    words = "gpu0: software fail (Persistence Mode: Persistence mode for GPU 0 is disabled."
    check_each(by_name.values(), (FAIL, words), (WARN, "gpu0: memory skip; gpu0: pcie skip"), PASS)
    unknown = of_dcgm(read("4.5.2-level2.json", '"Fail"', '"Aborted"'))["failed"]  # a status that nobody knows
    check(unknown, OPEN, "gpu0: software: DCGM says 'aborted'")


@pytest.mark.parametrize("version", ["3.3.9", "4.5.2"])
def test_a_healthy_node_passes_on_all_gpus(tmp_path, version):
    by_name = probed(tmp_path / "a run", level=3, dcgm_version=version)
    assert [verdict.outcome for verdict in by_name.values()] == [PASS] * 3
    assert by_name["gpus"].value == 4


V3, V4 = {"dcgm_version": "3.3.9"}, {"dcgm_version": "4.5.2"}
HUNG = "dcgmi diag -r 2 -j did not end in 1 s"
SKIPPED = {f"dcgm_{name}": "skip" for name in ("software", "memory", "pcie")}
ECC = "fail (A double bit ECC error was detected on GPU 3"


@case_for_each(
    ({}, {**V3, "dcgm_memory": "fail:gpu3"}, "failed", (FAIL, f"gpu3: gpu_memory {ECC}")),
    ({}, {**V4, "dcgm_memory": "fail:gpu3"}, "failed", (FAIL, f"gpu3: memory {ECC}")),
    ({"level": 1}, {**V3, "dcgm_software": "fail:gpu2"}, "failed", (FAIL, "gpu2: persistence_mode fail (Persis")),
    ({"level": 1}, {"dcgm_memory": "fail"}, "failed", (PASS, "")),  # that level was not asked for
    ({}, {"dcgm_memory": "doubt:gpu1"}, "doubtful", (WARN, "gpu1: memory pass with a warning")),
    ({}, {"dcgm_error": "The hostengine is not running."}, "failed", (OPEN, "dcgmi says: The hostengine is not")),
    ({}, {"dcgm_cut": "1"}, "failed", (OPEN, "not the answer of dcgmi diag -j, or cut off")),
    ({"limit_s": 1}, {"dcgm_hang": "30"}, "failed", (OPEN, HUNG)),
    ({}, SKIPPED, "failed", (OPEN, "DCGM skipped every test")),
    ({"path": "/nonexistent"}, {}, "failed", (OPEN, "not found out: dcgmi is not installed")),
    ({"path": "/nonexistent"}, {}, "gpus", (OPEN, "dcgmi is not installed")),
)
def test_a_test_that_fails_is_named_and_no_answer_is_incomplete(tmp_path, how, state, name, expected):
    verdict = probed(tmp_path / "a run", **how, **state)[name]
    check(verdict, *expected)
    assert verdict.outcome not in (FAIL, WARN) or verdict.observed.startswith("1 (")


@shows_failing("sweep.dcgm.gpus")
def test_a_gpu_that_dcgm_does_not_list_is_missed(tmp_path):
    answer = ran(["dcgmi", "diag", "-r", "2", "-j"], env=on_path(tmp_path, gpus="3"), check=True)
    gpus = of_dcgm(dcgm.parse(answer.stdout, "raw/dcgm-n1.json", "n1"), 4)["gpus"]
    assert (gpus.outcome, gpus.value) == (FAIL, 3)


def test_words_in_the_place_of_json_are_the_reason_and_an_answer_without_a_test_is_none(tmp_path):
    words = "echo 'Error: unable to establish a connection to the specified host: localhost'\n"
    words += "echo 'Error: Unable to connect to host engine. Host engine connection invalid/disconnected.'\nexit 231"
    tool = program(tmp_path / "bin/dcgmi", words)
    failed = probed(tmp_path / "a run", path=f"{tool.parent}:/usr/bin:/bin")["failed"]
    check(failed, OPEN, "ended with 231 and said: Error: Unable to connect to host engine.")
    empty = dcgm.parse('{"DCGM Diagnostic": {"version": "4.5.2", "test_categories": []}}', "raw/dcgm-n1.json", "n1")
    (answer,) = [fact for fact in empty.observations if fact.quantity == "dcgm.answer"]
    assert (answer.value, answer.why) == (None, "the answer of dcgmi holds no test")
