"""The simulation finds defects that we or torch once had, when they are planted again."""

import pytest

from tests.simulation.defects import DEFECTS, ROOT, SEEDS, Defect, recorded_seeds, simulate


@pytest.mark.timeout(600)
@pytest.mark.parametrize("defect", [pytest.param(defect, id=defect.name) for defect in DEFECTS])
def test_the_simulation_finds(defect: Defect) -> None:
    """A run from seed 0 on would find it too, and much later: the recorded seed is one of those."""
    found = simulate([defect], recorded=recorded_seeds().get(defect.name))
    assert found.seed is not None, f"{found.schedules} schedules passed"


def test_each_defect_has_a_recorded_seed_within_the_schedules_that_it_may_survive() -> None:
    recorded = recorded_seeds()
    assert [defect.name for defect in DEFECTS if recorded.get(defect.name, SEEDS) >= SEEDS] == []


@pytest.mark.parametrize("defect", [pytest.param(defect, id=defect.name) for defect in DEFECTS])
def test_the_place_of_a_defect_is_in_the_source_once(defect: Defect) -> None:
    assert (ROOT / "operator" / defect.file).read_text().count(defect.old) == 1


def test_there_are_enough_of_them_and_each_has_a_history() -> None:
    assert len(DEFECTS) >= 12
    assert all(defect.seen.startswith(("ours: ", "torch: ")) for defect in DEFECTS)
