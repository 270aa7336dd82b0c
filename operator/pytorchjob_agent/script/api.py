"""The functions that a training script calls: `progress`, `checkpoint_requested`, `should_stop`, `seconds_left`.

They write to and read from the worker's progress file (`progress_file`), which its agent maps too (`agent_side`).
Without an agent they do nothing. They import the standard library only, and use torch if the script has imported it.
The script itself decides when to save and when to end.
"""

import atexit
import mmap
import operator
import os
import sys
import threading
import time
from typing import Any

from pytorchjob_agent.script.progress_file import PROGRESS, SIZE, ProgressFile, RequestKind
from pytorchjob_agent.script.surviving import may_go_on

_LARGEST = 2**63 - 1


class Script:
    """This process' side of the progress file."""

    def __init__(self, path: str | None) -> None:
        """Open the progress file; without one, write to private memory that no agent reads."""
        self.supervised = bool(path)
        self.file = _open(path) if path else ProgressFile(memoryview(bytearray(SIZE)))
        self._lock = threading.Lock()
        self._calls = dict.fromkeys(RequestKind, 0)
        self._seen = 0  # the newest request that checkpoint_requested() returned True for
        self._stops = 0  # the newest request to stop that all ranks know of
        self._saver: int | None = None  # the thread that saves now
        self._leaves: int | None = None  # the process that was asked to end

    def report(self, step: int, total: int | None, metrics: dict[str, object]) -> None:
        """Write the script's progress; any thread may call it."""
        with self._lock:
            self.file.report(step, total, time.monotonic(), metrics)
        self._saved()

    def checkpoint_requested(self, every: int) -> bool:
        """Return whether all ranks have to save now."""
        self._saved()
        if not self._turn(RequestKind.CHECKPOINT, every):
            return False
        wanted = self._agree()
        if wanted <= self._seen:
            return False
        self._seen = wanted
        self._saver = threading.get_ident()
        return True

    def should_stop(self, every: int) -> bool:
        """Return whether all ranks have to end; a script that also asks for checkpoints saves one first."""
        asks = self._turn(RequestKind.STOP, every)
        agreed = 0 < self._stops <= self._seen  # all ranks know, so none has to ask again
        if not agreed and asks and not self._calls[RequestKind.CHECKPOINT]:
            self._agree()
            self._seen = max(self._seen, self._stops)
            agreed = self._stops > 0
        if agreed:
            self._leaves = os.getpid()
        return agreed

    def _turn(self, kind: RequestKind, every: int) -> bool:
        """Count the call; return whether it is one that asks the other ranks."""
        if every < 1:
            raise ValueError(f"every: {every} is not a number of calls: expected 1 (ask at each call) or more")
        if not self._calls[kind]:
            self.file.asks(kind)
        self._calls[kind] += 1
        return self.supervised and self._calls[kind] % every == 0

    def _agree(self) -> int:
        """Learn the newest requests that any rank knows; return the newest checkpoint request."""
        own = [self.file.wanted(RequestKind.CHECKPOINT), self.file.wanted(RequestKind.STOP)]
        checkpoint, stop = _greatest(own)
        self._stops = max(self._stops, stop)
        return checkpoint

    def _saved(self) -> None:
        """Answer the request as soon as the thread that saves makes another call."""
        if self._saver is not None and self._saver == threading.get_ident():
            self._saver = None
            self.file.answer(self._seen)

    def leave(self) -> None:
        """Record that a script which was asked to end does so with success; its interpreter may need another second."""
        if self._leaves == os.getpid() and getattr(sys, "last_value", None) is None:
            self.file.leave(self._seen)

    def renew(self) -> None:
        """Replace the lock after a fork: a thread that held it does not exist in the child."""
        self._lock = threading.Lock()


def _open(path: str) -> ProgressFile:
    """Map the file; without it the process still takes part in the agreement of the ranks."""
    try:
        with open(path, "r+b") as opened:
            file = ProgressFile(memoryview(mmap.mmap(opened.fileno(), SIZE)))
    except (OSError, ValueError):
        return ProgressFile(memoryview(bytearray(SIZE)))
    return file if file.valid else ProgressFile(memoryview(bytearray(SIZE)))


