"""The pictures of dashboards in the docs show every panel and its data."""

from math import nan
from xml.etree import ElementTree

import pytest

from monitoring.fleet import FLEET
from monitoring.job import JOB
from monitoring.panels import Dashboard
from monitoring.picture import Line, draw

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
