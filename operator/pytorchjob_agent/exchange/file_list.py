"""What describes the files that members send each other, and which paths are safe. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

MOST_BYTES = 2 * 2**20
"""Bytes of the list of a set of files; a set with a longer one is not sent."""
LONGEST_PATH = 1024


class ManifestError(ValueError):
    """Text that is not a manifest, or names files that no save may have."""


@dataclass(frozen=True, slots=True)
class HeldFile:
    """One file of a save."""

    path: str
    """Below the checkpoint directory, with slashes."""
    size: int
    mtime_ns: int
    checksum: str
    """As in `checksum`: 64 hexadecimal digits. Empty for a link."""
    link: str = ""
    """The target of a symbolic link, which stays within the directory."""


def link_stays_inside(path: str, target: str) -> bool:
    """Return whether a symbolic link leads to another place of the directory: up first, and then only down.

    A way up after a name may begin elsewhere than it seems, because the name may be that of a link.
    """
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    plain = not target.startswith("/") and len(target) <= LONGEST_PATH and is_name(target)
    return plain and ".." not in parts[up:] and up <= path.count("/")


def is_name(text: str) -> bool:
    """Return whether a file may have this name: JSON may have halves of characters that no file system takes."""
    try:
        return b"\0" not in text.encode(errors="surrogateescape")
    except ValueError:
        return False


def are_apart(paths: Sequence[str]) -> bool:
    """Return whether no path is there twice or lies below another one: that one may be a link to anywhere."""
    known = set(paths)
    above = {path[:at] for path in known for at, letter in enumerate(path) if letter == "/"}
    return len(known) == len(paths) and known.isdisjoint(above)
