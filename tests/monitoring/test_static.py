"""Checks of dashboards and alerts that need no Prometheus: names, pages, and files that are up to date."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitoring.__main__ import generated
from monitoring.alerts import ALERTS, RUNBOOKS
from monitoring.fleet import FLEET
from monitoring.job import JOB
from monitoring.job_series import NAMES, SERIES, custom_resource_state
from monitoring.panels import Dashboard
from pytorchjob_operator.crd.build import job_schema
from tests.app.test_monitoring import published, table
from tests.monitoring.metric_names import known_names, metric_names

ROOT = Path(__file__).parents[2]
DASHBOARDS = (FLEET, JOB)
PROCESS = {"process_resident_memory_bytes", "process_cpu_seconds_total"}
SECTIONS = ("## Meaning", "## Impact", "## How to see it", "## What to do")


def expressions() -> Iterator[Any]:
    """Every expression, named by its panel or alert."""
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            for query in panel.queries:
                yield pytest.param(query.expr, id=f"{dashboard.uid}: {panel.title} {query.legend}")
    for alert in ALERTS:
        yield pytest.param(alert.expr, id=alert.name)


@pytest.mark.parametrize(
    ("expr", "names"),
    [
        ('sum by (a) (increase(x_total{b=~"c|d"}[5m])) > 0.1', {"x_total"}),
        ("time() - max by (a, b) (x) > 1800 and on (a) y == 1", {"x", "y"}),
        ("a * on (job, instance) group_left (version) b_info", {"a", "b_info"}),
        ("histogram_quantile(0.5, sum by (le) (rate(s_bucket[$__rate_interval])))", {"s_bucket"}),
    ],
)
def test_the_metrics_of_an_expression_are_found(expr: str, names: set[str]) -> None:
    assert metric_names(expr) == names


@pytest.mark.parametrize("expr", list(expressions()))
async def test_every_metric_of_an_expression_exists(expr: str) -> None:
    families = ((name, kind) for name, (kind, _) in (await published()).items())
    assert metric_names(expr) - known_names(families) - {*NAMES} - PROCESS == set()
    assert metric_names(expr)


@pytest.mark.parametrize("alert", [pytest.param(alert, id=alert.name) for alert in ALERTS])
def test_a_page_has_every_section_and_the_alerts_severity(alert: Any) -> None:
    text = (ROOT / alert.page).read_text()
    assert re.findall(r"^## .*", text, re.MULTILINE) == [*SECTIONS]
    assert text.startswith(f"# {alert.name}\n")
    assert f"`{alert.severity}`" in text


def test_the_list_of_pages_names_every_alert() -> None:
    text = (ROOT / RUNBOOKS / "README.md").read_text()
    assert re.findall(r"\]\((\w+)\.md\)", text) == [alert.name for alert in ALERTS]


def test_alerts_have_names_of_their_own() -> None:
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)


def test_the_page_lists_every_series_of_a_job() -> None:
    assert [*table("series")] == [*NAMES]


def test_the_page_lists_every_label_of_a_series() -> None:
    made = {
        series.full_name: {*series.element_labels, *series.job_labels, *([series.key] if series.key else [])}
        for series in SERIES
    }
    shown = {name: set(re.findall(r"`(\w+)`", cells[0])) for name, cells in table("series").items()}
    assert shown == {NAMES[0]: {"state"}, **made}


def schema_has(schema: Any, path: list[str]) -> bool:
    """Whether a job may have a field at this path. A number is an element of a list, a name is a key of a map."""
    for part in path:
        schema = schema.get("items") if "items" in schema else schema
        schema = schema.get("properties", {}).get(part, schema if re.fullmatch(r"-?\d+", part) else None)
        if schema is None:
            return False
    return True


@pytest.mark.parametrize(
    "metric",
    [pytest.param(metric, id=metric["name"]) for metric in custom_resource_state()["spec"]["resources"][0]["metrics"]],
)
def test_a_job_may_have_the_field_of_a_series(metric: Any) -> None:
    (each,) = (value for key, value in metric["each"].items() if key != "type")
    if each["path"][0] != "metadata":
        assert schema_has(job_schema(), each["path"])


@pytest.mark.parametrize("dashboard", [pytest.param(dashboard, id=dashboard.uid) for dashboard in DASHBOARDS])
def test_panels_fill_the_grid_without_overlap_and_have_numbers_of_their_own(dashboard: Dashboard) -> None:
    panels = dashboard.to_json()["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len({*cells}) == 24 * (max(y for _, y in cells) + 1)
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_files_are_what_their_readers_parse() -> None:
    texts = generated()
    assert {json.loads(text)["uid"] for name, text in texts.items() if name.endswith(".json")} == {
        dashboard.uid for dashboard in DASHBOARDS
    }
    assert {len(group["rules"]) > 0 for group in yaml.safe_load(texts["alerts.yaml"])["groups"]} == {True}
