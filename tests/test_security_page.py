"""docs/security.md claims no defence without a test: each threat names one, and all that are named exist."""

import re
from pathlib import Path

from tests.citations import cited, collected

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "security.md").read_text()


def threats() -> list[str]:
    """The rows of the table of threats."""
    _, _, after = TEXT.partition("## Threats\n")
    lines = after.partition("\n## ")[0].splitlines()
    return [line for line in lines if line.startswith("| ")][2:]


def test_every_threat_names_a_test() -> None:
    assert len(threats()) > 15
    assert [row for row in threats() if not cited(row.rpartition(" | ")[2])] == []


def test_every_test_that_is_named_exists() -> None:
    named = cited(TEXT)
    there = collected(named)
    assert [name for name in named if name not in there] == []


def test_every_attack_on_credentials_belongs_to_a_threat() -> None:
    attacks = re.findall(
        r"^async def (test_\w+)", (ROOT / "tests/attacks/test_credentials.py").read_text(), re.MULTILINE
    )
    assert [name for name in attacks if f"::{name}" not in TEXT and "rightful" not in name] == []


def test_the_way_to_report_a_vulnerability_leads_to_this_page() -> None:
    assert "(docs/security.md)" in (ROOT / "SECURITY.md").read_text()
