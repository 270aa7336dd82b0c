"""Reads what the hook in a worker (`startup/pytorchjob_ending`) has noted of the error that ended the worker."""

import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path

from pytorchjob_agent.contract.reading import ContractError, ObjectReader
from pytorchjob_agent.workers.startup import pytorchjob_ending
from pytorchjob_agent.workers.startup.pytorchjob_ending import SUFFIX

_MOST = 256 * 1024
_PYTHONPATH = "PYTHONPATH"


@dataclass(frozen=True, slots=True)
class UncaughtError:
    """An error that has left a worker's program."""

    at: float = 0.0
    """The wall clock's time; 0 if nothing is noted."""
    errors: tuple[str, ...] = ()
    raised_in: str = ""
    message: str = ""
    traceback: str = ""


def use_hook(environ: MutableMapping[str, str]) -> None:
    """Let the processes that inherit these variables note their errors."""
    own, inherited = str(Path(pytorchjob_ending.__file__).parent), environ.get(_PYTHONPATH, "")
    environ[_PYTHONPATH] = f"{own}{os.pathsep}{inherited}" if inherited else own


def read(error_file: str, pid: int) -> UncaughtError:
    """Return what the worker with this pid has noted beside torch's error file."""
    try:
        with Path(error_file + SUFFIX).open(encoding="utf-8", errors="replace") as file:
            fields = ObjectReader.parse("the worker's error", file.read(_MOST))
        if fields.whole("pid") != pid:
            return UncaughtError()  # a program that the worker has started
        return UncaughtError(
            at=fields.number("at", 0.0, 1e12, "a time") or 0.0,
            errors=tuple(str(name) for name in fields.items("errors")),
            raised_in=fields.text("raised_in"),
            message=fields.text("message"),
            traceback=fields.text("traceback"),
        )
    except (OSError, ContractError):
        return UncaughtError()
