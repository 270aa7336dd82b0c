"""`pytorchjob-agent profile`: where a worker of this pod spends its time, as collapsed stacks on standard output.

py-spy takes the samples if the image has it and the container may trace processes. Else the worker samples itself,
which `workers/startup` prepared: its samples are taken when a thread holds the GIL or waits, in Python code alone.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_agent.system.console import say
from pytorchjob_agent.system.processes import handles, is_alive
from pytorchjob_agent.workers.startup.pytorchjob_startup import ASKED, BEGUN, DONE, PROFILE_SIGNAL

_HELP = "Prints where a worker of this pod spends its time, as collapsed stacks. It changes and ends nothing."
_POLL = 0.05
_BEGINS_WITHIN = 10.0
_LATE = 30.0
_STACK_FILE = re.compile(r"/(\d+)\.stack$")


def main(argv: list[str]) -> int:
    """Parse the arguments, take the profile, and print it; returns the exit code."""
    parser = argparse.ArgumentParser("pytorchjob-agent profile", description=_HELP)
    parser.add_argument("--local-rank", type=int, default=0, metavar="R", help="the worker (default: 0)")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="for how long (default: 10)")
    parser.add_argument("--rate", type=float, default=100.0, metavar="N", help="samples a second (default: 100)")
    args = parser.parse_args(argv)
    found = worker(args.local_rank)
    if found is None:
        say(f"profile: no worker with the local rank {args.local_rank} runs here under the agent")
        return ExitCode.SETUP
    pid, stacks = found
    text = by_py_spy(pid, args.seconds, args.rate) or by_itself(pid, stacks, args.seconds, args.rate)
    if not text:
        say(f"profile: process {pid} gave none: it has ended, or its main thread stays in one call outside of Python")
        return ExitCode.WORKER_FAILED
    sys.stdout.write(text)
    return ExitCode.OK


def worker(local_rank: int) -> tuple[int, str] | None:
    """Return the pid and the stack file of a worker: the process that has the file of this local rank open.

    Children of the worker have inherited the descriptor; the oldest process is the worker.
    """
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        path = _stack_file(entry)
        match = _STACK_FILE.search(path)
        if match and int(match[1]) == local_rank and handles(int(entry.name), PROFILE_SIGNAL):
            found.append((_started(entry), int(entry.name), path))
    return min(found)[1:] if found else None


def _stack_file(entry: Path) -> str:
    with suppress(OSError):
        for link in (entry / "fd").iterdir():
            with suppress(OSError):
                if _STACK_FILE.search(path := str(link.readlink())):
                    return path
    return ""


def _started(entry: Path) -> int:
    with suppress(OSError, IndexError, ValueError):
        return int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[19])
    return sys.maxsize


def by_py_spy(pid: int, seconds: float, rate: float) -> str:
    """Return the profile of py-spy; empty, with a line that says why, if it is not here or may not do it."""
    program = shutil.which("py-spy")
    if program is None:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile"
        options = ["--duration", f"{max(round(seconds), 1)}", "--rate", f"{round(rate)}", "--format", "raw"]
        command = [program, "record", "--pid", str(pid), *options, "--output", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603
        with suppress(OSError):
            if done.returncode == 0 and (text := path.read_text(errors="replace")):
                return text
    lines = (done.stderr or done.stdout).strip().splitlines()
    say(f"profile: py-spy cannot do it, the worker samples itself: {lines[-1] if lines else done.returncode}")
    return ""


def by_itself(pid: int, stacks: str, seconds: float, rate: float) -> str:
    """Ask the worker to sample itself, and return the profile; empty if it does not."""
    asked, begun, result = (Path(stacks + end) for end in (ASKED, BEGUN, DONE))
    for path in (begun, result):
        path.unlink(missing_ok=True)
    asked.write_text(f"{seconds:g} {rate:g}")
    with suppress(ProcessLookupError):
        os.kill(pid, PROFILE_SIGNAL)
    start = time.monotonic()
    while is_alive(pid) and not result.exists():
        late = time.monotonic() - start
        if late > seconds + _LATE or (late > _BEGINS_WITHIN and not begun.exists() and not result.exists()):
            return ""
        time.sleep(_POLL)
    with suppress(OSError):
        return result.read_text(errors="replace")
    return ""
