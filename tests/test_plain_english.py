"""Plain words in what people read: docs, READMEs, guides, and messages of the gates.

A list can hold only words. Each entry was found in these pages, and has the usual word beside it.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from bringup.checks.catalogue import DRILLS, GATES

ROOT = Path(__file__).resolve().parents[1]

UNUSUAL = {
    r"gone round|goes round|go round": "bypassed",
    r"set back|put back to": "reset",
    r"turned round": "reversed, opposite",
    r"mends?|mended|mending": "fix, repair",
    r"nobody": "say what does not happen: `it is not known`, `no process`",
    r"somebody|someone": "say who: an administrator, a user, another process",
    r"told|tells? .{1,20} from": "restricted, configured, reported; `distinguish`",
    r"as good as (?:never|none|nothing)": "almost, rarely",
    r"whatever|whoever": "say it for the cases that there are",
    r"that many": "as many as",
    r"(?<!there )(?:is|are) no (?:pass|peak|fault|evidence|reference|measure|proof|error)": "is not a",
    r"all but (?:one|two|the)": "all except",
    r"but for": "except",
    r"anew|once more": "again",
    r"without a word|in silence|no word of": "without a message",
    r"comes? to (?:its|the) end|came to (?:its|the) end": "finished",
    r"(?:is|was|are|were) asked for": "requested",
    r"in vain": "without finding it",
    r"for want of": "because there is no",
    r"in the place of": "in place of, instead of",
    r"at its begin|from the begin|begin of": "start",
    r"next to nothing": "almost none",
    r"for good": "permanently",
    r"gets? along with": "works with",
    r"by and by|at last": "later, finally",
    r"ill (?:node|cluster)|an ill": "faulty",
}
PATTERN = re.compile("|".join(rf"(?P<w{i}>\b(?:{words})\b)" for i, words in enumerate(UNUSUAL)), re.IGNORECASE)

INVERTED = re.compile(
    r"(?:^|[.;:] )(?:Nor|Neither|Never|Not until|Only then) (?:is|are|does|do|has|have|was|were|can|may)\b"
)
SENTENCE_WORDS = 36  # a longer one is two


def complaints(text: str) -> list[str]:
    """Of prose: what stands there, and what the usual word is."""
    complaints_made = [
        f"`{match[0]}`: {list(UNUSUAL.values())[int(str(match.lastgroup)[1:])]}" for match in PATTERN.finditer(text)
    ]
    return complaints_made + [f"`{match[0].strip()}`: subject first" for match in INVERTED.finditer(text)]


def prose(page: str) -> Iterator[tuple[int, str]]:
    """(line number, line) of a page, without code blocks, inline code, and the addresses of links."""
    inside = False
    for number, line in enumerate(page.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            yield number, re.sub(r"`[^`]*`|\]\([^)]*\)|<a id=\"[^\"]*\"></a>", "", line)


def pages() -> list[Path]:
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "*.md"], capture_output=True, text=True, check=True).stdout
    records = ("tests/", "docs/results/drills.md", "docs/results/healthy.md")  # as a run wrote them
    return [ROOT / name for name in listed.splitlines() if not name.startswith(records)]


def test_pages_use_plain_words():
    assert len(pages()) >= 15
    unclear = [
        f"{path.relative_to(ROOT)}:{number}: {complaint}"
        for path in pages()
        for number, line in prose(path.read_text(encoding="utf-8"))
        for complaint in complaints(line)
    ]
    assert not unclear, "\n".join(unclear)


def sentences(page: str) -> Iterator[str]:
    """Of paragraphs and list items, not of tables and headings."""
    lines = ["" if line.lstrip().startswith(("|", "#", "<!--")) else line for _, line in prose(page)]
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:-|\d+\.) ", "\n".join(lines)):
        yield from re.split(r"(?<=[.:;?!])\s+", " ".join(paragraph.split()))


def is_list(sentence: str) -> bool:
    """Many things with commas between them are long and easy."""
    return sentence.count(",") * 6 > len(sentence.split())


def test_sentences_are_short():
    too_long = [
        f"{path.relative_to(ROOT)}: {sentence}"
        for path in pages()
        if "results/" not in str(path)
        for sentence in sentences(path.read_text(encoding="utf-8"))
        if len(sentence.split()) > SENTENCE_WORDS and not is_list(sentence)
    ]
    assert not too_long, "\n".join(too_long)


def messages() -> Iterator[tuple[str, str]]:
    """(where, text) of every check, and of every text in the rooms of checks that has a space and is no docstring."""
    for gate in GATES.values():
        reason = [] if gate.no_drill is None else [gate.no_drill.reason]
        texts = [gate.proves, gate.guide.title, *(drill.fault for drill in gate.drills.values()), *reason]
        yield from ((gate.id, text) for text in texts)
    rooms = (ROOT / "validation/bringup" / room for room in ("checks", "derive"))
    for path in sorted(path for room in rooms for path in room.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if id(node) in docstrings or not isinstance(node, ast.Constant):
                continue
            if isinstance(node.value, str) and " " in node.value:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def test_messages_of_the_gates_use_plain_words():
    unclear = [f"{where}: {complaint}" for where, text in messages() for complaint in complaints(_prose_of(text))]
    assert len(list(messages())) > 500
    assert not unclear, "\n".join(unclear)


def _prose_of(text: str) -> str:
    return re.sub(r"`[^`]*`", "", text)


def test_what_a_drill_and_a_gate_say_is_found_by_the_same_list():
    assert GATES and DRILLS
    assert complaints("nobody knows, and it is gone round") == [
        "`nobody`: say what does not happen: `it is not known`, `no process`",
        "`gone round`: bypassed",
    ]


@pytest.mark.parametrize("text", ["It failed on n1. Nor is it known why.", "it is no pass", "as they were told"])
def test_the_list_finds_what_was_found_before(text: str):
    assert complaints(text)


def test_code_in_a_page_is_not_prose():
    assert list(prose("a\n```\nnobody\n```\n`told` b")) == [(1, "a"), (5, " b")]
