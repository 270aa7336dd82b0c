"""What an agent holds of the job's checkpoints, as its request to join lists it, and the id of a chosen save. Pure.

A held save is what one owner had in its checkpoint directory at a moment when no file was being written. Scripts in
which only rank 0 saves need the save of one owner. Scripts in which each rank saves need those of all owners that have
the same label.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from .fields import MAX_MEMBERS, ProtocolError, RoundId

MOST_SAVES = 8
"""Held saves that one request to join lists."""
LABEL_LIMIT = 128
"""Characters of a label; a save with a longer one is not offered."""
MOST_INCOMPLETE = 4
"""Saves of which only some parts are on durable storage, that one request to join lists."""
_DIGEST_LIMIT = 64
_MAX_INT = 2**53
_PARTS, _PARTS_OF_PARTS = 7, 5
_HEXADECIMAL = re.compile(rf"[0-9a-f]{{1,{MAX_MEMBERS // 4 + 1}}}")


@dataclass(frozen=True, slots=True, order=True)
class SaveId:
    """One save among all of a job; a later round has newer saves, and within a round the number grows."""

    round: RoundId
    owner: int
    """The rank of the member whose workers wrote it."""
    number: int


@dataclass(frozen=True, slots=True)
class HeldSave:
    """One save that an agent holds."""

    id: SaveId
    size: int
    """Bytes."""
    digest: str
    """Of the names, sizes and checksums of its files."""
    writers: int = 1
    """How many members wrote it together. Above 1, the others have parts with the same label."""
    label: str = ""
    """The name that the parts of several writers have in common."""


@dataclass(frozen=True, slots=True)
class DurableParts:
    """A save of several writers of which only some parts are on durable storage."""

    round: RoundId
    number: int
    """That of rank 0's part. 0: it is not there."""
    writers: int
    label: str
    owners: int
    """One bit for each rank whose part is there."""

    @property
    def numbers(self) -> dict[int, int]:
        """The ranks whose parts are there, with the number of rank 0's part."""
        there = (owner for owner in range(self.writers) if self.owners >> owner & 1)
        return {owner: 0 if owner else self.number for owner in there}


@dataclass(frozen=True, slots=True)
class Choice:
    """The save with which a round starts: the one of a single owner, or all parts with one label."""

    round: RoundId
    owner: int = 0
    number: int = 0
    writers: int = 1
    label: str = ""

    def to_text(self) -> str:
        """Return the text that an assignment carries."""
        first = f"{self.round}/{self.owner}/{self.number}"
        return first if self.writers == 1 else f"{first}/{self.writers}/{self.label}"

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """Read what `to_text` wrote; None for an empty text, and for a text that this version does not know."""
        parts = text.split("/", 4)
        numbers = parts[1:4]
        if len(parts) not in (3, 5) or not all(part.isascii() and part.isdigit() for part in numbers):
            return None
        id_ = round_of(parts[0])
        if id_ is None:
            return None
        owner, number, writers = map(int, (*numbers, "1")[:3])
        return cls(id_, owner, number, writers, parts[4] if len(parts) > 4 else "")

    @property
    def owners(self) -> tuple[int, ...]:
        """The ranks of the members, in the round of the save, whose parts are needed."""
        return (self.owner,) if self.writers == 1 else tuple(range(self.writers))

    def includes(self, save: HeldSave) -> bool:
        """Return whether a held save is the chosen one, or a part of it."""
        if save.id.round != self.round or save.writers != self.writers:
            return False
        if self.writers == 1:
            return (save.id.owner, save.id.number) == (self.owner, self.number)
        return save.label == self.label

    @property
    def age(self) -> tuple[object, ...]:
        """For the order of saves: the newest has the greatest age. Of equal rounds the lowest rank's count."""
        return (self.round, -self.owner, self.number)


def choice_of(save: HeldSave) -> Choice:
    """Return the choice of a save whose parts, if it has several, are held."""
    return Choice(save.id.round, save.id.owner if save.writers == 1 else 0, save.id.number, save.writers, save.label)


