"""This rank: which one it is, its own file of facts, and the lines it prints for people.

RUN_DIR/raw/rank<R>.jsonl says how far the rank came, written as it happens: a rank that is killed leaves no last line.
"""

import os
import sys
from pathlib import Path
from typing import NoReturn, TextIO

from arrival import patience_s as patience_s
from facts import MAX_TEXT, Facts, node_name

RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))
STOP = "stop"  # a file in the folder of a run: when it appears, the ranks write a checkpoint and end
SAVES_AT_SIGTERM = "BRINGUP_SAVES_AT_SIGTERM"  # variable, set by launcher.py
LOCAL_RANK = int(os.environ.get("LOCAL_RANK", "0"))


class RankFacts(Facts):
    """Facts whose subject is this rank unless another is named."""

    def _write(self, quantity: str, subject: str | None, *rest: object) -> None:
        super()._write(quantity, subject or f"{self.at}/rank{RANK}", *rest)


def open_facts(run_dir: Path) -> RankFacts:
    """Open the rank's own file, with its first facts. Only one run writes a folder: an existing file is an error."""
    path = run_dir / "raw" / f"rank{RANK}.jsonl"
    try:
        stream = path.open("x", encoding="utf-8")
    except FileExistsError:
        complain(f"{path} exists: a run never writes over another; make a new folder with `bringup open`")
    except OSError as error:
        complain(
            f"{path} cannot be written: {error.strerror}; --run-dir must be a folder made by `bringup open`, "
            f"shared by all nodes (seen from {node_name()})"
        )
    facts = RankFacts("train", stream)
    error_file = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
    if Path(error_file).is_relative_to(run_dir.absolute()):  # torchrun's, when the script keeps its logs in raw/
        facts.saw("train.rank.error_file", str(Path(error_file).relative_to(run_dir.absolute())), "text")
    return facts


def raised(facts: RankFacts, state: str, message: str) -> None:
    """Write the last facts of a rank that does not finish: `state` raised, hung or refused, and why."""
    facts.saw("train.rank.state", state, "text")
    facts.saw("train.rank.error", one_line(message), "text")
    facts.finish()


def refused(facts: RankFacts, message: str) -> None:
    """Say it, and write the last facts of a rank that was given what cannot be trained: nothing of the cluster."""
    say_once(f"refused: {message}", stream=sys.stderr)
    facts.unknown("train.rank.state", "text", one_line(f"refused: {message}"))
    facts.finish()


def say(text: str, *, stream: TextIO | None = None) -> None:
    """Print a line for people, with the node and rank it comes from."""
    print(f"[{node_name()} rank{RANK}] {text}", file=stream or sys.stdout, flush=True)


def say_once(text: str, *, stream: TextIO | None = None) -> None:
    """Say it on the first rank alone."""
    if RANK == 0:
        say(text, stream=stream)


def complain(text: str) -> NoReturn:
    """Refuse before anything began: one line per node, exit code 2."""
    if LOCAL_RANK == 0:
        print(f"{Path(sys.argv[0]).name}: {text}", file=sys.stderr, flush=True)
    raise SystemExit(2)


def one_line(message: str) -> str:
    """Return the first line of a message, bounded to what a fact can hold (which counts bytes, so ASCII)."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return (lines[0] if lines else "no message").encode("ascii", "replace").decode()[:MAX_TEXT]
