"""Figures as files beside report.md: SVG with the style of the page inside, light or dark as its viewer."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bringup.kernel.characters import for_xml
from bringup.kernel.records import files
from bringup.report.charts.drawing import CHARACTER, LINE, Drawing
from bringup.report.render import render

_WIDTH = 1300.0  # of a sheet of several
_MARGIN, _HEADING = 20.0, 24.0


class Placed(NamedTuple):
    drawing: Drawing
    x: float
    y: float
    note: list[tuple[float, str]]  # height at which a line of it stands, and the line

    @property
    def bottom(self) -> float:
        return self.y + (self.note[-1][0] if self.note else self.drawing.height)


def svg(title: str, drawings: Sequence[Drawing]) -> str:
    """Put drawings beside each other as far as there is room, then below."""
    placed: list[Placed] = []
    x, y = _MARGIN, _HEADING
    for drawing in drawings:
        if x > _MARGIN and x + drawing.width + _MARGIN > _WIDTH:
            x, y = _MARGIN, max(each.bottom for each in placed) + _MARGIN + _HEADING
        lines = textwrap.wrap(drawing.note, int(drawing.width / CHARACTER))
        note = [(drawing.height + LINE * row, line) for row, line in enumerate(lines, start=1)]
        placed.append(Placed(drawing, x, y, note))
        x += drawing.width + 2 * _MARGIN
    width = max(each.x + each.drawing.width for each in placed) + _MARGIN
    height = max(each.bottom for each in placed) + _MARGIN
    return for_xml(render("sheet.svg.j2", title=title, placed=placed, width=width, height=height))


def save(path: Path, title: str, drawings: Sequence[Drawing]) -> None:
    files.write(path, svg(title, drawings).encode(), replace=True)
