"""The names and labels of metrics that an expression uses."""

import re
from collections.abc import Iterable

_TEXT = re.compile(r'"[^"]*"')
_LABELS = re.compile(r"\b(?:by|on|group_left|group_right|ignoring|without) *\([^)]*\)|\{[^}]*\}")
_WINDOW = re.compile(r"\[[^\]]*\]")
_NAME = re.compile(r"\b([a-z_][a-z0-9_:]*)\b(?! *\()")
_WORDS = {"and", "or", "unless", "bool", "offset"}


def metric_names(expr: str) -> set[str]:
    """The metrics of an expression in PromQL, without functions, labels and operators."""
    for pattern in (_TEXT, _LABELS, _WINDOW):
        expr = pattern.sub(" ", expr)
    return set(_NAME.findall(expr)) - _WORDS


def known_names(families: Iterable[tuple[str, str]]) -> set[str]:
    """The names that a scrape has for these metrics, each given by name and type."""
    suffixes = {"histogram": ("_bucket", "_count", "_sum")}
    return {f"{name}{suffix}" for name, kind in families for suffix in suffixes.get(kind, ("",))}
