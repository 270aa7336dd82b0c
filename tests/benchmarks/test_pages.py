"""The commands by which pages of benchmarks write their first table: from the raw data beside them, in a clone."""

import re
from pathlib import Path

import pytest

from tests.readme import clone
from tests.shell.blocks import named
from tests.shell.following import follow, run_by
from tests.shell.register import TABLES

_ROWS = re.compile(r"^(<!-- begin: [^\n]*)\n.*?^(<!-- end -->)$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("key", run_by(TABLES))
def test_the_command_writes_the_table_of_its_page(tmp_path: Path, key: str) -> None:
    page = clone(tmp_path / "clone") / named(key).page
    with_table = page.read_text()
    page.write_text(_ROWS.sub(r"\1\n\2", with_table, count=1))
    assert page.read_text() != with_table
    follow(key, tmp_path / "clone", PYTHONPATH="operator")
    assert page.read_text() == with_table
