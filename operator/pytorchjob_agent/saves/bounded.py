"""Calls that storage may block for ever: a thread makes them, and the caller waits for a bounded time."""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
_PAUSE = 0.25


class Call(Generic[T]):
    """One call in a thread of its own. A process may end while it blocks."""

    def __init__(self, call: Callable[[], T]) -> None:
        """Start it."""
        self._call, self._found = call, list[T]()
        self._error: Exception | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name="storage", daemon=True).start()

    @property
    def is_done(self) -> bool:
        """Whether the call has returned."""
        return self._done.is_set()

    def result(self, seconds: float) -> T:
        """Return its result. Raises what it has raised, or TimeoutError after these seconds; it goes on then."""
        if not self._done.wait(seconds):
            raise TimeoutError(f"the storage has not answered for {seconds:g} s")
        if self._error is not None:
            raise self._error
        return self._found[0]

    def _run(self) -> None:
        try:
            self._found.append(self._call())
        except Exception as error:  # the caller receives it
            self._error = error
        self._done.set()


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
    running = Call(lambda: call(progress))
    while True:
        try:
            return running.result(_PAUSE)
        except TimeoutError:
            if running.is_done:
                raise
        if progress.silence() > longest_silence or not goes_on():
            progress.stopped = True
            raise TimeoutError(f"the storage has not answered for {progress.silence():.0f} s")
