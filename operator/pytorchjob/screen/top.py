"""What pods use as tables, in kubectl's units, and as values for programs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytorchjob.screen import plain
from pytorchjob.view.usage import Amounts, Usage

_UNKNOWN = "-"
_AMOUNTS = ("CPU", "CPU REQUEST", "CPU LIMIT", "MEMORY", "MEMORY REQUEST", "MEMORY LIMIT", "GPU")
_MEBIBYTE = 1 << 20
Rates = Mapping[tuple[str, str], float | None]
"""Steps per second by namespace and name of the job."""


def pod_table(rows: Sequence[Usage], *, containers: bool, summary: Usage | None, headers: bool) -> str:
    """Return a line for each pod or container; `summary` is the last line."""
    header = ["POD", *(["CONTAINER"] if containers else []), "NODE", *_AMOUNTS]
    lines = [[row.name, *([row.container] if containers else []), row.node or _UNKNOWN, *_cells(row)] for row in rows]
    if summary:
        lines.append(["total", *([""] if containers else []), "", *_cells(summary)])
    return _table(header, lines, headers)


def job_table(rows: Sequence[Usage], rates: Rates, *, namespaces: bool, headers: bool) -> str:
    """Return a line for each job."""
    header = [*(["NAMESPACE"] if namespaces else []), "NAME", "PODS", *_AMOUNTS, "STEPS/S"]
    lines = [
        [
            *([row.namespace] if namespaces else []),
            row.name,
            str(row.pods),
            *_cells(row),
            _rate(rates.get((row.namespace, row.job))),
        ]
        for row in rows
    ]
    return _table(header, lines, headers)


def values(rows: Iterable[Usage], rates: Rates) -> list[dict[str, Any]]:
    """Return the rows for programs: cores, bytes, accelerators; unknown values are null."""
    return [
        {
            "namespace": row.namespace,
            "job": row.job,
            "name": row.name,
            "container": row.container or None,
            "node": row.node or None,
            "pods": row.pods,
            "used": row.used._asdict(),
            "requested": row.requested._asdict(),
            "limit": row.limit._asdict(),
            "stepsPerSecond": rates.get((row.namespace, row.job)),
        }
        for row in rows
    ]


def _table(header: Sequence[str], lines: Sequence[Sequence[str]], headers: bool) -> str:
    text = plain.columns(header, lines)
    return text if headers else text.partition("\n")[2]


def _cells(row: Usage) -> list[str]:
    cpu = [_cores(amounts.cpu) for amounts in (row.used, row.requested, row.limit)]
    memory = [_memory(amounts.memory) for amounts in (row.used, row.requested, row.limit)]
    return [*cpu, *memory, _gpu(row.used, row.limit)]


def _cores(cores: float | None) -> str:
    return _UNKNOWN if cores is None else f"{math.ceil(round(cores * 1000, 3))}m"


def _memory(size: float | None) -> str:
    return _UNKNOWN if size is None else f"{math.ceil(size / _MEBIBYTE)}Mi"


def _gpu(used: Amounts, limit: Amounts) -> str:
    """Return what is used of what the pods have; most metrics servers know no accelerators."""
    if limit.gpu is None:
        return _UNKNOWN
    return f"{_UNKNOWN if used.gpu is None else f'{used.gpu:g}'}/{limit.gpu:g}"


def _rate(rate: float | None) -> str:
    return _UNKNOWN if rate is None else f"{rate:.3g}"