def _greatest(numbers: list[int]) -> list[int]:
    """Return the maximum of each number over all ranks."""
    dist: Any = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() < 2:
        return numbers
    torch: Any = sys.modules["torch"]
    group, device = _place(torch, dist)
    shared = torch.tensor(numbers, dtype=torch.int64, device=device)
    dist.all_reduce(shared, op=dist.ReduceOp.MAX, group=group)
    return [int(number) for number in shared.tolist()]


_own: tuple[Any, Any] | None = None
"""The default process group, and a group of the same ranks that reduces on the CPU."""


def _place(torch: Any, dist: Any) -> tuple[Any, Any]:
    """Return the group in which the ranks agree, and its device: the CPU if possible.

    On a GPU each answer would wait for all queued kernels. All ranks call this equally often, so they can make a group;
    but ranks with two groups cannot go on without a lost one.
    """
    global _own
    config = str(dist.distributed_c10d.get_backend_config())
    if any(f"cpu:{name}" in config for name in ("gloo", "mpi", "ucc")):
        return None, "cpu"
    if dist.is_gloo_available() and not may_go_on():
        if _own is None or _own[0] is not dist.group.WORLD:
            _own = dist.group.WORLD, dist.new_group(backend="gloo")
        return _own[1], "cpu"
    if torch.cuda.is_available():
        return None, torch.device("cuda", torch.cuda.current_device())
    return None, torch.device(config.partition(":")[0])


_script: Script | None = None
_opening = threading.Lock()


def _here() -> Script:
    global _script
    with _opening:
        if _script is None:
            _script = Script(os.environ.get(PROGRESS))
    return _script


def _renew() -> None:
    global _opening
    _opening = threading.Lock()
    if _script is not None:
        _script.renew()


@atexit.register  # registered early, so that it runs after the script's own functions
def _leave() -> None:
    if _script is not None:
        _script.leave()


if hasattr(os, "register_at_fork"):  # a laptop with Windows may run the script too
    os.register_at_fork(after_in_child=_renew)


def progress(step: int, total: int | None = None, **metrics: float) -> None:
    """Report that this step of `total` is done, with at most 16 metrics such as the loss.

    A call takes about a microsecond, so call it at every step. In long phases without steps (evaluation, saving) call
    it with an unchanged step: each call is a sign of life. A rank that never calls it is not watched in this way.
    """
    script = _script or _here()
    if type(step) is not int:
        step = _whole("step", step)
    if total is not None and type(total) is not int:
        total = _whole("total", total)
    if not 0 <= step <= _LARGEST or not 0 <= (total or 0) <= _LARGEST:
        raise ValueError(f"step {step} of {total}: expected whole numbers from 0 to {_LARGEST}")
    script.report(step, total, metrics)  # type: ignore[arg-type]


def _whole(name: str, value: object) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name}: {type(value).__name__} is not a whole number: expected an int") from None


def checkpoint_requested(every: int = 1) -> bool:
    """Return whether to save a checkpoint now: True once for each request, on all ranks at the same call.

    The save counts as done when the same thread calls this or `progress` again, or when the process ends. The ranks
    agree by one small all-reduce. All of them must call it equally often, from the training thread; `every=n` asks at
    each n-th call only. Before `init_process_group` a rank knows only the requests of its own agent.
    """
    return (_script or _here()).checkpoint_requested(every)


def should_stop(every: int = 1) -> bool:
    """Return whether this worker group is about to end (a pod is drained, the job is scaled): save and return then.

    It becomes True on all ranks at the same call, and stays True. It costs as much as `checkpoint_requested`. In a
    script that calls both it costs nothing, and becomes True only after the other one: the script saves there.
    """
    return (_script or _here()).should_stop(every)


def seconds_left() -> float | None:
    """Return how many seconds the agent still waits for an answer to its newest request; None: no request or limit."""
    deadline = (_script or _here()).file.deadline
    return None if deadline is None else max(0.0, deadline - time.monotonic())
