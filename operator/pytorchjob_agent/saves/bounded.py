"""Calls that storage may block for ever, and that report their steps: the caller waits as long as there are steps."""

import time
from collections.abc import Callable
from typing import TypeVar

from pytorchjob_agent.system.background import Call

T = TypeVar("T")
_PAUSE = 0.25
STORAGE = "the storage"
"""What does not answer, in errors."""


class Progress:
    """When something last happened in another thread, and whether that thread should stop."""

    def __init__(self) -> None:
        """Count from now on."""
        self._at = time.monotonic()
        self.stopped = False

    def step(self, count: int = 0) -> None:
        """Note that something has happened. Raises TimeoutError if its caller waits no longer."""
        self._at = time.monotonic()
        if self.stopped:
            raise TimeoutError("it took too long")

    def silence(self) -> float:
        """Return the seconds since the last step."""
        return time.monotonic() - self._at


def while_it_moves(call: Callable[[Progress], T], longest_silence: float, goes_on: Callable[[], bool]) -> T:
    """Return the result of a call that reports its steps. Raises TimeoutError once it is silent, or need not go on."""
    progress = Progress()
    running = Call(lambda: call(progress), STORAGE)
    while not running.wait(_PAUSE):
        if progress.silence() > longest_silence or not goes_on():
            progress.stopped = True
            raise TimeoutError(f"{STORAGE} has not answered for {progress.silence():.0f} s")
    return running.result(0)
