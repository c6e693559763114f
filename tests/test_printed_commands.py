"""Every command that a screen, a report, an explanation or a page prints is one that its program takes.

The texts are those of all recorded runs (golden/expected), and the documents. A word in capitals stands for a value.
"""

import io
import json
import lzma
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path

from bringup import cli
from bringup.kernel.errors import BringupError
from bringup.kernel.plan.phases import PHASES
from bringup.report import known_runs
from bringup.verb import phase_called, phases_called
from loops import for_each
from programs import ROOT, ran
from recipe import arguments as recipe_arguments

VALUES = {"VERB": "run", "JOB": "4711", "JOBID": "4711", "N": "2", "K": "1", "G": "8", "…": "", "...": "", "[...]": ""}
BEGINS = (
    r"(?:\.venv/bin/)?(?P<program>bringup|sbatch|make|bash infrastructure-validation/scripts/\S+"
    r"|python training/src/train_\w+\.py)\s"
)
PRINTED = re.compile(
    rf"(?:^|^.*?(?:why|next|then|site|or|and): +|^ *next  |^ +|&& ){BEGINS}(?P<rest>[^|;>#&\n]*)", re.MULTILINE
)
INLINE = re.compile(rf"`{BEGINS}(?P<rest>[^`|;>#&\n]*)`")
FENCED = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(text: str, pattern: re.Pattern[str]) -> Iterator[list[str]]:
    for match in pattern.finditer(re.sub(r"\[[a-z][^\]]* [^\]]*\]", "", text.replace("\\\n", " "))):
        try:
            words = shlex.split(f"{match['program']} {match['rest']}".split("  ")[0], comments=True)
        except ValueError:  # a quotation that ends elsewhere: no command
            continue
        yield [VALUES.get(word, word) for word in words if VALUES.get(word, word)]


def of_recorded_runs() -> set[tuple[str, ...]]:
    texts = set[str]()
    for path in sorted((ROOT / "tests/golden/expected").glob("*.words.jsonl.xz")):
        with lzma.open(path, "rt") as lines:
            texts.update(text for line in lines for text in strings(json.loads(line)))
    return {tuple(words) for text in texts for words in commands(text, PRINTED)}


def strings(data: object) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict | list):
        for each in data.values() if isinstance(data, dict) else data:
            yield from strings(each)


def of_documents() -> set[tuple[str, ...]]:
    pages = ran(["git", "-C", ROOT, "ls-files", "*.md"], check=True).stdout.splitlines()
    printed = set()
    for page in pages:
        text = (ROOT / page).read_text()
        blocks = "\n".join(FENCED.findall(text))
        printed |= {tuple(words) for words in [*commands(blocks, PRINTED), *commands(FENCED.sub("", text), INLINE)]}
    return printed


def objection(words: list[str]) -> str:
    """Why the program does not take it; empty: it does."""
    program, *rest = words
    if program == "make":
        rest = rest[2:] if rest[:1] == ["-C"] else rest
        known = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return "" if not rest or rest[0] in known or "=" in rest[0] else f"no target {rest[0]}"
    if program == "bringup":
        return of_bringup(rest)
    return of_a_script(words)


def of_bringup(rest: list[str]) -> str:
    errors = io.StringIO()
    try:
        with redirect_stderr(errors):
            arguments, options = cli.parser().parse_known_args([*rest[1:], "--help"] if rest[:1] == ["help"] else rest)
        if options:
            return f"takes no {options}"
        for phase in getattr(arguments, "phases", None) or []:
            phases_called(phase)
        if isinstance(getattr(arguments, "phase", None), str) and arguments.phase.islower():
            phase_called(arguments.phase)
    except SystemExit as stop:
        words = errors.getvalue()
        is_mention = "are required" in words or "expected " in words  # of a verb or option alone
        return "" if not stop.code or is_mention else words
    except BringupError as error:
        return str(error)
    return ""


def of_training(options: list[str]) -> str:
    """Of the options alone: what they may hold together, the program says on its machine (--check)."""
    errors = io.StringIO()
    try:
        with redirect_stderr(errors):
            recipe_arguments._parser("", takes_hsdp=True).parse_args(["--run-dir", "x", *options])
    except SystemExit as stop:
        return errors.getvalue() if stop.code and "expected one argument" not in errors.getvalue() else ""
    return ""


def of_a_script(words: list[str]) -> str:
    scripts = [word for word in words if word.endswith((".sbatch", ".sh", ".py"))]
    ours = [script for script in scripts if script.startswith(("training/", "infrastructure-validation/"))]
    if not ours:
        return ""  # somebody's own
    if not (ROOT / ours[0]).is_file():
        return f"no file {ours[0]}"
    if ours[0].startswith("training/") and (why := of_training(words[words.index(ours[0]) + 1 :])):
        return why
    phase = next((each for each in PHASES.values() if each.script == ours[0]), None)
    nodes = next((word.partition("=")[2] for word in words if word.startswith("--nodes=")), "")
    if phase is not None and nodes.isdecimal() and (lack := phase.lacks(int(nodes), 8)):
        return lack
    if ours[0].endswith(".py"):
        return ""
    return "" if subprocess.run(["bash", "-n", ROOT / ours[0]], check=False).returncode == 0 else "no script for bash"


@for_each(of_recorded_runs, of_documents, ids=lambda source: source.__name__)
def test_its_program_takes_each_printed_command(monkeypatch, source):
    """`explain` printed a training on one node that its script refuses, and pages an option that was gone."""
    monkeypatch.setattr(known_runs, "called", lambda name, what="": Path(name))
    printed = source()
    wrong = {shlex.join(words): why for words in sorted(printed) if (why := objection(list(words)))}
    assert not wrong, "\n".join(f"{command}: {why}" for command, why in wrong.items())
    assert len(printed) > 40, printed


@for_each(
    "bringup explain --jsn last",
    "bringup run discovry",
    "sbatch --nodes=1 training/slurm/run_ddp_2node.sbatch",
    "sbatch training/slurm/run_1gpu.sbatch --no-such-option",
    "bash infrastructure-validation/scripts/no_such_script.sh",
    "make nothing",
)
def test_a_command_that_its_program_refuses_is_seen(command):
    assert objection(command.split())
