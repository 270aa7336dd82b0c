"""The runner's side of one replica's processes: start, stop, read what they say and how they ended.

It decides nothing: the keeper at the other end of the pipes does the killing, `node` says when.
"""

import contextlib
import json
import os
import select
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytorchjob_operator.local import keeper
from pytorchjob_operator.local.command import Command
from pytorchjob_operator.local.kubelet import START_ERROR

_CHUNK = 65536
_MAX_REPORT = 8192
_KILLED = 137
_START_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended; `error` is why it could not even start."""

    code: int
    error: str = ""


class Process:
    """One command and everything below it."""

    def __init__(self, pid: int, control: int, report: int, output: int) -> None:
        self.report = report
        self.output = output
        self.pid = 0
        """Of the command itself; 0 while it has not started."""
        self._keeper = pid
        self._control: int | None = control
        self._said = b""
        self._heard_all = False

    def wait_started(self) -> None:
        """Wait until the command runs or could not be started, for a bounded time."""
        while b"\n" not in self._said and not self._heard_all:
            if not select.select([self.report], [], [], _START_PATIENCE)[0]:
                return
            self.listen()

    def listen(self) -> None:
        """Take in what the keeper reports, without waiting for more of it."""
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(self.report, _MAX_REPORT)
            self._heard_all = not chunk
            self._said = (self._said + chunk)[-_MAX_REPORT:]
        for line in self._lines():
            if keeper.STARTED in line:
                self.pid = int(line[keeper.STARTED])

    def ended(self) -> Ended | None:
        """How the command ended; None while it runs. A keeper that was killed took its command along."""
        for line in self._lines():
            if keeper.ERROR in line:
                return Ended(START_ERROR, str(line[keeper.ERROR]))
            if keeper.EXITED in line:
                return Ended(int(line[keeper.EXITED]))
        return Ended(_KILLED) if self._heard_all else None

    def read(self) -> bytes | None:
        """What the command has written since: nothing yet is b"", its end is None."""
        try:
            return os.read(self.output, _CHUNK) or None
        except BlockingIOError:
            return b""

    def terminate(self) -> None:
        """Ask the command to leave: SIGTERM to its process group."""
        if self._control is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._control, keeper.TERMINATE)

    def kill(self) -> None:
        """SIGKILL to everything below the keeper."""
        if self._control is not None:
            os.close(self._control)
            self._control = None

    def close(self) -> None:
        """Give back what the process held here, after its end."""
        self.kill()
        os.close(self.report)
        os.close(self.output)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._keeper, 0)

    def _lines(self) -> Iterator[dict[str, Any]]:
        for line in self._said.split(b"\n")[:-1]:
            yield json.loads(line)


def spawn(command: Command) -> Process:
    """Start a command below a keeper of its own."""
    control_read, control_write = os.pipe()
    report_read, report_write = os.pipe()
    output_read, output_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        keeper.keep(command, control_read, report_write, output_write)
    for fd in (control_read, report_write, output_write):
        os.close(fd)
    for fd in (report_read, output_read):
        os.set_blocking(fd, False)
    return Process(pid, control_write, report_read, output_read)
