"""Words about verdicts, and texts of records made safe to show.

Texts in records may come from logs and host names: control characters are removed and Markdown is escaped.
"""

import itertools
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from bringup.kernel.answers import in_words
from bringup.kernel.characters import CONTROL
from bringup.kernel.characters import many as many
from bringup.kernel.characters import plain as plain
from bringup.kernel.characters import printable as printable
from bringup.kernel.facts.names import listed as listed
from bringup.kernel.plan import catalogue
from bringup.kernel.plan.claims import QUESTIONS
from bringup.kernel.records import QUIET, Answer, ClaimAnswer, Headline, Kind, Outcome, SiteUsed, Verdict
from bringup.kernel.results import REPOSITORY

_MARKDOWN = re.compile(r"([\\`*\[\]<>|&])")
# n[0-3] or `gate [n1]`, escaped: behind other words of a line it defines no link, and is none without a definition
_NAMES = re.compile(r"(?<=[\w ])\\\[([\w/, .-]+)\\\](?![(:\\])")
_UNSAFE = re.compile(rf"[{CONTROL}\\`*\[\]<>|&]")  # either of them, in one look at a character
MIN_WIDTH = 10  # of a column that is made narrower
MARK = {outcome: outcome.upper() for outcome in Outcome} | {Outcome.NO_LIMIT: "MEASURED"}
_COUNTED = {Outcome.NO_LIMIT: "without a limit"}


def escaped(text: str) -> str:
    """Make a text safe for Markdown and the HTML made from it."""
    if not _UNSAFE.search(text):  # nearly all cells of a large fleet
        return text.strip()
    safe = _MARKDOWN.sub(r"\\\1", plain(text)).replace("-\\>", "->")  # n0->n1: where no < is, > ends nothing
    safe = _NAMES.sub(r"[\1]", safe)
    return safe.replace("\\<", "&lt;").replace("\\>", "&gt;").replace("\\&", "&amp;")


def shown_path(path: Path) -> str:
    """Return the path from the repository root when inside it."""
    for place in (Path(os.path.normpath(path.absolute())), path.resolve()):  # its results may be linked from elsewhere
        if place.is_relative_to(REPOSITORY):
            return str(place.relative_to(REPOSITORY))
    return str(path.resolve())


def quoted_path(path: Path) -> str:
    """Return the same for a shell."""
    return shlex.quote(shown_path(path))


def commit(commit: str | None, is_dirty: bool | None) -> str:
    return f"{(commit or 'unknown')[:12]}{', with local changes' if is_dirty else ''}"


def proves(gate: str) -> str:
    return catalogue.GATES[gate].proves if gate in catalogue.GATES else ""


def counted(verdicts: Iterable[Verdict]) -> str:
    """Count outcomes, worst last: `14 pass, 2 without a limit, 1 fail`. Zeros are left out but for pass."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    shown = [outcome for outcome in Outcome if counts[outcome] or outcome is Outcome.PASS]
    return ", ".join(f"{counts[outcome]} {_COUNTED.get(outcome, outcome)}" for outcome in shown)


def not_passed(verdicts: Iterable[Verdict]) -> list[Verdict]:
    return sorted((v for v in verdicts if v.outcome not in QUIET), key=lambda v: -v.outcome.rank)


def sentence(verdict: Verdict) -> str:
    """Say what is wrong (the sentence of its gate), then the device or cause; where nothing was judged, why first."""
    if verdict.fails is not None:
        if verdict.unit == "count" and verdict.cause:  # what is named, before how many
            return f"{verdict.cause} ({'; '.join(filter(None, (verdict.fails, verdict.basis)))})"
        behind = "; ".join(filter(None, (verdict.cause, verdict.basis)))
        return f"{verdict.fails} ({behind})" if behind else verdict.fails
    if verdict.outcome is Outcome.NO_LIMIT:
        return f"{verdict.observed}; {verdict.cause}"
    observed = f"observed {verdict.observed}"
    if verdict.cause is None:
        return f"{observed}, expected {verdict.expected}"
    # the value of several sizes is in `observed` alone
    is_known = verdict.value is not None or (verdict.kind is Kind.UNDECLARED and verdict.evidence != "none")
    return f"{verdict.cause} ({observed})" if is_known else verdict.cause


def remedy(verdict: Verdict) -> str:
    """Say what usually helps, in one word, and name the section that says more."""
    return verdict.fix if verdict.action is None else f"{verdict.action}; {verdict.fix}"


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table, not wider than the terminal: cells are wrapped, but for names in the first column, and where that
    is not enough each row becomes lines. In a file a row is a line. Every table is printed by this."""
    cells = [[plain(cell) for cell in row] for row in [header, *rows]]
    room = terminal_width()
    names = max(len(word) for row in cells for word in row[0].split() or [""])
    widths = _fitting([max(len(row[column]) for row in cells) for column in range(len(header))], room, names)
    if room is not None and _whole(widths) > room:
        return "\n".join(line for row in cells[1:] for line in _as_lines(cells[0], row, room))
    first, *others = (_row(row, widths) for row in cells)
    return "\n".join([first, "  ".join("-" * width for width in widths), *others])


