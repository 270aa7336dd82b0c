"""Reads a line as the node gives it: a timestamp, a space, and what the container printed."""

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

NANOSECONDS = 1_000_000_000
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")


class Line(NamedTuple):
    """One line of a container's log."""

    at: int
    """When the node received it, by the node's clock: nanoseconds since 1970."""
    stamp: bytes
    """The same moment as the node wrote it."""
    text: bytes
    """What the container printed, without the line end."""


def parse(raw: bytes) -> Line | None:
    """Split a line into timestamp and text. None without a timestamp: the container did not print such a line."""
    found = _STAMP.match(raw)
    if found is None:
        return None
    second, fraction, zone = found.groups()
    try:
        seconds = _seconds(second + zone)
    except ValueError:
        return None
    at = seconds * NANOSECONDS + int((fraction or b"").ljust(9, b"0"))
    return Line(at, raw[: found.end() - 1], raw[found.end() :].removesuffix(b"\n"))


def is_whole(raw: bytes) -> bool:
    """True if the line has its end: neither the connection nor the container ended within it."""
    return raw.endswith(b"\n")


def to_moment(at: int) -> datetime:
    """Return the moment in the whole seconds that a request for a log can have, rounded down."""
    return datetime.fromtimestamp(at // NANOSECONDS, UTC)


def from_moment(moment: datetime) -> int:
    """Return nanoseconds since 1970."""
    return int(moment.timestamp()) * NANOSECONDS + moment.microsecond * 1000


@lru_cache(maxsize=1024)
def _seconds(text: bytes) -> int:
    return int(datetime.fromisoformat(text.decode()).timestamp())
