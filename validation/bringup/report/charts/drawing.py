"""Shapes, axes, and the two forms that most figures have: lines over an axis, and a bar for each number.

Lengths are in units of the picture, which are px where the page is wide enough.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

COLOURS = 8  # classes line-0 to line-7 of the style sheet, and fill-0 to fill-7
CHARACTER = 6.3  # the width of one, on average, at the size of the style sheet
_LEFT, _RIGHT, _TOP, _BOTTOM = 54.0, 20.0, 18.0, 34.0
LINE = 15.0  # from one line of text to the next
_ROW = 22.0  # of a bar
_MOST_NAME = 26  # characters of a name beside a bar
_MOST_TICKS = 6
_MOST_POINTS = 600  # of a line


class Line(NamedTuple):
    points: Sequence[tuple[float, float]]
    style: str
    title: str = ""
    kind: str = "line"

    @property
    def path(self) -> str:
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in self.points)


class Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float
    style: str
    title: str = ""
    kind: str = "box"


class Squares(NamedTuple):
    """Many of one colour and side, as one shape."""

    corners: Sequence[tuple[float, float]]
    side: float
    style: str
    kind: str = "squares"

    @property
    def path(self) -> str:
        side = f"{self.side:.1f}"
        return "".join(f"M{x:.1f} {y:.1f}h{side}v{side}h-{side}z" for x, y in self.corners)


class Text(NamedTuple):
    x: float
    y: float
    words: str
    style: str = "start"  # middle, end: the side that stands at x
    kind: str = "text"


Shape = Line | Box | Squares | Text


@dataclass(frozen=True)
class Drawing:
    title: str
    width: float
    height: float
    shapes: Sequence[Shape]
    note: str = ""  # below it


class Axis(NamedTuple):
    """From numbers to places."""

    low: float
    high: float
    begin: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        low, high, value = map(self._scaled, (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.begin + share * (self.end - self.begin)

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, 1e-12)) if self.is_log else value

    def ticks(self, least_step: float = 0.0) -> list[float]:
        """Return round numbers inside of it."""
        if not self.is_log:
            step = max(_round_step((self.high - self.low) / _MOST_TICKS), least_step)
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            return [number * step for number in range(first, last + 1)]
        low, high = self._scaled(self.low), self._scaled(self.high)
        whole = range(math.ceil(low - 1e-3), math.floor(high + 1e-3) + 1)
        if len(whole) >= 2:
            return [10.0**decade for decade in whole[:: -(-len(whole) // _MOST_TICKS)]]
        known = [factor * 10.0**decade for decade in range(math.floor(low), whole.stop) for factor in (1, 2, 5)]
        return [value for value in known if 0.999 * self.low <= value <= 1.001 * self.high]


def _round_step(least: float) -> float:
    """Return 1, 2 or 5 times a power of ten, not less than this."""
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * 0.999)


@dataclass(frozen=True)
class Series:
    name: str
    points: Sequence[tuple[float, float]]
    style: str = ""  # further classes of the style sheet: wide
    colour: int | None = None  # None: by its place


class Limit(NamedTuple):
    """What is expected: at one place, or everywhere."""

    value: float
    name: str
    at: float | None = None


def has_place(value: float) -> bool:
    """Say whether an axis of sizes or speeds has it: evidence may hold any number, and none ends a judgement."""
    return 0 <= value < 1e18


def short(value: float) -> str:
    """Write a number in short: `27,700`, `0.0312`."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def lines(
    title: str,
    series: Sequence[Series],
    across: str,
    up: str,
    *,
    limits: Sequence[Limit] = (),
    ticks: Sequence[tuple[float, str]] = (),
    least_tick: float = 0.0,
    is_log: bool = False,
    from_zero: bool = False,
    moments: Sequence[tuple[float, str]] = (),
    note: str = "",
) -> Drawing:
    """Draw lines. ticks: (number, words) of the axis across; empty: round numbers, least_tick apart or more. is_log:
    both axes, and no number may be 0. moments: (number of the axis across, style) of what began or ended."""
    xs = [x for each in series for x, _ in each.points]
    ys = [y for each in series for _, y in each.points] + [limit.value for limit in limits]
    width, height = 380.0, 250.0
    low, high = _around(ys, is_log, from_zero)
    horizontal = Axis(min(xs), max(xs), _LEFT, width - _RIGHT, is_log)
    vertical = Axis(low, high, height - _BOTTOM, _TOP, is_log)
    shapes = _axes(horizontal, vertical, across, up, ticks or [(x, short(x)) for x in horizontal.ticks(least_tick)])
    upright = [(horizontal.at(moment), style) for moment, style in moments if min(xs) <= moment <= max(xs)]
    shapes += [Line([(x, _TOP), (x, height - _BOTTOM)], f"moment {style}".strip()) for x, style in upright]
    named = list[tuple[str, str]]()
    for index, each in enumerate(series):
        colour = (index if each.colour is None else each.colour) % COLOURS
        points = [(horizontal.at(x), vertical.at(y), y) for x, y in _thinned(each.points)]
        shapes.append(Line([(x, y) for x, y, _ in points], f"line-{colour} {each.style}".strip(), each.name))
        named.append((f"line-{colour}", each.name))
        if len(points) <= 24:
            shapes += [
                Box(x - 1.8, y - 1.8, 3.6, 3.6, f"fill-{colour}", f"{each.name}: {short(value)} {up}")
                for x, y, value in points
            ]
    for limit in limits:
        y, style = vertical.at(limit.value), "ceiling" if limit.at is None else "floor"
        middle = None if limit.at is None else horizontal.at(limit.at)
        begin, end = (_LEFT, width) if middle is None else (middle - 16, middle + 16)
        shapes.append(Line([(begin, y), (min(end, width - _RIGHT), y)], style, limit.name))
        named.append((style, limit.name))
    below, end = _legend(named, width, height + 4)
    return Drawing(title, width, end + 6, [*shapes, *below], note)


def _thinned(line: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Keep as many points as a figure has places: the lowest and the highest of each stretch stay."""
    stretch = -(-len(line) * 2 // _MOST_POINTS)
    if stretch < 3:
        return list(line)
    kept: list[tuple[float, float]] = []
    for start in range(0, len(line), stretch):
        part = line[start : start + stretch]
        kept += sorted({min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])})
    return kept


def _around(values: Sequence[float], is_log: bool, from_zero: bool) -> tuple[float, float]:
    low, high = min(values), max(values)
    if is_log:
        return low / 1.3, high * 1.3
    room = 0.06 * (high - low) or 0.06 * abs(high) or 1.0
    return (0.0 if from_zero else low - room), high + room


def _axes(horizontal: Axis, vertical: Axis, across: str, up: str, ticks: Sequence[tuple[float, str]]) -> list[Shape]:
    left, right, bottom, top = horizontal.begin, horizontal.end, vertical.begin, vertical.end
    shapes: list[Shape] = []
    for value in vertical.ticks():
        y = vertical.at(value)
        shapes += [Line([(left, y), (right, y)], "grid"), Text(left - 4, y + 4, short(value), "end")]
    for value, words in ticks:
        x = horizontal.at(value)
        shapes += [Line([(x, bottom), (x, bottom + 4)], "axis"), Text(x, bottom + 15, words, "middle")]
    return [
        *shapes,
        Line([(left, top), (left, bottom), (right, bottom)], "axis"),
        Text(right, bottom + 29, across, "end soft"),
        Text(4, top - 8, up, "start soft"),
    ]


def _legend(named: Sequence[tuple[str, str]], width: float, y: float) -> tuple[list[Shape], float]:
    """Draw the names, as many in a line as have room. Return them, and where the last line stands."""
    shapes: list[Shape] = []
    x, y = 4.0, y + LINE - 4
    for style, name in named:
        needs = 24 + CHARACTER * len(name) + 10
        if x > 4 and x + needs > width:
            x, y = 4.0, y + LINE
        shapes += [Line([(x, y - 4), (x + 18, y - 4)], style), Text(x + 22, y, name)]
        x += needs
    return shapes, y


class Bar(NamedTuple):
    name: str
    value: float
    words: str  # behind it
    style: str
    limit: float | None = None


def bars(
    title: str, rows: Sequence[Bar], note: str = "", *, width: float = 380.0, ends: float = 0.0, is_log: bool = False
) -> Drawing:
    """Draw a bar for each row on a rail, the first at the top, with a tick at its limit. They begin at 0, or below the
    least number of an axis of powers of ten. ends: the number of a full bar, 1 for a share."""
    names = [row.name if len(row.name) <= _MOST_NAME else f"{row.name[: _MOST_NAME - 1]}…" for row in rows]
    left = 8 + CHARACTER * max(map(len, names))
    right = max(left + 40, width - 8 - CHARACTER * max(len(row.words) for row in rows))
    numbers = [number for row in rows for number in (row.value, row.limit) if number is not None]
    low = min(numbers) / 1.6 if is_log else 0.0
    axis = Axis(low, ends or 1.1 * max(numbers) or 1.0, left, right, is_log)
    shapes: list[Shape] = []
    for index, (name, row) in enumerate(zip(names, rows, strict=True)):
        y = index * _ROW
        shapes += [
            Text(left - 6, y + 14, name, "end"),
            Box(left, y + 4, right - left, 13, "rail"),
            Box(left, y + 4, axis.at(row.value) - left, 13, row.style, f"{row.name}: {row.words}"),
            Text(right + 6, y + 14, row.words),
        ]
        if row.limit is not None:
            shapes.append(Line([(axis.at(row.limit), y + 1), (axis.at(row.limit), y + 20)], "floor"))
    return Drawing(title, width, _ROW * len(rows) + 2, shapes, note)
