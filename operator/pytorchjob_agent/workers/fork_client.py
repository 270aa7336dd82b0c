"""The launcher's side of the fork server: starts it, requests workers from it, receives their exit codes.

If the server cannot fork a worker, the client logs each reason once, and its caller (`warm`) starts a cold one.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from pytorchjob_agent.system.console import say
from pytorchjob_agent.system.readable import wait_readable
from pytorchjob_agent.workers import fork_server, ready
from pytorchjob_agent.workers.forked_program import Program

_LOCAL_RANK = "LOCAL_RANK"
_PYTHON = "PYTHON_EXEC"  # torchrun's variable for another interpreter of the workers
_PATIENCE = 120.0  # seconds that the imports may take before workers start cold
_READY_PATIENCE = 10.0  # seconds that a process may still need for the context of its GPU once its program is there
_MOST_DEATHS = 3


class RefusedError(Exception):
    """Why a worker cannot be forked."""


class ForkedWorker:
    """A worker of the fork server, with the interface of a subprocess.Popen; `fileno` is readable once it has ended."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        """Receive its exit code through the channel."""
        self.pid, self._channel = pid, channel
        self.returncode: int | None = None

    def fileno(self) -> int:
        """Return the descriptor that a selector may watch until `poll` has returned the exit code."""
        return self._channel.fileno()

    def poll(self) -> int | None:
        """Return its return code if it has ended, negative for a signal."""
        with contextlib.suppress(BlockingIOError):
            return self._await(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Return its return code; raises subprocess.TimeoutExpired after `timeout` seconds."""
        try:
            return self._await(timeout)
        except (TimeoutError, BlockingIOError):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0) from None

    def run(self, program: Program, outputs: tuple[int, int]) -> bool:
        """Run a program in a process that waits for one; False: it has ended, or cannot run this one.

        A process that does not answer is killed: it would run the program later, beside another worker of this rank.
        """
        with contextlib.suppress(OSError):
            self._channel.settimeout(_READY_PATIENCE)
            _send(self._channel, fork_server.FORK, program.to_json(), outputs)
            if _receive(self._channel) == str(self.pid):
                return True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.close()
        return False

    def close(self) -> None:
        """Let a process that waits for a program end without one."""
        self._channel.close()

    def _await(self, timeout: float | None) -> int:
        if self.returncode is None:
            self._channel.settimeout(timeout)
            self.returncode = self._end(_receive(self._channel))
            self._channel.close()
        return self.returncode

    def _end(self, answer: str) -> int:
        if answer:
            return int(answer.removeprefix(fork_server.END))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # the server is gone, so the exit code would be lost: end it now
        return -signal.SIGKILL


