"""Plain text for terminals and pipes alike: aligned columns, kubectl's ages, and objects as YAML, JSON or names."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.shown_values import age as age
from pytorchjob_operator.terminal import visible_cell, visible_yaml

_GAP = "   "


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as kubectl prints it: the widest cell decides a column; the last column is not padded."""
    table = [[visible_cell(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(header))]
    padded = (_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table)
    return "\n".join(padded)


def events(found: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """Return a line for each event, which comes with the time that is shown."""
    rows = [
        (
            seen,
            str(event.get("type") or ""),
            str(event.get("reason") or ""),
            f"{str(event['involvedObject'].get('kind') or '').lower()}/{event['involvedObject'].get('name')}",
            str(event.get("message") or ""),
        )
        for seen, event in found
    ]
    return columns(("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"), rows)


def since(moment: str | None, now: datetime) -> str:
    """Return the age of a moment as Kubernetes writes it; `<unknown>` without one."""
    if not moment:
        return "<unknown>"
    return age((now - datetime.fromisoformat(moment)).total_seconds())


def objects(found: Sequence[dict[str, Any]], form: str, *, single: bool = False) -> str:
    """Return objects as kubectl prints them with `-o json`, `yaml` or `name`; `single`: one object, not a List."""
    if form == "name":
        return "\n".join(map(reference, found))
    body: Any = found[0] if single else {"apiVersion": "v1", "kind": "List", "items": list(found)}
    if form == "json":
        return json.dumps(body, indent=4, ensure_ascii=False)
    import yaml

    text = visible_yaml(lambda letters: str(yaml.safe_dump(body, sort_keys=False, allow_unicode=letters)))
    return text.rstrip("\n")


def reference(body: dict[str, Any]) -> str:
    """Return kind and name as kubectl writes them: `pytorchjob.kubeflow.org/digits`, `configmap/settings`."""
    group = str(body.get("apiVersion", "")).rpartition("/")[0]
    kind = str(body.get("kind", names.KIND)).lower()
    name = body["metadata"].get("name") or body["metadata"].get("generateName")
    return f"{kind}{f'.{group}' if group else ''}/{name}"
