"""Runs in a worker before its script: installs the signal handlers that write stacks and profiles.

`stacks/stack_dump` asks for the stacks, `stacks/profile` for a profile. A signal that writes the stacks at once also
works in a worker that hangs. But it reads the frames of threads that run meanwhile, so it is not repeated hundreds of
times: for a profile, one signal starts a thread, which takes its samples as Python allows it to, with the GIL.

It imports nothing else of the agent, because the worker's Python may not find the package.
"""

import _thread
import faulthandler
import fcntl
import os
import signal
import sys
import time
from types import FrameType

STACKS = "PYTORCHJOB_STACKS"  # the file to write to
# SIGUSR1 and SIGUSR2 belong to scripts and to batch systems.
SIGNAL = getattr(signal, "SIGRTMIN", signal.SIGTERM) + 6
PROFILE_SIGNAL = SIGNAL + 1
ASKED, BEGUN, DONE = ".asked", ".begun", ".profile"
"""Files beside that of the stacks: seconds and samples a second of a wanted profile, its start, the result."""
_LOWEST = 200
_LONGEST, _FASTEST, _DEEPEST = 600.0, 1000.0, 500
_busy = _thread.allocate_lock()


def register() -> bool:
    """Install the handler that writes all threads' stacks to the file named by the environment; True on success."""
    path = os.environ.get(STACKS)
    if not path or not hasattr(faulthandler, "register"):
        return False
    try:
        low = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        # Scripts close and reuse low descriptors, and a stack written into a checkpoint would be worse than none.
        file = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _LOWEST)
        os.close(low)
        faulthandler.register(SIGNAL, file=file, all_threads=True, chain=False)
        signal.signal(PROFILE_SIGNAL, lambda _number, _frame: _begin(path))
        signal.siginterrupt(PROFILE_SIGNAL, False)  # a library in C may take an interrupted call for an error
    except (OSError, ValueError, RuntimeError):
        return False
    return True


def _begin(path: str) -> None:
    """Start the profile; it runs between two instructions of the script, and must never end it."""
    if not _busy.acquire(blocking=False):
        return
    try:
        _thread.start_new_thread(_profile, (path, _thread.get_ident()))  # a handler runs in the main thread
    except Exception:  # no thread can be started: the script goes on without a profile
        _busy.release()


def _profile(path: str, main: int) -> None:
    """Count the stacks of all threads, and write them in the collapsed format: frames from the outermost, a number."""
    try:
        with open(path + ASKED, encoding="ascii") as file:
            seconds, rate = (float(word) for word in file.read().split())
        seconds, pause = min(seconds, _LONGEST), 1 / min(max(rate, 1.0), _FASTEST)
        os.close(os.open(path + BEGUN, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        text = "".join(f"{stack} {number}\n" for stack, number in sorted(_samples(main, seconds, pause).items()))
        new = os.open(path + BEGUN, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        with os.fdopen(new, "w", encoding="utf-8", errors="replace") as result:
            result.write(text)
        os.replace(path + BEGUN, path + DONE)
    except Exception:  # the round has ended with its folder, or the disk is full: who asked notices that nothing came
        return
    finally:
        _busy.release()


def _samples(main: int, seconds: float, pause: float) -> dict[str, int]:
    found: dict[str, int] = {}
    own, end = _thread.get_ident(), time.monotonic() + seconds
    while time.monotonic() < end:
        for thread, frame in sys._current_frames().items():
            if thread != own:
                stack = f"{'MainThread' if thread == main else _name(thread)};{_collapsed(frame)}"
                found[stack] = found.get(stack, 0) + 1
        time.sleep(pause)
    return found


def _name(thread: int) -> str:
    """Return a thread's name, if Python knows it."""
    known = getattr(sys.modules.get("threading"), "_active", {})
    return _clean(getattr(known.get(thread), "name", "thread"))


def _collapsed(frame: FrameType | None) -> str:
    frames: list[str] = []
    while frame is not None and len(frames) < _DEEPEST:
        code = frame.f_code
        frames.append(_clean(f"{code.co_name} ({code.co_filename}:{frame.f_lineno})"))
        frame = frame.f_back
    return ";".join(reversed(frames))


def _clean(text: str) -> str:
    return text.replace(";", "_").replace("\n", "_").replace("\r", "_")