class ForkServer:
    """A fork server, which is started again if it dies."""

    def __init__(self, modules: Sequence[str], folder: str) -> None:
        """Use `start`."""
        self._modules, self._folder = tuple(modules), folder
        self._python = os.environ.get(_PYTHON, sys.executable)
        self._born = dict(os.environ)
        self._deaths = 0
        self._reported: set[str] = set()
        self._ready: dict[int, ForkedWorker] = {}
        """Processes that wait for a program, by local rank."""
        self.makes_ready = False
        self._process, self._control = self._launch()

    @classmethod
    def start(cls, modules: Sequence[str], folder: str = "") -> "ForkServer":
        """Start a process that imports the modules, also those in the program's folder; return at once."""
        return cls(modules, folder)

    def pids(self) -> set[int]:
        """Return the processes to keep when all other descendants of the launcher are killed."""
        return {self._process.pid, *(process.pid for process in self._waiting().values())}

    def _waiting(self) -> dict[int, ForkedWorker]:
        """Return the processes that wait for a program, by local rank; those that have ended are forgotten."""
        self._ready = {rank: process for rank, process in self._ready.items() if process.poll() is None}
        return self._ready

    def wait(self, seconds: float) -> bool:
        """Wait until the imports are done or the server has died; False after `seconds`."""
        return bool(wait_readable([self._control], seconds))  # the message is never read

    def popen(
        self, args: Sequence[str], env: dict[str, str], out: TextIO | None, err: TextIO | None
    ) -> ForkedWorker | None:
        """Return a worker that writes to these files, or to the launcher's; None if it has to start cold."""
        outputs = (out.fileno() if out else 1, err.fileno() if err else 2)
        try:
            program = self._program(args, env)
            return self._take_ready(program, outputs) or self._fork(program, outputs)
        except RefusedError as refusal:
            self._say_once(cold_start(str(refusal)))
            return None

    def prepare(self, count: int, pause: float = ready.PAUSE_SECONDS) -> None:
        """Let a process for each of so many local ranks make the context of its GPU, after `pause` seconds, and wait.

        It does nothing unless `makes_ready` is set, and as long as the server imports: the workers run already.
        """
        if not (self.makes_ready and self.wait(0)):
            return
        for local_rank in set(range(count)) - self._waiting().keys():
            try:
                request = (fork_server.PREPARE, json.dumps([local_rank, pause]))
                self._ready[local_rank] = self._ask(*request, ())
            except RefusedError as refusal:
                self._say_once(f"no worker waits with the context of its GPU: {refusal}")

    def revive(self) -> None:
        """Start a server that has died again, for the next round, at most three times."""
        if self._process.poll() is None or self._deaths >= _MOST_DEATHS:
            return
        self._deaths += 1
        self._reported.clear()
        self._drop_ready()
        self._control.close()
        self._process, self._control = self._launch()

    def close(self) -> None:
        """Stop the server. Exit codes of remaining workers are lost."""
        self._drop_ready()
        self._control.close()
        self._process.kill()
        self._process.wait()

    def _launch(self) -> tuple["subprocess.Popen[bytes]", socket.socket]:
        ours, theirs = socket.socketpair()
        arguments = [str(Path(__file__).parents[2]), str(theirs.fileno()), self._folder, *self._modules]
        command = [self._python, "-u", "-c", fork_server.COMMAND, *arguments]
        with theirs:  # its own session: signals to the launcher's process group must not reach it
            process = subprocess.Popen(  # noqa: S603 - the user's interpreter, the agent's code
                command, pass_fds=[theirs.fileno()], start_new_session=True
            )
        return process, ours

    def _program(self, args: Sequence[str], env: dict[str, str]) -> Program:
        program = Program.of(args, env, os.getcwd()) if args[0] == self._python else None
        if program is None:
            raise RefusedError(f"{' '.join(args[:4])!r} is not torchrun's command line of a Python program")
        return program

    def _take_ready(self, program: Program, outputs: tuple[int, int]) -> ForkedWorker | None:
        """Give the program to the process that waits for its local rank; None: there is none, or it cannot run it.

        Then a fork runs it, or says why not.
        """
        process = self._ready.pop(int(program.env.get(_LOCAL_RANK, "-1")), None)
        if process is None or self._process.poll() is not None:
            return None
        if ready.differs(self._born, program.env):
            process.close()
            self._say_once("a variable of CUDA has changed: a worker makes the context of its GPU itself")
            return None
        return process if process.run(program, outputs) else None

    def _drop_ready(self) -> None:
        for process in self._ready.values():
            process.close()
        self._ready.clear()

    def _fork(self, program: Program, outputs: tuple[int, int]) -> ForkedWorker:
        return self._ask(fork_server.FORK, program.to_json(), outputs)

    def _ask(self, kind: bytes, text: str, outputs: tuple[int, ...]) -> ForkedWorker:
        if self._process.poll() is not None:
            raise self._dead()
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        try:
            try:
                _send(self._control, kind, text, (theirs.fileno(), *outputs))
            except ConnectionError:
                raise self._dead() from None
            theirs.close()
            ours.settimeout(_PATIENCE)
            return ForkedWorker(self._pid(_receive(ours)), ours)
        except BaseException as error:
            ours.close()
            theirs.close()
            if isinstance(error, TimeoutError):
                self._process.kill()
                raise RefusedError(f"the fork server did not fork a worker within {_PATIENCE:g} s") from None
            if isinstance(error, OSError):
                raise RefusedError(f"the fork server cannot be reached: {error}") from None
            raise

    def _pid(self, answer: str) -> int:
        if answer.startswith(fork_server.REFUSAL):
            raise RefusedError(answer.removeprefix(fork_server.REFUSAL))
        if answer.isdigit():
            return int(answer)
        raise self._dead() if not answer else RefusedError("a worker died before it began")

    def _dead(self) -> RefusedError:
        self._process.kill()  # its socket is closed, so it is useless even if it still runs
        return RefusedError(f"the fork server ended with {self._process.wait()}")

    def _say_once(self, words: str) -> None:
        if words not in self._reported:
            self._reported.add(words)
            say(words)


def _send(channel: socket.socket, kind: bytes, text: str, fds: tuple[int, ...]) -> None:
    with tempfile.TemporaryFile("w", encoding="ascii") as file:
        file.write(text)
        file.seek(0)
        socket.send_fds(channel, [kind], [file.fileno(), *fds])


def _receive(channel: socket.socket) -> str:
    """Return one message of the server, which is one packet; empty if the server is gone."""
    try:
        return channel.recv(4096).decode()
    except ConnectionError:
        return ""


def cold_start(reason: str) -> str:
    """Say why workers start cold although another start was requested."""
    return f"workers start cold: {reason}"
