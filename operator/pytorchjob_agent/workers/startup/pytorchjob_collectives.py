"""Runs in a worker before its script: hooks the process groups.

From the hooks come the record of the collectives that the rank has begun (`pytorchjob_recorder`), and the rank's own
time (`pytorchjob_own_time`), each in a small file. torch is not imported here: the hooks come when the script imports
torch.distributed. They need the process group's own hooks (torch 2.15 has them), because DistributedDataParallel begins
its all-reduces in C++. Without them nothing is known. Own time is not measured for collectives of a GPU: their calls
return when work is enqueued, which shows no waiting.
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
_recorder: Any = import_module(f"{_BESIDE}pytorchjob_recorder")
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

    def __init__(self, recorder: Any | None, own_time: "_OwnTime | None") -> None:
        """Take what listens, and hook the optimizers."""
        self._recorder, self._own_time = recorder, own_time
        optimizer: Any = import_module("torch.optim.optimizer")
        optimizer.register_optimizer_step_pre_hook(self._step)
        self._numbers: list[tuple[str, list[int | None]]] = []
        """For each hooked group its name, and the number that its record has now."""
        self._compiling = import_module("torch.compiler").is_compiling

    def add(self, group: Any) -> None:
        """Hook a process group with other ranks."""
        if group.size() < 2:
            return
        recorder, own_time = self._recorder, self._own_time
        number = [None if recorder is None else recorder.add(_name(group))]
        self._numbers.append((_name(group), number))
        if own_time is not None and not any(device.type == "cpu" for device in group._device_types):
            own_time = None
        if number[0] is None and own_time is None:
            return

        def begin(args: Any) -> None:
            if number[0] is not None and recorder is not None:
                with contextlib.suppress(Exception):
                    recorder.begin(number[0], args)
            if own_time is not None:
                own_time.begin(args)

        group.register_pre_hook(_HOOK, begin)
        atexit.register(_unhook, weakref.ref(group))

    def change(self, change: int) -> None:
        """Count the collectives of all groups anew: ranks that go on without a lost one have begun unequal numbers."""
        for name, number in self._numbers:
            if self._recorder is not None and number[0] is not None:
                number[0] = self._recorder.add(f"{name} after change {change}")

    def _step(self, *_: Any) -> None:
        if self._compiling():
            return
        if self._recorder is not None:
            self._recorder.step()
        if self._own_time is not None:
            self._own_time.step()


class _OwnTime:
    """The rank's own time, from its waits."""

    def __init__(self, file: _File, work: Any) -> None:
        """Hook the wait of `work`, torch's class."""
        self._file = file
        self._meter = _own_time.OwnTimeMeter(self._publish)
        _saves.listeners.append(self._meter)
        self._sampler = _places.Sampler(f"{os.environ[OWN_TIME]}.places", lambda: not self._meter.saves)
        self._sampler.start()
        self._unknown = False
        """True once the ranks' own time cannot be known, or cannot be compared."""
        self._time_waits(work)
        distributed = import_module("torch.distributed")
        setattr(distributed, _BROADCASTS, self._timed(getattr(distributed, _BROADCASTS)))

    def _publish(self, own: int, wall: int) -> None:
        if self._unknown:
            return
        with contextlib.suppress(Exception):  # the time counts without its places
            self._sampler.write()
        self._file.write(own, wall)

    def step(self) -> None:
        """An optimizer's step begins."""
        self._meter.step(time.monotonic_ns())

    def begin(self, args: Any) -> None:
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


def _name(group: Any) -> str:
    """Return the group's name, which is the same at all of its ranks, and what the script calls it."""
    called = group.group_desc
    return group.group_name if called in ("", "undefined") else f"{group.group_name} ({called})"


def _unhook(known: Any) -> None:
    """Remove the hook before the interpreter ends: torch may release the group later, and a hook cannot run then."""
    group = known()
    if group is not None:
        group.unregister_pre_hook(_HOOK)


def register() -> bool:
    """Let the process groups of this process be hooked, if the environment names a file; True if so."""
    if not os.environ.get(OWN_TIME) and not os.environ.get(_recorder.RECORDER):
        return False
    _imports.after_import([_C10D], _watch)
    return True


_made: list[_Hooks] = []


def change(number: int) -> None:
    """Count all collectives anew: the default group goes on without a lost rank."""
    for hooks in _made:
        hooks.change(number)


def _watch(module: Any) -> None:
    """Hook each process group that this module creates."""
    create = getattr(module, _CREATES, None)
    if create is None or not hasattr(module.ProcessGroup, "register_pre_hook"):
        return

    def creates(*args: Any, **options: Any) -> Any:
        result = create(*args, **options)
        try:
            if not _made:
                _made.append(_hooks(module.Work))
            if isinstance(result[0], module.ProcessGroup):
                _made[0].add(result[0])
        except Exception as error:  # training goes on without it
            print(f"pytorchjob-agent: the rank's collectives are not measured: {error}", file=sys.stderr)
        return result

    setattr(module, _CREATES, creates)


def _hooks(work: Any) -> _Hooks:
    """Return the hooks of this process, for what the environment has files for."""
    record, own = os.environ.get(_recorder.RECORDER), os.environ.get(OWN_TIME)
    recorder = _recorder.CollectiveRecorder(record) if record else None
    file = _File(own) if own else None
    return _Hooks(
        recorder if recorder is not None and recorder.ours else None,
        _OwnTime(file, work) if file is not None and file.ours else None,
    )
