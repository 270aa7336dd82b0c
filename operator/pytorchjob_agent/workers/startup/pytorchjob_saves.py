"""Runs in a worker before its script: measures how long the script's calls that save and load checkpoints take.

The functions of FUNCTIONS are wrapped once their modules are imported, so that a script without torch pays nothing.
Only calls of the main thread of one process count: the training waits for these. A save in memory, in another thread
or in a child is only noted. The figures are words of the worker's progress file, which the agent maps too.

It imports nothing else of the agent but a file beside it: the worker's Python may not find the package.
"""

import os
import sys
import time
from importlib import import_module
from types import ModuleType
from typing import Any

# The worker finds the file beside this one without its package.
_imports: Any = import_module(f"{__package__}.pytorchjob_after_import" if __package__ else "pytorchjob_after_import")

SAVES = "PYTORCHJOB_SAVES"
"""The variable with the file, where the words begin in it, and where its word with the step is; offsets in bytes."""
WORDS = 8
PID, COUNT, SECONDS, STEP, LOAD_SECONDS, ELSEWHERE = range(6)
"""The process that counts, its saves, their seconds, the step at the last one (negative: none reported), the seconds of
loads before the first step, and 1 if there was a save that does not count."""

_SAVE, _LOAD = "save", "load"
FUNCTIONS: dict[str, dict[str, str]] = {
    "torch.serialization": {"save": _SAVE, "load": _LOAD},
    "torch.distributed.checkpoint.state_dict_saver": {"save": _SAVE, "async_save": _SAVE, "save_state_dict": _SAVE},
    "torch.distributed.checkpoint.state_dict_loader": {"load": _LOAD, "load_state_dict": _LOAD},
    "safetensors.torch": {"save_file": _SAVE, "save_model": _SAVE, "load_file": _LOAD, "load_model": _LOAD},
    "lightning.fabric.utilities.cloud_io": {"_atomic_save": _SAVE},
    "lightning_fabric.utilities.cloud_io": {"_atomic_save": _SAVE},
    "pytorchjob_agent.checkpoint.files": {"save": _SAVE, "load": _LOAD},
    "pytorchjob_agent.checkpoint.distributed": {"save": _SAVE, "load": _LOAD},
}
"""What is measured: by module, the functions with their kind. Lightning saves in memory, and then writes that."""
_PACKAGES = ("torch", "torch.distributed.checkpoint")
"""Packages that offer these functions under their own names."""
listeners: list[Any] = []
"""What hears of each measured call: `save_begins(at)` and `save_ends(at)`, with the clock's nanoseconds."""
after_save: list[Any] = []
"""What is called, without arguments, once a save that has succeeded is written; from any thread."""
_PAUSE = 1.0
"""Seconds. Libraries write several files: without known steps, a call after a shorter pause is of the same save."""


class SaveMeter:
    """The words of this process."""

    def __init__(self, path: str, at: int, step_at: int) -> None:
        """Map the file. Raises OSError or ValueError."""
        import mmap

        with open(path, "r+b") as file:
            mapped = memoryview(mmap.mmap(file.fileno(), 0))
        words = mapped[at : at + 8 * WORDS]
        self._ints, self._floats = words.cast("q"), words.cast("d")
        self._step = mapped[step_at : step_at + 8].cast("q")
        self._inside = False
        self._began = self._ended = 0.0
        """The last save: its first call began, its last call ended."""
        if not _lives(self._ints[PID]):
            self._ints[PID] = os.getpid()

    def takes(self, kind: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
        """Return whether to measure this call: no other one is under way, and the training waits for it."""
        import threading

        here = os.getpid() == self._ints[PID] and threading.current_thread() is threading.main_thread()
        if here and self._inside:
            return False
        if here and not any(type(value).__name__ == "BytesIO" for value in (*arguments, *options.values())):
            return True
        if kind == _SAVE:
            self._ints[ELSEWHERE] = 1
        return False

    def begin(self) -> float:
        """Note that a call begins, and return the time."""
        self._inside = True
        for listener in listeners:
            listener.save_begins(time.monotonic_ns())
        return time.monotonic()

    def end(self, kind: str, began: float, *, succeeded: bool) -> None:
        """Count a call that has ended."""
        self._inside = False
        for listener in listeners:
            listener.save_ends(time.monotonic_ns())
        now, step = time.monotonic(), self._step[0]
        if kind == _LOAD and step < 0:
            self._floats[LOAD_SECONDS] += now - began
        elif kind == _SAVE and succeeded:
            self._saved(began, now, step)

    def _saved(self, began: float, now: float, step: int) -> None:
        if not (self._ints[COUNT] and self._continues(began, step)):
            self._began = began
            self._ints[STEP] = step
            self._ints[COUNT] += 1
        self._ended = now
        self._floats[SECONDS] += now - began

    def _continues(self, began: float, step: int) -> bool:
        """Return whether a call that began now belongs to the last save: no step was done since."""
        pause = began - self._ended
        return step == self._ints[STEP] if step >= 0 else pause < max(_PAUSE, self._ended - self._began)


def wrap(module: ModuleType, meter: SaveMeter) -> None:
    """Replace the module's functions by measured ones, also where a package offers them."""
    for name, kind in FUNCTIONS[module.__name__].items():
        function = vars(module).get(name)
        if callable(function):
            replacement = _measured(function, kind, meter)
            setattr(module, name, replacement)
            for package in (sys.modules.get(each) for each in _PACKAGES):
                if package is not None and vars(package).get(name) is function:
                    setattr(package, name, replacement)


def _written(result: Any) -> None:
    """Tell that a save is written, now or once its future is done: torch writes in the background if asked to."""

    def tell(*_: Any) -> None:
        for call in after_save:
            call()

    pending = getattr(result, "upload_completion", result)
    if hasattr(pending, "add_done_callback"):
        pending.add_done_callback(tell)
    else:
        tell()


def _measured(function: Any, kind: str, meter: SaveMeter) -> Any:
    import functools

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        if not meter.takes(kind, arguments, options):
            return function(*arguments, **options)
        began, succeeded = meter.begin(), False
        try:
            result = function(*arguments, **options)
            succeeded = True
        finally:
            meter.end(kind, began, succeeded=succeeded)
        if kind == _SAVE and after_save:
            _written(result)
        return result

    call._torchdynamo_disable = True  # type: ignore[attr-defined]  # nothing to compile
    return call


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return pid > 0


def register() -> bool:
    """Measure from now on if the environment names a file; True on success. Raises OSError or ValueError."""
    text = os.environ.get(SAVES)
    if not text:
        return False
    path, at, step_at = text.rsplit(":", 2)
    meter = SaveMeter(path, int(at), int(step_at))
    _imports.after_import(FUNCTIONS, lambda module: wrap(module, meter))
    return True
