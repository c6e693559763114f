"""Plain names in code: a variable is called what it is, an `observation`, not `one`.

A participle or a pronoun says only that something was there. The reader has to look for what it is.
"""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

from programs import ROOT

EMPTY = {
    "told": "settings, a message, the facts of a node",
    "said": "output, an answer, a message",
    "one": "the noun: observation, record, partition",
    "ones": "the noun in the plural",
    "gone": "removed, absent, ended",
    "found": "the noun: matches, verdicts, a path",
}


def is_python(path: Path) -> bool:
    """By its name, or by its first line: checks and stand-ins of programs have no ending."""
    if path.suffix or path.is_symlink() or not path.is_file():
        return path.suffix == ".py"
    with path.open("rb") as file:
        return file.readline().startswith(b"#!/usr/bin/env python3")


def programs() -> list[Path]:
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.splitlines() if is_python(ROOT / name)]


def fields(tree: ast.AST) -> set[int]:
    """Ids of the nodes of the syntax tree that name a field of a class. Records on disk have these names as keys."""
    statements = [statement for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for statement in node.body]
    annotated = {id(statement.target) for statement in statements if isinstance(statement, ast.AnnAssign)}
    assigned = (statement for statement in statements if isinstance(statement, ast.Assign))
    return annotated | {id(target) for statement in assigned for target in statement.targets}


def names(tree: ast.AST) -> Iterator[tuple[int, str | None]]:
    """(line, name) of variables, arguments and functions."""
    of_records = fields(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in of_records:
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            yield node.lineno, node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((node.lineno, alias.asname) for alias in node.names)


def complaints(tree: ast.AST) -> list[str]:
    bare = ((line, name, (name or "").strip("_").lower()) for line, name in names(tree))
    return [f"{line}: `{name}`: {EMPTY[word]}" for line, name, word in bare if word in EMPTY]


def test_a_name_says_what_it_is():
    assert len(programs()) >= 200
    assert {"nvidia-smi", "20-driver-log", "health.py"} <= {path.name for path in programs()}
    unclear = [
        f"{path.relative_to(ROOT)}:{complaint}"
        for path in programs()
        for complaint in complaints(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not unclear, "\n".join(unclear)


def test_each_kind_of_name_is_seen_and_a_field_of_a_record_is_free():
    code = (
        "for one in several: pass\nif (found := search()): pass\nasync def gone(_said, *, told): pass\n"
        "import settings as told\ntry: pass\nexcept OSError as said: pass\nmatch answer:\n  case [first, *ones]: pass"
    )
    assert len(complaints(ast.parse(code))) == 8
    assert not complaints(ast.parse("class Drill:\n  told: str\n  said = 1\ndrill.told = answer['gone']"))
