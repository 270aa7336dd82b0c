"""What an agent holds of the job's checkpoints, as it lists it for the others of a round, and the id of a save. Pure.

A held save is what one owner had in its checkpoint directory at a moment when no file was being written. Scripts in
which only rank 0 saves need the save of one owner. Scripts in which each rank saves need those of all owners that have
the same label.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

from pytorchjob_agent.contract.fields import MAX_MEMBERS, ProtocolError, RoundId

LABEL_LIMIT = 128
"""Characters of a label; a save with a longer one is not offered."""
_DIGEST_LIMIT = 64
_MAX_INT = 2**53
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
    writers: int = 1
    """How many members wrote it together. Above 1, the others have parts with the same label."""
    label: str = ""
    """The name that the parts of several writers have in common; of a single one, the largest file that it changed."""
    digest: str = ""
    """Of the content of that file; of a single writer alone."""
    own: bool = False
    """True if each of its files is named for the rank that wrote it: no other rank loads them."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one save of several writers that a member holds, or finds on durable storage.

    A job of a thousand pods has a thousand parts of each save, and each pod may hold all of them: hence the bits.
    """

    round: RoundId
    number: int
    """That of rank 0's part. 0: it is not there."""
    writers: int
    label: str
    owners: int
    """One bit for each rank whose part is there."""
    own: int = 0
    """Those of them that no other rank loads."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The save with which a round starts: the one of a single owner, or all parts with one label."""

    round: RoundId
    owner: int = 0
    number: int = 0
    writers: int = 1
    label: str = ""

    def to_text(self) -> str:
        """Return the text that `from_text` reads."""
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

    def has(self, parts: Parts) -> bool:
        """Return whether these are parts of the chosen save."""
        return self.writers > 1 and (parts.round, parts.writers, parts.label) == (self.round, self.writers, self.label)

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
    if save.writers == 1:
        return Choice(save.id.round, save.id.owner, save.id.number)
    return Choice(save.id.round, 0, save.id.number, save.writers, save.label)


def gather(saves: Iterable[HeldSave]) -> tuple[Parts, ...]:
    """Return those saves that are parts, each save once.

    Parts are of one save if they have the round, the number of writers and the label in common: within a round no rank
    uses a label twice.
    """
    found: dict[tuple[RoundId, int, str], list[HeldSave]] = {}
    for save in saves:
        if save.id.owner < save.writers > 1 and save.label:
            found.setdefault((save.id.round, save.writers, save.label), []).append(save)
    return tuple(
        Parts(
            round_,
            max((save.id.number for save in together if save.id.owner == 0), default=0),
            writers,
            label,
            _bits(save.id.owner for save in together),
            _bits(save.id.owner for save in together if save.own),
        )
        for (round_, writers, label), together in found.items()
    )


def complete(held: Iterable[HeldSave], parts: Iterable[Parts] = ()) -> Iterator[Choice]:
    """Yield the saves of which nothing is missing, once all that is held is known."""
    held, there, numbers = [*held], dict[Choice, int](), dict[Choice, int]()
    for each in [*gather(held), *parts]:
        together = Choice(each.round, writers=each.writers, label=each.label)
        there[together] = there.get(together, 0) | each.owners
        numbers[together] = max(numbers.get(together, 0), each.number)
    yield from (choice_of(save) for save in held if save.writers == 1)
    for together, owners in there.items():
        if owners == (1 << together.writers) - 1:
            yield replace(together, number=numbers[together])


def owners_of(bits: int) -> Iterator[int]:
    """Yield the ranks of these bits."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _bits(owners: Iterable[int]) -> int:
    found = 0
    for owner in owners:
        found |= 1 << owner
    return found


def round_of(text: str) -> RoundId | None:
    """Return the id that a round's text names; None for any other text."""
    parts = text.split(".")
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    try:
        return RoundId(*map(int, parts))
    except ProtocolError:
        return None


def write_saves(saves: Iterable[HeldSave]) -> list[Any]:
    """Return what `read_saves` reads."""
    return [
        [
            _write_round(save.id.round),
            save.id.owner,
            save.id.number,
            save.size,
            save.writers,
            save.label,
            save.digest,
            int(save.own),
        ]
        for save in saves
    ]


def read_saves(rows: Any) -> tuple[HeldSave, ...]:
    """Read the saves that another member lists. Raises ValueError."""
    return tuple(map(_read_save, _list(rows)))


def write_parts(parts: Iterable[Parts]) -> list[Any]:
    """Return what `read_parts` reads."""
    return [
        [_write_round(each.round), each.number, each.writers, each.label, f"{each.owners:x}", f"{each.own:x}"]
        for each in parts
    ]


def read_parts(rows: Any) -> tuple[Parts, ...]:
    """Read the parts of saves that another member lists. Raises ValueError."""
    return tuple(map(_read_parts, _list(rows)))


def _list(rows: Any) -> list[Any]:
    if not isinstance(rows, list):
        raise ValueError("not a list of saves")
    return rows


def _read_save(row: Any) -> HeldSave:
    round_, owner, number, size, writers, label, digest, own = _row(row, 8)
    bounds = ((owner, 0, MAX_MEMBERS), (number, 0, _MAX_INT), (size, 0, _MAX_INT), (writers, 1, MAX_MEMBERS))
    if not all(type(count) is int and low <= count <= high for count, low, high in bounds):
        raise ValueError("a number of a save is out of bounds")
    if not (_is_text(label, LABEL_LIMIT) and _is_text(digest, _DIGEST_LIMIT)):
        raise ValueError("the label of a save is no text, or too long")
    return HeldSave(SaveId(_read_round(round_), owner, number), size, writers, label, digest, own == 1)


def _read_parts(row: Any) -> Parts:
    round_, number, writers, label, *bits = _row(row, 6)
    if not (type(number) is int and 0 <= number <= _MAX_INT and type(writers) is int and 1 < writers <= MAX_MEMBERS):
        raise ValueError("a number of an incomplete save is out of bounds")
    if not all(isinstance(text, str) and _HEXADECIMAL.fullmatch(text) for text in bits):
        raise ValueError("the owners of an incomplete save are no bits")
    owners, own = (int(text, 16) for text in bits)
    if owners >= 1 << writers or own & ~owners:
        raise ValueError("the owners of an incomplete save are not known")
    if not (_is_text(label, LABEL_LIMIT) and label):
        raise ValueError("the label of an incomplete save is no text, or too long")
    return Parts(_read_round(round_), number, writers, label, owners, own)


def _row(row: Any, length: int) -> list[Any]:
    if not (isinstance(row, list) and len(row) == length):
        raise ValueError("not a save")
    return row


def _write_round(round_: RoundId) -> list[int]:
    return [round_.term, round_.number, round_.attempt]


def _read_round(value: Any) -> RoundId:
    if not (isinstance(value, list) and len(value) == 3 and all(type(number) is int for number in value)):
        raise ValueError("not a round")
    try:
        return RoundId(*value)
    except ProtocolError as error:
        raise ValueError(str(error)) from None


def _is_text(value: Any, most: int) -> bool:
    """Return whether this is a text of at most `most` characters, without halves of characters."""
    if not isinstance(value, str) or len(value) > most:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in value)
