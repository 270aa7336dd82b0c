"""The launcher's side of the fork server: starts it, asks it for workers, hears how they end.

Where it cannot give one it says why, once for each reason; whoever asked then starts a cold one.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from pytorchjob_agent.system.console import say
from pytorchjob_agent.workers import fork_server
from pytorchjob_agent.workers.forked_program import Program

_PYTHON = "PYTHON_EXEC"  # torchrun's: another interpreter for the workers
_PATIENCE = 120.0  # seconds that an import may take before workers start without it
_MOST_DEATHS = 3


class RefusedError(Exception):
    """Why a worker cannot be forked."""


class ForkedWorker:
    """A worker that the fork server made, as torch uses a subprocess.Popen; `fileno` is readable when it has ended."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        """Hear of its end through the channel."""
        self.pid, self._channel = pid, channel
        self.returncode: int | None = None

    def fileno(self) -> int:
        """Return what a selector may watch until `poll` has told the end."""
        return self._channel.fileno()

    def poll(self) -> int | None:
        """Return its code if it has ended, negative for a signal."""
        with contextlib.suppress(BlockingIOError):
            return self._await(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Return its code; raises subprocess.TimeoutExpired after so many seconds."""
        try:
            return self._await(timeout)
        except (TimeoutError, BlockingIOError):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0) from None

    def _await(self, timeout: float | None) -> int:
        if self.returncode is None:
            self._channel.settimeout(timeout)
            self.returncode = self._end(_receive(self._channel))
            self._channel.close()
        return self.returncode

    def _end(self, word: str) -> int:
        if word:
            return int(word.removeprefix(fork_server.END))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # the server is gone, nobody would tell its end: it ends at once
        return -signal.SIGKILL


class ForkServer:
    """A fork server, and another one where it died."""

    def __init__(self, modules: Sequence[str], folder: str) -> None:
        """Use `start`."""
        self._modules, self._folder = tuple(modules), folder
        self._python = os.environ.get(_PYTHON, sys.executable)
        self._deaths = 0
        self._said: set[str] = set()
        self._process, self._control = self._launch()

    @classmethod
    def start(cls, modules: Sequence[str], folder: str = "") -> "ForkServer":
        """Begin to import the modules, also those in the program's folder, in a process of its own; return at once."""
        return cls(modules, folder)

    def pids(self) -> set[int]:
        """Return what must be left alive when all that is below the launcher is killed."""
        return {self._process.pid}

    def wait(self, seconds: float) -> bool:
        """Wait until the imports are done, or the server has died; whether that was within so many seconds."""
        return bool(select.select([self._control], [], [], seconds)[0])  # the word is never taken

    def popen(
        self, args: Sequence[str], env: dict[str, str], out: TextIO | None, err: TextIO | None
    ) -> ForkedWorker | None:
        """Return a worker that writes to these files, or to ours; None where a cold one has to be started."""
        try:
            return self._ask(self._program(args, env), (out.fileno() if out else 1, err.fileno() if err else 2))
        except RefusedError as refusal:
            self._say(str(refusal))
            return None

    def revive(self) -> None:
        """Start a server anew that has died, for the next round; one that dies again and again is left dead."""
        if self._process.poll() is None or self._deaths >= _MOST_DEATHS:
            return
        self._deaths += 1
        self._said.clear()
        self._control.close()
        self._process, self._control = self._launch()

    def close(self) -> None:
        """End the server; of workers that are left nobody hears any more."""
        self._control.close()
        self._process.kill()
        self._process.wait()

    def _launch(self) -> tuple["subprocess.Popen[bytes]", socket.socket]:
        ours, theirs = socket.socketpair()
        arguments = [str(Path(__file__).parents[2]), str(theirs.fileno()), self._folder, *self._modules]
        command = [self._python, "-u", "-c", fork_server.COMMAND, *arguments]
        with theirs:  # a session of its own: signals for the launcher's group are not for it
            process = subprocess.Popen(  # noqa: S603 - the user's interpreter, our code
                command, pass_fds=[theirs.fileno()], start_new_session=True
            )
        return process, ours

    def _program(self, args: Sequence[str], env: dict[str, str]) -> Program:
        program = Program.of(args, env, os.getcwd()) if args[0] == self._python else None
        if program is None:
            raise RefusedError(f"{' '.join(args[:4])!r} is not what torchrun makes of a Python program")
        return program

    def _ask(self, program: Program, outputs: tuple[int, int]) -> ForkedWorker:
        if self._process.poll() is not None:
            raise self._dead()
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        try:
            self._send(program, (theirs.fileno(), *outputs))
            theirs.close()
            ours.settimeout(_PATIENCE)
            return ForkedWorker(self._pid(_receive(ours)), ours)
        except BaseException as error:
            ours.close()
            theirs.close()
            if isinstance(error, TimeoutError):
                self._process.kill()
                raise RefusedError(f"the fork server gave none within {_PATIENCE:g} s") from None
            if isinstance(error, OSError):
                raise RefusedError(f"the fork server cannot be asked: {error}") from None
            raise

    def _send(self, program: Program, fds: tuple[int, ...]) -> None:
        with tempfile.TemporaryFile("w", encoding="ascii") as file:
            file.write(program.to_json())
            file.seek(0)
            try:
                socket.send_fds(self._control, [b"."], [file.fileno(), *fds])
            except ConnectionError:
                raise self._dead() from None

    def _pid(self, word: str) -> int:
        if word.startswith(fork_server.REFUSAL):
            raise RefusedError(word.removeprefix(fork_server.REFUSAL))
        if word.isdigit():
            return int(word)
        raise self._dead() if not word else RefusedError("a worker died before it began")

    def _dead(self) -> RefusedError:
        self._process.kill()  # its socket is closed: it is ending, or of no use
        return RefusedError(f"the fork server ended with {self._process.wait()}")

    def _say(self, reason: str) -> None:
        if reason not in self._said:
            self._said.add(reason)
            report_cold_start(reason)


def _receive(channel: socket.socket) -> str:
    """Return one word of the server's, which is one packet; empty when it is gone."""
    try:
        return channel.recv(4096).decode()
    except ConnectionError:
        return ""


def report_cold_start(reason: str) -> None:
    """Tell why workers start cold although something else was asked for."""
    say(f"workers start cold: {reason}")
