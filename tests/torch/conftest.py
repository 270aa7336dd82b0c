"""Agents in the test's own process."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Make agents; their workers and the handlers that torch leaves behind go with the test."""
    from tests.torch import agents

    before = {signum: signal.getsignal(signum) for signum in HANDLED}
    made: list[Any] = []

    def start(*args: Any, **options: Any) -> Any:
        made.append(agents.make(tmp_path, *args, **options))
        return made[-1]

    yield start
    for one in made:
        if one._pcontext is not None:
            one._pcontext.close(signal.SIGKILL)
            _close_files(one._pcontext)
    for signum, handler in before.items():
        signal.signal(signum, handler)


def _close_files(context: Any) -> None:
    """torch leaves the files of workers that have ended to the collector."""
    for worker in context.subprocess_handlers.values():
        for file in (worker._stdout, worker._stderr):
            if file is not None:
                file.close()
