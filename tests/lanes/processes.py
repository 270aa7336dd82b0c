"""One command of a lane as a child process, whose output goes to a file and whose descendants end with it."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_GRACE_SECONDS = 30.0
INTERRUPTED = -2


async def run(command: Sequence[str], log: Path, env: Mapping[str, str]) -> int:
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
            )
        except OSError as error:
            out.write(f"{command[0]} cannot be started: {error}\n".encode())
            return 127
    try:
        return await child.wait()
    except asyncio.CancelledError:
        await asyncio.shield(end(child))
        raise


async def end(child: asyncio.subprocess.Process) -> None:
    """End a process: pytest gets the time to end what its fixtures have started; then everything below it is killed."""
    below = [*_descendants(child.pid)]
    with suppress(ProcessLookupError):
        child.send_signal(signal.SIGINT)
    with suppress(TimeoutError):
        async with asyncio.timeout(_GRACE_SECONDS):
            await child.wait()
    for pid in (*below, *([child.pid] if child.returncode is None else [])):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    await child.wait()


def _descendants(pid: int) -> Iterator[int]:
    """The processes below this one, the deepest first."""
    for child in _children(pid):
        yield from _descendants(child)
        yield child


def _children(pid: int) -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                yield int(stat.parent.name)


def environment(outer: Mapping[str, str]) -> dict[str, str]:
    """The variables of a lane's commands: without those by which make or pytest would speak to their children."""
    inner = {key: value for key, value in outer.items() if not key.startswith(("MAKE", "MFLAGS", "PYTEST_"))}
    return {**inner, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{outer.get('PATH', '')}"}
