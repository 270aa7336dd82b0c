"""Draws a dashboard as SVG from the answers of a Prometheus, for the docs. Pure.

The picture shows all panels and their data. It does not imitate Grafana.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite
from typing import Any

from monitoring.panels import Dashboard, Kind

_CELL, _ROW = 50, 22
"""Width and height of one cell of the grid."""
_GAP, _TITLE, _FOOT = 4, 22, 16
_MOST_NAMED, _MOST_ROWS = 6, 8
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


def draw(dashboard: Dashboard, answers: Mapping[str, Sequence[Line]]) -> str:
    """Return the picture; `answers` has the series of each panel by its title."""
    placed = dashboard.to_json()["panels"]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in placed) * _ROW
    width = 24 * _CELL
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' role='img'>",
        f"<title>{escape(dashboard.title)}</title>",
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
            yield from _stats(inner, lines, unit)
        case Kind.TABLE:
            yield from _rows(inner, lines)
        case Kind.TIMELINE:
            yield from _bars(inner, lines)
        case _:
            yield from _chart(inner, lines, unit)


def _stats(box: _Box, lines: Sequence[Line], unit: str) -> Iterator[str]:
    for number, line in enumerate(lines):
        x = box.x + box.width * (number + 0.5) / len(lines)
        yield _text(x, box.y + box.height / 2, _shown(line.last, unit), 26, "text-anchor='middle'")
        yield _text(x, box.y + box.height / 2 + 22, line.name, 11, "text-anchor='middle' fill='#666'")


def _rows(box: _Box, lines: Sequence[Line]) -> Iterator[str]:
    for number, line in enumerate(lines[:_MOST_ROWS]):
        words = ", ".join(f"{name}: {value}" for name, value in sorted(line.labels.items()) if name != "namespace")
        yield _text(box.x, box.y + 14 + 16 * number, words, 11)


def _bars(box: _Box, lines: Sequence[Line]) -> Iterator[str]:
    first, last = _span(lines)
    for number, line in enumerate(lines[:_MOST_ROWS]):
        y = box.y + 14 + 17 * number
        yield _text(box.x, y, line.name, 11)
        for time, value in line.points:
            x = box.x + 260 + (box.width - 270) * (time - first) / (last - first)
            yield f"<rect x='{x:.1f}' y='{y - 10}' width='10' height='12' fill='{_COLORS[1] if value else '#ccc'}'/>"


def _chart(box: _Box, lines: Sequence[Line], unit: str) -> Iterator[str]:
    known = [line for line in lines if any(isfinite(value) for _, value in line.points)]
    if not known:
        return
    first, last = _span(known)
    top = max(value for line in known for _, value in line.points if isfinite(value)) or 1.0
    plot = _Box(box.x + 44, box.y + 4, box.width - 48, box.height - _FOOT - 8)
    for share in (0.0, 0.5, 1.0):
        y = plot.y + plot.height * (1 - share)
        yield f"<line x1='{plot.x}' x2='{plot.x + plot.width}' y1='{y:.1f}' y2='{y:.1f}' stroke='#eee'/>"
        yield _text(plot.x - 4, y + 4, _shown(top * share, unit), 10, "text-anchor='end' fill='#666'")
    for number, line in enumerate(known):
        path = " ".join(_points(plot, line, (first, last), top))
        color = _COLORS[number % len(_COLORS)]
        yield f"<polyline points='{path}' fill='none' stroke='{color}' stroke-width='1.5'/>"
    for number, line in enumerate(known[:_MOST_NAMED]):
        x = plot.x + plot.width * number / min(len(known), _MOST_NAMED)
        yield f"<rect x='{x:.1f}' y='{box.y + box.height - 10:.1f}' width='8' height='8' fill='{_COLORS[number]}'/>"
        yield _text(x + 11, box.y + box.height - 2, line.name, 10)


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
    word = {"s": " s", "percent": " %", "d": " days"}.get(unit, "")
    return f"{value:.3g}{word}" if abs(value) < 1000 else f"{value:.0f}{word}"


def _text(x: float, y: float, words: str, size: int, more: str = "") -> str:
    return f"<text {_FONT.format(size)} x='{x:.1f}' y='{y:.1f}' {more}>{escape(words)}</text>"
