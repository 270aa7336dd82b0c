"""Reads what the hook in a worker (`startup/pytorchjob_ending`) has noted of the end of its program."""

import os
from collections.abc import MutableMapping
from pathlib import Path

from pytorchjob_agent.contract.noted_end import MOST, SUFFIX, NotedEnd
from pytorchjob_agent.workers.startup import pytorchjob_ending

_PYTHONPATH = "PYTHONPATH"


def use_hook(environ: MutableMapping[str, str]) -> None:
    """Let the processes that inherit these variables note their ends."""
    own, inherited = str(Path(pytorchjob_ending.__file__).parent), environ.get(_PYTHONPATH, "")
    environ[_PYTHONPATH] = f"{own}{os.pathsep}{inherited}" if inherited else own


def read(error_file: str, pid: int) -> NotedEnd:
    """Return what the worker with this pid has noted beside torch's error file."""
    try:
        with open(f"{error_file}{SUFFIX}.{pid}", encoding="utf-8", errors="replace") as file:
            return NotedEnd.from_json(file.read(MOST))
    except OSError:
        return NotedEnd()
