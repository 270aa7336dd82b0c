"""Calls of a round's store that do not keep the agent waiting: a thread makes each of them.

The store's host may be lost. Then a call blocks for `round_store.CONNECT_SECONDS`, while the coordinator may have
assigned the next round.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from pytorchjob_agent.system.background import Call

T = TypeVar("T")
_STORE = "the round's store"
_PAUSE = 0.05
"""Seconds for which the caller waits. A store whose host is there answers in a millisecond."""


class StoreCalls:
    """The calls of one agent. Of each name only one runs at a time."""

    def __init__(self) -> None:
        """Start without any."""
        self._running: dict[str, Call[Any]] = {}

    def ask(self, name: str, call: Callable[[], T]) -> T | None:
        """Return what a call returns, or None while it blocks: ask again. Raises what the call has raised."""
        running: Call[T] = self._running.get(name) or Call(call, _STORE)
        self._running[name] = running
        if not running.wait(_PAUSE):
            return None
        del self._running[name]
        return running.result(0)

    def wait(self, call: Callable[[], T], is_over: Callable[[], bool]) -> T:
        """Return what a call returns. Raises what it has raised, or RuntimeError once its round is over."""
        running = Call(call, _STORE)
        while not running.wait(_PAUSE):
            if is_over():
                raise RuntimeError(f"{_STORE} has not answered, and its round has ended")
        return running.result(0)

    def forget(self) -> None:
        """Drop the calls of the last round. Threads that block in them end by themselves."""
        self._running.clear()
