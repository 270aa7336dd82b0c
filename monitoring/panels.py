"""Grafana's dashboards as values: rows of panels, each with its queries, and the JSON that Grafana reads."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_COLUMNS = 24
_HEIGHT = 8
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

    def to_json(self, number: int, x: int, y: int) -> dict[str, Any]:
        """Return the panel at this place of the grid."""
        at_once = self.kind in (Kind.STAT, Kind.TABLE)
        return {
            "id": number,
            "type": self.kind.value,
            "title": self.title,
            "description": self.text,
            "datasource": _SOURCE,
            "gridPos": {"h": _HEIGHT, "w": self.width, "x": x, "y": y},
            "fieldConfig": {"defaults": {"unit": self.unit}, "overrides": []},
            "targets": [_target(query, index, self.kind, at_once) for index, query in enumerate(self.queries)],
        }


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
            x, y = 0, y + 1
            for panel in row:
                if x + panel.width > _COLUMNS:
                    x, y = 0, y + _HEIGHT
                placed.append(panel.to_json(len(placed) + 1, x, y))
                x += panel.width
            y += _HEIGHT
        return placed


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
