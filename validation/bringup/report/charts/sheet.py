"""Figures as files, beside report.md and of --plot: SVG with the style of the page inside, light or dark as its viewer.

Marked as ours, so that they may be drawn again.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bringup.characters import for_xml
from bringup.errors import UsageError
from bringup.records import files
from bringup.report import outputs, render
from bringup.report.charts.drawing import CHARACTER, LINE, Drawing

SUFFIX = ".svg"
_WIDTH = 1300.0  # of a sheet of several
_MARGIN, _HEADING = 20.0, 24.0
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Placed:
    drawing: Drawing
    x: float
    y: float
    note: list[tuple[float, str]]  # height at which a line of it stands, and the line

    @property
    def bottom(self) -> float:
        return self.y + (self.note[-1][0] if self.note else self.drawing.height)


def svg(title: str, drawings: Sequence[Drawing]) -> str:
    """Beside each other as far as there is room, then below."""
    placed: list[Placed] = []
    x, y = _MARGIN, _HEADING
    for drawing in drawings:
        if x > _MARGIN and x + drawing.width + _MARGIN > _WIDTH:
            x, y = _MARGIN, max(each.bottom for each in placed) + _MARGIN + _HEADING
        lines = textwrap.wrap(drawing.note, int(drawing.width / CHARACTER))
        note = [(drawing.height + LINE * row, line) for row, line in enumerate(lines, start=1)]
        placed.append(Placed(drawing, x, y, note))
        x += drawing.width + 2 * _MARGIN
    return for_xml(
        render.render(
            "sheet.svg.j2",
            title=title,
            described="; ".join(drawing.note or drawing.title for drawing in drawings),
            placed=placed,
            width=max(each.x + each.drawing.width for each in placed) + _MARGIN,
            height=max(each.bottom for each in placed) + _MARGIN,
        )
    )


def save(path: Path, title: str, drawings: Sequence[Drawing]) -> None:
    files.write(path, svg(title, drawings).encode(), replace=True)


def plot(target: Path, title: str, drawings: Sequence[Drawing], force: bool = False) -> list[Path]:
    """--plot: one sheet if `target` is an .svg, else a folder with a file each. Returns what was written.

    UsageError for another suffix, and without `force` for a file that is there.
    """
    if target.suffix == SUFFIX:
        outputs.check([outputs.Output("--plot", target, force)])
        save(target, title, drawings)
        return [target]
    if target.suffix:
        raise UsageError(f"--plot {target}: give a folder, or a file that ends in {SUFFIX}")
    return in_folder(target, drawings, force)


def in_folder(folder: Path, drawings: Sequence[Drawing], force: bool = False) -> list[Path]:
    """A file each, named by its title."""
    outputs.make_folder("--plot", folder)
    written = {folder / f"{_NOT_IN_NAMES.sub('-', drawing.title)}{SUFFIX}": drawing for drawing in drawings}
    outputs.check([outputs.Output("--plot", path, force) for path in written])
    for path, drawing in written.items():
        save(path, drawing.title, [drawing])
    return list(written)
