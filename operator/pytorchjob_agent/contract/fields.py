"""The kinds of fields in wire messages. Each kind checks a value that it reads and bounds a value that it writes.

Pure. A sender cannot build what its receiver refuses to read: texts are cut and lists are shortened to their limits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_MEMBERS = 10_000
MAX_COUNT = 2**31 - 1
"""The most rounds of a term, and of attempts of a round: one each millisecond for three weeks."""
MAX_INT = 2**53
_MAX_NUMBER = 1e299
_MAX_TEXTS, _MAX_NUMBERS, _MAX_NAMES = 32, 16, 8
_NAME_LIMIT, _TEXT_LIMIT = 64, 256
_SHORT_TEXT = 256
"""Texts with a lower limit are names and the like: a count of what is missing would not fit."""


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

    def __post_init__(self) -> None:
        """Raise ProtocolError for an id that no other side would read."""
        if not _is_round([self.term, self.number, self.attempt]):
            raise ProtocolError(f"round {self}: a part of the id is out of bounds")

    def next(self) -> "RoundId":
        """Return the id of the next round. After the last number of a term, it is the first one of the next term."""
        return RoundId(self.term, self.number + 1) if self.number < MAX_COUNT else RoundId(self.term + 1, 1)

    def follows(self, other: "RoundId") -> bool:
        """True if the members of the other round agreed on this one: the same members with the same ranks."""
        return (self.term, self.number) == (other.term, other.number) and self.attempt > other.attempt

    def __str__(self) -> str:
        """Return the id as logs show it: 3.7, or 3.7.1 for a round that members agreed on without a coordinator."""
        return f"{self.term}.{self.number}" + (f".{self.attempt}" if self.attempt else "")


Check = Callable[[Any], bool]


def is_int(value: Any, low: int = 0, high: int = MAX_INT) -> bool:
    """Return whether it is a whole number within these bounds."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _is_round(value: Any) -> bool:
    if not (isinstance(value, list) and len(value) == 3 and all(is_int(number) for number in value)):
        return False
    _, number, attempt = value
    return bool(number <= MAX_COUNT and attempt <= MAX_COUNT)


def is_text(value: Any, limit: int) -> bool:
    """Return whether it is text of at most so many characters."""
    return isinstance(value, str) and len(value) <= limit


def cut(text: str, limit: int, *, keep_end: bool = False) -> str:
    """Return text of at most `limit` characters. Where it is cut, it has the number of missing characters."""
    if len(text) <= limit:
        return text
    if limit < _SHORT_TEXT:
        return text[: max(limit - 3, 0)] + "..."[:limit]
    kept = limit - len(_missing(len(text))) - len("... ()")
    missing = _missing(len(text) - kept)
    return f"({missing}) ...{text[len(text) - kept :]}" if keep_end else f"{text[:kept]}... ({missing})"


def _missing(characters: int) -> str:
    return f"{characters} more characters"


