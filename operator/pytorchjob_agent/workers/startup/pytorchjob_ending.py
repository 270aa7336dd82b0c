"""Runs in a worker: notes how its program ends, and ends it after an error as soon as its exit handlers have run.

After them the interpreter frees every module. With torch this takes seconds on a busy machine. Meanwhile the agent
waits for the process, and all other members wait for the agent. A rank that ends with success frees its connections
there, so that others fail before the agent sees its end. So such an end is noted too.

It imports nothing else of the agent, because the worker's Python may not find the package.
"""

import atexit
import faulthandler
import gc
import io
import os
import sys
import time
from _thread import get_ident
from contextlib import suppress
from types import TracebackType

SUFFIX = ".uncaught"
ENDS = "PYTORCHJOB_ENDS"  # a folder for notes, where no agent starts the workers: by rank and pid
_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
_NOTING = "PYTORCHJOB_NOTING"
"""The process that notes its end, and where: programs that it starts inherit this, and note nothing."""
_ACCELERATOR = "torch.AcceleratorError"
_ELSEWHERE = "Original Traceback (most recent call last):"
"""How torch begins with the traceback of another process."""
_MOST_TEXT = 16 * 1024
_LONGEST_CHAIN = 20
_noted: "set[int]" = set()
"""The pid, once an end is noted: a fork inherits the set."""
_code: "list[object]" = []
"""What the program has called `sys.exit` with."""
_UNCAUGHT = 1
"""The interpreter's own exit code after an uncaught error."""
_RUNNERS = ("<string>", "<frozen runpy>", "runpy.py", "forked_program.py", "fork_server.py")
"""Files whose frames are above the program's own: of `python -m`, and of warm workers."""
_BUFFERED = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom, io.BufferedRWPair)


def register() -> bool:
    """Have the program end so. Call it before anything else registers exit handlers: the first one runs last."""
    atexit.register(_leave)
    hook, leave, main = sys.excepthook, sys.exit, get_ident()

    def note_and_exit(status: object = None, /) -> None:
        if get_ident() == main:  # it ends another thread, and not the program
            _code[:] = [status]
        leave(status)  # type: ignore[arg-type]  # what the program gives

    sys.exit = note_and_exit  # type: ignore[assignment]  # it does not return

    def note_and_show(
        kind: "type[BaseException]", error: BaseException, trace: "TracebackType | None"
    ) -> None:  # the time of the error itself: exit handlers may take long
        left = _has_left_main(trace) or (isinstance(error, SyntaxError) and _own(trace) is None)  # in the script itself
        if left and isinstance(error, Exception):
            _note(error)
        hook(kind, error, trace)

    sys.excepthook = note_and_show
    begin()
    return True


def begin() -> None:
    """Let this process note its end, and print its stacks if it crashes in native code."""
    noting = _noting()
    if _path() and os.environ.get(_NOTING, "").partition(" ")[2] != noting.partition(" ")[2]:
        os.environ[_NOTING] = noting
    if _ERROR_FILE in os.environ and not faulthandler.is_enabled():
        with suppress(RuntimeError, ValueError, OSError):  # there is no stderr
            faulthandler.enable()


def _path() -> str:
    """Return what the name of the note begins with: that of torch's error file, or the rank in the folder for notes."""
    error_file, folder = os.environ.get(_ERROR_FILE), os.environ.get(ENDS)
    return os.path.join(folder, os.environ.get("RANK", "")) if folder else error_file or ""


def _noting() -> str:
    """Return what tells a worker from the launcher that started it, and from programs that it starts."""
    return f"{os.getpid()} {_path()} {os.environ.get(_ERROR_FILE, '')}"


def _note(error: "Exception | None") -> None:
    """Write types, time and text of the error, or the code of an end without one, unless that is done."""
    path = _path()
    if os.environ.get(_NOTING) != _noting() or os.getpid() in _noted:
        return
    _noted.add(os.getpid())
    with suppress(Exception):  # the traceback is printed in any case
        import json

        now = {"at": time.time(), "monotonic": time.monotonic()}
        found = {**now, **({"code": _exit_code()} if error is None else _describe(error))}
        with open(f"{path}{SUFFIX}.{os.getpid()}.part", "w", encoding="utf-8", errors="replace") as file:
            json.dump(found, file)
        os.replace(file.name, f"{path}{SUFFIX}.{os.getpid()}")


