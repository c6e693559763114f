"""How every picture is drawn: its panels, its resolution, the mark of what is ours, and texts as they stand in a
record.

matplotlib is imported only when there is something to draw; pyplot never, so that nothing is global and no window
opens.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bringup.errors import UsageError
from bringup.records import files
from bringup.report import outputs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Corner = Literal["best", "lower left", "lower right"]
DPI = 110
SHEETS = (".png", ".svg", ".pdf")
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#999999")
"""Those of Okabe and Ito, which people with any kind of colour vision tell apart; markers and dashes say the same
again."""


NOT_DRAWN = "no pictures: matplotlib is not installed (make venv)"


def can_draw() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def panels(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """Raises UsageError where nothing can be drawn."""
    if not can_draw():
        raise UsageError(NOT_DRAWN)
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def label(text: str, most: int | None = None) -> str:
    """A text of a record as it is, in at most so many characters. matplotlib reads mathematics between dollars, and
    hides a line whose label begins with an underscore."""
    shown = text if most is None or len(text) <= most else f"{text[: most - 1]}…"
    shown = shown.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def labels(texts: Sequence[str], most: int | None = None) -> list[str]:
    return [label(text, most) for text in texts]


def finish(axis: Axes, title: str, xlabel: str, ylabel: str, *, legend: Corner = "best") -> None:
    """Titles, a grid, and a legend where something has a label."""
    axis.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axis.grid(alpha=0.3)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize="x-small", loc=legend, markerscale=0.6)


def save(figure: Figure, path: Path) -> None:
    """Marked as ours, so that it may be drawn again."""
    drawn, key = io.BytesIO(), "Software" if path.suffix == ".png" else "Creator"
    figure.savefig(drawn, format=path.suffix[1:], metadata={key: outputs.PICTURE.mark})
    files.write(path, drawn.getvalue(), replace=True)
