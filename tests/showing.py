"""A test names the gates that it shows failing. conftest.py watches what is judged while it runs, and checks this.

And what a verdict says, in one line of a test."""

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from bringup.kernel.records import Outcome, Verdict
from runs_for_tests import in_words

MARK = "shows_failing"


def shows_failing(*gates: str) -> pytest.MarkDecorator:
    """On a test, or as `marks` of one `pytest.param`: each of these gates gets the worst outcome that its value can
    give it (fail, or warn where a gate only warns). Missing evidence does not count."""
    return getattr(pytest.mark, MARK)(*gates)


def check(verdict: Verdict, outcome: Outcome, *says: str) -> None:
    """The verdict is this, and each of these words stands in what was observed, or in why nothing was."""
    is_so, words = in_words(verdict)
    assert (is_so, [each for each in says if each not in words]) == (outcome, []), verdict


def check_each(verdicts: Iterable[Verdict], *expected: Outcome | tuple[Outcome, str]) -> None:
    """The same of one verdict after another, such as of the nodes."""
    for verdict, wanted in zip(verdicts, expected, strict=True):
        check(verdict, *(wanted if isinstance(wanted, tuple) else (wanted,)))


def gates_shown_failing(path: Path) -> set[str]:
    """The gates that tests of this file name, without running them."""
    named: set[str] = set()
    for test in _tests(_load(path)):
        for mark in getattr(test, "pytestmark", []):
            named |= _named_in(mark)
    return named


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"read_{path.stem}", path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks there for its own module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


def _tests(module: ModuleType) -> Iterable[Any]:
    for name, member in vars(module).items():
        if isinstance(member, type) and name.startswith("Test"):
            yield from (function for key, function in vars(member).items() if key.startswith("test"))
        elif name.startswith("test"):
            yield member


def _named_in(mark: pytest.Mark) -> set[str]:
    if mark.name == MARK:
        return set(mark.args)
    if mark.name != "parametrize":
        return set()
    rows = mark.args[1] if len(mark.args) > 1 else mark.kwargs["argvalues"]
    sets = [row for row in rows if isinstance(row, type(pytest.param()))]
    return {gate for row in sets for inner in row.marks for gate in _named_in(getattr(inner, "mark", inner))}
