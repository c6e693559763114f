"""NVIDIA's diagnostic: its answers of two versions, real ones and those of the stand-in, down to the verdict."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bringup.evidence import dcgm, facts
from bringup.evidence.parsed import Parsed
from bringup.records import Verdict
from programs import program, ran
from runs_for_tests import FAIL, FIXTURES, OPEN, PASS, WARN, in_words, judged
from showing import shows_failing
from simulated_tools import PROBES, on_path

REAL = FIXTURES / "dcgm"
ALL = ("failed", "doubtful", "gpus")


def read(name: str, *other: str) -> Parsed:
    """A real answer, as n1 gave it. other: what stands in it, and what is there now."""
    parsed = dcgm.parse((REAL / name).read_text().replace(*(other or ("", ""))), f"raw/{name}", "n1")
    assert parsed.problems == []
    return parsed


def values(parsed: Parsed) -> dict[tuple[str, str], object]:
    return {(fact.quantity.removeprefix("dcgm."), fact.subject): fact.value for fact in parsed.observations}


def verdicts(parsed: Parsed, gpus: int = 1) -> dict[str, Verdict]:
    """failed, doubtful and gpus -> verdict about n1."""
    by_gate = judged(parsed, "node_sweep", ("n1",), gpus=gpus)
    return {name: by_gate[f"sweep.dcgm.{name} n1"] for name in ALL}


def probed(place: Path, level: int = 2, limit_s: int = 60, gpus: str = "4", path: str | None = None, **state: str):
    """The verdicts about a node where the stand-in answers the probe."""
    raw = place / "run/raw"
    raw.mkdir(parents=True)
    environment = on_path(place, gpus=gpus, **state) | {"RUN_DIR": str(place / "run"), "SLURMD_NODENAME": "n1"}
    done = ran(
        [sys.executable, PROBES / "dcgm.py", str(level), str(limit_s)],
        env=environment if path is None else environment | {"PATH": path},
        check=True,
    )
    parsed = facts.parse(done.stdout, "raw/dcgm.jsonl")
    for answer in raw.glob("dcgm-*.json"):
        parsed.add(dcgm.parse(answer.read_text(), f"raw/{answer.name}", "n1"))
    return verdicts(parsed, int(gpus))


def test_real_answers_are_read_test_by_test_with_the_holes_that_they_have() -> None:
    of_dcgm_4 = values(read("4.5.2-level2.json"))
    assert [of_dcgm_4[f"test.{name}", "n1/gpu0"] for name in ("software", "memory", "pcie")] == ["fail", "pass", "pass"]
    assert of_dcgm_4["gpus", "n1"] == 1
    of_dcgm_3 = values(read("3.1.0-software.json"))
    assert {of_dcgm_3["test.persistence_mode", f"n1/gpu{gpu}"] for gpu in range(8)} == {"pass"}
    assert len({quantity for quantity, _ in of_dcgm_3 if quantity.startswith("test.")}) == 10


@shows_failing("sweep.dcgm.failed", "sweep.dcgm.doubtful")
def test_what_a_real_answer_says_becomes_a_verdict_with_gpu_test_and_words() -> None:
    by_name = verdicts(read("4.2.3-level2-skipped.json"))
    assert [(by_name[name].outcome, by_name[name].value) for name in ALL] == [(FAIL, 1), (WARN, 2), (PASS, 1)]
    words = "gpu0: software fail (Persistence Mode: Persistence mode for GPU 0 is disabled."
    assert words in by_name["failed"].observed
    assert "gpu0: memory skip; gpu0: pcie skip" in by_name["doubtful"].observed
    unknown = verdicts(read("4.5.2-level2.json", '"Fail"', '"Aborted"'))["failed"]  # a status that nobody knows
    assert unknown.outcome is OPEN
    assert "gpu0: software: DCGM says 'aborted'" in (unknown.cause or "")


@pytest.mark.parametrize("version", ["3.3.9", "4.5.2"])
def test_a_healthy_node_passes_on_all_gpus(tmp_path: Path, version: str) -> None:
    by_name = probed(tmp_path / "a run", level=3, dcgm_version=version)
    assert [verdict.outcome for verdict in by_name.values()] == [PASS] * 3
    assert by_name["gpus"].value == 4


V3, V4 = {"dcgm_version": "3.3.9"}, {"dcgm_version": "4.5.2"}
HUNG = "dcgmi diag -r 2 -j did not end in 1 s"
SKIPPED = {f"dcgm_{name}": "skip" for name in ("software", "memory", "pcie")}
ECC = "fail (A double bit ECC error was detected on GPU 3"


@pytest.mark.parametrize(
    ("how", "state", "name", "expected"),
    [
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
    ],
)
def test_a_test_that_fails_is_named_with_its_gpu_and_no_answer_is_incomplete_with_the_reason(
    tmp_path: Path, how, state, name, expected
) -> None:
    outcome, words = in_words(probed(tmp_path / "a run", **how, **state)[name])
    assert outcome is expected[0]
    assert expected[1] in words
    assert outcome not in (FAIL, WARN) or words.startswith("1 (")


@shows_failing("sweep.dcgm.gpus")
def test_a_gpu_that_dcgm_does_not_list_is_missed(tmp_path: Path) -> None:
    answer = ran(["dcgmi", "diag", "-r", "2", "-j"], env=on_path(tmp_path, gpus="3"), check=True)
    gpus = verdicts(dcgm.parse(answer.stdout, "raw/dcgm-n1.json", "n1"), 4)["gpus"]
    assert (gpus.outcome, gpus.value) == (FAIL, 3)


def test_words_in_the_place_of_json_are_the_reason_and_an_answer_without_a_test_is_none(tmp_path: Path) -> None:
    words = "echo 'Error: unable to establish a connection to the specified host: localhost'\n"
    words += "echo 'Error: Unable to connect to host engine. Host engine connection invalid/disconnected.'\nexit 231"
    tool = program(tmp_path / "bin/dcgmi", words)
    outcome, cause = in_words(probed(tmp_path / "a run", path=f"{tool.parent}:/usr/bin:/bin")["failed"])
    assert outcome is OPEN
    assert "ended with 231 and said: Error: Unable to connect to host engine." in cause
    empty = dcgm.parse('{"DCGM Diagnostic": {"version": "4.5.2", "test_categories": []}}', "raw/dcgm-n1.json", "n1")
    (answer,) = [fact for fact in empty.observations if fact.quantity == "dcgm.answer"]
    assert (answer.value, answer.why) == (None, "the answer of dcgmi holds no test")
