"""The simulation finds defects that we or torch once had, when they are planted again."""

import pytest

from tests.simulation.defects import DEFECTS, ROOT, Defect, simulate


@pytest.mark.timeout(600)
@pytest.mark.parametrize("defect", [pytest.param(defect, id=defect.name) for defect in DEFECTS])
def test_the_simulation_finds(defect: Defect) -> None:
    found = simulate([defect])
    assert found.seed is not None, f"{found.schedules} schedules passed"


@pytest.mark.parametrize("defect", [pytest.param(defect, id=defect.name) for defect in DEFECTS])
def test_the_place_of_a_defect_is_in_the_source_once(defect: Defect) -> None:
    assert (ROOT / "operator" / defect.file).read_text().count(defect.old) == 1


def test_there_are_enough_of_them_and_each_has_a_history() -> None:
    assert len(DEFECTS) >= 12
    assert all(defect.seen.startswith(("ours: ", "torch: ")) for defect in DEFECTS)
