"""The fork server's process: imports once what workers need, then forks one whenever the launcher asks.

It runs nothing of the user's but the modules that it was told to import, has no thread and touches no GPU: a fork
would inherit half of either. Where it finds that it cannot fork rightly it refuses with the reason.
"""

import contextlib
import importlib
import os
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
from pytorchjob_agent.workers.forked_program import Program
from pytorchjob_agent.workers.start_choice import TORCH_MODULES

READY = b"+"
REFUSAL, END = "!", "="  # first in a word; the pid of a new worker has neither
COMMAND = (
    "import sys; bare = {*sys.modules}; sys.flags.safe_path or sys.path.pop(0); sys.path.append(sys.argv[1]); "
    "from pytorchjob_agent.workers import fork_server; sys.path.pop(); fork_server.main(bare)"
)
"""For `python -u -c`; its arguments: the folder of this package, the control socket's number, the program's folder,
the modules."""

_GPU = ("/dev/nvidia-uvm", "/dev/kfd")  # opened by what cannot be forked; asking how many GPUs there are opens others
_ASK_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"  # torch.cuda.is_available() without touching the GPU
_FDS = 4


def main(bare: set[str]) -> None:
    """Serve until the launcher is gone; `bare` are the modules of an interpreter that has done nothing yet."""
    control, folder, modules = socket.socket(fileno=int(sys.argv[2])), sys.argv[3], sys.argv[4:]
    sys.argv[:] = [""]
    born = dict(os.environ)
    os.environ[_ASK_NVML] = "1"
    with garbage_collection.paused():  # in the children, too, it would write to, and so copy, what they share with us
        _load(name for name in modules if name in TORCH_MODULES)
        path = [*sys.path]
        sys.path[:0] = [folder] if folder and not sys.flags.safe_path else []
        _load(name for name in modules if name not in TORCH_MODULES)
        sys.path[:] = path
    processes.adopt_orphans()  # the workers' orphans stay below, where whoever ends a round finds them
    program = _Server(control, born, bare).serve()
    program.run()  # in a forked child, below as few frames as can be


def _load(names: Iterable[str]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # user's modules run here; the worker will meet the same error, and tell it in full
            say(f"{name} is not imported ahead: {error!r}")


class _Server:
    def __init__(self, control: socket.socket, born: dict[str, str], bare: set[str]) -> None:
        self._control, self._born, self._bare = control, born, bare
        self._channels: dict[int, socket.socket] = {}
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()

    def serve(self) -> Program:
        """Fork and reap; returns in the children alone, with what to run."""
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._wake, selectors.EVENT_READ)
        with contextlib.suppress(OSError):  # the launcher is gone: that is found out below
            self._control.send(READY)
        while True:
            ready = {key.fileobj for key, _ in self._selector.select()}
            if self._control in ready and (program := self._take()):
                return program
            if self._wake in ready:
                self._wake.recv(4096)
                self._tell(processes.reap())

    def _tell(self, ended: dict[int, int]) -> None:
        for pid in ended.keys() & self._channels.keys():  # the others are adopted orphans
            with self._channels.pop(pid) as channel:
                _send(channel, f"{END}{ended[pid]}")

    def _take(self) -> Program | None:
        """Answer one request; returns in the child alone."""
        message, fds, _, _ = socket.recv_fds(self._control, 1, _FDS)
        if not message:
            os._exit(0)  # the launcher is gone
        with open(fds[0], encoding="ascii") as file:
            program = Program.from_json(file.read())
        channel = socket.socket(fileno=fds[1])
        reason = self._unfit(program)
        pid = None if reason else self._fork(channel)
        if pid == 0:
            self._become(channel, fds[2:])
            return program
        for fd in fds[2:]:
            os.close(fd)
        if pid is None:
            with channel:
                _send(channel, f"{REFUSAL}{reason}")
        else:
            self._channels[pid] = channel
        return None

    def _fork(self, channel: socket.socket) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # threads of numerical libraries, which are ready for a fork
            return os.fork()

    def _become(self, channel: socket.socket, outputs: list[int]) -> None:
        """Be a process of its own: session, signals, output; nothing of the server's stays open."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for one in (self._control, self._wake, self._woken, *self._channels.values()):
            one.close()
        for fd, number in zip(outputs, (1, 2), strict=True):
            os.dup2(fd, number)
            os.close(fd)
        with channel:
            _send(channel, str(os.getpid()))

    def _unfit(self, program: Program) -> str | None:
        """Return why a fork would not be what a new interpreter is."""
        if threading.active_count() > 1:
            return f"a module that was imported ahead started threads: {threading.enumerate()[1:]}"
        if gpu := touched_gpu(_links()):
            return f"a module that was imported ahead uses the GPU ({gpu})"
        return program.differs(self._born) or program.hides(self._bare)


def _links() -> list[str]:
    """Return what our file descriptors stand for."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that reads this folder
            links.append(os.readlink(entry))
    return links


def touched_gpu(links: list[str]) -> str | None:
    """Return what shows that this process has begun to use a GPU, among its open files or by torch's word."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return "torch.cuda"
    return next((link for link in links if link in _GPU), None)


def _send(channel: socket.socket, word: str) -> None:
    with contextlib.suppress(OSError):  # nobody waits for it any more
        channel.sendall(word[:2048].encode())
