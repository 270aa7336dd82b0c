"""Golden cases: v1's own shapes of jobs in, the whole plan out. `regenerate` writes them, a person reads the diff."""

from pathlib import Path

import pytest
import yaml

from tests.plan.regenerate import CASES, golden, jobs, planned


@pytest.mark.parametrize(
    "job", [pytest.param(path, id=f"{path.stem} is planned as its golden file says") for path in jobs()]
)
def test_the_plan_is_the_golden_one(job: Path) -> None:
    assert planned(job) == yaml.safe_load(golden(job).read_text())


def test_no_golden_file_is_left_over() -> None:
    assert {*jobs(), *map(golden, jobs())} == set(CASES.iterdir())
