"""A time limit for a command that watches. A signal ends the wait: nothing else ends a blocked read."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pytorchjob.commands.outcome import TIMED_OUT, fail


class _TimedOut(Exception):  # noqa: N818 -- it reads better in `except`
    """The time is over."""


@contextmanager
def deadline(seconds: float | None, message: str, remedy: str = "") -> Iterator[None]:
    """End the process with 124 and this sentence if the block lasts longer; None or 0: no limit."""
    if not seconds:
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise _TimedOut

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _TimedOut:
        fail(message, remedy, TIMED_OUT)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
