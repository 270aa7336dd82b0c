"""README's shell blocks: each is run literally by a test, in a fresh clone."""

import re
import shutil
from pathlib import Path

import pytest

from tests.readme import CLUSTER, ITSELF, LOCAL, ROOT, clone, follow, sections
from tests.shell.transcript import keep

RUN_BY = {
    LOCAL: "tests/test_readme.py::test_the_local_section_works_as_written",
    CLUSTER: "e2e/test_readme.py::test_the_cluster_section_works_as_written",
    ITSELF: "itself: `make test` runs this test",
}


def test_every_section_with_shell_blocks_is_run_by_a_test() -> None:
    assert set(sections()) == set(RUN_BY)
    for heading in (LOCAL, CLUSTER):
        path, _, name = RUN_BY[heading].partition("::")
        assert f"def {name}(" in (ROOT / path).read_text()


def test_the_last_section_has_no_command_but_make_test() -> None:
    assert sections()[ITSELF] == ["make test\n"]


def test_no_command_waits_for_a_key() -> None:
    endless = [
        line for blocks in sections().values() for block in blocks for line in block.splitlines() if " -w" in line
    ]
    assert endless == []


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_the_local_section_works_as_written(tmp_path: Path) -> None:
    checkout = clone(tmp_path / "clone")
    done = follow(LOCAL, checkout, seconds=800)
    shutil.rmtree(checkout / ".venv", ignore_errors=True)  # torch, once more
    assert done.status == 0, done.transcript
    assert re.search(r"accuracy=0\.9\d.*Succeeded after .*^Next:", done.transcript, re.DOTALL | re.MULTILINE), (
        done.transcript
    )
    assert "is valid" in done.transcript
    keep("local", done, checkout, {})
