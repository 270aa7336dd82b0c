"""Runs in a worker before its script: hooks the process groups, and writes the rank's own time to a small file.

torch is not imported here: the hooks come when the script imports torch.distributed. They need the process group's own
hooks (torch 2.15 has them), because DistributedDataParallel begins its all-reduces in C++. Without them, and for
collectives of a GPU, nothing is measured: their calls return when work is enqueued, which shows no waiting.
"""

import atexit
import contextlib
import mmap
import os
import sys
import time
import weakref
from importlib import import_module
from typing import Any

OWN_TIME = "PYTORCHJOB_OWN_TIME"  # the file to write to
SIZE = 64
"""Bytes of the file: words of 8 bytes, see `read`."""

# The worker finds the files beside this one without their package.
_BESIDE = f"{__package__}." if __package__ else ""
_imports: Any = import_module(f"{_BESIDE}pytorchjob_after_import")
_own_time: Any = import_module(f"{_BESIDE}pytorchjob_own_time")
_places: Any = import_module(f"{_BESIDE}pytorchjob_places")
_saves: Any = import_module(f"{_BESIDE}pytorchjob_saves")
_C10D = "torch.distributed.distributed_c10d"
_CREATES = "_new_process_group_helper"
_BROADCASTS = "_broadcast_coalesced"  # DistributedDataParallel's, for its buffers; it waits in C++
_HOOK = int.from_bytes(b"ptj-own", "little")  # a process group knows each hook by a number
_PID, _CHANGES, _OWN, _WALL = 0, 1, 2, 3


def read(data: bytes) -> tuple[int, int, int] | None:
    """Return how many windows a worker has written, and the own and total nanoseconds of the last; None: none."""
    words = memoryview(data).cast("q") if len(data) == SIZE else (0,) * 4
    changes = words[_CHANGES]
    return (changes // 2, words[_OWN], words[_WALL]) if changes > 0 and changes % 2 == 0 else None


class _File:
    """The worker's side of the file. The first process that creates a group owns it."""

    def __init__(self, path: str) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._words = memoryview(mmap.mmap(fd, SIZE)).cast("q")
        finally:
            os.close(fd)
        self.ours = self._words[_PID] in (0, os.getpid())
        if self.ours:
            self._words[_PID] = os.getpid()

    def write(self, own: int, wall: int) -> None:
        """Write a window. The number of changes is odd meanwhile."""
        words = self._words
        words[_CHANGES] += 1
        words[_OWN], words[_WALL] = own, wall
        words[_CHANGES] += 1


class _Hooks:
    """The hooks of one process. None of them raises, because an error would reach the script's collective."""

    def __init__(self, file: _File, work: Any) -> None:
        """Hook the wait of `work`, torch's class, and the optimizers."""
        self._file = file
        self._meter = _own_time.OwnTimeMeter(self._publish)
        _saves.listeners.append(self._meter)
        self._sampler = _places.Sampler(f"{os.environ[OWN_TIME]}.places", lambda: not self._meter.saves)
        self._sampler.start()
        self._unknown = False
        """True once the ranks' own time cannot be known, or cannot be compared."""
        optimizer: Any = import_module("torch.optim.optimizer")
        optimizer.register_optimizer_step_pre_hook(self._step)
        self._compiling = import_module("torch.compiler").is_compiling
        self._time_waits(work)
        distributed = import_module("torch.distributed")
        setattr(distributed, _BROADCASTS, self._timed(getattr(distributed, _BROADCASTS)))

    def add(self, group: Any) -> None:
        """Hook a process group with other ranks, unless it has GPUs only: the hooks would show nothing."""
        if group.size() > 1 and any(device.type == "cpu" for device in group._device_types):
            group.register_pre_hook(_HOOK, self._begin)
            atexit.register(_unhook, weakref.ref(group))

    def _publish(self, own: int, wall: int) -> None:
        if self._unknown:
            return
        with contextlib.suppress(Exception):  # the time counts without its places
            self._sampler.write()
        self._file.write(own, wall)

    def _step(self, *_: Any) -> None:
        if not self._compiling():
            self._meter.step(time.monotonic_ns())

    def _begin(self, args: Any) -> None:
        """Run before a collective. A send or a receive shows a pipeline, whose ranks have unequal work by design."""
        try:
            if self._unknown:
                return
            if args.name.name in ("SEND", "RECV") or any(not tensor.is_cpu for tensor in args.input_tensors[:1]):
                self._unknown = True
                return
            self._meter.begin(time.monotonic_ns())
        except Exception:
            self._unknown = True

    def _timed(self, call: Any) -> Any:
        """Return the same function; the meter gets to know how long it took."""

        def timed(*args: Any, **options: Any) -> Any:
            begun = time.monotonic_ns()
            result = call(*args, **options)
            self._meter.waited(begun, time.monotonic_ns())
            return result

        return timed

    def _time_waits(self, work: Any) -> None:
        timed = self._timed(work.wait)

        # pybind11 takes a function of another name for an override of a subclass.
        def wait(self: Any, *args: Any, **options: Any) -> Any:
            return timed(self, *args, **options)

        wait.__doc__ = work.wait.__doc__
        work.wait = wait


def _unhook(known: Any) -> None:
    """Remove the hook before the interpreter ends: torch may release the group later, and a hook cannot run then."""
    group = known()
    if group is not None:
        group.unregister_pre_hook(_HOOK)


def register() -> bool:
    """Let the process groups of this process be hooked, if the environment names a file; True if so."""
    path = os.environ.get(OWN_TIME)
    if not path:
        return False
    _imports.after_import([_C10D], lambda module: _watch(module, path))
    return True


def _watch(module: Any, path: str) -> None:
    """Hook each process group that this module creates."""
    create = getattr(module, _CREATES, None)
    if create is None or not hasattr(module.ProcessGroup, "register_pre_hook"):
        return
    made: list[_Hooks | None] = []

    def creates(*args: Any, **options: Any) -> Any:
        result = create(*args, **options)
        try:
            if not made:
                file = _File(path)
                made.append(_Hooks(file, module.Work) if file.ours else None)
            if made[0] is not None and isinstance(result[0], module.ProcessGroup):
                made[0].add(result[0])
        except Exception as error:  # training goes on without it
            print(f"pytorchjob-agent: the rank's own time is not measured: {error}", file=sys.stderr)
        return result

    setattr(module, _CREATES, creates)
