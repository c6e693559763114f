#!/usr/bin/env python3
"""Each statement of training/ and the probes that speaks of CUDA: executed by which run, or why not.

    python validation/benchmarks/cuda_statements.py run NAME [COMMAND]   # what it executed, into cuda_executed.json
    python validation/benchmarks/cuda_statements.py page                 # docs/results/cuda-statements.md

COMMAND is a line for bash at the root of the checkout, with the Python that runs this first on its PATH; RUN in it is a
new folder of a run. Without COMMAND it is the one that is recorded. It has to end with the code that is recorded, too.
Which lines it executed, it writes to the folder that BRINGUP_LINES names (cuda_stand_in/lines.py). What is kept are
statements and not lines, so it lasts while code around them moves:

    {"runs": {NAME: {"command": COMMAND, "code": EXIT_CODE or null where it was not kept, "torch": VERSION}},
     "executed": {FILE: {"FUNCTION: STATEMENT": "NAME NAME"}}}

A statement speaks of CUDA when its own code has a name of NAMES, or when it stands in an `if` on such a name. Why one
was not executed is in cuda_not_executed.yaml.
"""

import argparse
import ast
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/results/cuda-statements.md"
PROGRAM = "validation/benchmarks/cuda_statements.py"
RECORDS = "validation/benchmarks/cuda_executed.json"
REASONS = "validation/benchmarks/cuda_not_executed.yaml"
SHARED = "slurm-logs"  # not in git, and the nodes of a local cluster see it
FOLDERS = ("training", "infrastructure-validation/probes")
NAMES = {"cuda", "CUDA", "is_cuda", "pin_memory", "elapsed_time", "OutOfMemoryError"}
MOST_NOT_EXECUTED = 7
EACH = f"`{RECORDS}` has each statement, with the runs that executed it."
HEAD = """\
# Statements about CUDA, and which run executed each

Made by `python validation/benchmarks/cuda_statements.py page`. No GPU was there: the devices are a stand-in, which
computes on the CPU (`infrastructure-validation/local-cluster/simulated/cuda/`). So this page shows that the statements
run with torch's own names, keywords, devices and types. It shows nothing of a driver, of NCCL or of speed.

`python validation/benchmarks/cuda_statements.py run NAME` repeats a run; `RUN` in its command is a new folder.

**%d of %d statements were executed** (torch %s).
"""
LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@dataclass(frozen=True)
class Statement:
    file: str
    name: str  # FUNCTION: STATEMENT
    first: int  # lines; of a statement with a body, those of its head
    last: int
    needs_gpu: bool


def statements(file: str, text: str) -> list[Statement]:
    """In the order of the file. Two that read the same in one function are counted: (2)."""
    listed: list[Statement] = []
    times: dict[str, int] = {}
    walked = sorted(walk(ast.parse(text).body, ""), key=lambda each: each[0].lineno)
    for node, function, inside, behind in walked:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        if not inside and not any(speaks(part) for part in head(node)):
            continue
        body = getattr(node, "body", None)
        last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
        name = f"{function or 'at import'}: {written(node)}"
        times[name] = times.get(name, 0) + 1
        count = f" ({times[name]})" if times[name] > 1 else ""
        listed.append(Statement(file, name + count, node.lineno, last, inside or behind))
    return listed


def walk(
    body: list[ast.stmt], function: str, inside: bool = False, behind: bool = False
) -> Iterator[tuple[ast.stmt, str, bool, bool]]:
    """(statement, its function, whether it is inside an `if` on a GPU, whether behind one that leaves without it)."""
    for number, node in enumerate(body):
        yield node, function, inside, behind
        name = f"{function}.{node.name}".lstrip(".") if hasattr(node, "name") else function
        with_gpu, without = sides(node.test) if isinstance(node, ast.If) else (False, False)
        yield from walk(getattr(node, "body", []), name, inside or with_gpu, behind)
        yield from walk(getattr(node, "orelse", []), name, inside or without, behind)
        yield from walk(getattr(node, "finalbody", []), name, inside, behind)
        for handler in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
            yield from walk(handler.body, name, inside, behind)
        if without and isinstance(node, ast.If) and isinstance(node.body[-1], LEAVES):
            yield from walk(body[number + 1 :], function, inside, True)
            return


def sides(test: ast.expr) -> tuple[bool, bool]:
    """(the body needs a GPU, what comes else needs a GPU). `not cuda` turns it round."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        with_gpu, without = sides(test.operand)
        return without, with_gpu
    if isinstance(test, ast.BoolOp):
        parts = [sides(part) for part in test.values]
        both, either = (any, all) if isinstance(test.op, ast.And) else (all, any)
        return both(part[0] for part in parts), either(part[1] for part in parts)
    return speaks(test), False


def speaks(node: ast.AST) -> bool:
    for part in ast.walk(node):
        if {getattr(part, "id", None), getattr(part, "attr", None), getattr(part, "arg", None)} & NAMES:
            return True
        if isinstance(part, ast.Constant) and part.value == "cuda":
            return True
    return False


def head(node: ast.stmt) -> list[ast.AST]:
    """What belongs to the statement itself, and not to those inside it. A definition only makes a function."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return []
    return [part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.stmt | ast.ExceptHandler)]


def written(node: ast.stmt) -> str:
    return " ".join(ast.unparse(node).split("\n")[0].split()) if hasattr(node, "body") else ast.unparse(node)


def everything(root: Path) -> list[Statement]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *FOLDERS], cwd=root, capture_output=True, text=True, check=True
    )
    files = [name for name in sorted(set(listed.stdout.splitlines())) if name.endswith(".py")]
    return [each for file in files for each in statements(file, (root / file).read_text())]


