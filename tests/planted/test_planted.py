"""The tests notice each planted defect, and each can still be planted."""

import pytest

from tests.planted import Planted, judge
from tests.planted.table import DEFECTS
from tests.simulation.defects import ROOT

EACH = pytest.mark.parametrize("defect", [pytest.param(defect, id=defect.name) for defect in DEFECTS])


@EACH
def test_the_place_of_a_defect_is_in_the_source_once_and_its_tests_exist(defect: Planted) -> None:
    assert (ROOT / "operator" / defect.file).read_text().count(defect.old) == 1
    for test in defect.tests:
        path, _, name = test.partition("::")
        assert name.partition("[")[0] in (ROOT / path).read_text()


@pytest.mark.long
@pytest.mark.timeout(600)
@EACH
def test_the_tests_notice(defect: Planted) -> None:
    verdict = judge([defect], defect.tests)
    assert verdict.noticed, verdict.by


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_without_a_defect_they_pass() -> None:
    """Otherwise a failure shows nothing."""
    verdict = judge([], sorted({test for defect in DEFECTS for test in defect.tests}))
    assert not verdict.noticed, verdict.by
