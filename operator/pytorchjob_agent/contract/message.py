"""The base of all wire messages: fields to one line of JSON within its limit, and back. Pure."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, ClassVar, Self

from .fields import ProtocolError

LINE_LIMIT = 64 * 1024
"""Bytes of one message with its newline."""
HELLO_LIMIT = 24 * 1024
"""Bytes of a first message with its newline: its sender is not authenticated yet."""

_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


class Message:
    """The base of all messages; `kind` names each on the wire."""

    kind: ClassVar[str]
    line_limit: ClassVar[int] = LINE_LIMIT
    """Bytes of a line with its newline."""

    def to_line(self) -> bytes:
        """Return one line of JSON with its newline. Fields beyond their limits are cut, so the other side reads it."""
        values: dict[str, Any] = {"kind": self.kind}
        kind: Any = type(self)
        for name, bound, _ in _bounds(kind):
            value = getattr(self, name)
            values[name] = bound(value) if bound else value
        line = _encode(values)
        while len(line) >= self.line_limit:  # all within their own limits, but long together: escapes take six bytes
            _halve_longest(kind, values)
            line = _encode(values)
        return line.encode() + b"\n"

    @classmethod
    def from_object(cls, values: Mapping[str, Any]) -> Self:
        """Read the fields, each with its own check. Raises ProtocolError."""
        found = {}
        for field in fields(cls):  # type: ignore[arg-type]
            if field.name in values:
                found[field.name] = _read_field(cls.kind, field, values[field.name])
        try:
            return cls(**found)
        except TypeError as error:
            raise ProtocolError(f"{cls.kind}: {error}") from None


Bound = Callable[[Any], Any] | None
Shorten = Callable[[Any, int], Any] | None


@cache
def _bounds(kind: Any) -> tuple[tuple[str, Bound, Shorten], ...]:
    """Return the fields of a kind with the functions that bound and shorten them: looked up once for every message."""
    return tuple((field.name, field.metadata.get("bound"), field.metadata.get("shorten")) for field in fields(kind))


def _halve_longest(kind: Any, values: dict[str, Any]) -> None:
    """Shorten the longest text, list or mapping by half."""
    sized = [(len(_encode(values[name])), name, shorten) for name, _, shorten in _bounds(kind) if shorten]
    _, longest, shorten = max(sized, key=lambda item: item[0])
    values[longest] = shorten(values[longest], len(values[longest]) // 2)


def _read_field(kind: str, field: Any, value: Any) -> Any:
    if not field.metadata["check"](value):
        raise ProtocolError(f"{kind}: {field.name}: {str(value)[:80]!r} is not {field.metadata['form']}")
    read = field.metadata.get("read")
    return read(value) if read else value