def wrapped(line: str, indent: int = 0) -> str:
    """Make a text plain, and on a terminal in lines of its width, broken between words; indent: of its later lines."""
    width = terminal_width()
    text = plain(line)
    if width is None or len(text) <= width:
        return text
    return "\n".join(textwrap.wrap(text, width, subsequent_indent=" " * indent, break_long_words=False))


def terminal_width() -> int | None:
    """Return the width of the terminal, or COLUMNS if set. None: neither."""
    if os.environ.get("COLUMNS", "").isdecimal() or (sys.stdout is not None and sys.stdout.isatty()):
        return shutil.get_terminal_size().columns
    return None


def _whole(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _fitting(widths: Sequence[int], room: int | None, names: int) -> list[int]:
    """Narrow the widest columns together, none below MIN_WIDTH, and the first not below its longest name."""
    taken = list(widths)
    least = [max(names, MIN_WIDTH), *[MIN_WIDTH] * (len(taken) - 1)]
    while room is not None and _whole(taken) > room and any(map(int.__gt__, taken, least)):
        widest = max(range(len(taken)), key=lambda column: (taken[column] > least[column], taken[column]))
        taken[widest] -= 1
    return taken


def _as_lines(header: Sequence[str], cells: Sequence[str], room: int) -> list[str]:
    label = max(map(len, header[1:]), default=0)
    lines = textwrap.wrap(cells[0], room) or [""]
    for name, cell in zip(header[1:], cells[1:], strict=True):
        lines += textwrap.wrap(f"  {name:{label}}  {cell}", room, subsequent_indent=" " * (label + 4))
    return lines


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, widths, strict=True)]
    return "\n".join(
        "  ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip()
        for parts in itertools.zip_longest(*wrapped, fillvalue="")
    )


def table(header: Iterable[str], rows: Iterable[Sequence[str]], width: int = 0) -> list[str]:
    """Write a table of Markdown; the first columns, as many as fit into the width, are aligned."""
    cells = [list(header), *([escaped(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for index in reversed(range(len(widths))):
        if sum(widths) + 3 * len(widths) >= width:
            widths[index] = 0
    first, *others = ([cell.ljust(to) for cell, to in zip(row, widths, strict=True)] for row in cells)
    return [f"| {' | '.join(line)} |" for line in (first, ["-" * max(3, to) for to in widths], *others)]


def sentence_case(words: str) -> str:
    """Make the first letter large, and keep all others as they are."""
    return words[:1].upper() + words[1:]


def headline(headline: Headline) -> str:
    """Write the headline, `NOT PROVEN: nothing failed; no GPU was seen at work`; or its word alone."""
    return f"{headline.word}{': ' if headline.says else ''}{plain(headline.says)}"


def question(answer: Answer) -> str:
    return f"{answer.question}. {QUESTIONS[answer.question]}"


def answered(answer: Answer) -> str:
    """Write a question on the screen: its answer, number and scope in one line, and what that does not say."""
    lines = [f"{answer.mark.word.upper():<10} {question(answer)}"]
    return "\n".join([*lines, *(f"{'':<10}    {plain(line)}" for line in (answer.line, *answer.reservations))])


def scope(claim: ClaimAnswer) -> str:
    """Write number and scope of a statement in one line."""
    counted = f"{claim.verdicts} verdicts on {many(len(claim.nodes), 'node')}" if claim.verdicts else ""
    return "; ".join([text for text in (*map(in_words, claim.numbers), claim.why, counted) if text])


def site_in_words(site: SiteUsed, *, is_whole: bool = True) -> str:
    """Write the site with what it says, `lab: partition gpu`, or its name alone; and what was not as it says."""
    keys = "; ".join(f"{key} {_site_value(value)}" for key, value in site.says.items()) if is_whole else ""
    differences = ", ".join(f"{name} {value}" for name, value in site.otherwise.items())
    return f"{site.name}{': ' * bool(keys)}{keys}" + (f"; not as its file says: {differences}" if differences else "")


def site_rows(site: SiteUsed) -> list[tuple[str, str, str]]:
    """Return a row for each key, and one for each variable that is another one here."""
    rows = [(key, _site_value(value), site.otherwise.get(key, "")) for key, value in site.says.items()]
    return rows + [(name, "", value) for name, value in site.otherwise.items() if name not in site.says]


def _site_value(value: bool | str | list[str] | dict[str, str | list[str]]) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name}={_site_value(inner)}" for name, inner in value.items())
    return value if isinstance(value, str) else " ".join(value)
