"""Runs in a worker: ends a program that an error has ended, as soon as its exit handlers have run.

After them the interpreter frees every module. With torch this takes seconds on a busy machine. Meanwhile the agent
waits for the process, and all other members wait for the agent.

It imports nothing else of the agent, because the worker's Python may not find the package.
"""

import atexit
import gc
import io
import os
import sys
from contextlib import suppress
from types import TracebackType

_UNCAUGHT = 1
"""The interpreter's own exit code after an uncaught error."""
_RUNNERS = ("<string>", "<frozen runpy>", "runpy.py", "forked_program.py", "fork_server.py")
"""Files whose frames are above the program's own: of `python -m`, and of warm workers."""
_BUFFERED = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom, io.BufferedRWPair)


def register() -> bool:
    """Have the program end so. Call it before anything else registers exit handlers: the first one runs last."""
    atexit.register(_leave)
    return True


def _leave() -> None:
    error, trace = getattr(sys, "last_value", None), getattr(sys, "last_traceback", None)
    if isinstance(error, Exception) and _has_left_main(trace) and not sys.flags.interactive:
        _flush()
        os._exit(_UNCAUGHT)


def _has_left_main(trace: "TracebackType | None") -> bool:
    """Return whether an error has left the program. Others are printed too: of callbacks, and in a console."""
    while trace is not None and os.path.basename(trace.tb_frame.f_code.co_filename) in _RUNNERS:
        trace = trace.tb_next
    if trace is None:
        return False
    frame = trace.tb_frame
    return frame.f_code.co_name == "<module>" and frame.f_globals is vars(sys.modules["__main__"])


def _flush() -> None:
    """Write what is still in the buffers of files, as the end of the interpreter would."""
    for stream in (sys.stdout, sys.stderr, *gc.get_objects()):
        if issubclass(type(stream), _BUFFERED):
            with suppress(Exception):  # it is closed, or its other end is
                stream.flush()
    with suppress(Exception):
        import ctypes

        ctypes.CDLL(None).fflush(None)
