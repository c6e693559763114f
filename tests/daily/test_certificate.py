"""bringup certificate: dated, with its conditions; refused for less than a whole pass unless that is said."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from bringup import judge
from bringup.cli import main
from bringup.daily import certificate
from bringup.errors import NotComparable, NotHealthy
from bringup.judge import Judged
from bringup.records import Certificate, FaultLimit, LimitTrial, Mark, read_record
from bringup.report.collection import Collection
from bringup.results import Absent
from factory import a_limits_report
from runs_for_tests import discovery, reseal


@pytest.fixture
def passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judged:
    return judge.judge_folder(discovery(tmp_path / "a run", monkeypatch))


def of(*judged: Judged, absent: tuple[Absent, ...] = ()) -> Collection:
    return Collection(list(judged), list(absent), [], [], {})


def made(*judged: Judged) -> Certificate:
    return certificate.made_of(of(*judged), "Lab", 90, partly=True)


def test_less_than_a_whole_pass_is_refused_unless_it_is_said(passed: Judged):
    with pytest.raises(NotHealthy, match=r"question 1 is REHEARSED.*--partly"):
        certificate.made_of(of(passed), "Lab", 90, partly=False)


def test_it_says_at_its_top_that_it_is_less(passed: Judged):
    certified = made(passed)
    assert certified.mark is Mark.REHEARSED
    text = certificate.markdown(certified, is_signed=False)
    assert text.startswith("# Lab: REHEARSED\n")
    assert "rehearsed on stand-ins" in text
    assert "one GPU trains: not asked" in text


def test_it_says_how_small_a_fault_was_found_where_that_was_tried(passed: Judged):
    assert "How small a fault" not in certificate.markdown(made(passed), is_signed=False)
    tried = a_limits_report(
        FaultLimit(
            drill="d",
            fault="n1 sends at {size} Mbit/s",
            unit="Mbit/s",
            sizes=[50, 100],
            phase="nccl_pairwise",
            gate="nccl.pair.node",
            subject="n1",
            nodes=4,
            trials=[
                LimitTrial(size=size, found=size == 50, alarms=[], seconds=9, load=1.5) for size in (50, 100, None)
            ],
        ),
        repeat=1,
        ended=True,
    )
    certified = certificate.made_of(replace(of(passed), limits=[tried]), "Lab", 90, partly=True)
    assert "found each time at 50 Mbit/s: 1 of 1 (2 to 100 %)" in certificate.markdown(certified, is_signed=False)
    assert "on 4 nodes of a local cluster made for it, 2026-11-25, load 1.5 to 1.5" in certified.limits[0]


def test_a_phase_that_is_missing_is_refused(passed: Judged):
    with pytest.raises(NotHealthy, match="smoke is not there: interrupted"):
        certificate.made_of(of(passed, absent=(Absent("smoke", "interrupted"),)), "Lab", 90, partly=False)


def test_a_fail_is_never_certified(passed: Judged):
    folder = passed.folder
    inventory = folder / "raw/inventory.jsonl"
    inventory.write_text(
        inventory.read_text().replace('"discovery.gpu.count", "value": 2', '"discovery.gpu.count", "value": 1', 1)
    )
    with pytest.raises(NotHealthy, match=r"question . is FAIL"):
        made(judge.judge_folder(reseal(folder)))


def test_evidence_that_was_changed_is_never_certified(passed: Judged):
    inventory = passed.folder / "raw/inventory.jsonl"
    inventory.write_text(inventory.read_text() + "\n")
    with pytest.raises(NotHealthy, match=r"run\.evidence"):
        made(judge.judge_folder(passed.folder))


def test_it_is_dated_by_its_runs_and_made_again_it_is_the_same(passed: Judged):
    assert made(passed) == made(passed)
    assert made(passed).dated[:10] == passed.run.opened_at[:10]
    assert made(passed).holds_until > made(passed).dated[:10]


def test_a_training_on_one_gpu_is_of_the_same_kind_of_node(passed: Judged):
    """A whole playbook holds one."""
    alone = replace(
        passed, run=passed.run.model_copy(update={"phase": "run_1gpu", "gpus_per_node": 1, "nodes": ["n0"]})
    )
    certified = made(passed, alone)
    assert (certified.gpus_per_node, certified.nodes) == (2, ["n0", "n1"])


def test_runs_of_unlike_nodes_are_not_certified_together(passed: Judged):
    other = replace(passed, run=passed.run.model_copy(update={"phase": "smoke", "gpus_per_node": 8}))
    with pytest.raises(NotComparable, match="one kind of node"):
        made(passed, other)


def test_it_holds_while_its_conditions_do(passed: Judged):
    certified = made(passed)
    assert certificate.broken(certified, [passed], datetime.now(UTC)) == []


def test_another_kernel_and_another_day_break_it(passed: Judged):
    certified = made(passed)
    other = [
        each.model_copy(update={"values": ["6.1.0-newer"]}) if each.what == "kernel" else each
        for each in certified.conditions
    ]
    late = datetime(2100, 1, 1, tzinfo=UTC)
    day, kernel = certificate.broken(certified.model_copy(update={"conditions": other}), [passed], late)
    assert day.startswith("it held until ")
    assert kernel.startswith("kernel: ")
    assert kernel.endswith("certified was 6.1.0-newer")


def test_the_verb_writes_both_files_and_checks_them_later(passed: Judged, tmp_path: Path, capsys):
    folder = tmp_path / "a certificate"
    assert main(["certificate", str(passed.folder), "-o", str(folder)]) == 2
    assert list(folder.iterdir()) == []
    assert main(["certificate", str(passed.folder), "-o", str(folder), "--partly"]) == 0
    assert "claims are not proven" in capsys.readouterr().out
    record = read_record(folder / "certificate.json", Certificate)
    assert record.nodes == ["n0", "n1"]
    assert record.runs[0].counted in (folder / "certificate.md").read_text()
    check = ["certificate", str(passed.folder), "--check", str(folder / "certificate.json")]
    assert main(check) == 0
    text = (folder / "certificate.json").read_text()
    (folder / "certificate.json").write_text(text.replace(record.holds_until, "2020-01-01"))
    assert main(check) == 2
    assert "it held until 2020-01-01" in capsys.readouterr().out
