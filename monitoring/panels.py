"""Grafana's dashboards as values: rows of panels, each with its queries, and the JSON that Grafana reads."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_COLUMNS = 24
_HEIGHT, _NUMBER_HEIGHT = 8, 4
"""Height of a line of panels; of a line that has numbers only."""
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_SCHEMA = 39
"""Version of the dashboard's format: Grafana 10 and later read it."""


class Kind(StrEnum):
    """The kinds of panels in use, by Grafana's names."""

    SERIES = "timeseries"
    STAT = "stat"
    TABLE = "table"
    TIMELINE = "state-timeline"


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of a panel, and the names of its series."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart."""

    title: str
    text: str
    """What the panel shows, and which values need attention."""
    queries: tuple[Query, ...]
    kind: Kind = Kind.SERIES
    unit: str = "short"
    width: int = 8
    words: tuple[tuple[int, str], ...] = ()
    """A word for each of these values, in place of the number."""
    name_only: bool = False
    """A number shows the name of its series in place of its value."""

    def to_json(self, number: int, place: dict[str, int]) -> dict[str, Any]:
        """Return the panel at this place of the grid."""
        at_once = self.kind in (Kind.STAT, Kind.TABLE)
        return {
            "id": number,
            "type": self.kind.value,
            "title": self.title,
            "description": self.text,
            "datasource": _SOURCE,
            "gridPos": place,
            "fieldConfig": {"defaults": {"unit": self.unit, **self._mappings()}, "overrides": []},
            **self._options(),
            "targets": [_target(query, index, self.kind, at_once) for index, query in enumerate(self.queries)],
        }

    def _mappings(self) -> dict[str, Any]:
        words = {str(value): {"text": word, "index": index} for index, (value, word) in enumerate(self.words)}
        return {"mappings": [{"type": "value", "options": words}]} if words else {}

    def _options(self) -> dict[str, Any]:
        """Return how a number is shown: Grafana leaves out the name of a single series otherwise."""
        if self.kind is not Kind.STAT:
            return {}
        named = any(query.legend for query in self.queries)
        return {"options": {"textMode": "name" if self.name_only else "value_and_name" if named else "value"}}


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of a dashboard."""

    name: str
    query: str
    many: bool = False
    """A user may choose several values; at first all are chosen."""

    def to_json(self) -> dict[str, Any]:
        """Return the choice. Grafana renews it whenever the time range changes."""
        choice: dict[str, Any] = {
            "name": self.name,
            "type": "query",
            "datasource": _SOURCE,
            "query": self.query,
            "refresh": 2,
            "sort": 1,
            "multi": self.many,
            "includeAll": self.many,
        }
        return {**choice, "allValue": ".*", "current": {"text": "All", "value": "$__all"}} if self.many else choice


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard: a title, its choices, and its rows by their titles."""

    uid: str
    title: str
    variables: tuple[Variable, ...]
    rows: dict[str, tuple[Panel, ...]]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Every panel of every row."""
        return tuple(panel for row in self.rows.values() for panel in row)

    def to_json(self) -> dict[str, Any]:
        """Return what Grafana imports."""
        return {
            "uid": self.uid,
            "title": self.title,
            "tags": ["pytorchjob"],
            "schemaVersion": _SCHEMA,
            "editable": True,
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "templating": {"list": [_source(), *(variable.to_json() for variable in self.variables)]},
            "panels": self._layout(),
        }

    def _layout(self) -> list[dict[str, Any]]:
        placed: list[dict[str, Any]] = []
        y = 0
        for title, row in self.rows.items():
            placed.append(_heading(title, len(placed) + 1, y))
            y += 1
            for line in _lines(row):
                height = _NUMBER_HEIGHT if all(panel.kind is Kind.STAT for panel in line) else _HEIGHT
                x = 0
                for panel in line:
                    placed.append(panel.to_json(len(placed) + 1, {"h": height, "w": panel.width, "x": x, "y": y}))
                    x += panel.width
                y += height
        return placed


def _lines(row: tuple[Panel, ...]) -> list[list[Panel]]:
    """Return the panels of a row in lines that are not wider than the grid."""
    lines: list[list[Panel]] = [[]]
    for panel in row:
        if sum(before.width for before in lines[-1]) + panel.width > _COLUMNS:
            lines.append([])
        lines[-1].append(panel)
    return lines


def _heading(title: str, number: int, y: int) -> dict[str, Any]:
    place = {"h": 1, "w": _COLUMNS, "x": 0, "y": y}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _target(query: Query, index: int, kind: Kind, at_once: bool) -> dict[str, Any]:
    return {
        "refId": chr(ord("A") + index),
        "datasource": _SOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "instant": at_once,
        "range": not at_once,
        "format": "table" if kind is Kind.TABLE else "time_series",
    }
