"""Programs as processes of their own."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def start(
    command: Sequence[str | Path], log_file: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program that ends with this process at the latest; its output goes to the end of a file."""
    ends_with_us = ["setpriv", "--pdeathsig", "KILL", *command]
    with log_file.open("ab") as log:
        return subprocess.Popen(
            ends_with_us, env={**os.environ, **(env or {})}, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
