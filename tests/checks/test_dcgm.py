"""NVIDIA's diagnostic: its answers of two versions, real ones and those of the stand-in, down to the verdict."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bringup import judge
from bringup.derive.observed import derive
from bringup.evidence import dcgm, facts
from bringup.evidence.parsed import Parsed, Seen
from bringup.plan import profile
from bringup.records import Outcome, Verdict
from factory import a_run
from programs import ran
from runs_for_tests import FIXTURES
from showing import shows_failing
from simulated_tools import PROBES, on_path

REAL = FIXTURES / "dcgm"


def read(name: str) -> dict[tuple[str, str], object]:
    parsed = dcgm.parse((REAL / name).read_text(), f"raw/{name}", "n1")
    assert parsed.problems == []
    return {(observation.quantity, observation.subject): observation.value for observation in parsed.observations}


def judged(parsed: Parsed, gpus: int) -> dict[str, Verdict]:
    """Gate -> verdict about n1."""
    run = a_run("node_sweep", ("n1",), gpus=gpus, profile="h100-8x400g")
    parsed.add(derive(Seen(parsed.observations), run))
    verdicts = judge.judge(run, profile.load("h100-8x400g"), parsed).verdicts
    return {verdict.gate: verdict for verdict in verdicts if verdict.gate.startswith("sweep.dcgm")}


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
    return judged(parsed, int(gpus))


def test_real_answers_of_dcgm_4_are_read_test_by_test() -> None:
    seen = read("4.5.2-level2.json")
    assert seen["dcgm.test.software", "n1/gpu0"] == "fail"
    assert seen["dcgm.test.memory", "n1/gpu0"] == "pass"
    assert seen["dcgm.test.pcie", "n1/gpu0"] == "pass"
    assert seen["dcgm.gpus", "n1"] == 1


def test_a_real_answer_of_dcgm_3_is_read_with_the_holes_that_it_has() -> None:
    seen = read("3.1.0-software.json")
    assert {seen["dcgm.test.persistence_mode", f"n1/gpu{gpu}"] for gpu in range(8)} == {"pass"}
    assert len({quantity for quantity, _ in seen if quantity.startswith("dcgm.test.")}) == 10


@shows_failing("sweep.dcgm.failed", "sweep.dcgm.doubtful")
def test_what_a_real_answer_says_becomes_a_verdict_with_gpu_test_and_words() -> None:
    by_subject = judged(dcgm.parse((REAL / "4.2.3-level2-skipped.json").read_text(), "raw/x.json", "n1"), 1)
    failed, doubtful = by_subject["sweep.dcgm.failed"], by_subject["sweep.dcgm.doubtful"]
    assert (failed.outcome, failed.value) == (Outcome.FAIL, 1)
    assert "gpu0: software fail (Persistence Mode: Persistence mode for GPU 0 is disabled." in failed.observed
    assert (doubtful.outcome, doubtful.value) == (Outcome.WARN, 2)
    assert "gpu0: memory skip; gpu0: pcie skip" in doubtful.observed
    assert by_subject["sweep.dcgm.gpus"].outcome is Outcome.PASS


@pytest.mark.parametrize("version", ["3.3.9", "4.5.2"])
def test_a_healthy_node_passes_on_all_gpus(tmp_path: Path, version: str) -> None:
    facts_by_name = probed(tmp_path / "a run", level=3, dcgm_version=version)
    assert {gate: verdict.outcome for gate, verdict in facts_by_name.items()} == dict.fromkeys(
        facts_by_name, Outcome.PASS
    )
    assert facts_by_name["sweep.dcgm.gpus"].value == 4


@pytest.mark.parametrize(("version", "name"), [("3.3.9", "gpu_memory"), ("4.5.2", "memory")])
def test_a_test_that_fails_on_one_gpu_is_named_with_it(tmp_path: Path, version: str, name: str) -> None:
    failed = probed(tmp_path / "a run", dcgm_version=version, dcgm_memory="fail:gpu3")["sweep.dcgm.failed"]
    assert (failed.outcome, failed.value) == (Outcome.FAIL, 1)
    assert f"gpu3: {name} fail (A double bit ECC error was detected on GPU 3" in failed.observed


def test_a_setting_that_fails_names_its_gpu_in_dcgm_3_too(tmp_path: Path) -> None:
    failed = probed(tmp_path / "a run", level=1, dcgm_version="3.3.9", dcgm_software="fail:gpu2")["sweep.dcgm.failed"]
    assert "gpu2: persistence_mode fail (Persistence Mode: " in failed.observed


def test_a_level_that_was_not_asked_for_is_not_missed(tmp_path: Path) -> None:
    assert probed(tmp_path / "a run", level=1, dcgm_memory="fail")["sweep.dcgm.failed"].outcome is Outcome.PASS


def test_a_pass_with_a_warning_is_doubtful(tmp_path: Path) -> None:
    doubtful = probed(tmp_path / "a run", dcgm_memory="doubt:gpu1")["sweep.dcgm.doubtful"]
    assert (doubtful.outcome, doubtful.value) == (Outcome.WARN, 1)
    assert "gpu1: memory pass with a warning" in doubtful.observed


@shows_failing("sweep.dcgm.gpus")
def test_a_gpu_that_dcgm_does_not_list_is_missed(tmp_path: Path) -> None:
    raw = tmp_path / "run/raw"
    raw.mkdir(parents=True)
    three = on_path(tmp_path, gpus="3")
    answer = ran(["dcgmi", "diag", "-r", "2", "-j"], env=three, check=True)
    by_subject = judged(dcgm.parse(answer.stdout, "raw/dcgm-n1.json", "n1"), 4)
    assert (by_subject["sweep.dcgm.gpus"].outcome, by_subject["sweep.dcgm.gpus"].value) == (Outcome.FAIL, 3)


@pytest.mark.parametrize(
    ("state", "limit_s", "why"),
    [
        ({"dcgm_error": "The hostengine is not running."}, 60, "dcgmi says: The hostengine is not running."),
        ({"dcgm_cut": "1"}, 60, "not the answer of dcgmi diag -j, or cut off"),
        ({"dcgm_hang": "30"}, 1, "dcgmi diag -r 2 -j did not end in 1 s"),
        ({"dcgm_software": "skip", "dcgm_memory": "skip", "dcgm_pcie": "skip"}, 60, "DCGM skipped every test"),
    ],
)
def test_no_answer_is_incomplete_with_the_reason(tmp_path: Path, state: dict[str, str], limit_s: int, why: str) -> None:
    failed = probed(tmp_path / "a run", limit_s=limit_s, **state)["sweep.dcgm.failed"]
    assert failed.outcome is Outcome.INCOMPLETE
    assert why in (failed.cause or "")


def test_a_node_without_the_program_is_incomplete_and_says_so(tmp_path: Path) -> None:
    facts_by_name = probed(tmp_path / "a run", path=str(tmp_path))
    assert {verdict.outcome for verdict in facts_by_name.values()} == {Outcome.INCOMPLETE}
    assert facts_by_name["sweep.dcgm.failed"].cause == "not found out: dcgmi is not installed"


def test_words_in_the_place_of_json_are_the_reason(tmp_path: Path) -> None:
    program = tmp_path / "bin/dcgmi"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/bash\necho 'Error: unable to establish a connection to the specified host: localhost'\n"
        "echo 'Error: Unable to connect to host engine. Host engine connection invalid/disconnected.'\n"
        "exit 231\n"
    )
    program.chmod(0o755)
    failed = probed(tmp_path / "a run", path=f"{program.parent}:/usr/bin:/bin")["sweep.dcgm.failed"]
    assert failed.outcome is Outcome.INCOMPLETE
    assert "ended with 231 and said: Error: Unable to connect to host engine." in (failed.cause or "")


def test_an_answer_without_a_test_is_no_answer() -> None:
    empty = dcgm.parse('{"DCGM Diagnostic": {"version": "4.5.2", "test_categories": []}}', "raw/dcgm-n1.json", "n1")
    (answer,) = [fact for fact in empty.observations if fact.quantity == "dcgm.answer"]
    assert (answer.value, answer.why) == (None, "the answer of dcgmi holds no test")


def test_a_status_that_nobody_knows_is_no_pass() -> None:
    text = (REAL / "4.5.2-level2.json").read_text().replace('"Fail"', '"Aborted"')
    failed = judged(dcgm.parse(text, "raw/x.json", "n1"), 1)["sweep.dcgm.failed"]
    assert failed.outcome is Outcome.INCOMPLETE
    assert "gpu0: software: DCGM says 'aborted'" in (failed.cause or "")