def _exit_code() -> int:
    """Return the exit code of a program that has ended without an error."""
    status = _code[0] if _code else None
    return status & 0xFF if isinstance(status, int) else int(status is not None)


def _describe(error: Exception) -> "dict[str, object]":
    import traceback

    chain = _chain(error)
    trace, raised_in = chain[-1].__traceback__, ""
    while trace is not None:
        raised_in, trace = _module(trace), trace.tb_next
    return {
        "errors": [_qualified(type(each)) for each in (*chain[:3], *chain[3:][-1:])],
        "raised_in": raised_in,
        "device_error": next(filter(None, map(_device_error, chain)), 0),
        "message": _summary("".join(traceback.format_exception_only(error))),
        "traceback": "".join(traceback.format_exception(error))[-_MOST_TEXT:],
    }


def _device_error(error: BaseException) -> int:
    """Return the number that CUDA or HIP has for the error; 0: it is none of theirs, or torch does not tell it."""
    number = getattr(error, "error_code", None) if _qualified(type(error)) == _ACCELERATOR else None
    return number if isinstance(number, int) else 0


def _module(trace: TracebackType) -> str:
    """Return the module of a frame. A hook has one name, whether the agent or the worker's own Python imports it."""
    folder, file = os.path.split(trace.tb_frame.f_code.co_filename)
    if folder == os.path.dirname(__file__):
        return os.path.splitext(file)[0]
    return str(trace.tb_frame.f_globals.get("__name__", ""))


def _chain(error: BaseException) -> "list[BaseException]":
    """Return the error and those that it followed from."""
    chain = [error]
    while len(chain) < _LONGEST_CHAIN:
        last = chain[-1]
        before = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
        if not isinstance(before, Exception) or before in chain:
            break
        chain.append(before)
    return chain


def _qualified(kind: type) -> str:
    """Return the name of an error's type as a traceback has it."""
    plain = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if plain else f"{kind.__module__}.{kind.__qualname__}"


def _summary(text: str) -> str:
    """Return one line. An error of another process, such as a DataLoader's, ends with that process's own error.

    The place of a syntax error comes before its type, indented.
    """
    lines = text.strip("\n").splitlines()
    if _ELSEWHERE in (line.strip() for line in lines):
        return lines[-1].strip()
    return next((line.strip() for line in lines if line[:1].strip()), "")


def _leave() -> None:
    error, trace = getattr(sys, "last_value", None), getattr(sys, "last_traceback", None)
    if isinstance(error, Exception) and _has_left_main(trace) and not sys.flags.interactive:
        _note(error)  # unless the hook has: the program may have replaced it
        _flush()
        os._exit(_UNCAUGHT)
    if error is None and _has_run():
        _note(None)


def _has_run() -> bool:
    """Return whether there was a program: Python ends with a code of its own without the script or the module."""
    loaded = not isinstance(getattr(sys.modules["__main__"], "__loader__", None), type)  # else it is still Python's own
    return loaded or sys.argv[:1] == ["-c"]


def _has_left_main(trace: "TracebackType | None") -> bool:
    """Return whether an error has left the program. Others are printed too: of callbacks, and in a console."""
    trace = _own(trace)
    if trace is None:
        return False
    frame = trace.tb_frame
    return frame.f_code.co_name == "<module>" and frame.f_globals is vars(sys.modules["__main__"])


def _own(trace: "TracebackType | None") -> "TracebackType | None":
    """Return the traceback from the program's own first frame on."""
    while trace is not None and os.path.basename(trace.tb_frame.f_code.co_filename) in _RUNNERS:
        trace = trace.tb_next
    return trace


def _flush() -> None:
    """Write what is still in the buffers of files, as the end of the interpreter would."""
    for stream in (sys.stdout, sys.stderr, *gc.get_objects()):
        if issubclass(type(stream), _BUFFERED):
            with suppress(Exception):  # it is closed, or its other end is
                stream.flush()
    with suppress(Exception):
        import ctypes

        ctypes.CDLL(None).fflush(None)
