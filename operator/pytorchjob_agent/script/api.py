"""What a training script may say to its agent, and ask it: `progress`, `checkpoint_requested`, `should_stop`.

Outside of an agent the three do nothing. Nothing is imported for them but the standard library; torch is used where the
script has imported it. They decide nothing: when to save and when to end is the script's own matter.
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

_LARGEST = 2**63 - 1


class Script:
    """This process' side of the board."""

    def __init__(self, path: str | None) -> None:
        """Open the board; whoever has none, or cannot open it, writes into memory that nobody reads."""
        self.supervised = bool(path)
        self.board = _open(path) if path else ProgressFile(memoryview(bytearray(SIZE)))
        self._lock = threading.Lock()
        self._calls = dict.fromkeys(RequestKind, 0)
        self._seen = 0  # the newest request that checkpoint_requested() returned True for
        self._stops = 0  # the newest request to stop that all ranks know of
        self._saver: int | None = None  # the thread that saves now
        self._leaves: int | None = None  # the process that was told to end

    def report(self, step: int, total: int | None, metrics: dict[str, object]) -> None:
        """Write how far the script is; any thread may."""
        with self._lock:
            self.board.report(step, total, time.monotonic(), metrics)
        self._saved()

    def checkpoint_requested(self, every: int) -> bool:
        """Whether all ranks are to save now."""
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
        """Whether all ranks are to end; of a script that asks for checkpoints too, not before it saved one for that."""
        asks = self._turn(RequestKind.STOP, every)
        agreed = 0 < self._stops <= self._seen  # all ranks know, and none asks any more
        if not agreed and asks and not self._calls[RequestKind.CHECKPOINT]:
            self._agree()
            self._seen = max(self._seen, self._stops)
            agreed = self._stops > 0
        if agreed:
            self._leaves = os.getpid()
        return agreed

    def _turn(self, kind: RequestKind, every: int) -> bool:
        """Count the call; whether it is one that asks."""
        if every < 1:
            raise ValueError(f"every: {every} is no distance: expected 1 (ask at each call) or more")
        if not self._calls[kind]:
            self.board.asks(kind)
        self._calls[kind] += 1
        return self.supervised and self._calls[kind] % every == 0

    def _agree(self) -> int:
        """Take the newest requests that any rank knows of for known; returns that for a checkpoint."""
        own = [self.board.wanted(RequestKind.CHECKPOINT), self.board.wanted(RequestKind.STOP)]
        checkpoint, stop = _greatest(own)
        self._stops = max(self._stops, stop)
        return checkpoint

    def _saved(self) -> None:
        """Answer the request once the thread that saves comes back with another call."""
        if self._saver is not None and self._saver == threading.get_ident():
            self._saver = None
            self.board.answer(self._seen)

    def leave(self) -> None:
        """Say that a script which was told to end does so, and well: its interpreter may take a second more."""
        if self._leaves == os.getpid() and getattr(sys, "last_value", None) is None:
            self.board.leave(self._seen)

    def renew(self) -> None:
        """After a fork: another thread may have held the lock then, and is not here."""
        self._lock = threading.Lock()


def _open(path: str) -> ProgressFile:
    """Map the file; without it the process still takes part in what the ranks agree on."""
    try:
        with open(path, "r+b") as file:
            board = ProgressFile(memoryview(mmap.mmap(file.fileno(), SIZE)))
    except (OSError, ValueError):
        return ProgressFile(memoryview(bytearray(SIZE)))
    return board if board.valid else ProgressFile(memoryview(bytearray(SIZE)))


def _greatest(numbers: list[int]) -> list[int]:
    """Return the greatest of each number over all ranks, where there are others."""
    dist: Any = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() < 2:
        return numbers
    torch: Any = sys.modules["torch"]
    shared = torch.tensor(numbers, dtype=torch.int64, device=_device(torch, dist))
    dist.all_reduce(shared, op=dist.ReduceOp.MAX)
    return [int(number) for number in shared.tolist()]


def _device(torch: Any, dist: Any) -> Any:
    """Return where the default group can reduce: on the CPU if it can, for that does not wait for the GPU's queue."""
    config = str(dist.distributed_c10d.get_backend_config())
    if any(f"cpu:{name}" in config for name in ("gloo", "mpi", "ucc")):
        return "cpu"
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device(config.partition(":")[0])


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


@atexit.register  # early, so that what the script registers has been done by then
def _leave() -> None:
    if _script is not None:
        _script.leave()


if hasattr(os, "register_at_fork"):  # a laptop with Windows may run the script too
    os.register_at_fork(after_in_child=_renew)


def progress(step: int, total: int | None = None, **metrics: float) -> None:
    """Say that this step of `total` is done, with at most 16 numbers that people may want to see, like the loss.

    Takes about a microsecond, so call it at every step, and with an unchanged step in long phases without any
    (evaluation, saving): each call is a sign of life. A rank that never calls is not watched by it.
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
    """Whether to save a checkpoint now: True once for each request, on all ranks at the same call.

    The save counts as done when the same thread calls this or `progress` again, or the process ends. The ranks agree by
    one small all-reduce, so all of them must call it equally often, from the thread that trains; `every=n` asks at
    each n-th call only. Before `init_process_group` a rank knows its own agent's requests alone.
    """
    return (_script or _here()).checkpoint_requested(every)


def should_stop(every: int = 1) -> bool:
    """Whether this group is about to end (a pod is drained, the job is scaled): then save, and return from the script.

    True on all ranks from the same call on, and for good. Costs what `checkpoint_requested` does; in a script that
    calls both it costs nothing, and is True only after the other was: what is to be saved is saved there.
    """
    return (_script or _here()).should_stop(every)


def seconds_left() -> float | None:
    """Return how long the agent still waits for an answer to its newest request; None: no request, or no limit."""
    deadline = (_script or _here()).board.deadline
    return None if deadline is None else max(0.0, deadline - time.monotonic())
