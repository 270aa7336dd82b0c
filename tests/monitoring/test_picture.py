"""The pictures of dashboards in the docs show every panel and its data."""

from math import nan
from pathlib import Path
from xml.etree import ElementTree

import pytest

from monitoring.fleet import FLEET
from monitoring.job import JOB
from monitoring.panels import Dashboard
from monitoring.picture import Line, draw

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
DASHBOARDS = [pytest.param(dashboard, id=dashboard.uid) for dashboard in (FLEET, JOB)]


def texts(picture: str) -> set[str]:
    return {element.text or "" for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("text")}


@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_an_empty_dashboard_shows_the_titles_of_its_panels(dashboard: Dashboard) -> None:
    assert {panel.title for panel in dashboard.panels} <= texts(draw(dashboard, {}))


def test_a_line_has_its_name_and_its_largest_value() -> None:
    line = Line({"metric": "a<b"}, "{{metric}}", ((0.0, 1.0), (1.0, nan), (2.0, 7.0)))
    assert {"a<b", "7"} <= texts(draw(JOB, {"Metrics": [line]}))


def test_a_number_is_the_newest_with_its_unit() -> None:
    assert "40 %" in texts(draw(JOB, {"Complete": [Line({}, "", ((0.0, 20.0), (1.0, 40.0)))]}))


@pytest.mark.parametrize(
    ("panel", "line", "shown"),
    [
        pytest.param("State", ("Running", 1), "Running", id="a state by its name"),
        pytest.param("Suspended", ("", 0), "no", id="a word for a value"),
        pytest.param("Since the last restart of workers", ("", 600), "10 min", id="long times in minutes"),
        pytest.param("Since the last restart of workers", ("", 0.02), "20 ms", id="short times in milliseconds"),
        pytest.param("Since the last restart of workers", ("Hang", 5), "Hang", id="a name below its value"),
    ],
)
def test_a_number_is_shown_as_grafana_shows_it(panel: str, line: tuple[str, float], shown: str) -> None:
    name, value = line
    assert shown in texts(draw(JOB, {panel: [Line({}, name, ((0.0, float(value)),))]}))


def test_a_chart_names_each_series_that_it_draws_and_draws_the_largest() -> None:
    lines = [Line({}, f"a series with a long name {number}", ((0.0, 0.0), (1.0, float(number)))) for number in range(6)]
    picture = draw(JOB, {"Pods": lines})
    assert {name for name in texts(picture) if "long name" in name} == {line.name for line in lines[2:]}
    assert picture.count("<polyline") == 4


def test_a_condition_is_a_bar_for_as_long_as_it_holds() -> None:
    line = Line({"type": "Running"}, "{{type}}", tuple((float(at), float(at > 2)) for at in range(10)))
    assert draw(JOB, {"Conditions": [line]}).count("<rect") == draw(JOB, {}).count("<rect") + 2


@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_the_picture_in_the_docs_has_the_panels_of_the_dashboard(dashboard: Dashboard) -> None:
    assert {panel.title for panel in dashboard.panels} <= texts((PICTURES / f"{dashboard.uid}.svg").read_text())