def run(name: str, command: str | None, root: Path = ROOT) -> str | None:
    """Run it, and write its record. What is wrong with it, or None."""
    recorded = stored(root)["runs"].get(name)
    if command is None and recorded is None:
        return f"no run {name} is recorded; give its command"
    command = command or str(recorded["command"])
    (root / SHARED).mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bringup-run-", dir=root / SHARED) as folder:
        (Path(folder) / "run/raw").mkdir(parents=True)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", re.sub(r"\bRUN\b", f"{folder}/run", command)],
            cwd=root,
            env={**os.environ, "PATH": path, "BRINGUP_LINES": f"{folder}/lines"},
            check=False,
        )
        if recorded and recorded["command"] == command and recorded["code"] not in (None, done.returncode):
            return f"{name}: expected exit code {recorded['code']}, observed {done.returncode}"
        return record(name, Path(folder) / "lines", command, done.returncode, root)


def record(name: str, folder: Path, command: str, code: int, root: Path = ROOT) -> str | None:
    """Write the record of a run, whose lines are in `folder`. What is wrong with it, or None."""
    lines = {line for file in sorted(folder.glob("*.lines")) for line in file.read_text().splitlines()}
    there = everything(root)
    executed = [
        each for each in there if any(f"{each.file}:{number}" in lines for number in range(each.first, each.last + 1))
    ]
    if not any(each.needs_gpu for each in executed):
        return f"{folder}: no statement ran that needs a GPU, so nothing is recorded of {name}"
    kept = stored(root)
    kept["runs"][name] = {"command": command, "code": code, "torch": importlib.metadata.version("torch")}
    before, kept["executed"] = kept["executed"], {}
    for each in there:
        runs = set(before.get(each.file, {}).get(each.name, "").split()) - {name}
        runs |= {name} if each in executed else set()
        if runs:
            kept["executed"].setdefault(each.file, {})[each.name] = " ".join(sorted(runs))
    (root / RECORDS).write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    return None


def stored(root: Path) -> dict[str, Any]:
    empty = {"runs": {}, "executed": {}}
    return json.loads((root / RECORDS).read_text()) if (root / RECORDS).exists() else empty


class Known:
    """What the records and the reasons say about each statement that is there now."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root, self.statements = root, everything(root)
        self.records = stored(root)
        reasons = yaml.safe_load((root / REASONS).read_text()) or []
        self.reasons = {(each["file"], each["statement"]): each["because"] for each in reasons}

    def runs(self, statement: Statement) -> list[str]:
        of_file: dict[str, str] = self.records["executed"].get(statement.file, {})
        return of_file.get(statement.name, "").split()

    def problems(self) -> list[str]:
        """Why the page may not be believed."""
        there = {(each.file, each.name): each for each in self.statements}
        silent = [each for each in self.statements if not self.runs(each)]
        wrong = [
            f"{each.file}:{each.first}: not executed, and {REASONS} does not say why: {each.name}"
            for each in silent
            if (each.file, each.name) not in self.reasons
        ]
        wrong += [
            f"{REASONS}: {file} has no such statement: {name}"
            for file, name in self.reasons
            if (file, name) not in there
        ]
        wrong += [
            f"{REASONS}: {file}: {name} was executed by {', '.join(self.runs(there[file, name]))}"
            for file, name in self.reasons
            if (file, name) in there and self.runs(there[file, name])
        ]
        if len(silent) > MOST_NOT_EXECUTED:
            wrong.append(f"{len(silent)} statements were not executed, expected at most {MOST_NOT_EXECUTED}")
        if not (self.root / PAGE).exists() or (self.root / PAGE).read_text() != self.page():
            wrong.append(f"{PAGE} is not what the records say: python {PROGRAM} page")
        return wrong

    def page(self) -> str:
        executed = [each for each in self.statements if self.runs(each)]
        torch = sorted({each["torch"] for each in self.records["runs"].values()})
        parts = len(executed), len(self.statements), ", ".join(torch) or "of no run"
        head = "| run | command | ends with | statements |"
        lines = [*(HEAD % parts).splitlines(), "", head, "| --- | --- | --- | --- |"]
        for name, each in self.records["runs"].items():
            number = sum(name in self.runs(statement) for statement in self.statements)
            lines.append(
                f"| {name} | `{each['command']}` | {each['code'] if each['code'] is not None else '?'} | {number} |"
            )
        lines += ["", "## Not executed", "", "| where | statement | why |", "| --- | --- | --- |"]
        for each in self.statements:
            if not self.runs(each):
                where, _, code = each.name.partition(": ")
                code = re.sub(r"\s+", " ", code).replace("|", "\\|")
                reason = self.reasons.get((each.file, each.name), "no reason is known")
                lines.append(f"| {each.file}, {where} | ``{code}`` | {reason} |")
        lines += ["", "## Executed", "", EACH, "", "| file | statements | in | by |", "| --- | --- | --- | --- |"]
        for file in dict.fromkeys(each.file for each in executed):
            own = [each for each in executed if each.file == file]
            where = dict.fromkeys(each.name.partition(": ")[0] for each in own)
            by = dict.fromkeys(run for each in own for run in self.runs(each))
            lines.append(f"| {file} | {len(own)} | {', '.join(where)} | {', '.join(by)} |")
        return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    runner = verbs.add_parser("run")
    runner.add_argument("name")
    runner.add_argument("command", nargs="?")
    verbs.add_parser("page")
    chosen = parser.parse_args()
    if chosen.verb == "run":
        wrong = run(chosen.name, chosen.command)
        if wrong:
            print(wrong, file=sys.stderr)
        return 1 if wrong else 0
    known = Known()
    (ROOT / PAGE).write_text(known.page())
    wrongs = known.problems()
    print(*wrongs, sep="\n")
    return 1 if wrongs else 0


if __name__ == "__main__":
    sys.exit(main())
