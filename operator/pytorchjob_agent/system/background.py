"""Calls that may block for long, or for ever: a thread makes them, and the caller waits for a bounded time."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Call(Generic[T]):
    """One call in a thread of its own. A process may end while it blocks."""

    def __init__(self, call: Callable[[], T], what: str) -> None:
        """Start it; `what` names in an error what does not answer."""
        self._call, self._what, self._found = call, what, list[T]()
        self._error: Exception | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name=what, daemon=True).start()

    @property
    def is_done(self) -> bool:
        """Whether the call has returned."""
        return self._done.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until it has returned, for these seconds at most; return whether it has."""
        return self._done.wait(seconds)

    def result(self, seconds: float) -> T:
        """Return its result. Raises what it has raised, or TimeoutError after these seconds; it goes on then."""
        if not self.wait(seconds):
            raise TimeoutError(f"{self._what} has not answered for {seconds:g} s")
        if self._error is not None:
            raise self._error
        return self._found[0]

    def _run(self) -> None:
        try:
            self._found.append(self._call())
        except Exception as error:  # the caller receives it
            self._error = error
        self._done.set()
