"""The pages about troubleshooting have the causes as the code has them."""

from pathlib import Path

import pytest

from pytorchjob.view.causes import page
from pytorchjob.view.causes.cause import Symptom
from pytorchjob.view.causes.table import CAUSES

FOLDER = Path(__file__).parents[2] / "docs" / "troubleshooting"


def test_the_pages_are_what_the_table_is() -> None:
    text = FOLDER.with_suffix(".md").read_text()
    assert page.write(text, FOLDER.name) == text, "run `make generate`"
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == dict(page.pages()), "run `make generate`"


@pytest.mark.parametrize("symptom", [pytest.param(symptom, id=symptom.value) for symptom in Symptom])
def test_each_symptom_is_a_page_with_its_causes(symptom: Symptom) -> None:
    text = page.pages()[page.name_of(symptom)]
    names = [cause.name for cause in CAUSES if cause.symptom is symptom]
    assert [name for name in names if f"\n## {name}\n" not in text] == []


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has no lines"):
        page.write("text", "troubleshooting")
