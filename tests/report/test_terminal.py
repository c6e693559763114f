"""On a terminal: colour for outcomes, everywhere or nowhere, and tables that are not wider than it."""

from __future__ import annotations

import sys

import pytest
from bringup.report import terminal, text
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
    assert set(["the", "bandwidth", "of", "the", "largest", "message", "is", "what", "is", "expected"]) <= set(
        made.split()
    )
    assert "".join(line[:20].strip() for line in made.splitlines()[2:]).startswith("nccl.all_reduce.bus")


def test_in_a_file_a_row_is_a_line(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert len(text.columns(*TABLE).splitlines()) == 3
    monkeypatch.setattr(sys, "stdout", None)
    assert len(text.columns(*TABLE).splitlines()) == 3


def test_columns_stop_becoming_narrower(monkeypatch):
    monkeypatch.setenv("COLUMNS", "5")
    made = text.columns(*TABLE)
    assert max(map(len, made.splitlines())) == 2 * text.MIN_WIDTH + 2