def _clean(text: str) -> str:
    """Return the text without halves of characters, which no other program accepts."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def a_text(limit: int = 256, *, keep_end: bool = False, **more: Any) -> Any:
    """Text of at most `limit` characters; a sender cuts longer text, at its beginning if the end matters more."""
    metadata = {
        "check": lambda value: is_text(value, limit),
        "form": f"text of at most {limit}",
        "read": _clean,
        "bound": lambda value: _clean(cut(value, limit, keep_end=keep_end)),
        "shorten": lambda value, most: cut(value, most, keep_end=keep_end),
    }
    return field(metadata=metadata, **more)


def an_int(low: int = 0, high: int = MAX_INT, **more: Any) -> Any:
    """A whole number within bounds; a sender sends the bound instead of a number beyond it."""
    metadata = {
        "check": lambda value: is_int(value, low, high),
        "form": f"a whole number {low}..{high}",
        "bound": lambda value: min(max(value, low), high),
    }
    return field(metadata=metadata, **more)


def a_number(**more: Any) -> Any:
    """Any finite number; a sender sends 0 instead of what is not a number."""

    def bound(value: float) -> float:
        return 0.0 if value != value else min(max(value, -_MAX_NUMBER), _MAX_NUMBER)

    return field(metadata={"check": _is_number, "form": "a number", "bound": bound}, **more)


def a_flag(**more: Any) -> Any:
    """True or false."""
    return field(metadata={"check": lambda value: isinstance(value, bool), "form": "true or false"}, **more)


def some_ints(**more: Any) -> Any:
    """A list of whole numbers, at most one for each member; a sender drops the rest."""

    def check(value: Any) -> bool:
        return isinstance(value, list) and len(value) <= MAX_MEMBERS and all(is_int(number) for number in value)

    def bound(value: Sequence[int]) -> Sequence[int]:
        value = value[:MAX_MEMBERS]
        if value and (min(value) < 0 or max(value) > MAX_INT):
            return [min(max(number, 0), MAX_INT) for number in value]
        return value

    metadata = {
        "check": check,
        "form": "a list of whole numbers",
        "read": tuple,
        "bound": bound,
        "shorten": lambda value, most: value[:most],
    }
    return field(metadata=metadata, **more)


def some_names(**more: Any) -> Any:
    """A few names of types; a sender drops the last ones."""

    def check(value: Any) -> bool:
        few = isinstance(value, list) and len(value) <= _MAX_NAMES
        return few and all(is_text(name, _TEXT_LIMIT) for name in value)

    metadata = {
        "check": check,
        "form": f"at most {_MAX_NAMES} texts",
        "read": lambda value: tuple(map(_clean, value)),
        "bound": lambda value: [_clean(name[:_TEXT_LIMIT]) for name in value[:_MAX_NAMES]],
        "shorten": lambda value, most: value[:most],
    }
    return field(metadata=metadata, **more)


def some_texts(**more: Any) -> Any:
    """Short texts by name; null where there is none. A sender drops what is too much."""

    def check(value: Any) -> bool:
        few = isinstance(value, dict) and len(value) <= _MAX_TEXTS
        return few and all(
            is_text(name, _NAME_LIMIT) and (text is None or is_text(text, _TEXT_LIMIT)) for name, text in value.items()
        )

    def bound(value: Mapping[str, str | None]) -> dict[str, str | None]:
        pairs = [(name, text) for name, text in value.items() if len(name) <= _NAME_LIMIT][:_MAX_TEXTS]
        return {_clean(name): text if text is None else _clean(text[:_TEXT_LIMIT]) for name, text in pairs}

    def read(value: Mapping[str, str | None]) -> dict[str, str | None]:
        return {_clean(name): text if text is None else _clean(text) for name, text in value.items()}

    metadata = {
        "check": check,
        "form": "at most 32 texts by name",
        "read": read,
        "bound": bound,
        "shorten": _first_pairs,
    }
    return field(metadata=metadata, **more)


def some_numbers(**more: Any) -> Any:
    """Numbers by name. A sender drops what is too much or not finite."""

    def check(value: Any) -> bool:
        few = isinstance(value, dict) and len(value) <= _MAX_NUMBERS
        return few and all(is_text(name, _NAME_LIMIT) and _is_number(number) for name, number in value.items())

    def bound(value: Mapping[str, float]) -> dict[str, float]:
        pairs = [(name, number) for name, number in value.items() if len(name) <= _NAME_LIMIT and _is_number(number)]
        return {_clean(name): number for name, number in pairs[:_MAX_NUMBERS]}

    def read(value: Mapping[str, float]) -> dict[str, float]:
        return {_clean(name): number for name, number in value.items()}

    metadata = {
        "check": check,
        "form": "at most 16 numbers by name",
        "read": read,
        "bound": bound,
        "shorten": _first_pairs,
    }
    return field(metadata=metadata, **more)


def _first_pairs(value: Mapping[str, Any], most: int) -> dict[str, Any]:
    return dict([*value.items()][:most])


def a_round(*, optional: bool = False, **more: Any) -> Any:
    """The id of a round, as a list of three numbers."""

    def check(value: Any) -> bool:
        return optional if value is None else _is_round(value)

    def read(value: Any) -> RoundId | None:
        return None if value is None else RoundId(*value)

    def bound(value: RoundId | None) -> list[int] | None:
        return None if value is None else [value.term, value.number, value.attempt]

    return field(metadata={"check": check, "form": "[term, number, attempt]", "read": read, "bound": bound}, **more)


def maybe_int(high: int = MAX_INT, **more: Any) -> Any:
    """A count that may be unknown; a sender sends the bound instead of a number beyond it."""
    metadata = {
        "check": lambda value: value is None or is_int(value, 0, high),
        "form": "a whole number or null" if high == MAX_INT else f"a whole number 0..{high} or null",
        "bound": lambda value: None if value is None else min(max(value, 0), high),
    }
    return field(metadata=metadata, **more)
