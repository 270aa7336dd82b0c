"""What a terminal gets of texts that others wrote: logs, events, answers of a server. None of them can steer it.

    say(f"note: {message}", err=True)

A character that a terminal obeys, or that changes the order of the letters beside it, is written as its number. The
command line prints by `say` alone; ruff refuses `click.echo`.
"""

import re
from collections.abc import Callable

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters but tab and line end, C1, marks of the direction, separators of lines, halves of characters."""
_PLAIN = re.compile(rb"[\t\x20-\x7e]*")


class Painted(str):
    """A text with our own colours: what others wrote in it is visible already."""


def visible(text: str) -> str:
    """Return the text with the number of each character that a terminal would obey. JSON keeps its meaning."""
    return _OBEYED.sub(_number, text)


def visible_line(text: str) -> str:
    """Return the same of a text that must stay one line."""
    return visible(text).replace("\n", "\\n")


def visible_cell(text: str) -> str:
    """Return a text as the cell of a table: one line, any white space as one space."""
    return visible(" ".join(text.split()))


def visible_bytes(line: bytes) -> bytes:
    """Return the line of a log; what is not UTF-8 becomes visible too. A CR at its end is its end."""
    if _PLAIN.fullmatch(line):
        return line
    return visible(line.removesuffix(b"\r").decode(errors="backslashreplace")).encode()


def visible_yaml(dump: Callable[[bool], str]) -> str:
    """Return YAML of `dump`, which gets whether letters beyond ASCII stay: they do if a terminal obeys none of them."""
    text = dump(True)
    return text if visible(text) == text else dump(False)


def say(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print to stdout or stderr."""
    import click  # the runner of jobs does without it

    click.echo(text if isinstance(text, Painted) else visible(str(text)), err=err, nl=nl)  # noqa: TID251 - the one place


def _number(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}"
