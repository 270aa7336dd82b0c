"""The kinds of fields that messages are made of: each knows what it takes, and says so when it is given something else.

Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MAX_MEMBERS = 10_000
_MAX_INT = 2**53


class ProtocolError(ValueError):
    """A message that the other side would not have sent; says which field and what would be right."""


@dataclass(frozen=True, slots=True, order=True)
class RoundId:
    """Which round of a job: a later one is greater, whoever opened it.

    `epoch` counts the leaders of the operator, `number` the rounds of one leader, `again` the rounds that the members
    agreed on without it.
    """

    epoch: int
    number: int
    again: int = 0

    def follows(self, other: "RoundId") -> bool:
        """Whether the members of the other round agreed on this one: the same ones, in the same order."""
        return (self.epoch, self.number) == (other.epoch, other.number) and self.again > other.again

    def __str__(self) -> str:
        """Return it as people read it in logs: 3.7, or 3.7.1 for one that was agreed on without the coordinator."""
        return f"{self.epoch}.{self.number}" + (f".{self.again}" if self.again else "")


Check = Callable[[Any], bool]


def _is_int(value: Any, low: int = 0, high: int = _MAX_INT) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _is_text(value: Any, limit: int) -> bool:
    return isinstance(value, str) and len(value) <= limit


def a_text(limit: int = 256, **more: Any) -> Any:
    """Text of at most so many characters."""
    return field(metadata={"check": lambda value: _is_text(value, limit), "form": f"text of at most {limit}"}, **more)


def an_int(low: int = 0, high: int = _MAX_INT, **more: Any) -> Any:
    """A whole number within bounds."""
    return field(
        metadata={"check": lambda value: _is_int(value, low, high), "form": f"a whole number {low}..{high}"}, **more
    )


def a_number(**more: Any) -> Any:
    """Any finite number."""
    return field(metadata={"check": _is_number, "form": "a number"}, **more)


def a_flag(**more: Any) -> Any:
    """True or false."""
    return field(metadata={"check": lambda value: isinstance(value, bool), "form": "true or false"}, **more)


def some_ints(**more: Any) -> Any:
    """A list of whole numbers, one for each member at most."""

    def check(value: Any) -> bool:
        return isinstance(value, list) and len(value) <= MAX_MEMBERS and all(_is_int(one) for one in value)

    return field(metadata={"check": check, "form": "a list of whole numbers", "read": tuple}, **more)


def some_texts(**more: Any) -> Any:
    """Short texts by name; null where there is none."""

    def check(value: Any) -> bool:
        few = isinstance(value, dict) and len(value) <= 32
        return few and all(_is_text(k, 64) and (v is None or _is_text(v, 256)) for k, v in value.items())

    return field(metadata={"check": check, "form": "at most 32 texts by name"}, **more)


def some_numbers(**more: Any) -> Any:
    """Numbers by name."""

    def check(value: Any) -> bool:
        few = isinstance(value, dict) and len(value) <= 16
        return few and all(_is_text(k, 64) and _is_number(v) for k, v in value.items())

    return field(metadata={"check": check, "form": "at most 16 numbers by name"}, **more)


def a_round(*, optional: bool = False, **more: Any) -> Any:
    """The id of a round."""

    def check(value: Any) -> bool:
        if value is None:
            return optional
        return isinstance(value, list) and len(value) == 3 and all(_is_int(one) for one in value)

    def read(value: Any) -> RoundId | None:
        return None if value is None else RoundId(*value)

    return field(metadata={"check": check, "form": "[epoch, number, again]", "read": read}, **more)


def maybe_int(**more: Any) -> Any:
    """A count that may be unknown."""
    return field(metadata={"check": lambda v: v is None or _is_int(v), "form": "a whole number or null"}, **more)
