"""docs/troubleshooting.md has the table of causes as the code has it."""

from pathlib import Path

import pytest

from pytorchjob.view.causes import page
from pytorchjob.view.causes.cause import Symptom
from pytorchjob.view.causes.table import CAUSES

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"


def test_the_page_is_what_the_table_is() -> None:
    text = PAGE.read_text()
    assert page.write(text) == text, "run `make generate`"


@pytest.mark.parametrize("symptom", [pytest.param(symptom, id=symptom.value) for symptom in Symptom])
def test_each_symptom_is_a_heading_with_its_causes(symptom: Symptom) -> None:
    section = PAGE.read_text().partition(f"\n## {symptom.value}\n")[2].partition("\n## ")[0]
    names = [cause.name for cause in CAUSES if cause.symptom is symptom]
    assert [name for name in names if f"\n### {name}\n" not in section] == []


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has no lines"):
        page.write("text")
