"""What stays on a terminal: outcomes, and no trace of the line that says what is going on."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from bringup.kernel.results import REPOSITORY
from bringup.report import terminal, text
from loops import for_each
from pty_screen import drawn

CHECKOUT = Path(__file__).resolve().parents[2]
SIZES = pytest.mark.parametrize(("columns", "rows"), [(80, 24), (160, 50)])
WAITING = textwrap.dedent(
    """
    import sys, time
    from bringup import cli
    from bringup.report import terminal
    from bringup.run.at_work import Expected
    from bringup.run.launch import progress

    def a_run(argv):
        console = terminal.console()
        console.print("RUN        test")
        for title in ("NCCL between pairs of nodes", "FSDP"):
            with progress(console, title, Expected(60, 60), 600) as tell:
                for step in range(12):
                    tell(f"running: step {step} of 12 \\x1b[2J\\x1b]0;title\\x07" + " of a job with a long name" * 9)
                    time.sleep(0.12)
                print("from below \\x1b[2J\\x1b[1A")
            console.print(f"PASS       {title}: 3 pass\\u202e")
        return 0

    cli._verb = a_run
    sys.exit(cli.main([]))
    """
)


@SIZES
def test_a_line_that_is_drawn_again_leaves_nothing_and_foreign_control_codes_draw_nothing(columns: int, rows: int):
    """It left a line for each of its ten refreshes in a second: a run of 16 minutes scrolled by in 10,733 lines."""
    screen = drawn([sys.executable, "-c", WAITING], columns, rows, CHECKOUT)
    assert screen.returncode == 0, screen.raw[-500:]
    assert screen.raw.count(b"\x1b[2K") > 10, "the line was drawn again in its place"
    assert b"\x1b[2J" not in screen.raw
    assert b"\x1b]0;" not in screen.raw
    assert "\u202e".encode() not in screen.raw
    assert [re.sub(r"\s+", " ", line) for line in screen.lines] == [
        "RUN test",
        "from below",  # rich reads what is printed meanwhile, and drops what is no colour
        "PASS NCCL between pairs of nodes: 3 pass",
        "from below",  # rich reads what is printed meanwhile, and drops what is no colour
        "PASS FSDP: 3 pass",
    ]
    during = screen.raw.decode().split("\r")
    assert max(len(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", part).strip("\n")) for part in during) <= columns
    assert any(": step 3 of 12" in part for part in during), "what goes on comes before what is known"
    cut = re.compile(r"….* \(\d+ s of about 60 s; about 11 min left\)")
    assert any(map(cut.search, during)), "cut, with its seconds"


def test_a_long_line_is_broken_between_words_below_its_text_and_a_command_is_not():
    text = "  FAIL       discovery.rdma.active [n3]: mlx5_3:1 is DOWN, Disabled (usable RDMA ports: 7, expected 8)"
    assert terminal.fitted(text, 60).split("\n") == [
        "  FAIL       discovery.rdma.active [n3]: mlx5_3:1 is DOWN,",
        "             Disabled (usable RDMA ports: 7, expected 8)",
    ]
    command = f"  why: bringup explain {'validation/results/' * 4}"
    assert terminal.fitted(command, 60) == command


def test_a_file_has_no_control_code_and_a_line_only_where_something_changed():
    done = subprocess.run([sys.executable, "-c", WAITING], capture_output=True, text=True, check=False, cwd=CHECKOUT)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert [line[:20] for line in done.stdout.splitlines()] == [
        "RUN        test",
        "…          NCCL betw",
        "from below  [2J [1A",
        "PASS       NCCL betw",
        "…          FSDP: run",
        "from below  [2J [1A",
        "PASS       FSDP: 3 p",
    ]


# --- on a terminal: colour for outcomes, everywhere or nowhere, and tables that are not wider than it


TABLE = (("gate", "says"), [("nccl.all_reduce.busbw", "the bandwidth of the largest message is what is expected")])


def shown(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    terminal.show(words)
    return capsys.readouterr().out


def test_every_line_of_a_screen_has_its_colour_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert shown("PASS first\n  FAIL second\n", capsys).count("\x1b[1;3") == 2


@for_each({}, {"NO_COLOR": "1", "FORCE_COLOR": "1"})
def test_a_file_and_no_color_have_none(monkeypatch, capsys, variables: dict[str, str]):
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
    ["gates"],
    ["drill", "--list"],
    ["advise", "--model", "llama3-8b", "--nodes", "2", "--gpus-per-node", "8", "--profile", "h100-8x400g"],
    ["site"],
)
def test_tables_of_verbs_fit_sixty_columns_where_a_row_becomes_lines(monkeypatch, shown, argv: list[str]):
    """The gates were 68 wide, the advice 85, and the last cells of both lay on the next line."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("BRINGUP_SITE", str(REPOSITORY / "validation/profiles/example.site.yaml"))
    aligned = [line for line in shown(0, *argv).splitlines() if "  " in line.strip()]
    assert aligned
    assert [line for line in aligned if len(line) > 60] == []
