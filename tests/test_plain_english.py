"""Plain words in what people read: docs, READMEs, guides, and messages of the gates.

A list can hold only words. These are the ones that came back after they had been replaced, each with the usual word.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bringup.drill.catalogue import DECLARED
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.records import grouped
from programs import ROOT

UNUSUAL = {
    r"nobody": "say what does not happen: `it is not known`, `no process`",
    r"somebody|someone": "say who: an administrator, a user, another process",
    r"told|tells? .{1,20} from": "restricted, configured, reported; `distinguish`",
    r"whatever|whoever": "say it for the cases that there are",
    r"(?<!there )(?:is|are) no (?:pass|peak|fault|evidence|reference|measure|proof|error)": "is not a",
    r"but for|all but (?:one|two|the)": "except",
    r"anew|once more": "again",
    r"comes? to (?:its|the) end|came to (?:its|the) end": "finished",
    r"(?:is|was|are|were) asked for": "requested",
    r"in the place of": "in place of, instead of",
    r"at its begin|from the begin|begin of": "start",
    r"without a word|in silence|no word of|in vain": "without a message, without finding it",
    r"mends?|mended|mending|ill (?:node|cluster)": "fix, repair; faulty",
}
PATTERN = re.compile("|".join(rf"(?P<w{i}>\b(?:{words})\b)" for i, words in enumerate(UNUSUAL)), re.IGNORECASE)
INVERTED = re.compile(
    r"(?:^|[.;:] )(?:Nor|Neither|Never|Not until|Only then) (?:is|are|does|do|has|have|was|were|can|may)\b"
)
SENTENCE_WORDS = 36  # a longer one is two


def complaints(text: str) -> list[str]:
    """What the prose says, and what the usual word is."""
    says = list(UNUSUAL.values())
    unusual = [f"`{match[0]}`: {says[int(str(match.lastgroup)[1:])]}" for match in PATTERN.finditer(text)]
    return unusual + [f"`{match[0].strip()}`: subject first" for match in INVERTED.finditer(text)]


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
    """The sentences of paragraphs and list items, not of tables and headings."""
    lines = ["" if line.lstrip().startswith(("|", "#", "<!--")) else line for _, line in prose(page)]
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:-|\d+\.) ", "\n".join(lines)):
        yield from re.split(r"(?<=[.:;?!])\s+", " ".join(paragraph.split()))


def test_sentences_are_short():
    too_long = [
        f"{path.relative_to(ROOT)}: {sentence}"
        for path in pages()
        if "results/" not in str(path)
        for sentence in sentences(path.read_text(encoding="utf-8"))
        if len(sentence.split()) > max(SENTENCE_WORDS, sentence.count(",") * 6 - 1)  # many things with commas are easy
    ]
    assert not too_long, "\n".join(too_long)


def messages() -> Iterator[tuple[str, str]]:
    """(where, text) of every check, and of every text in the rooms of checks that has a space and is no docstring."""
    faults = grouped((drill.gate, drill.fault) for drill in DECLARED.values())
    for gate in GATES.values():
        reason = [] if gate.no_drill is None else [gate.no_drill.reason]
        texts = [gate.proves, gate.fails, gate.guide.title, *faults.get(gate.id, []), *reason]
        yield from ((gate.id, text) for text in texts)
    rooms = (ROOT / "validation/bringup" / room for room in ("domains", "training/domain"))
    for path in sorted(path for room in rooms for path in room.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) and id(node) not in docstrings else None
            if isinstance(text, str) and " " in text:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", text


def test_messages_of_the_gates_use_plain_words():
    texts = [(where, re.sub(r"`[^`]*`", "", text)) for where, text in messages()]
    unclear = [f"{where}: {complaint}" for where, text in texts for complaint in complaints(text)]
    assert len(texts) > 500
    assert not unclear, "\n".join(unclear)


def test_a_word_of_the_list_and_an_inversion_are_seen_in_prose_and_not_in_code():
    page = "It is no pass.\n```\nnobody\n```\nSee `told`. Nor is it known."
    assert [(number, len(complaints(line))) for number, line in prose(page)] == [(1, 1), (5, 1)]


NO_VERB = {
    *("The", "A", "An", "What", "Whether", "Why", "How", "One", "Of", "Those", "Each", "All", "From", "As", "In", "On"),
    *("By", "For", "Where", "When", "None", "Its", "No", "This", "At", "With", "Before", "After", "Every", "Node"),
}


def public_docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, docstring) of functions, methods and properties whose name begins without an underscore."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.lineno, text


def begins_with_a_verb(docstring: str) -> bool:
    """Say whether the first word may be one in the imperative: `Return`, and not `Nodes`, `Returns`, `MFU`, `(node`."""
    word = re.match(r"[A-Z][a-z]+\b", docstring)
    return word is not None and word[0] not in NO_VERB and not re.search(r"[^s]s$|[^e]ed$", word[0])


def test_docstrings_of_public_functions_begin_with_a_verb():
    paths = [path for folder in ("validation/bringup", "training/src") for path in (ROOT / folder).rglob("*.py")]
    texts = [(path, *line) for path in paths for line in public_docstrings(ast.parse(path.read_text("utf-8")))]
    others = [f"{path.relative_to(ROOT)}:{line}: {text}" for path, line, text in texts if not begins_with_a_verb(text)]
    assert len(texts) > 600
    assert not others, "\n".join(others)


def test_a_docstring_that_is_a_noun_or_a_code_is_not_taken_for_a_verb():
    nouns = ("The node.", "None: no node.", "`n0`.", "(node, GPU).", "Whether it is.", "Seconds.", "Raises it.", "MFU.")
    assert not any(map(begins_with_a_verb, nouns))
    assert all(map(begins_with_a_verb, ("Return the node.", "Pass it on.", "Feed it.")))
