"""Runs a Python program in an existing process as if a new interpreter had been started for it.

If the process cannot be made equal to a new interpreter, `differs` or `hides` returns the reason to refuse.
"""

import atexit
import gc
import importlib
import json
import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pytorchjob_agent.workers.startup import (
    pytorchjob_collectives,
    pytorchjob_ending,
    pytorchjob_saves,
    pytorchjob_shrink_torch,
    pytorchjob_startup,
)

_UNBUFFERED, _MODULE = "-u", "-m"
_OMP = "OMP_NUM_THREADS"
_PATH = "PYTHONPATH"
_STARTUP = str(Path(pytorchjob_startup.__file__).parent)
_AT_BIRTH = ("PYTHON", "LD_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_")  # read when an interpreter or a library starts
_NO_SOURCE = (".pyc", ".zip", ".pyz", ".egg")
_KEPT = ("__name__", "__doc__", "__package__", "__loader__", "__spec__", "__annotations__", "__builtins__")
_CANNOT_OPEN = 2  # the interpreter's own exit code


@dataclass(frozen=True, slots=True)
class Program:
    """A command line of `python`, with its variables and its working folder."""

    command: tuple[str, ...]  # as a whole, the interpreter first
    target: str  # the script's path, or the module's name
    module: bool
    env: dict[str, str]
    cwd: str

    @classmethod
    def of(cls, command: Sequence[str], env: Mapping[str, str], cwd: str) -> Self | None:
        """Read torchrun's command line of a script or a module; None for anything else."""
        flags, rest = tuple(command[1:2]), tuple(command[2:])
        module = rest[:1] == (_MODULE,)
        target = rest[1 if module else 0 :][:1]
        if flags != (_UNBUFFERED,) or not target or target[0].startswith("-"):
            return None
        return cls(tuple(command), target[0], module, dict(env), cwd)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        data = json.loads(text)
        return cls(**data | {"command": tuple(data["command"])})

    def to_json(self) -> str:
        """Return ASCII, even if the variables contain other bytes."""
        return json.dumps(asdict(self))

    @property
    def args(self) -> tuple[str, ...]:
        """Return the program's arguments."""
        return self.command[4 if self.module else 3 :]

    @property
    def folder(self) -> str:
        """Return the first entry of sys.path."""
        if self.module:
            return self.cwd
        return os.path.dirname(os.path.realpath(self._path))

    @property
    def _path(self) -> str:
        return os.path.normpath(os.path.join(self.cwd, self.target))

    def differs(self, born: Mapping[str, str]) -> str | None:
        """Return which variables changed since this process started, among those that only a start reads."""
        names = [name for name in {*born, *self.env} if name.startswith(_AT_BIRTH)]
        changed = sorted(name for name in names if _given(born, name) != _given(self.env, name))
        return f"{', '.join(changed)} changed since torch was imported" if changed else None

    def hides(self, bare: set[str]) -> str | None:
        """Return why the program would not find its own modules: modules of the same name are imported already."""
        if not self.module and (self.target.endswith(_NO_SOURCE) or os.path.isdir(self._path)):
            return f"{self.target} is not a source file"
        for name in sorted(_importable(self.folder) & (sys.modules.keys() - bare)):
            if not _within(sys.modules[name], self.folder):
                return f"{name} beside the program has the name of a preloaded module"
        return None

    def run(self) -> None:
        """Run the program; when this returns or raises, the interpreter ends as it would for the program."""
        self._settle()
        try:
            if self.module:
                _fresh_main()
                runpy._run_module_as_main(self.target)  # type: ignore[attr-defined]  # what `python -m` calls
            else:
                exec(*self._script())  # noqa: S102
        except BaseException as error:
            _hide_frames(error)
            raise

    def _settle(self) -> None:
        omp = os.environ.get(_OMP)
        os.environ.clear()
        os.environ.update(self.env)
        os.chdir(self.cwd)
        pytorchjob_startup.register()
        pytorchjob_ending.begin()
        pytorchjob_collectives.register()
        pytorchjob_shrink_torch.register()
        with suppress(OSError, ValueError):
            pytorchjob_saves.register()
        sys.orig_argv[:] = self.command
        sys.argv[:] = [_MODULE if self.module else self.target, *self.args]
        if not sys.flags.safe_path:
            sys.path.insert(0, self.folder)
        importlib.invalidate_caches()
        multiprocessing.current_process().authkey = os.urandom(32)
        _renew_numbers()
        if (threads := os.environ.get(_OMP)) != omp:
            _use_threads(threads)
        atexit.register(gc.unfreeze)  # runs last: the end of an interpreter collects what the server froze

    def _script(self) -> tuple[Any, dict[str, Any]]:
        """Return the script's code, and the names of `__main__` as a new interpreter has them."""
        path = self._path
        try:
            source = Path(path).read_bytes()
        except OSError as error:
            print(
                f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr
            )
            sys.exit(_CANNOT_OPEN)
        names = _fresh_main()
        names |= {"__loader__": SourceFileLoader("__main__", path), "__file__": path, "__cached__": None}
        return compile(source, path, "exec", dont_inherit=True), names


def _given(env: Mapping[str, str], name: str) -> str | None:
    """Return a variable's value without the folder `startup`, which a cold worker's interpreter removes as well."""
    value = env.get(name)
    if name != _PATH or not value:
        return value or None
    return os.pathsep.join(entry for entry in value.split(os.pathsep) if entry != _STARTUP) or None


def _fresh_main() -> dict[str, Any]:
    """Return the names of `__main__` without those of the fork server."""
    names = sys.modules["__main__"].__dict__
    for name in names.keys() - {*_KEPT}:
        del names[name]
    return names


def _importable(folder: str) -> set[str]:
    """Return the names of the modules and packages in a folder."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return set()
    suffixes = tuple(importlib.machinery.all_suffixes())
    files = {entry.name.partition(".")[0] for entry in entries if entry.name.endswith(suffixes)}
    return files | {entry.name for entry in entries if os.path.isfile(os.path.join(entry.path, "__init__.py"))}


def _within(module: Any, folder: str) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and os.path.realpath(file).startswith(folder + os.sep)


def _renew_numbers() -> None:
    """Reseed numpy's global generator; `random` reseeds itself after a fork, and torch's seed is fixed by default."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _use_threads(wanted: str | None) -> None:
    torch = sys.modules.get("torch")
    if torch is not None and wanted and wanted.isdigit() and int(wanted):
        torch.set_num_threads(int(wanted))


def _hide_frames(error: BaseException) -> None:
    """Let tracebacks start with the program's first frame, also for an exception hook of the user's."""
    hook = sys.excepthook

    def show(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        while trace is not None and _ours(trace):
            trace = trace.tb_next
        hook(kind, value.with_traceback(trace), trace)

    sys.excepthook = show


def _ours(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename in {"<string>", __file__, str(Path(__file__).with_name("fork_server.py"))}
