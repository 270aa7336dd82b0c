"""Paths of lists for `Cluster.read`."""

from urllib.parse import quote


def labelled(path: str, label: str, value: str = "") -> str:
    """Return the path of the objects that have this label; empty value: any."""
    selector = f"{label}={value}" if value else label
    return f"{path}?labelSelector={quote(selector, safe='')}"
