"""The kinds of fields in wire messages. Each kind checks a value that it reads and bounds a value that it writes.

Pure. A sender cannot build what its receiver refuses to read: texts are cut and lists are shortened to their limits.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_MEMBERS = 10_000
_MAX_INT = 2**53
_MAX_TEXTS, _MAX_NUMBERS = 32, 16
_NAME_LIMIT, _TEXT_LIMIT = 64, 256


class ProtocolError(ValueError):
    """A message that the other side does not send; the text has the field and the expected form."""


@dataclass(frozen=True, slots=True, order=True)
class RoundId:
    """The id of a round within a job. A later round has a greater id.

    `term` counts the leaders of the operator, `number` the rounds of one leader, `attempt` the rounds that the members
    agreed on without a coordinator.
    """

    term: int
    number: int
    attempt: int = 0

    def follows(self, other: "RoundId") -> bool:
        """True if the members of the other round agreed on this one: the same members with the same ranks."""
        return (self.term, self.number) == (other.term, other.number) and self.attempt > other.attempt

    def __str__(self) -> str:
        """Return the id as logs show it: 3.7, or 3.7.1 for a round that members agreed on without a coordinator."""
        return f"{self.term}.{self.number}" + (f".{self.attempt}" if self.attempt else "")


Check = Callable[[Any], bool]


def _is_int(value: Any, low: int = 0, high: int = _MAX_INT) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _is_text(value: Any, limit: int) -> bool:
    return isinstance(value, str) and len(value) <= limit


def a_text(limit: int = 256, **more: Any) -> Any:
    """Text of at most `limit` characters; a sender cuts longer text."""
    metadata = {
        "check": lambda value: _is_text(value, limit),
        "form": f"text of at most {limit}",
        "bound": lambda value: value if len(value) <= limit else value[: limit - 3] + "...",
    }
    return field(metadata=metadata, **more)


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
    """A list of whole numbers, at most one for each member; a sender drops the rest."""

    def check(value: Any) -> bool:
        return isinstance(value, list) and len(value) <= MAX_MEMBERS and all(_is_int(number) for number in value)

    metadata = {
        "check": check,
        "form": "a list of whole numbers",
        "read": tuple,
        "bound": lambda value: value[:MAX_MEMBERS],
    }
    return field(metadata=metadata, **more)


def some_texts(**more: Any) -> Any:
    """Short texts by name; null where there is none. A sender drops what is too much."""

    def check(value: Any) -> bool:
        few = isinstance(value, dict) and len(value) <= _MAX_TEXTS
        return few and all(
            _is_text(name, _NAME_LIMIT) and (text is None or _is_text(text, _TEXT_LIMIT))
            for name, text in value.items()
        )

    def bound(value: Mapping[str, str | None]) -> dict[str, str | None]:
        pairs = [(name, text) for name, text in value.items() if len(name) <= _NAME_LIMIT][:_MAX_TEXTS]
        return {name: text if text is None else text[:_TEXT_LIMIT] for name, text in pairs}

    return field(metadata={"check": check, "form": "at most 32 texts by name", "bound": bound}, **more)


def some_numbers(**more: Any) -> Any:
    """Numbers by name. A sender drops what is too much or not finite."""

    def check(value: Any) -> bool:
        few = isinstance(value, dict) and len(value) <= _MAX_NUMBERS
        return few and all(_is_text(name, _NAME_LIMIT) and _is_number(number) for name, number in value.items())

    def bound(value: Mapping[str, float]) -> dict[str, float]:
        pairs = [(name, number) for name, number in value.items() if len(name) <= _NAME_LIMIT and _is_number(number)]
        return dict(pairs[:_MAX_NUMBERS])

    return field(metadata={"check": check, "form": "at most 16 numbers by name", "bound": bound}, **more)


def a_round(*, optional: bool = False, **more: Any) -> Any:
    """The id of a round, as a list of three numbers."""

    def check(value: Any) -> bool:
        if value is None:
            return optional
        return isinstance(value, list) and len(value) == 3 and all(_is_int(number) for number in value)

    def read(value: Any) -> RoundId | None:
        return None if value is None else RoundId(*value)

    def bound(value: RoundId | None) -> list[int] | None:
        return None if value is None else [value.term, value.number, value.attempt]

    return field(metadata={"check": check, "form": "[term, number, attempt]", "read": read, "bound": bound}, **more)


def maybe_int(**more: Any) -> Any:
    """A count that may be unknown."""
    return field(
        metadata={"check": lambda value: value is None or _is_int(value), "form": "a whole number or null"}, **more
    )
