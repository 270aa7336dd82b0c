"""The runner's side of one replica's processes: start, stop, read their output and how they ended.

It decides nothing: `node` requests a stop, and the `supervisor` at the other end of the pipes kills the processes.
"""

import contextlib
import json
import os
import selectors
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytorchjob.local import supervisor
from pytorchjob.local.kubelet import START_ERROR
from pytorchjob.local.supervisor import Command

_CHUNK = 65536
_MAX_REPORT = 8192
_KILLED = 137
_START_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a command ended; `error` is set if it could not start."""

    code: int
    error: str = ""
    at: float = 0.0
    """The time of the end, in monotonic seconds; 0 if it is not known."""


class ReplicaProcess:
    """One command and its descendants."""

    def __init__(self, pid: int, control: int, report: int, output: int) -> None:
        self.report = report
        self.output = output
        self.pid = 0
        """The pid of the command itself; 0 until it has started."""
        self._supervisor = pid
        self._control: int | None = control
        self._reports = b""
        self._reports_ended = False

    def wait_started(self) -> None:
        """Wait until the command runs or has failed to start, for a limited time."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.report, selectors.EVENT_READ)
            while b"\n" not in self._reports and not self._reports_ended:
                if not selector.select(_START_PATIENCE):
                    return
                self.receive()

    def receive(self) -> None:
        """Read the supervisor's reports that have arrived, without waiting for more."""
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(self.report, _MAX_REPORT)
            self._reports_ended = not chunk
            self._reports = (self._reports + chunk)[-_MAX_REPORT:]
        for line in self._lines():
            if supervisor.STARTED in line:
                self.pid = int(line[supervisor.STARTED])

    def ended(self) -> ProcessEnd | None:
        """How the command ended; None while it runs. If the supervisor was killed, its command was killed with it."""
        for line in self._lines():
            if supervisor.ERROR in line:
                return ProcessEnd(START_ERROR, str(line[supervisor.ERROR]))
            if supervisor.EXITED in line:
                return ProcessEnd(int(line[supervisor.EXITED]), at=float(line[supervisor.AT]))
        return ProcessEnd(_KILLED) if self._reports_ended else None

    def read(self) -> bytes | None:
        """Return the command's new output: b"" if it has written nothing since, None at its end."""
        try:
            return os.read(self.output, _CHUNK) or None
        except BlockingIOError:
            return b""

    def terminate(self) -> None:
        """Have SIGTERM sent to the command's process group."""
        if self._control is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._control, supervisor.TERMINATE)

    def kill(self) -> None:
        """Have SIGKILL sent to every process below the supervisor."""
        if self._control is not None:
            os.close(self._control)
            self._control = None

    def close(self) -> None:
        """Close the pipes and reap the supervisor, after the end of the command."""
        self.kill()
        os.close(self.report)
        os.close(self.output)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._supervisor, 0)

    def _lines(self) -> Iterator[dict[str, Any]]:
        for line in self._reports.split(b"\n")[:-1]:
            yield json.loads(line)


def spawn(command: Command) -> ReplicaProcess:
    """Start a command below a supervisor of its own."""
    control_read, control_write = os.pipe()
    report_read, report_write = os.pipe()
    output_read, output_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        supervisor.supervise(command, control_read, report_write, output_write)
    for fd in (control_read, report_write, output_write):
        os.close(fd)
    for fd in (report_read, output_read):
        os.set_blocking(fd, False)
    return ReplicaProcess(pid, control_write, report_read, output_read)
