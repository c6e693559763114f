"""`report --apply`: which evidence may drain a node, and how many nodes."""

from __future__ import annotations

import json
import os
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from bringup import results
from bringup.cli import main
from bringup.run import brake, take_out
from hooks_for_tests import SCONTROL, SINFO
from runs_for_tests import discovery, reseal

BOOTED = 1_700_000_000


class Slurm:
    """Commands that know ten nodes, of which a run had two."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "calls"
        (folder / "nodes").mkdir(parents=True)
        for number in range(10):
            self.node_is(f"n{number}", "idle")
        self.is_called("a-cluster")
        self.has_booted("n1", BOOTED)
        asked = (
            'if [[ "$*" == "show config" ]]; then cat "$here/config"; exit; fi\n'
            'if [[ "$*" == *"show node"* ]]; then cat "$here/booted"; exit; fi\n'
        )
        for program, body in (("sinfo", SINFO), ("scontrol", asked + SCONTROL)):
            (folder / program).write_text(f'#!/bin/bash\nhere="{folder}"\n{body}\n')
            (folder / program).chmod(0o755)

    def node_is(self, node: str, state: str, given: str = "none") -> None:
        (self.folder / "nodes" / node).write_text(f"{state}\x1f1700000000\x1f{given}")

    def is_called(self, name: str) -> None:
        (self.folder / "config").write_text(f"ClusterName             = {name}\n")

    def has_booted(self, node: str, at: float) -> None:
        (self.folder / "booted").write_text(f"NodeName={node} Arch=x86_64 State=IDLE BootTime={at:.0f} Reason=none\n")

    def orders(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    made = Slurm(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{made.folder}:{os.environ['PATH']}")
    monkeypatch.setattr(brake, "SETTLE_S", 0)
    return made


def broken(folder: Path, node: str = "n1") -> Path:
    inventory = folder / "raw/inventory.jsonl"
    lines = inventory.read_text().splitlines(keepends=True)
    changed = [
        line.replace('"value": 2', '"value": 1') if "discovery.gpu.count" in line and f'"{node}"' in line else line
        for line in lines
    ]
    assert changed != lines
    inventory.write_text("".join(changed))
    return folder


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm: Slurm) -> Path:
    """A discovery of the cluster that is here; n1 lacks a GPU."""
    return reseal(broken(discovery(tmp_path / "runs", monkeypatch)))


def test_draining_is_printed_and_done_only_with_apply(run: Path, slurm: Slurm, capsys: pytest.CaptureFixture[str]):
    assert main(["report", str(run)]) == 1
    assert "scontrol update NodeName=n1 State=DRAIN 'Reason=bringup: discovery.gpu.count" in capsys.readouterr().out
    assert slurm.orders() == []
    assert main(["report", str(run), "--apply"]) == 1
    (order,) = slurm.orders()
    assert order.startswith("update NodeName=n1 State=DRAIN Reason=bringup: discovery.gpu.count")
    assert "drained: n1" in capsys.readouterr().out


def test_a_node_that_was_drained_meanwhile_is_left_as_it_is(
    run: Path, slurm: Slurm, capsys: pytest.CaptureFixture[str]
):
    slurm.node_is("n1", "drained", "fan is loud")
    assert main(["report", str(run), "--apply"]) == 1
    assert slurm.orders() == []
    assert "left as it is: n1: drained" in capsys.readouterr().out


def test_the_brake_refuses_with_numbers(run: Path, slurm: Slurm, capsys: pytest.CaptureFixture[str]):
    slurm.node_is("n7", "drained", "bringup: discovery.gpu.count; reboot (2026-11-23T02:00Z, run abc)")
    assert main(["report", str(run), "--apply"]) == 2
    assert slurm.orders() == []
    words = "not drained: n1: 1 of 10 nodes of partition main are drained by bringup already, at most 1"
    assert words in capsys.readouterr().out
    assert main(["report", str(run), "--apply", "--most-drained", "2"]) == 1
    assert len(slurm.orders()) == 1


@pytest.mark.parametrize("most", ["0", "101%", "many"])
def test_a_limit_that_is_none_is_refused(run: Path, most: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        main(["report", str(run), "--apply", "--most-drained", most])
    assert "neither a number of nodes nor a share" in capsys.readouterr().err


def refused(run: Path, slurm: Slurm, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["report", str(run), "--apply", *options]) == 2
    assert slurm.orders() == []
    output = capsys.readouterr().out
    assert "not used: run " in output
    return output


def test_evidence_that_was_changed_after_it_was_closed_drains_nothing(
    run: Path, slurm: Slurm, capsys: pytest.CaptureFixture[str]
):
    inventory = run / "raw/inventory.jsonl"
    inventory.write_text(inventory.read_text() + "\n")
    assert "was changed after the run was closed; no node is drained for it" in refused(run, slurm, capsys)


def test_evidence_that_was_never_closed_drains_nothing(run: Path, slurm: Slurm, capsys: pytest.CaptureFixture[str]):
    (run / results.CLOSED).unlink()
    assert "run.closed" in refused(run, slurm, capsys)


def test_evidence_of_another_cluster_drains_nothing(run: Path, slurm: Slurm, capsys: pytest.CaptureFixture[str]):
    slurm.is_called("elsewhere")
    assert ", and this is elsewhere" in refused(run, slurm, capsys)


def test_old_evidence_drains_nothing_unless_it_may_be_so_old(
    run: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    in_two_days = datetime.now(UTC) + timedelta(hours=30)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return in_two_days

    monkeypatch.setattr(take_out, "datetime", Clock)
    assert "closed 30 h ago, expected at most 24 (--older)" in refused(run, slurm, capsys)
    assert main(["report", str(run), "--apply", "--older", "48"]) == 1
    assert len(slurm.orders()) == 1


def test_a_node_that_has_booted_since_is_another_one(run: Path, slurm: Slurm, capsys: pytest.CaptureFixture[str]):
    slurm.has_booted("n1", time.time() + 60)
    assert main(["report", str(run), "--apply"]) == 2
    assert slurm.orders() == []
    assert "not drained: n1: it has booted after the evidence was closed" in capsys.readouterr().out


def test_a_run_that_names_no_cluster_drains_nothing(run: Path, slurm: Slurm, capsys: pytest.CaptureFixture[str]):
    (run / "raw/scontrol-config.txt").unlink()
    plan = json.loads((run / results.RUN).read_text())
    (run / results.RUN).write_text(json.dumps(plan | {"cluster": None}))
    reseal(run)
    assert "it does not say which cluster it is of, and this is " in refused(run, slurm, capsys)


def test_a_run_says_of_which_cluster_it_is_also_without_slurms_configuration(
    run: Path, tmp_path: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
):
    other = broken(discovery(tmp_path / "more runs", monkeypatch))
    (other / "raw/scontrol-config.txt").unlink()
    assert main(["report", str(reseal(other)), "--apply"]) == 1
    assert len(slurm.orders()) == 1


def test_evidence_that_nobody_signed_drains_nothing_where_signatures_count(
    run: Path, slurm: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    key, signers = tmp_path / "key", tmp_path / "signers"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    signers.write_text(f"anna@lab {key.with_suffix('.pub').read_text()}")
    assert "closed.json: not signed" in refused(run, slurm, capsys, "--signers", str(signers))
    sign = ["ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", "bringup", run / "closed.json"]
    subprocess.run(sign, check=True, capture_output=True)
    assert main(["report", str(run), "--apply", "--signers", str(signers)]) == 1
    assert len(slurm.orders()) == 1


def test_evidence_from_the_future_drains_nothing(run: Path, slurm: Slurm, capsys: pytest.CaptureFixture[str]):
    """Else it is never too old, and no boot is later."""
    closed = json.loads((run / results.CLOSED).read_text())
    closed["closed_at"] = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    (run / results.CLOSED).write_text(json.dumps(closed))
    assert "it was closed 24.0 h from now, by the clock of this host" in refused(run, slurm, capsys)


def test_a_later_run_that_accuses_another_node_makes_no_evidence_fresh(
    run: Path, tmp_path: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """n1 failed, was booted, and passed."""
    later = broken(discovery(tmp_path / "later", monkeypatch), node="n0")
    reseal(later)
    closed = json.loads((later / results.CLOSED).read_text())
    closed["closed_at"] = (datetime.now(UTC) + timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    (later / results.CLOSED).write_text(json.dumps(closed))
    slurm.has_booted("n1", time.time() + 60)
    assert main(["report", str(run), str(later), "-o", str(tmp_path / "page.html"), "--apply"]) == 2
    assert "not drained: n1: it has booted after the evidence was closed" in capsys.readouterr().out
    (order,) = slurm.orders()
    assert "NodeName=n0" in order
