"""Where a person would pipe: JSON on standard output, and nothing else there."""

import json
from pathlib import Path

import pytest
from bringup import cli
from bringup.cli import comparing
from bringup.plan.catalogue import GATES
from bringup.records import Outcome
from bringup.report import explain
from factory import a_verdict, an_entry, judged_of
from runs_for_tests import FIXTURES, discovery


def test_gates_are_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["gates", "--json"]) == 0
    output = {gate["id"]: gate for gate in json.loads(capsys.readouterr().out)}
    assert set(output) == set(GATES)
    assert output["discovery.gpu.ecc"]["rule"] == GATES["discovery.gpu.ecc"].rule


def test_an_explanation_is_data_with_its_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = discovery(tmp_path, monkeypatch)
    code = cli.main(["explain", str(run), "--json"])
    [output] = json.loads(capsys.readouterr().out)
    assert (output["phase"], Outcome(output["outcome"]).exit_code) == ("discovery", code)


def test_first_causes_stand_apart_from_what_follows() -> None:
    judged = judged_of(a_verdict("discovery.gpu.count", "n1"), a_verdict("discovery.kernel", "n1", Outcome.INCOMPLETE))
    record = json.loads(json.dumps(explain.as_data(judged)))
    assert [cause["gate"] for cause in record["first_causes"]] == ["discovery.gpu.count"]
    assert record["first_causes"][0]["verdicts"][0]["subject"] == "n1"
    assert record["first_causes"][0]["next"]
    assert record["following"] == [["discovery.kernel", "n1"]]


def test_runs_side_by_side_are_rows_of_data(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = [an_entry(FIXTURES / "training" / name) for name in ("run_1gpu", "run_ddp_2node")]
    monkeypatch.setattr(comparing, "_training_runs", lambda folders, profile: (entries, []))
    assert cli.main(["compare", *(str(entry.folder) for entry in entries), "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert [row["ranks"] for row in compared["runs"]] == ["1", "4"]
    assert compared["recommended"]["strategy"] is None
    assert compared["recommended"]["choice"][0].startswith("Which strategy: cannot tell. It takes two strategies")
