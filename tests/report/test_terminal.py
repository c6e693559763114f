"""On a terminal: colour for outcomes, everywhere or nowhere, and tables that are not wider than it."""

from __future__ import annotations

import sys

import pytest
from bringup import cli
from bringup.report import terminal, text
from bringup.results import REPOSITORY
from loops import for_each

TABLE = (("gate", "says"), [("nccl.all_reduce.busbw", "the bandwidth of the largest message is what is expected")])


def shown(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    terminal.show(words)
    return capsys.readouterr().out


def test_every_line_of_a_screen_has_its_colour_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert shown("PASS first\n  FAIL second\n", capsys).count("\x1b[1;3") == 2


@for_each("variables", [{}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}])
def test_a_file_and_no_color_have_none(variables: dict[str, str], monkeypatch, capsys):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert shown("FAIL second", capsys).count("\x1b[1;3") == 0


def test_what_reads_like_an_emoji_stays_as_it_is(capsys):
    assert shown("n0/mlx5_0:100: and :warning:", capsys) == "n0/mlx5_0:100: and :warning:\n"


def test_a_table_is_not_wider_than_the_terminal_and_loses_no_word(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    made = text.columns(*TABLE)
    assert max(map(len, made.splitlines())) <= 40
    assert set(TABLE[1][0][1].split()) <= set(made.split())
    assert any(line.startswith("nccl.all_reduce.busbw  ") for line in made.splitlines())


def test_in_a_file_a_row_is_a_line(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert len(text.columns(*TABLE).splitlines()) == 3
    monkeypatch.setattr(sys, "stdout", None)
    assert len(text.columns(*TABLE).splitlines()) == 3


@for_each(
    "argv",
    [
        ["gates"],
        ["drill", "--list"],
        ["advise", "--model", "llama3-8b", "--nodes", "2", "--gpus-per-node", "8", "--profile", "h100-8x400g"],
        ["site"],
    ],
)
def test_tables_of_verbs_fit_sixty_columns_where_a_row_becomes_lines(argv: list[str], monkeypatch, capsys):
    """The gates were 68 wide, the advice 85, and the last cells of both lay on the next line."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("BRINGUP_SITE", str(REPOSITORY / "validation/profiles/example.site.yaml"))
    assert cli.main(argv) == 0
    aligned = [line for line in capsys.readouterr().out.splitlines() if "  " in line.strip()]
    assert aligned
    assert [line for line in aligned if len(line) > 60] == []
