"""Lines of this repository's code in its docs. `make generated` copies them, so a page never shows code that is gone.

A page has a marker, and the block between it and its end is replaced:

    <!-- quoted: training/src/recipe/data.py | Rows.__getitem__ -->
    <!-- quoted: training/src/recipe/data.py | make_rows | about = | path = -->
    <!-- quoted: training/slurm/run_1gpu.sbatch | | srun -->
    <!-- end quoted -->

The parts are the file, the symbol (empty: the whole file), and the first and the last line by how they begin. Without
them it is the whole symbol; with the first alone it is that line.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

_QUOTED = re.compile(r"<!-- quoted: (?P<what>[^\n]+?) -->\n.*?<!-- end quoted -->", re.DOTALL)
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json"}


def with_quotes(page: str, repository: Path) -> str:
    """The page with all its quotes as the code is now. ValueError when a file, a symbol or a line is not there."""
    return _QUOTED.sub(lambda match: _block(match["what"], repository), page)


def _block(what: str, repository: Path) -> str:
    path, symbol, first, last = (*(part.strip() for part in what.split("|")), "", "", "")[:4]
    file = repository / path
    if not file.is_file():
        raise ValueError(f"quoted: {what}: expected the file {path}, it is not there")
    lines = _of_symbol(file.read_text(encoding="utf-8"), symbol, what)
    begin = _line(lines, first, 0, what) if first else 0
    end = _line(lines, last, begin, what) if last else (begin if first else len(lines) - 1)
    code = textwrap.dedent("\n".join(lines[begin : end + 1])).rstrip()
    caption = f"`{path}`, `{symbol}`:" if symbol else f"`{path}`:"
    language = _LANGUAGES.get(file.suffix, "bash")
    return "\n".join([f"<!-- quoted: {what} -->", caption, "", f"```{language}", code, "```", "<!-- end quoted -->"])


def _of_symbol(source: str, symbol: str, what: str) -> list[str]:
    lines = source.splitlines()
    if not symbol:
        return lines
    body: list[ast.stmt] = ast.parse(source).body
    for name in symbol.split("."):
        node = next((node for node in body if _name(node) == name), None)
        if node is None:
            raise ValueError(f"quoted: {what}: expected {symbol} in the file, {name} is not there")
        body = getattr(node, "body", [])
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
        last = node.end_lineno
    return lines[first - 1 : last]


def _name(node: ast.stmt) -> str | None:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return getattr(node, "name", None)


def _line(lines: list[str], begins: str, after: int, what: str) -> int:
    for number, line in enumerate(lines[after:], start=after):
        if line.strip().startswith(begins):
            return number
    raise ValueError(f"quoted: {what}: expected a line that begins with `{begins}`, there is none")
