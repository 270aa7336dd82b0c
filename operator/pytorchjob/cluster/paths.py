"""Paths of lists and objects. A name goes into a path only if an object can have it: DELETE of a list deletes all."""

import re
from urllib.parse import quote

from pytorchjob.cluster.errors import Rejected

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_REMEDY = "names have small letters, digits, dashes and dots, and begin and end with a letter or digit"


def check_name(name: str, what: str) -> str:
    """Return the name of an object; raises Rejected if none can have it: an empty one, or one with a slash."""
    if not _NAME.fullmatch(name):
        raise Rejected(f"{name!r} cannot be the name of a {what}", _REMEDY)
    return name


def labelled(path: str, label: str, value: str = "") -> str:
    """Return the path of the objects that have this label; empty value: any."""
    selector = f"{label}={value}" if value else label
    return f"{path}?labelSelector={quote(selector, safe='')}"
