"""Every table of figures is what its command makes of the raw data: no figure is written by hand."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import table
from benchmarks.hangs import __main__ as hangs
from benchmarks.recovery import results

RECOVERY = ("repetitions", "slower", "house", "safety")


def _recovery(path: Path) -> None:
    for name in RECOVERY:
        kept = results.README.with_name(f"{name}.jsonl")
        results.write(results.table(results.load(kept)), kept.name, path)


@pytest.mark.parametrize(
    ("readme", "write"),
    [
        pytest.param(table.README, table.write, id="the main table"),
        pytest.param(results.README, _recovery, id="recovery"),
        pytest.param(hangs.README, hangs.write_tables, id="hangs"),
    ],
)
def test_a_readme_has_what_its_command_writes(readme: Path, write: Callable[[Path], None], tmp_path: Path) -> None:
    copy = tmp_path / "README.md"
    copy.write_text(readme.read_text())
    write(copy)
    assert copy.read_text() == readme.read_text()
