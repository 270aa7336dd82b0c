"""One command of a lane as a child process, whose output goes to a file and whose descendants end with it."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

_GRACE_SECONDS = 30.0
_KILL_SECONDS = 0.1
TAG = "PYTORCHJOB_TEST_LANE"
"""The variable by which the processes of a lane are known."""


async def run(command: Sequence[str], log: Path, env: Mapping[str, str], nice: int = 0) -> int:
    """Run a command and return its exit code; when cancelled, end it with all that it has started."""
    with log.open("ab") as out:
        out.write(f"\n$ {' '.join(command)}\n".encode())
        out.flush()
        try:
            child = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=dict(env),
                start_new_session=True,
                preexec_fn=partial(os.nice, nice),
            )
        except OSError as error:
            out.write(f"{command[0]} cannot be started: {error}\n".encode())
            return 127
    try:
        return await child.wait()
    except asyncio.CancelledError:
        await asyncio.shield(_end(child))
        raise
    finally:
        _sweep(env.get(TAG))


async def _end(child: asyncio.subprocess.Process) -> None:
    """End a process: pytest gets the time to end what its fixtures have started; then everything below it is killed."""
    below = [*_descendants(child.pid)]
    with suppress(ProcessLookupError):
        child.send_signal(signal.SIGINT)
    with suppress(TimeoutError):
        async with asyncio.timeout(_GRACE_SECONDS):
            await child.wait()
    for pid in (*below, *([child.pid] if child.returncode is None else [])):
        _kill(pid)
    await child.wait()


def _sweep(tag: str | None) -> None:
    """Kill what a command has left behind: its processes inherit its tag, wherever they hang in the tree."""
    words = f"{TAG}={tag}".encode()
    while tag and (left := [pid for pid in _pids() if words in _environ(pid)]):
        for pid in left:
            _kill(pid)
        time.sleep(_KILL_SECONDS)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").glob("[0-9]*"))


def _environ(pid: int) -> bytes:
    """Empty for a process that has ended or is another user's."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _descendants(pid: int) -> Iterator[int]:
    """The processes below this one, the deepest first."""
    for child in _children(pid):
        yield from _descendants(child)
        yield child


def _children(pid: int) -> Iterator[int]:
    for other in _pids():
        with suppress(OSError):
            if int(Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()[1]) == pid:
                yield other


def environment(outer: Mapping[str, str]) -> dict[str, str]:
    """The variables of a lane's commands: without those by which make, pytest or an outer run mark their children.

    Python keeps what it compiles, whatever the outer shell says: hundreds of agents and operators start in one run.
    """
    outside = ("MAKE", "MFLAGS", "PYTEST_", "PYTHONDONTWRITEBYTECODE", TAG)
    inner = {key: value for key, value in outer.items() if not key.startswith(outside)}
    return {**inner, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{outer.get('PATH', '')}"}
