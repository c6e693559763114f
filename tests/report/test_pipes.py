"""Exit codes hold whoever reads what is printed, and in whatever locale: 1 says that the cluster failed, and nothing
else does."""

import json
import os
import sys
from pathlib import Path

import pytest
from bringup import cli
from bringup.cli import CLOSED_PIPE
from bringup.compare import action as comparing
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.records import Outcome
from bringup.report import explain, terminal
from factory import a_verdict, an_entry, judged_of
from programs import ran
from runs_for_tests import FIXTURES, discovery, reseal
from tiers import first, rest


@pytest.fixture
def failed(tmp_path, monkeypatch) -> Path:
    """A run in which a gate with a ≥ in its words failed."""
    folder = discovery(tmp_path, monkeypatch)
    inventory = folder / "raw/inventory.jsonl"
    text = inventory.read_text()
    changed = text.replace('"discovery.shm", "value": 2.0', '"discovery.shm", "value": 0.001')
    assert changed != text
    inventory.write_text(changed)
    return reseal(folder)


def piped(command: str, *arguments: object) -> tuple[list[int], str, str]:
    """Exit codes of a pipe line in bash, whose $0 is bringup, and what it printed."""
    script = f'{command}; codes=("${{PIPESTATUS[@]}}"); echo "codes ${{codes[*]}}"'
    quoted = 'bringup() { "$0" -m bringup "$@"; }; ' + script
    done = ran(["bash", "-c", quoted, sys.executable, *map(str, arguments)])
    *shown, codes = done.stdout.splitlines()
    return [int(code) for code in codes.removeprefix("codes ").split()], "\n".join(shown), done.stderr


@pytest.mark.parametrize("redirect", first(["", "2>&1"]))
@pytest.mark.parametrize("verb", ["judge", *rest("explain", "gates", "drill --list", "judge --help")])
def test_a_reader_who_went_away_is_no_failure_of_the_cluster(failed, verb, redirect):
    folder = "" if verb in ("gates", "drill --list", "judge --help") else '"$1"'
    # nobody has ever read: the first line printed already meets a closed pipe
    codes, _, stderr = piped(f"(sleep 0.2; bringup {verb} {folder} {redirect}) | true", failed)
    assert codes[0] == CLOSED_PIPE or (codes[0], verb) == (0, "judge --help")  # argparse says 0 of its own help
    assert stderr == ""


def test_a_reader_who_takes_the_first_line_gets_it(failed):
    codes, shown, stderr = piped("bringup gates | head -1", failed)
    assert codes[0] in (0, CLOSED_PIPE)  # as much as a pipe holds is written at once
    assert len(shown.splitlines()) == 1
    assert stderr == ""


def test_rich_does_not_end_us_with_the_code_of_a_failure():
    with pytest.raises(BrokenPipeError):
        terminal.console().on_broken_pipe()


@pytest.mark.parametrize("verb", ["report", *rest("explain", "judge")])
@pytest.mark.parametrize("encoding", first(["ascii", "latin-1"]))
def test_a_locale_without_the_letters_changes_no_exit_code(failed, verb, encoding):
    command, how = [sys.executable, "-m", "bringup", verb, str(failed)], os.environ | {"PYTHONIOENCODING": encoding}
    done = ran(command, env=how, text=False, timeout=120)
    assert done.returncode == 1, done.stderr
    assert b"FAIL" in done.stdout
    assert done.stderr == b""


def test_a_closed_standard_output_does_not_matter(failed):
    done = ran(["bash", "-c", 'exec "$0" -m bringup judge "$1" >&-', sys.executable, str(failed)])
    assert (done.returncode, done.stderr) == (1, "")


# --- where a person would pipe: JSON on standard output, and nothing else there


def test_gates_are_data(shown) -> None:
    output = {gate["id"]: gate for gate in json.loads(shown(0, "gates", "--json"))}
    assert set(output) == set(GATES)
    assert output["discovery.gpu.ecc"]["rule"] == GATES["discovery.gpu.ecc"].rule


def test_an_explanation_is_data_with_its_commands(tmp_path, monkeypatch, capsys) -> None:
    code = cli.main(["explain", str(discovery(tmp_path, monkeypatch)), "--json"])
    [output] = json.loads(capsys.readouterr().out)
    assert (output["phase"], Outcome(output["outcome"]).exit_code) == ("discovery", code)


def test_first_causes_stand_apart_from_what_follows() -> None:
    judged = judged_of(a_verdict("discovery.gpu.count", "n1"), a_verdict("discovery.kernel", "n1", Outcome.INCOMPLETE))
    record = json.loads(json.dumps(explain.as_data(judged)))
    assert [cause["gate"] for cause in record["first_causes"]] == ["discovery.gpu.count"]
    assert record["first_causes"][0]["verdicts"][0]["subject"] == "n1"
    assert record["first_causes"][0]["next"]
    assert record["following"] == [["discovery.kernel", "n1"]]


def test_runs_side_by_side_are_rows_of_data(monkeypatch, shown) -> None:
    entries = [an_entry(FIXTURES / "training" / name) for name in ("run_1gpu", "run_ddp_2node")]
    monkeypatch.setattr(comparing, "_training_runs", lambda folders, profile: (entries, []))
    compared = json.loads(shown(0, "compare", *(str(entry.folder) for entry in entries), "--json"))
    assert [row["ranks"] for row in compared["runs"]] == ["1", "4"]
    assert compared["recommended"]["strategy"] is None
    assert compared["recommended"]["choice"][0].startswith("Which strategy: cannot tell. It takes two strategies")
