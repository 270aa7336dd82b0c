"""docs/environment.md has every variable of the source, and no other."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from pytorchjob_agent.contract.environment import DEFAULT_GRACE, GRACE
from pytorchjob_agent.contract.termination import TERMINATION_LOG_PATH
from pytorchjob_operator.generated import MARKS
from pytorchjob_operator.settings import Settings, variable
from pytorchjob_operator.settings_page import insert

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/environment.md").read_text()
WRITTEN, _, GENERATED = PAGE.partition(MARKS[0])
SETTINGS = {variable(setting.name) for setting in fields(Settings)}


def of_the_source() -> set[str]:
    """The names of variables that stand whole in the source of operator, agent and client."""
    texts = (path.read_text() for path in (ROOT / "operator").rglob("*.py"))
    return {name for text in texts for name in re.findall(r'"(PYTORCHJOB_[A-Z_]*[A-Z])"', text)}


def test_every_variable_of_the_source_is_on_the_page() -> None:
    assert sorted(of_the_source() - {*re.findall(r"`(PYTORCHJOB_[A-Z_]+)`", PAGE)}) == []


def test_every_variable_of_the_page_is_in_the_source() -> None:
    assert sorted({*re.findall(r"`(PYTORCHJOB_[A-Z_]+)`", WRITTEN)} - of_the_source()) == []
    assert {*re.findall(r"^\| `(PYTORCHJOB_[A-Z_]+)`", GENERATED, re.MULTILINE)} == SETTINGS


def test_the_table_of_settings_is_generated() -> None:
    assert insert(PAGE) == PAGE


@pytest.mark.parametrize(("name", "default"), [(GRACE, f"{DEFAULT_GRACE:.0f}"),
                                               ("PYTORCHJOB_TERMINATION_LOG", TERMINATION_LOG_PATH)])  # fmt: skip
def test_a_default_is_that_of_the_source(name: str, default: str) -> None:
    assert f"| `{name}` | `{default}` |" in PAGE
