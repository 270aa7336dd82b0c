"""ARCHITECTURE.md and the decision pages speak of files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "ARCHITECTURE.md", ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
FOLDERS = "operator|tests|docs|charts|manifests|monitoring|crds|examples|e2e|benchmarks|images|requirements|website"
NAMED = re.compile(rf"`((?:{FOLDERS})/[\w./-]*\w/?)`|\]\((?!\w+:)([\w./-]+?)(?:#[\w-]*)?\)")


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES])
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    named = [(ROOT / code) if code else (page.parent / link) for code, link in NAMED.findall(page.read_text())]
    assert [str(path) for path in named if not path.exists()] == []


def test_the_table_of_the_architecture_is_read() -> None:
    assert len(NAMED.findall(PAGES[0].read_text())) > 20
