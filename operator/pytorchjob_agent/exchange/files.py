"""Opens, makes and finds files that other processes may change meanwhile."""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from pytorchjob_agent.system import processes


def open_file(path: Path) -> BinaryIO:
    """Open a file to read it; a pipe that has taken its place, or a link, keeps nobody waiting. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is no file any more")
    return os.fdopen(descriptor, "rb")


def make_parent(root: Path, path: str) -> Path:
    """Make the folders above a file, which is named below `root`, and return where it belongs.

    No link on the way is followed, since it may lead out: each folder is checked before the next one is made. Raises
    OSError.
    """
    folder = root
    *above, name = path.split("/")
    for part in above:
        folder /= part
        if folder.is_symlink():
            raise OSError(f"{path} leads through the link {folder}")
        folder.mkdir(exist_ok=True)
    return folder / name


def open_for_writing(root: Path, ancestor: int) -> set[tuple[int, int]]:
    """Return device and inode of all files below the directory that descendants of a process have open for writing."""
    found: set[tuple[int, int]] = set()
    prefix = f"{root.resolve()}/"
    for pid in processes.descendants(ancestor):
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{name}").startswith(prefix) and _writes(pid, name):
                        info = os.stat(f"/proc/{pid}/fd/{name}")
                        found.add((info.st_dev, info.st_ino))
    return found


def _writes(pid: int, name: str) -> bool:
    text = Path(f"/proc/{pid}/fdinfo/{name}").read_text()
    flags = next((line.split()[1] for line in text.splitlines() if line.startswith("flags:")), "0")
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY
