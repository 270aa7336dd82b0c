"""Draws a dashboard as SVG from the answers of a Prometheus, for the docs. Pure.

The picture shows all panels and their data. It does not imitate Grafana.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from math import isfinite
from typing import Any

from monitoring.panels import Dashboard, Kind

_CELL, _ROW = 50, 22
"""Width and height of one cell of the grid."""
_GAP, _TITLE, _FOOT = 4, 22, 14
_LETTER, _MARK = 6, 24
"""Width of a letter of a series' name, and of its coloured mark with the space around it."""
_MOST_DRAWN, _MOST_ROWS = 4, 8
_COLORS = ("#0072b2", "#009e73", "#d55e00", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_FONT = "font-family='sans-serif' font-size='{}'"


@dataclass(frozen=True, slots=True)
class Line:
    """One series of a panel: its labels, its name's pattern, and its values over the time in seconds."""

    labels: Mapping[str, str]
    legend: str
    points: tuple[tuple[float, float], ...]

    @property
    def name(self) -> str:
        """The name as Grafana shows it."""
        return re.sub(r"\{\{(\w+)\}\}", lambda found: self.labels.get(found[1], ""), self.legend).strip()

    @property
    def last(self) -> float:
        """The newest value."""
        return self.points[-1][1]


@dataclass(frozen=True, slots=True)
class _Box:
    x: float
    y: float
    width: float
    height: float


def draw(dashboard: Dashboard, answers: Mapping[str, Sequence[Line]], made: str = "") -> str:
    """Return the picture; `answers` has the series of each panel by its title, `made` is how and when it was made."""
    placed = dashboard.to_json()["panels"]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in placed) * _ROW
    width = 24 * _CELL
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' role='img'>",
        f"<title>{escape(dashboard.title)}</title>",
        f"<desc>{escape(made)}</desc>",
        f"<rect width='{width}' height='{height}' fill='#f4f4f4'/>",
    ]
    for panel in placed:
        parts += _panel(panel, answers.get(panel["title"], ()))
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Mapping[str, Any], lines: Sequence[Line]) -> Iterator[str]:
    place = panel["gridPos"]
    box = _Box(place["x"] * _CELL, place["y"] * _ROW, place["w"] * _CELL - _GAP, place["h"] * _ROW - _GAP)
    if panel["type"] == "row":
        yield _text(box.x + 6, box.y + 16, panel["title"], 14, "font-weight='bold'")
        return
    yield f"<rect x='{box.x}' y='{box.y}' width='{box.width}' height='{box.height}' fill='white' stroke='#ddd'/>"
    yield _text(box.x + 6, box.y + 16, panel["title"], 12, "font-weight='bold'")
    inner = _Box(box.x + 8, box.y + _TITLE, box.width - 16, box.height - _TITLE - 6)
    unit = panel["fieldConfig"]["defaults"]["unit"]
    match panel["type"]:
        case Kind.STAT:
            yield from _stats(inner, lines, panel)
        case Kind.TABLE:
            yield from _rows(inner, lines)
        case Kind.TIMELINE:
            yield from _bars(inner, lines)
        case _:
            yield from _chart(inner, lines, unit)


def _stats(box: _Box, lines: Sequence[Line], panel: Mapping[str, Any]) -> Iterator[str]:
    mode, defaults = panel["options"]["textMode"], panel["fieldConfig"]["defaults"]
    words = {value: word["text"] for found in defaults.get("mappings", ()) for value, word in found["options"].items()}
    for number, line in enumerate(lines):
        x, y = box.x + box.width * (number + 0.5) / len(lines), box.y + box.height / 2 + 4
        value = line.name if mode == "name" else words.get(f"{line.last:g}") or _shown(line.last, defaults["unit"])
        yield _text(x, y, value, 26, "text-anchor='middle'")
        if mode == "value_and_name":
            yield _text(x, y + 20, line.name, 11, "text-anchor='middle' fill='#666'")


def _rows(box: _Box, lines: Sequence[Line]) -> Iterator[str]:
    names = sorted({name for line in lines for name in line.labels if name != "namespace"})
    for column, name in enumerate(names):
        x = box.x + box.width * column / len(names)
        yield _text(x, box.y + 14, name, 11, "fill='#666'")
        for number, line in enumerate(lines[:_MOST_ROWS], 1):
            yield _text(x, box.y + 14 + 16 * number, line.labels.get(name, ""), 11)


def _bars(box: _Box, lines: Sequence[Line]) -> Iterator[str]:
    first, last = _span(lines)
    left, right = box.x + 260, box.x + box.width - 10
    height = min(box.height / max(len(lines[:_MOST_ROWS]), 1), 44)
    for number, line in enumerate(lines[:_MOST_ROWS]):
        y = box.y + height * number
        yield _text(box.x, y + height / 2 + 4, line.name, 11)
        starts = [(next(run)[0], value) for value, run in groupby(line.points, lambda point: point[1])]
        ends = [*(time for time, _ in starts[1:]), last]
        for (time, value), end in zip(starts, ends, strict=True):
            x, to = (left + (right - left) * (moment - first) / (last - first) for moment in (time, end))
            color = _COLORS[1] if value else "#ddd"
            size = f"width='{to - x:.1f}' height='{height - 6:.1f}'"
            yield f"<rect x='{x:.1f}' y='{y + 3:.1f}' {size} fill='{color}'/>"


def _chart(box: _Box, lines: Sequence[Line], unit: str) -> Iterator[str]:
    known = _largest(lines)
    if not known:
        return
    first, last = _span(known)
    top = max(value for line in known for _, value in line.points if isfinite(value)) or 1.0
    legend = [*_legend(known, box.width - 48)]
    plot = _Box(box.x + 44, box.y + 4, box.width - 48, box.height - 8 - _FOOT * len(legend))
    for share in (0.0, 0.5, 1.0):
        y = plot.y + plot.height * (1 - share)
        yield f"<line x1='{plot.x}' x2='{plot.x + plot.width}' y1='{y:.1f}' y2='{y:.1f}' stroke='#eee'/>"
        yield _text(plot.x - 4, y + 4, _shown(top * share, unit), 10, "text-anchor='end' fill='#666'")
    for number, line in enumerate(known):
        path = " ".join(_points(plot, line, (first, last), top))
        color = _COLORS[number]
        yield f"<polyline points='{path}' fill='none' stroke='{color}' stroke-width='1.5'/>"
    for row, numbers in enumerate(legend):
        x, y = plot.x, plot.y + plot.height + 4 + _FOOT * (row + 1)
        for number in numbers:
            yield f"<rect x='{x:.1f}' y='{y - 8:.1f}' width='8' height='8' fill='{_COLORS[number]}'/>"
            yield _text(x + 11, y, known[number].name, 10)
            x += _room(known[number])


def _largest(lines: Sequence[Line]) -> list[Line]:
    """Return the series with the largest values, in their order."""
    known = [line for line in lines if _peak(line) is not None]
    largest = sorted(range(len(known)), key=lambda number: -(_peak(known[number]) or 0.0))[:_MOST_DRAWN]
    return [known[number] for number in sorted(largest)]


def _legend(lines: Sequence[Line], width: float) -> Iterator[list[int]]:
    """Yield the numbers of the series that have names, in rows that have room for the names."""
    row, used = list[int](), 0.0
    for number, line in enumerate(lines):
        if row and line.name and used + _room(line) > width:
            yield row
            row, used = [], 0.0
        if line.name:
            row.append(number)
            used += _room(line)
    if row:
        yield row


def _room(line: Line) -> float:
    return _MARK + _LETTER * len(line.name)


def _peak(line: Line) -> float | None:
    return max((value for _, value in line.points if isfinite(value)), default=None)


def _points(plot: _Box, line: Line, span: tuple[float, float], top: float) -> Iterator[str]:
    first, last = span
    for time, value in line.points:
        if isfinite(value):
            x = plot.x + plot.width * (time - first) / (last - first)
            yield f"{x:.1f},{plot.y + plot.height * (1 - value / top):.1f}"


def _span(lines: Sequence[Line]) -> tuple[float, float]:
    times = [time for line in lines for time, _ in line.points]
    return (min(times), max(times)) if times and min(times) < max(times) else (0.0, 1.0)


def _shown(value: float, unit: str) -> str:
    if unit == "bytes":
        return f"{value / 2**20:.0f} MiB"
    if unit == "s" and 0 < value < 1:
        return f"{value * 1000:.3g} ms"
    if unit == "s" and value >= 120:
        return f"{value / 60:.3g} min"
    word = {"s": " s", "percent": " %", "d": " days"}.get(unit, "")
    return f"{value:.3g}{word}" if abs(value) < 1000 else f"{value:.0f}{word}"


def _text(x: float, y: float, words: str, size: int, more: str = "") -> str:
    return f"<text {_FONT.format(size)} x='{x:.1f}' y='{y:.1f}' {more}>{escape(words)}</text>"
