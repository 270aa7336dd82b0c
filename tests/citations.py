"""Tests that pages name: which they are, and which of them there are."""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
_CITED = re.compile(r"`((?:tests|e2e)/[\w/]+\.py::[^`]+)`")


def cited(text: str) -> list[str]:
    """The tests that a text names, by pytest's ids."""
    return _CITED.findall(text)


def collected(names: Iterable[str]) -> frozenset[str]:
    """The ids of all tests, and the same without their parameters, as pytest finds them in the files of these names."""
    files = sorted({one.partition("::")[0] for one in names})
    there = [file for file in files if (ROOT / file).is_file()]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *there]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    ids = [line for line in done.stdout.splitlines() if "::" in line]
    return frozenset([*ids, *(one.partition("[")[0] for one in ids)])
