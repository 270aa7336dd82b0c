"""Shell blocks of the pages that train on this machine, in an empty folder with a small script."""

from pathlib import Path

import pytest

from tests.shell.following import follow, run_by
from tests.shell.register import TORCH

pytestmark = [pytest.mark.torch]
SCRIPT = """
import os
print("rank {RANK} of {WORLD_SIZE}".format(**os.environ), flush=True)
"""
PRINTED = {
    "docs/doctor.md: Preflight checks": ['"torch"'],
    "docs/standalone.md: The command": [f"rank {rank} of 4" for rank in range(4)],
    "docs/elastic.md: Warm workers": [f"rank {rank} of 8" for rank in range(8)],
}


@pytest.mark.parametrize("key", run_by(TORCH))
def test_a_block_works_on_this_machine(tmp_path: Path, key: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    printed = follow(key, tmp_path)
    assert [words for words in PRINTED[key] if words not in printed] == []
