"""What the documentation shows is valid: every job in it would be accepted by the API server."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytorchjob_operator.model.load import validate_dict

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks() -> Iterator[Any]:
    """Every YAML block of every page, named by its file and line."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = page.read_text()
        for found in _BLOCK.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield pytest.param(found[1], id=f"{page.relative_to(ROOT)}:{line}")


@pytest.mark.parametrize("text", list(blocks()))
def test_a_job_that_is_shown_is_valid(text: str) -> None:
    jobs = [each for each in yaml.safe_load_all(text) if isinstance(each, dict) and each.get("kind") == "PyTorchJob"]
    assert [problem for job in jobs for problem in validate_dict(job)] == []


def test_jobs_are_found() -> None:
    assert sum("kind: PyTorchJob" in block.values[0] for block in blocks()) >= 5
