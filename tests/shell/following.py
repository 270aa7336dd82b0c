"""Runs a shell block as it is written, except for what the register leaves out."""

import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.shell.blocks import ROOT, named
from tests.shell.register import EXECUTED

WATCHED = 15
"""Seconds after which a test presses Ctrl-C."""
_WATCHES = re.compile(r"^(kubectl get .* -w)$", re.MULTILINE)
_END = "trap 'while test -n \"$(jobs -pr)\"; do kill $(jobs -pr) || true; sleep 0.02; done' EXIT\n"
"""Kills again until all are gone: bash loses a signal that reaches a child before it has become the command."""


def script(text: str, without: Iterable[str]) -> str:
    """The text without these options, and without the lines that have these words."""
    for words in without:
        if words.startswith("-"):
            text = text.replace(f" {words}", "")
        else:
            text = "".join(line for line in text.splitlines(keepends=True) if words not in line)
    return text


def interrupted(text: str) -> str:
    """The text with a Ctrl-C for each line that watches without an end, as a reader would press it."""
    return _WATCHES.sub(rf"timeout --signal=INT {WATCHED} \1 || test $? = 124", text)


def follow(
    key: str,
    checkout: Path,
    programs: Iterable[Path] = (),
    seconds: float = 200,
    inside: Sequence[str] = (),
    **variables: str,
) -> str:
    """Run the block of this key in a folder, except for what its test leaves out; returns what it prints."""
    return follow_text(script(named(key).text, EXECUTED[key].without), checkout, programs, seconds, inside, **variables)


def follow_text(
    text: str,
    checkout: Path,
    programs: Iterable[Path] = (),
    seconds: float = 200,
    inside: Sequence[str] = (),
    **variables: str,
) -> str:
    """Run lines in a folder until the first failure, and end what they leave in the background.

    `programs` are folders with what the page takes for granted. `inside` is a command that runs the words behind it.
    """
    folders = [*map(str, programs), str(ROOT / ".venv/bin"), os.environ["PATH"]]
    given = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        [*inside, "bash", "-euo", "pipefail", "-c", _END + interrupted(text)],
        cwd=checkout,
        env={**given, "PATH": os.pathsep.join(folders), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def run_by(test: str) -> list[str]:
    """The keys of the blocks that a test executes."""
    return [key for key, entry in EXECUTED.items() if test in (entry.test, entry.whole)]
