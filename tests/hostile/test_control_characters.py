"""Names and texts of somebody else's folder: none of them moves a cursor, names a window, or turns words around."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from bringup import cli
from bringup.characters import Printable, plain
from bringup.errors import RecordError
from bringup.records import Playbook, Run, read_record
from bringup.report.text import escaped
from factory import a_run
from loops import for_each
from runs_for_tests import discovery, reseal

EVIL = "\x1b]0;title\x07\x1b[2J\x9b\u202e\u2066\r"
BAD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return discovery(tmp_path, monkeypatch)


@for_each("letter", BAD.findall(EVIL + "\u202a\u2069"))
def test_a_text_loses_them(letter: str):
    assert plain(f"a{letter}b") == "a b"
    assert escaped(f"a{letter}b") == "a b"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("phase", f"discovery{EVIL}"),
        ("name", f"a{EVIL}"),
        ("profile", f"a{EVIL}"),
        ("nodes", ["n0", f"n1{EVIL}"]),
        ("planned", {f"gate{EVIL}": ["n0"]}),
        ("planned", {"gate": [f"n0{EVIL}"]}),
        ("not_applicable", [{"gate": f"g{EVIL}", "reason": "why"}]),
        ("left_out", [{"gate": f"g{EVIL}", "reason": "why"}]),
        ("allocated", [f"n0{EVIL}"]),
        ("continues", f"a{EVIL}"),
        ("opened_at", f"2026-01-01T00:00:00Z{EVIL}"),
        ("opened_at", "yesterday"),
        ("opened_at", "2026-13-01T00:00:00Z"),
        ("opened_at", "<script>"),
        ("git_commit", "not hex"),
        ("slurm_job_id", "7; DROP"),
    ],
)
def test_a_name_in_a_run_is_checked_where_it_enters(run: Path, capsys, field: str, value: object):
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {field: value}))
    with pytest.raises(RecordError, match="not a valid Run"):
        read_record(run / "run.json", Run)
    for verb in (["judge"], ["explain"], ["report", "--prometheus", str(run.parent / "x.prom")]):
        assert cli.main([verb[0], str(run), *verb[1:]]) == 2
        shown = capsys.readouterr()
        assert not BAD.search(shown.out + shown.err)
        assert "a fault of bringup itself" not in shown.err


def test_a_name_in_a_playbook_is_checked_where_it_enters(tmp_path: Path):
    good = Playbook(name="a", nodes=["n0"], profile="p", planned=["smoke"], left_out=[], steps=[])
    for change in ({"planned": [EVIL]}, {"name": EVIL}, {"nodes": [EVIL]}, {"site": EVIL}):
        (tmp_path / "playbook.json").write_text(json.dumps(good.model_dump(mode="json") | change))
        with pytest.raises(RecordError, match="not a valid Playbook"):
            read_record(tmp_path / "playbook.json", Playbook)


def test_what_logs_and_file_names_say_reaches_no_output(run: Path, capsys):
    (run / f"raw/x{EVIL.replace('/', '')}.err").write_text(f"srun: error: n1: task 1: Killed{EVIL}\n")
    (run / f"raw/y{EVIL}.jsonl").write_text(f"{EVIL}\n")
    facts = run / "raw/inventory.jsonl"
    facts.write_text(facts.read_text().replace('"6.18.44"', json.dumps(f"6{EVIL}")))
    renamed = run.with_name(f"run{EVIL}")
    reseal(run).rename(renamed)
    into = run.parent / "outputs"
    into.mkdir()
    options = ["-o", str(into / "page.html"), "--junit", str(into / "j.xml")]
    for arguments in (["judge"], ["explain"], ["report", *options, "--prometheus", str(into / "p.prom")]):
        cli.main([arguments[0], str(renamed), *arguments[1:]])
        shown = capsys.readouterr()
        assert not BAD.search(shown.out + shown.err), arguments
    for path in (renamed / "report.md", into / "j.xml", into / "p.prom"):
        assert not BAD.search(path.read_text()), path


def test_the_stream_of_the_terminal_is_the_last_guard():
    screen = io.StringIO()
    with redirect_stdout(Printable(screen)):  # type: ignore[type-var]
        print(f"a\tb{EVIL}\x1b[1;31mred\x1b[0m")
    assert screen.getvalue() == "a\tb ]0;title  [2J     [1;31mred [0m\n"
    screen.isatty = lambda: True  # type: ignore[method-assign]
    with redirect_stdout(Printable(screen)):  # type: ignore[type-var]
        print("\x1b[1;31mred\x1b[0m\x1b]0;title\x07")
    assert screen.getvalue().endswith("\x1b[1;31mred\x1b[0m ]0;title \n")


def test_the_largest_names_are_still_names():
    assert a_run(nodes=["n0", "rack-1.example.org"]).nodes[1] == "rack-1.example.org"
