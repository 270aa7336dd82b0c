"""The pace at which a pod that others delete is created again."""

from datetime import timedelta

import pytest

from pytorchjob_operator.control.pace import FREE, WritePace
from tests.factories import NOW, at

Creations = list[float]
"""When a pod of one name was created, in seconds."""


def pace_after(creations: Creations) -> WritePace:
    pace = WritePace()
    for seconds in creations:
        pace.created("x", at(seconds))
    return pace


@pytest.mark.parametrize(
    ("creations", "wait"),
    [
        pytest.param([0], 0, id="a first pod"),
        pytest.param([0, 0, 0], 0, id="two short lives"),
        pytest.param([0, 0, 0, 0], 1, id="three short lives"),
        pytest.param([0, 0, 0, 0, 1], 2, id="the wait doubles"),
        pytest.param([0, 0, 0, 0, 1, 3, 7, 15, 31, 63], 60, id="up to a minute"),
        pytest.param([0, 0, 0, 0, 1, 9], 0, id="a pod that lived longer starts again from the beginning"),
        pytest.param([0, 6, 12, 18, 24], 0, id="lives of six seconds"),
    ],
)
def test_the_next_pod_waits(creations: Creations, wait: float) -> None:
    last = at(creations[-1])
    expected = {"x": last + timedelta(seconds=wait)} if wait else {}
    assert pace_after(creations).postponed(last) == expected


def test_when_the_wait_is_over_nothing_is_postponed() -> None:
    assert pace_after([0] * (FREE + 1)).postponed(at(1)) == {}


def test_a_pod_that_the_operator_deletes_does_not_wait() -> None:
    pace = pace_after([0] * 10)
    pace.deleted("x")
    assert pace.postponed(NOW) == {}


def test_each_pod_has_its_own_pace() -> None:
    pace = pace_after([0] * 10)
    pace.created("y", NOW)
    assert {*pace.postponed(NOW)} == {"x"}
