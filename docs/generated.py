"""Everything in docs that is made from data: `make generated` writes it, and a test names what is outdated.

The tables come from the catalogues, the lines of code from the code, samples of output from a recorded run.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path

import grimp
import networkx  # type: ignore[import-untyped]  # it brings no types
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.gate import Gate
from bringup.kernel.plan.profile import Profile, load, names
from bringup.kernel.plan.transports import TRANSPORTS
from bringup.kernel.records import Outcome, grouped, write_text
from bringup.kernel.results import REPOSITORY
from bringup.readers.known import xid
from bringup.readers.known.exit_codes import EXIT_CODES
from bringup.readers.known.signatures import SIGNATURES, Signature
from bringup.readers.known.tables import entries
from bringup.report.text import table

sys.path.insert(0, str(REPOSITORY / "docs"))
from samples import of_the_whole_run, with_samples

PAGE = REPOSITORY / "docs/07-failure-modes.md"
SIGNS = REPOSITORY / "docs/gates/log-signs.md"
DRILLS, EVERYWHERE = REPOSITORY / "docs/results/drills.md", REPOSITORY / "docs/results/everywhere.md"
KERNEL_LINES = REPOSITORY / "infrastructure-validation/probes/kernel_lines.json"


_STATEMENT = 4  # blanks between its words, at least


def _signatures() -> list[str]:
    lines: list[str] = []
    own = [sign for sign in SIGNATURES.values() if sign.of is None and sign.breadth == "exact"]
    shown = [sign for sign in own if sign.role == "root"]
    for area, several in groupby(shown, key=lambda signature: signature.area):
        lines += [f"## {area}", "", *(f"- {_quoted(_telling(sign))}: {_short(sign.cause)}" for sign in several), ""]
    return lines[:-1]


def _short(cause: str) -> str:
    """Up to the first colon that has a statement before it: `bringup why` says the rest."""
    ends = (match.start() for match in re.finditer("[:;] ", cause) if cause.count(" ", 0, match.start()) >= _STATEMENT)
    return cause[: next(ends, None)]


def _quoted(line: str) -> str:
    return f"`` {line} ``" if "`" in line else f"`{line}`"


def _telling(sign: Signature) -> str:
    """The part of the example by which the line is known, in whole words."""
    match = next(match for pattern in sign.patterns if (match := re.search(pattern, sign.example)))
    begin = sign.example.rfind(" ", 0, match.start() + 1) + 1
    end = sign.example.find(" ", match.end() - 1)
    return sign.example[begin : end if end > 0 else None].rstrip(":.,")


def _kernel_lines() -> str:
    """Write the table of kernel messages as probes read it: their system Python has no YAML."""
    table, lines = entries("kernel"), {}
    for name, each in table["signatures"].items():
        pattern = f"{each.get('begin', '')}(?:{'|'.join(each['patterns'])})".replace("DEVICE", table["device"])
        lines[name.partition(".")[2]] = {"of": each["of"], "pattern": pattern, "over": each.get("over")}
    return json.dumps({"resets": xid.TABLE.resets, "lines": lines}, indent=1) + "\n"


def _exit_codes() -> list[str]:
    return table(("exit code", "meaning"), ((str(code), meaning) for code, meaning in sorted(EXIT_CODES.items())))


def _xids() -> list[str]:
    rows = [(each.xids.replace(" ", ", "), each.asks) for each in xid.TABLE.classes]
    rows += [("144-150, Nonfatal", "a warning"), ("another Xid", f"a warning; {xid.LOOK_IT_UP}")]
    rows += [
        (f"SXid {each.xids.replace(' ', ', ')}, Fatal", each.asks) for each in xid.TABLE.sxids if each.for_the_node
    ]
    rows += [("another SXid, Fatal", xid.TABLE.sxid), ("SXid, Non-fatal", "a warning")]
    rows += [(f"no Xid: {words}", asks) for words, asks, *_ in xid.TABLE.without_a_number.values()]
    return table(("message", "what it asks for"), rows)


def _stops() -> list[str]:
    """After which outcome of a gate the later phases do not run. A gate that only warns stops nothing."""
    rows: dict[str, list[Gate]] = {}
    for gate in GATES.values():
        if gate.severity is not Outcome.WARN:
            after = " or ".join(gate.stops) or "nothing"
            rows.setdefault(after, []).append(gate)
    named = [(after, _ids(rows[after])) for after in ("nothing", "fail")]
    return _plain_table(("stops after", "gates"), [*named, ("fail or incomplete", "all others")])


def _profiles() -> list[str]:
    """The profiles of real machines, and what each expects of all_reduce at some numbers of nodes.

    The local cluster names its own profiles: nobody has to choose one.
    """
    rows = []
    for profile in (load(name, strict=False) for name in names() if not name.startswith(_OF_THE_LOCAL_CLUSTER)):
        floors = [_floor(profile, nodes) for nodes in _SCALES]
        numbers = [f"{limit:.0f}" for limit in floors] if min(floors) >= 1 else [""]
        rows.append((f"`{profile.name}`", profile.description, ", ".join(numbers)))
    scales = ", ".join(map(str, _SCALES))
    return _plain_table(("profile", "for", f"floor of all_reduce at 8GiB, GB/s, on {scales} nodes"), rows)


_OF_THE_LOCAL_CLUSTER = ("local-", "simulated-", "programs-on-cpu")
_SCALES = (1, 2, 4, 16, 64)


def _plain_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table whose cells are Markdown already."""
    return [_row(head), "|" + "---|" * len(head), *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _floor(profile: Profile, nodes: int) -> float:
    limit = profile.limit("nccl.all_reduce.busbw", nodes).value
    return float(limit) if isinstance(limit, int | float) else 0


def _transports() -> list[str]:
    return _plain_table(
        ("class", "what it is", "what NCCL prints"),
        ((f"`{transport.name}`", transport.says, transport.prints) for transport in TRANSPORTS),
    )


def _rooms() -> list[str]:
    """A drawing (Mermaid) of which room imports which. An arrow that a longer way says as well is left out."""
    graph = grimp.build_graph("bringup")
    for room in graph.find_children("bringup"):
        graph.squash_module(room)
    imports = ((room, below) for room in graph.modules for below in graph.find_modules_directly_imported_by(room))
    rooms = networkx.DiGraph((room, below) for room, below in imports if room != below and "__" not in room)
    arrows = sorted(networkx.transitive_reduction(rooms).edges)
    names = [[module.removeprefix("bringup.") for module in arrow] for arrow in arrows]
    return ["```mermaid", "flowchart TD", *(f"    {room} --> {below}" for room, below in names), "```"]


PARTS: dict[Path, dict[str, Callable[[], list[str]]]] = {
    PAGE: {"exit-codes": _exit_codes, "xids": _xids},
    SIGNS: {"signatures": _signatures},
    REPOSITORY / "docs/gates/README.md": {"stops": _stops},
    REPOSITORY / "docs/architecture.md": {"rooms": _rooms},
    REPOSITORY / "validation/README.md": {
        "profiles": _profiles,
        "transports": _transports,
    },
}
"""Page -> its tables by name."""


def _replaced(path: Path, page: str, name: str, lines: Sequence[str]) -> str:
    begin, end = f"<!-- made from the catalogue: {name} -->", f"<!-- end: {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise ValueError(f"{path}: expected {begin} and {end} once")
    return pattern.sub(lambda _: "\n".join([begin, "", *lines, "", end]), page)


def _ids(gates: Sequence[Gate]) -> str:
    return ", ".join(f"`{gate.id}`" for gate in gates)


def pages() -> dict[Path, str]:
    """Every page of docs/, and others with generated parts -> the text that it should have: tables and quotes.
    ValueError when a marker is missing, or what is quoted."""
    texts = {**of_the_whole_run(), KERNEL_LINES: _kernel_lines()}
    texts[DRILLS] = without_a_peer(DRILLS.read_text(encoding="utf-8"), EVERYWHERE.read_text(encoding="utf-8"))
    for path in dict.fromkeys([*PARTS, *sorted((REPOSITORY / "docs").glob("*.md"))]):
        text = with_samples(with_quotes(path.read_text(encoding="utf-8"), REPOSITORY))
        for name, make in PARTS.get(path, {}).items():
            text = _replaced(path, text, name, make())
        texts[path] = text
    return texts


# --- pages that runs wrote: the drills, beside the same faults on all nodes

_NOTICED_BY = re.compile(r"\| (?P<gate>[a-z_]+\.[a-z_.]+) \| (?P<drills>[a-z0-9-]+(?:, [a-z0-9-]+)*) \|")
_UNNOTICED = re.compile(r"\| (?P<drill>[a-z0-9-]+): .* \| [a-z_.]+ \|")
_OF_A_CELL = re.compile(r"(?:^|; )([a-z0-9-]+): ")
_WITHOUT_A_PEER = "noticed without a peer"
_LEGEND = (
    f"{_WITHOUT_A_PEER}: which gate notices them [where all nodes have them](everywhere.md); yes: that of the row."
)


def without_a_peer(page: str, everywhere: str) -> str:
    """Return the report of the drills with a last column from that of `bringup drill --everywhere`."""
    noticed = {drill: row["gate"] for row in _NOTICED_BY.finditer(everywhere) for drill in row["drills"].split(", ")}
    unnoticed = {row["drill"] for row in _UNNOTICED.finditer(everywhere)}
    lines, is_table = [], False
    for line in page.splitlines():
        cells = line.removeprefix("| ").removesuffix(" |").split(" | ")[:2]
        if line.startswith("| verdict | faults |"):
            is_table, line = True, f"| verdict | faults | {_WITHOUT_A_PEER} |"
        elif is_table and line.startswith("| ---"):
            line = "| --- | --- | --- |"
        elif is_table and line.startswith("| "):
            own = cells[0].partition(" ")[0]
            answers = {
                drill: "no" if drill in unnoticed else "yes" if noticed[drill] == own else noticed[drill]
                for drill in _OF_A_CELL.findall(cells[1])
                if drill in noticed or drill in unnoticed
            }
            by_answer = grouped((answer, drill) for drill, answer in answers.items())
            short = [a if len(by_answer) == 1 else f"{a}: {', '.join(drills)}" for a, drills in by_answer.items()]
            line = f"| {' | '.join([*cells, *filter(None, ['; '.join(short)])])} |"
        lines.append(line)
    return "\n".join([*lines, *([] if _LEGEND in lines else ["", _LEGEND]), ""])


# --- lines of code in docs

_QUOTED = re.compile(r"<!-- quoted: (?P<what>[^\n]+?) -->\n.*?<!-- end quoted -->", re.DOTALL)
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json"}


def with_quotes(page: str, repository: Path) -> str:
    """Return the page with all its quotes as the code is now. ValueError when a file, a symbol or a line is not there.

    The block between a marker and its end is replaced. The parts of a marker are the file, the symbol (empty: the whole
    file), and the first and the last line by how they begin; without them it is the whole symbol, with the first alone
    that line:

        <!-- quoted: training/src/recipe/data.py | make_rows | about = | path = -->
        <!-- quoted: training/slurm/run_1gpu.sbatch | | srun -->
        <!-- end quoted -->
    """
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


# --- all of it


def main() -> None:
    for path, text in pages().items():
        write_text(path, text, replace=True)


if __name__ == "__main__":
    main()
