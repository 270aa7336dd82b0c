"""Runs a shell block as it is written, except for what the register leaves out."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.shell.blocks import ROOT, named
from tests.shell.register import EXECUTED


def script(text: str, without: Iterable[str]) -> str:
    """The text without these options, and without the lines that have these words."""
    for words in without:
        if words.startswith("-"):
            text = text.replace(f" {words}", "")
        else:
            text = "".join(line for line in text.splitlines(keepends=True) if words not in line)
    return text


def follow(key: str, checkout: Path, programs: Iterable[Path] = (), **variables: str) -> str:
    """Run the block of this key in a folder, until its first failure; returns what it prints.

    `programs` are folders with what the page takes for granted.
    """
    folders = [*map(str, programs), str(ROOT / ".venv/bin"), os.environ["PATH"]]
    given = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script(named(key).text, EXECUTED[key].without)],
        cwd=checkout,
        env={**given, "PATH": os.pathsep.join(folders), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_by(test: str) -> list[str]:
    """The keys of the blocks that a test executes."""
    return [key for key, entry in EXECUTED.items() if entry.test == test]