def complete(held: Iterable[HeldSave], durable: Iterable[DurableParts] = ()) -> Iterator[Choice]:
    """Yield the saves of which nothing is missing, once all that is held is known; `durable` parts complete them.

    Parts are of one save if they have the round, the number of writers and the label in common: within a round no rank
    uses a label twice.
    """
    parts: dict[Choice, dict[int, int]] = {}
    for save in held:
        if save.writers == 1:
            yield choice_of(save)
        elif save.label:
            together = Choice(save.id.round, writers=save.writers, label=save.label)
            owners = parts.setdefault(together, {})
            owners[save.id.owner] = max(owners.get(save.id.owner, 0), save.id.number)
    for stored in durable:
        owners = parts.setdefault(Choice(stored.round, writers=stored.writers, label=stored.label), {})
        for owner, number in stored.numbers.items():
            owners[owner] = max(owners.get(owner, 0), number)
    for together, owners in parts.items():
        if owners.keys() >= set(together.owners):
            yield Choice(together.round, 0, owners[0], together.writers, together.label)


def round_of(text: str) -> RoundId | None:
    """Return the id that a round's text names; None for any other text."""
    parts = text.split(".")
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    try:
        return RoundId(*map(int, parts))
    except ProtocolError:
        return None


def some_saves(**more: Any) -> Any:
    """Some held saves, the newest first; a sender drops the rest."""
    metadata = {
        "check": lambda value: isinstance(value, list) and len(value) <= MOST_SAVES and all(map(_is_save, value)),
        "form": f"at most {MOST_SAVES} held saves",
        "read": lambda value: tuple(map(_read, value)),
        "bound": lambda value: [_write(save) for save in value[:MOST_SAVES] if _fits(save)],
        "shorten": lambda value, most: value[:most],
    }
    return field(metadata=metadata, **more)


def some_durable_parts(**more: Any) -> Any:
    """Some incomplete saves on durable storage, the newest first; a sender drops the rest."""
    metadata = {
        "check": lambda value: isinstance(value, list) and len(value) <= MOST_INCOMPLETE and all(map(_is_parts, value)),
        "form": f"at most {MOST_INCOMPLETE} incomplete saves",
        "read": lambda value: tuple(map(_read_parts, value)),
        "bound": lambda value: [row for row in map(_write_parts, value[:MOST_INCOMPLETE]) if _is_parts(row)],
        "shorten": lambda value, most: value[:most],
    }
    return field(metadata=metadata, **more)


def _write_parts(parts: DurableParts) -> list[Any]:
    round_ = [parts.round.term, parts.round.number, parts.round.attempt]
    return [round_, parts.number, parts.writers, parts.label, f"{parts.owners:x}"]


def _read_parts(value: Sequence[Any]) -> DurableParts:
    round_, number, writers, label, owners = value
    return DurableParts(RoundId(*round_), number, writers, label, int(owners, 16))


def _is_parts(value: Any) -> bool:
    if not (isinstance(value, list) and len(value) == _PARTS_OF_PARTS):
        return False
    round_, number, writers, label, owners = value
    if not (type(number) is int and 0 <= number <= _MAX_INT and type(writers) is int and 1 < writers <= MAX_MEMBERS):
        return False
    hexadecimal = isinstance(owners, str) and _HEXADECIMAL.fullmatch(owners) is not None
    known = hexadecimal and int(owners, 16) < 1 << writers
    return known and _is_round(round_) and _is_text(label, LABEL_LIMIT) and bool(label)


def _fits(save: HeldSave) -> bool:
    return _is_save(_write(save))


def _write(save: HeldSave) -> list[Any]:
    id_ = save.id
    round_ = [id_.round.term, id_.round.number, id_.round.attempt]
    return [round_, id_.owner, id_.number, save.size, save.digest, save.writers, save.label]


def _read(value: Sequence[Any]) -> HeldSave:
    round_, owner, number, size, digest, writers, label = value
    return HeldSave(SaveId(RoundId(*round_), owner, number), size, digest, writers, label)


def _is_save(value: Any) -> bool:
    if not (isinstance(value, list) and len(value) == _PARTS):
        return False
    round_, owner, number, size, digest, writers, label = value
    bounds = ((owner, 0, MAX_MEMBERS), (number, 0, _MAX_INT), (size, 0, _MAX_INT), (writers, 1, MAX_MEMBERS))
    if not all(type(count) is int and low <= count <= high for count, low, high in bounds):
        return False
    return _is_round(round_) and _is_text(digest, _DIGEST_LIMIT) and _is_text(label, LABEL_LIMIT)


def _is_text(value: Any, most: int) -> bool:
    """Return whether this is a text of at most `most` characters, without halves of characters."""
    if not isinstance(value, str) or len(value) > most:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _is_round(value: Any) -> bool:
    if not (isinstance(value, list) and len(value) == 3 and all(type(number) is int for number in value)):
        return False
    try:
        RoundId(*value)
    except ProtocolError:
        return False
    return True
