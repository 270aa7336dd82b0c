"""People read who failed, where, and what comes next, for each failure of the table; `make test-long` runs it whole."""

from pathlib import Path

import pytest

from tests.failures.files import FILES, File
from tests.failures.run import run, run_file
from tests.failures.table import CASES, OFTEN, Case


def marks(name: str, *, torch: bool) -> list[pytest.MarkDecorator]:
    long = [] if name in OFTEN or not torch else [pytest.mark.long]
    return [pytest.mark.torch, *long] if torch else []


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name, marks=marks(case.name, torch=case.torch)) for case in CASES]
)
def test_people_read_the_cause(case: Case, tmp_path: Path) -> None:
    outcome = run(case, tmp_path)
    assert not outcome.wrong, outcome.to_json()


@pytest.mark.parametrize(
    "file", [pytest.param(file, id=file.name, marks=marks(file.name, torch=file.torch)) for file in FILES]
)
def test_a_job_file_ends_right(file: File, tmp_path: Path) -> None:
    outcome = run_file(file, tmp_path)
    assert not outcome.wrong, outcome.to_json()


def test_names_are_unique() -> None:
    names = [*(case.name for case in CASES), *(file.name for file in FILES)]
    assert len({*names}) == len(names)
    assert {case.name for case in CASES} >= OFTEN
