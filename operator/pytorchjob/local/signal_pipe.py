"""Collects SIGINT, SIGTERM and SIGHUP so that `select` can wait for them; `runner` decides what they do."""

import os
import selectors
import signal
from types import TracebackType
from typing import Any, Self

STOP = (signal.SIGINT, signal.SIGTERM)
RELOAD = signal.SIGHUP


class SignalPipe:
    """Collects the runner's signals while its context is open."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._received: list[signal.Signals] = []
        self._before: dict[signal.Signals, Any] = {}
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._readable, False)
        os.set_blocking(self._writable, False)

    def take(self) -> list[signal.Signals]:
        """Return the signals since the last call."""
        taken, self._received = self._received, []
        return taken

    def __enter__(self) -> Self:
        """Install the handlers."""
        self._before = {number: signal.signal(number, self._receive) for number in (*STOP, RELOAD)}
        signal.set_wakeup_fd(self._writable, warn_on_full_buffer=False)
        self._selector.register(self._readable, selectors.EVENT_READ, lambda: os.read(self._readable, 512))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the previous handlers."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._selector.unregister(self._readable)
        os.close(self._readable)
        os.close(self._writable)

    def _receive(self, number: int, _frame: object) -> None:
        self._received.append(signal.Signals(number))
