"""The base of all wire messages: fields to one line of JSON within its limit, and back. Pure."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, ClassVar, Self

from .fields import ProtocolError

LINE_LIMIT = 64 * 1024
"""Bytes of one message with its newline."""

_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


class Message:
    """The base of all messages; `kind` names each on the wire."""

    kind: ClassVar[str]

    def to_line(self) -> bytes:
        """Return one line of JSON with its newline. Fields beyond their limits are cut, so the other side reads it."""
        values: dict[str, Any] = {"kind": self.kind}
        kind: Any = type(self)
        for name, bound in _bounds(kind):
            value = getattr(self, name)
            values[name] = bound(value) if bound else value
        line = _encode(values)
        while len(line) >= LINE_LIMIT:  # all within their own limits, but long together: escapes take six bytes
            line = _encode(_halve_longest(values))
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


@cache
def _bounds(kind: Any) -> tuple[tuple[str, Callable[[Any], Any] | None], ...]:
    """Return the fields of a kind with the functions that bound them: looked up once, used for every message."""
    return tuple((field.name, field.metadata.get("bound")) for field in fields(kind))


def _halve_longest(values: dict[str, Any]) -> dict[str, Any]:
    """Drop the second half of the longest text, list or mapping."""
    sized = [name for name, value in values.items() if isinstance(value, str | list | tuple | dict)]
    longest = max(sized, key=lambda name: len(_encode(values[name])))
    value = values[longest]
    half = len(value) // 2
    values[longest] = dict([*value.items()][:half]) if isinstance(value, dict) else value[:half]
    return values


def _read_field(kind: str, field: Any, value: Any) -> Any:
    if not field.metadata["check"](value):
        raise ProtocolError(f"{kind}: {field.name}: {str(value)[:80]!r} is not {field.metadata['form']}")
    read = field.metadata.get("read")
    return read(value) if read else value
