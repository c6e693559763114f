"""The tables of docs/06-failure-modes.md, made from the catalogues, so that the page cannot lag behind them.

`python -m bringup.failure_modes` rewrites them in place (`make generated`); a test fails while they differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby

from bringup.drills import DRILLS
from bringup.parsers import xid
from bringup.pending import CAUSES
from bringup.phases import REPOSITORY
from bringup.records import write_text
from bringup.report import table
from bringup.signatures import EXIT_CODES, SIGNATURES

PAGE = REPOSITORY / "docs/06-failure-modes.md"


def _signatures() -> list[str]:
    lines: list[str] = []
    for area, several in groupby(SIGNATURES.values(), key=lambda one: one.area):
        lines += [f"**{area}**", ""]
        lines += table(
            ("sign", "a line as it is printed", "cause", "next"),
            (
                (one.id, one.example, one.cause + (" (a victim's word)" if one.victim else ""), one.do)
                for one in several
            ),
        )
        lines.append("")
    return lines[:-1]


def _exit_codes() -> list[str]:
    return table(("exit code", "meaning"), ((str(code), meaning) for code, meaning in EXIT_CODES.items()))


def _pending() -> list[str]:
    return table(("Slurm's reason", "meaning", "next"), ((one.reason, one.says, one.do) for one in CAUSES))


def _xids() -> list[str]:
    return table(
        ("Xid", "what it asks for"), ((", ".join(map(str, numbers)), words) for words, numbers in xid.classes())
    )


def _drills() -> list[str]:
    return table(
        ("drill", "where", "fault", "phase", "found by", "outcome"),
        ((one.id, one.where, one.fault, one.phase, f"{one.gate} [{one.subject}]", str(one.outcome)) for one in DRILLS),
    )


TABLES: dict[str, Callable[[], list[str]]] = {
    "signatures": _signatures,
    "exit-codes": _exit_codes,
    "pending": _pending,
    "xids": _xids,
    "drills": _drills,
}


def rewritten(page: str) -> str:
    """The page with every table between its markers made anew. Raises ValueError when a marker is missing."""
    for name, make in TABLES.items():
        page = _replaced(page, name, make())
    return page


def _replaced(page: str, name: str, lines: Sequence[str]) -> str:
    begin, end = f"<!-- made from the catalogue: {name} -->", f"<!-- end: {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise ValueError(f"{PAGE}: expected {begin} and {end} once")
    return pattern.sub(lambda _: "\n".join([begin, "", *lines, "", end]), page)


def main() -> None:
    write_text(PAGE, rewritten(PAGE.read_text(encoding="utf-8")), replace=True)


if __name__ == "__main__":
    main()
