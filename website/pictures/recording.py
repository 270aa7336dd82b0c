"""Runs a command in a terminal, and keeps what the terminal shows at chosen moments. A shell: it starts processes."""

import codecs
import fcntl
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from website.pictures.terminal import Terminal

ROWS = 60
_SILENCE = 300.0
"""Seconds without output after which a command counts as stuck."""


class StuckError(RuntimeError):
    """A command printed nothing for too long, or ended before a moment that it was to show."""


def record(command: str, env: Mapping[str, str], cwd: Path, columns: int, moments: Sequence[str]) -> list[list[str]]:
    """Return the terminal's styled lines at each moment, or at the command's end if there is no moment.

    A moment is a regular expression that the terminal's last line has to match. After the last moment, the command gets
    Ctrl-C.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    process = subprocess.Popen(  # noqa: S603 - a command of this package
        shlex.split(command), stdin=follower, stdout=follower, stderr=follower, env=env, cwd=cwd, start_new_session=True
    )
    os.close(follower)
    terminal, seen, wanted = Terminal(), list[list[str]](), [*moments]
    try:
        for text in _output(leader):
            terminal.feed(text)
            last = next((line for line in reversed(terminal.plain()) if line), "")
            if wanted and re.search(wanted[0], last):
                del wanted[0]
                seen.append(terminal.styled())
                if not wanted:
                    process.send_signal(signal.SIGINT)
    finally:
        os.close(leader)
        process.terminate()
        process.wait()
    if wanted:
        raise StuckError(f"{command} never showed {wanted[0]}:\n" + "\n".join(terminal.plain()))
    return seen or [terminal.styled()]


def _output(leader: int) -> Iterator[str]:
    """What a command writes, until it has ended."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    while True:
        if not select.select([leader], [], [], _SILENCE)[0]:
            raise StuckError(f"no output for {_SILENCE:g} s")
        try:
            data = os.read(leader, 65536)
        except OSError:  # Linux: all processes of the terminal have ended
            return
        if not data:
            return
        yield decoder.decode(data)
