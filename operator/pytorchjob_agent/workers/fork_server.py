"""The fork server's process: imports once what workers need, then forks a worker for each request of the launcher.

Of the user's code it runs only the modules in `spec.agent.preload`. It has no threads and touches no GPU, because a
fork would inherit half of either. If it cannot fork safely, it refuses with the reason. `fork_client` starts it.
"""

import contextlib
import importlib
import json
import os
import re
import selectors
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterable
from pathlib import Path

from pytorchjob_agent.system import garbage_collection, processes
from pytorchjob_agent.system.console import say
from pytorchjob_agent.workers import ready
from pytorchjob_agent.workers.forked_program import Program
from pytorchjob_agent.workers.start_choice import TORCH_MODULES

READY = b"+"
FORK, PREPARE = b".", b"r"
"""Requests: a worker that runs a program, or a process that makes the context of a GPU and waits for a program."""
REFUSAL, END = "!", "="  # first character of an answer; the pid of a new worker has neither
COMMAND = (
    "import sys; bare = {*sys.modules}; sys.flags.safe_path or sys.path.pop(0); sys.path.append(sys.argv[1]); "
    "from pytorchjob_agent.workers.startup import pytorchjob_ending; pytorchjob_ending.register(); "
    "from pytorchjob_agent.workers import fork_server; sys.path.pop(); fork_server.main(bare)"
)
"""For `python -u -c`. Its arguments: the folder of this package, the number of the control socket, the program's
folder, the modules."""

_DEVICE = re.compile(
    "/dev/(nvidia-uvm|kfd|dxg|dri/renderD[0-9]+|hl[0-9]+|accel/accel[0-9]+|davinci[0-9]+|davinci_manager|neuron[0-9]+)"
)
"""Files that are open once an accelerator is in use; to count NVIDIA's and AMD's opens others."""
_ASK_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"  # torch.cuda.is_available() without touching the GPU
_FDS = 4


def main(bare: set[str]) -> None:
    """Serve until the launcher is gone; `bare` has the modules of an interpreter that has just started."""
    control, folder, modules = socket.socket(fileno=int(sys.argv[2])), sys.argv[3], sys.argv[4:]
    sys.argv[:] = [""]
    born = dict(os.environ)
    os.environ[_ASK_NVML] = "1"
    with garbage_collection.paused():  # collecting writes to, and so copies, the memory that the children share
        _load(name for name in modules if name in TORCH_MODULES)
        path = [*sys.path]
        sys.path[:0] = [folder] if folder and not sys.flags.safe_path else []
        _load(name for name in modules if name not in TORCH_MODULES)
        sys.path[:] = path
    processes.adopt_orphans()  # the workers' orphans stay descendants, where the end of a round finds and kills them
    program = _Server(control, born, bare).serve()
    program.run()  # in a forked child, with as few frames above it as possible


def _load(names: Iterable[str]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # the user's modules run here; the worker reports the same error in full
            say(f"{name} cannot be preloaded: {error!r}")


class _Server:
    def __init__(self, control: socket.socket, born: dict[str, str], bare: set[str]) -> None:
        self._control, self._born, self._bare = control, born, bare
        self._channels: dict[int, socket.socket] = {}
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()

    def serve(self) -> Program:
        """Fork and reap; returns in the children only, with the program to run."""
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._wake, selectors.EVENT_READ)
        with contextlib.suppress(OSError):  # the launcher is gone, which the loop below notices
            self._control.send(READY)
        while True:
            ready = {key.fileobj for key, _ in self._selector.select()}
            if self._control in ready and (program := self._take()):
                return program
            if self._wake in ready:
                self._wake.recv(4096)
                self._report(processes.reap())

    def _report(self, ended: dict[int, int]) -> None:
        for pid in ended.keys() & self._channels.keys():  # all other pids are adopted orphans
            with self._channels.pop(pid) as channel:
                _send(channel, f"{END}{ended[pid]}")

    def _take(self) -> Program | None:
        """Answer one request; returns a program in the child only."""
        try:
            message, fds, _, _ = socket.recv_fds(self._control, 1, _FDS)
        except ConnectionError:  # it had not read all that it was sent
            message = b""
        if not message:
            os._exit(0)  # the launcher is gone
        with open(fds[0], encoding="ascii") as file:
            text = file.read()
        channel, outputs = socket.socket(fileno=fds[1]), fds[2:]
        program = Program.from_json(text) if message == FORK else None
        reason = self._unfit(program)
        pid = None if reason else self._fork()
        if pid == 0:
            return self._become(channel, outputs, program, text)
        for fd in outputs:
            os.close(fd)
        if pid is None:
            with channel:
                _send(channel, f"{REFUSAL}{reason}")
        else:
            self._channels[pid] = channel
        return None

    def _fork(self) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # threads of numerical libraries, which are ready for a fork
            return os.fork()

    def _become(self, channel: socket.socket, outputs: list[int], program: Program | None, text: str) -> Program:
        """Turn the child into a worker: its own session, signals and output; close the server's descriptors.

        Without a program it waits for one first; `text` has the device and the seconds until it makes its context.
        """
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for inherited in (self._control, self._wake, self._woken, *self._channels.values()):
            inherited.close()
        with channel:
            if program is None:
                _send(channel, str(os.getpid()))
                program, outputs = ready.wait(channel, *json.loads(text))
                if reason := self._differs(program):
                    _send(channel, f"{REFUSAL}{reason}")
                    os._exit(0)
            for fd, number in zip(outputs, (1, 2), strict=True):
                os.dup2(fd, number)
                os.close(fd)
            _send(channel, str(os.getpid()))
        return program

    def _unfit(self, program: Program | None) -> str | None:
        """Return why a fork would behave differently from a new interpreter; None if it would not."""
        if threading.active_count() > 1:
            return f"a preloaded module started threads: {threading.enumerate()[1:]}"
        if gpu := touched_gpu(_links()):
            return f"a preloaded module uses the GPU ({gpu})"
        return None if program is None else self._differs(program)

    def _differs(self, program: Program) -> str | None:
        return program.differs(self._born) or program.hides(self._bare)


def _links() -> list[str]:
    """Return the files behind the descriptors of this process."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the descriptor that reads this folder
            links.append(os.readlink(entry))
    return links


def touched_gpu(links: list[str]) -> str | None:
    """Return the open file, or `torch.cuda`, that shows that this process uses a GPU; None if nothing shows it."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return "torch.cuda"
    return next(filter(_DEVICE.fullmatch, links), None)


def _send(channel: socket.socket, answer: str) -> None:
    with contextlib.suppress(OSError):  # the client no longer waits for it
        channel.sendall(answer[:2048].encode())
