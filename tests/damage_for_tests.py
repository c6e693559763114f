"""Damaged evidence: hypothesis strategies, the same every time (derandomize), and values that no program writes."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from tiers import FEWER

EXAMPLES = 3 if FEWER else 40
FEW = settings(max_examples=EXAMPLES, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=5 * EXAMPLES)

# valid JSON that no reader expects: a bad path, a digit that is not 0-9, numbers that do not fit a float or a date
NASTY = ["\x00", "../..", "x" * 5000, "²KiB", "nccl.all_reduce.busbw@²KiB", "**x", -1, 10**17, 10**400]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(NASTY),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    paths = [path] if path else []
    if isinstance(value, dict):
        paths += [inner_path for key, inner in value.items() for inner_path in places(inner, (*path, key))]
    elif isinstance(value, list):
        paths += [inner_path for index, inner in enumerate(value[:3]) for inner_path in places(inner, (*path, index))]
    return paths


@st.composite
def damaged_json(draw: st.DrawFn, text: str) -> str:
    """One JSON value, of a file or of a line: it stays valid, and holds something else in one place."""
    begun = text.index("{")
    try:
        before, after, record = text[:begun], "", json.loads(text[begun:])
    except ValueError:
        lines = text.splitlines(keepends=True)
        number = draw(st.sampled_from([number for number, line in enumerate(lines) if "{" in line]))
        label, brace, rest = lines[number].partition("{")
        before, after = "".join(lines[:number]) + label, "".join(["\n", *lines[number + 1 :]])
        record = json.loads(brace + rest)
    *parents, last = draw(st.sampled_from(places(record)))
    inside(record, parents)[last] = draw(JSON)
    return f"{before}{json.dumps(record)}{after}"


def inside(record: Any, path: Sequence[Any]) -> Any:
    for step in path:
        record = record[step]
    return record


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """The text cut off, with lines lost, doubled or swapped, with two words swapped, or with something else in it."""
    lines = text.splitlines(keepends=True)
    where = draw(st.integers(0, max(0, len(text) - 1)))
    kinds = ("cut", "lost", "doubled", "swapped", "words", "written", "other", *(["json"] * 4 if "{" in text else []))
    kind = draw(st.sampled_from(kinds))
    if kind == "json":
        return draw(damaged_json(text))
    if kind == "cut":
        return text[:where]
    if kind == "written":
        return text[:where] + draw(st.text(max_size=30)) + text[where + draw(st.integers(0, 40)) :]
    if kind == "words":
        words = re.split(r"(\s+)", text)
        first, two = (2 * draw(st.integers(0, len(words) // 2)) for _ in range(2))
        words[first], words[two] = words[two], words[first]
        return "".join(words)
    if kind == "other" or not lines:
        return draw(st.text(max_size=300))
    first, two = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
    if kind == "lost":
        return "".join(lines[: min(first, two)] + lines[max(first, two) :])
    if kind == "doubled":
        return "".join([*lines, lines[first]])
    lines[first], lines[two] = lines[two], lines[first]
    return "".join(lines)


def everywhere(text: str, value: object) -> Iterator[str]:
    """A text of JSON, whole or a value on each line, with this value in each place in turn."""
    whole = [text] if text.count("\n") <= 1 else text.splitlines()
    for number, line in enumerate(whole):
        for *parents, last in places(json.loads(line)):
            record = json.loads(line)
            inside(record, parents)[last] = value
            yield "\n".join([*whole[:number], json.dumps(record), *whole[number + 1 :], ""])
