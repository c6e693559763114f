"""Known faults in the report and in `bringup explain`, with the commands to run next. Their lines: known_faults/."""

from pathlib import Path

import generated as failure_modes
import pytest
from bringup import judge
from bringup import results as runs
from bringup.cli import main
from bringup.known_faults.signatures import SIGNATURES
from bringup.report import document, explain
from bringup.report import view as report
from runs_for_tests import discovery


@pytest.fixture
def broken(tmp_path, monkeypatch) -> Path:
    """A discovery in which n1 has a GPU too few, and somebody met a stale file."""
    folder = discovery(tmp_path, monkeypatch)
    facts = folder / "raw/inventory.jsonl"
    text = facts.read_text()
    healthy = '"subject": "n1", "quantity": "discovery.gpu.count", "value": 2'
    assert healthy in text
    facts.write_text(text.replace(healthy, healthy.replace('value": 2', 'value": 1')))
    (folder / "raw/inventory.err").write_text("cat: run.json: Stale file handle <script>\n")
    return folder


def test_the_report_and_the_screen_show_the_sign(broken):
    judged = judge.judge_folder(broken)
    assert "host.stale" in report.screen(broken, judged.run, judged.verdicts)
    written = document.run(judged)
    assert "raw/inventory.err:1" in written
    assert SIGNATURES["host.stale"].do in written.replace("\\", "")
    assert "<script>" not in written


def test_explain_names_the_first_cause_the_sign_and_the_next_command(broken, capsys):
    assert main(["explain", str(broken)]) == 1
    output = capsys.readouterr().out
    assert "FAIL discovery.gpu.count [n1]: GPUs there: 1 of the 2 that Slurm hands out" in output
    assert "next: findmnt" not in output  # that is another sign's
    assert SIGNATURES["host.stale"].do in output
    section = [line for line in output.splitlines() if line.startswith("  next ")]
    assert any("scontrol show node n1" in line for line in section), section


def test_a_host_name_with_metacharacters_is_quoted_in_the_commands(broken):
    verdicts = judge.judge_folder(broken).verdicts
    bad = next(verdict for verdict in verdicts.verdicts if verdict.gate == "discovery.gpu.count")
    run = runs.load(broken).model_copy(update={"nodes": ["n0", "n1;reboot"]})
    commands = explain.next_commands([bad.model_copy(update={"subject": "n1;reboot"})], broken, run)
    assert any("'n1;reboot'" in line for line in commands), commands
    assert not any(" n1;reboot" in line for line in commands)


def test_the_page_of_failure_modes_is_what_the_catalogues_say():
    for path, text in failure_modes.pages().items():
        assert path.read_text() == text, f"{path.name}: run `make generated`"
    assert SIGNATURES["nccl.duplicate-gpu"].cause in failure_modes.SIGNS.read_text()
