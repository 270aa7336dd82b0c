"""What ends the loop's sleep: the end of a worker, another thread, a signal that asks this pod to go."""

import os
import signal
import time
from collections.abc import Callable, Iterable
from types import FrameType

from pytorchjob_agent.system.alarm import Alarm
from pytorchjob_agent.system.readable import wait_readable

_WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)

_SOON_SECONDS = 1.0


class Wakeup:
    """One loop's alarm clock."""

    def __init__(self) -> None:
        """Start without processes to watch."""
        self._alarm = Alarm()
        self.wake = self._alarm.ring
        """Ends the sleep; any thread may."""
        self._pidfds: list[int] = []
        self.ended_at = 0.0
        """When a worker of this round was last seen to end; its exit code may be known a moment later. 0: none yet."""
        self.asked: tuple[int, float] | None = None
        """The signal that asked this pod to go, and when."""
        self.on_asked: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        """Wait until something happens, or this time is over."""
        waited: list[Alarm | int] = [self._alarm, *self._pidfds]
        ready = wait_readable(waited, seconds)
        for fd in set(self._pidfds).intersection(ready):  # a pidfd stays readable
            self._pidfds.remove(fd)
            os.close(fd)
            self.ended_at = time.monotonic()
        if self._alarm in ready:
            self._alarm.hush()

    def age(self) -> float:
        """Return the seconds since a worker of this round was last seen to end; 0 if none was."""
        return time.monotonic() - self.ended_at if self.ended_at else 0.0

    @property
    def just_ended(self) -> bool:
        """Whether a worker has ended just now: torch knows its exit code in a moment."""
        return bool(self.ended_at) and time.monotonic() - self.ended_at <= _SOON_SECONDS

    @property
    def watches(self) -> bool:
        """Whether the end of a worker ends the sleep, and no worker has ended just now."""
        return bool(self._pidfds) and time.monotonic() - self.ended_at > _SOON_SECONDS

    def watch(self, pids: Iterable[int]) -> None:
        """Wake up at the end of these processes, and of no others."""
        self.forget()
        self.ended_at = 0.0
        try:
            for pid in pids:
                self._watch(pid)
        except (OSError, AttributeError):  # an old kernel, too many files: the loop polls the workers instead
            self.forget()

    def _watch(self, pid: int) -> None:
        try:
            self._pidfds.append(os.pidfd_open(pid))
        except ProcessLookupError:  # it has ended and was collected
            self.ended_at = time.monotonic()

    def forget(self) -> None:
        """Watch no process from now on."""
        fds, self._pidfds = self._pidfds, []
        for fd in fds:
            os.close(fd)

    def handle_signals(self) -> None:
        """Take the signals; torch puts its own handlers in place with every start of workers."""
        for signum in _WATCHED:
            signal.signal(signum, self._on_signal)

    def asked_by(self) -> str:
        """Return the name of the signal."""
        return signal.Signals(self.asked[0]).name if self.asked else "asked to go"

    def ask(self, signum: int) -> None:
        """Ask this pod to go, as by this signal."""
        if self.asked is None:
            self.asked = (signum, time.monotonic())
        self.wake()
        self.on_asked()

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        self.ask(signum)
