"""What all members of a round start with: one decision for each round, with or without a coordinator. Pure.

Rank 0's agent decides from what every member offers. Either all members start from one save, or none gets one. A later
round's save comes before an earlier round's, because the later round started from the earlier one's save. Within a
round the saves of the lowest rank count: other ranks may write tables and the like.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import Self

from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.saves.held_saves import Choice, HeldSave, choice_of, complete, owners_of
from pytorchjob_agent.saves.peers import Peer

_MOST_HOLDERS = 4
"""Holders of each part that the decision lists: further members fetch from those that have fetched."""


class StartKind(StrEnum):
    """What the members do before their workers start."""

    RESTORE = "restore"
    """Each brings the files of the chosen save in place."""
    NOTHING = "nothing"
    """No member has a file of a save, or all have the same files."""
    SET_ASIDE = "set-aside"
    """No save is complete, and the files of members differ: each moves its rests away, and all start without a save."""
    LEAVE = "leave"
    """The files are left to the script: a member cannot hold the saves of this script."""
    SHARED = "shared"
    """Members have the same directory: what one of them saves, all find."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one member wrote of the chosen save."""

    holders: tuple[int, ...] = ()
    """Ranks of the round that hold it, or find it on durable storage."""
    own: bool = False
    """True if only the rank that wrote it loads it."""


@dataclass(frozen=True, slots=True)
class Start:
    """The decision."""

    kind: StartKind
    choice: Choice | None = None
    """The chosen save; only with RESTORE."""
    parts: Mapping[int, Part] = field(default_factory=dict)
    """Its parts by the rank that wrote them."""
    rivals: str = ""
    """With LEAVE: the name under which several members save different files."""

    def to_json(self) -> str:
        """Return what `from_json` reads."""
        parts = [[owner, int(part.own), *part.holders] for owner, part in self.parts.items()]
        chosen = "" if self.choice is None else self.choice.to_text()
        return json.dumps([self.kind, chosen, parts, self.rivals], separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a decision. Raises ValueError."""
        try:
            kind, chosen, entries, rivals = json.loads(text)
            parts = {int(owner): Part(tuple(map(int, holders)), bool(own)) for owner, own, *holders in entries}
            start = cls(StartKind(kind), Choice.from_text(chosen), parts, str(rivals))
        except (TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise ValueError(f"not a decision: {error}") from None
        if (start.kind is StartKind.RESTORE) != (start.choice is not None):
            raise ValueError("not a decision: a save is named for another kind, or none for a restore")
        return start

    def needed_by(self, rank: int, size: int) -> list[int]:
        """Return the owners of the parts that the workers of a member load; `size`: members of the round.

        A part that only its own rank loads goes to that rank alone, as long as there is one member for each part.
        """
        return [owner for owner in self.parts if self._needs(owner, rank, size)]

    def lacking(self, size: int, copies: int) -> dict[int, int]:
        """Return, by the owner, how many members more should hold a part that its owner's rank alone loads.

        A member that was lost held copies of other ranks' parts, and its new pod fetches the part of its own rank.
        """
        wanted = min(copies + 1, _MOST_HOLDERS, size)
        counts = {
            owner: wanted - len({*part.holders, owner})
            for owner, part in self.parts.items()
            if self._stays_apart(owner, size)
        }
        return {owner: count for owner, count in counts.items() if count > 0}

    def new_keepers(self, owner: int, order: Sequence[int], count: int) -> list[int]:
        """Return the members that fetch a copy of such a part; `order`: those that may keep it, the best first."""
        return [rank for rank in order if rank not in self.parts[owner].holders][:count]

    def _needs(self, owner: int, rank: int, size: int) -> bool:
        return owner == rank or not self._stays_apart(owner, size)

    def _stays_apart(self, owner: int, size: int) -> bool:
        """Return whether the rank that wrote a part loads it alone."""
        return self.parts[owner].own and len(self.parts) == size

    def sources(self, owner: int, rank: int, size: int) -> list[int]:
        """Return the ranks that a member asks for a part, in this order.

        The members form a tree below the holders, so that each serves a few others, and no holder serves all.
        """
        holders = list(self.parts[owner].holders)
        readers = [each for each in range(size) if each not in holders and self._needs(owner, each, size)]
        turn = readers.index(rank) if rank in readers else 0
        first = _parent(turn, holders, readers)
        last = holders[turn % len(holders) :] + holders[: turn % len(holders)] if holders else []
        return [each for each in dict.fromkeys([*first, *last]) if each != rank]


def _parent(turn: int, holders: Sequence[int], readers: Sequence[int]) -> list[int]:
    """Return the member above a reader in the tree: the first ones read from the holders."""
    below = _MOST_HOLDERS * len(holders)
    if not holders:
        return []
    return [holders[turn % len(holders)]] if turn < below else [readers[(turn - below) // _MOST_HOLDERS]]


def decide(offers: Sequence[Peer], round_: RoundId) -> Start:
    """Return what the members of a round start with; `offers`: what each of them holds, in the order of ranks."""
    offers = [offer.gathered() for offer in offers]
    directories = [offer.directory for offer in offers if offer.directory]
    if len(set(directories)) < len(directories):
        return Start(StartKind.SHARED)
    if rivals := _rivals(offers, round_):
        return Start(StartKind.LEAVE, rivals=rivals)
    choice = _newest(offers, round_)
    if choice is not None:
        return Start(StartKind.RESTORE, choice, _parts(offers, choice))
    if any(offer.left for offer in offers):
        return Start(StartKind.LEAVE)
    equal = len({offer.files for offer in offers}) == 1
    return Start(StartKind.NOTHING if equal else StartKind.SET_ASIDE)


def _newest(offers: Sequence[Peer], round_: RoundId) -> Choice | None:
    """Return the newest complete save. What claims to be of a later round than this one is not a save of this job."""
    held = _of_earlier((save for offer in offers for save in offer.held), round_)
    durable = _of_earlier((save for offer in offers for save in offer.durable), round_)
    parts = [each for offer in offers for each in (*offer.parts, *offer.held_parts) if each.round < round_]
    whole = {choice_of(save) for save in durable}
    return max([*complete(held, parts), *whole], key=lambda choice: choice.age, default=None)


def _rivals(offers: Sequence[Peer], round_: RoundId) -> str:
    """Return the name under which other members than rank 0 save files of their own in the newest round, if any.

    Nothing shows which of these files belong together. If a file of rank 0 is the same, one may stand for all.
    """
    alone = [
        save for save in _of_earlier((save for offer in offers for save in offer.held), round_) if save.writers == 1
    ]
    last = max((save.id.round for save in alone), default=None)
    content: dict[int, dict[str, set[str]]] = {}
    newest: dict[int, HeldSave] = {}
    for save in sorted((save for save in alone if save.id.round == last and save.label), key=lambda save: save.id):
        content.setdefault(save.id.owner, {}).setdefault(save.label, set()).add(save.digest)
        newest[save.id.owner] = save
    first = newest.pop(0, None)
    if first is None:
        return ""
    return next(
        (
            first.label
            for owner, save in newest.items()
            if save.label == first.label and not content[owner][save.label] & content[0][first.label]
        ),
        "",
    )


def _of_earlier(saves: Iterable[HeldSave], round_: RoundId) -> list[HeldSave]:
    return list({save.id: save for save in saves if save.id.round < round_}.values())


def _parts(offers: Sequence[Peer], choice: Choice) -> dict[int, Part]:
    """Return the parts of a chosen save; members that find one on durable storage count where none holds it."""
    held, common = [], 0
    for offer in offers:
        owners, own = offer.holds(choice)
        held.append((offer.rank, owners))
        common |= owners & ~own
    holders = _holders(choice, held)
    stored = _holders(choice, [(offer.rank, _stored(offer, choice)) for offer in offers])
    return {
        owner: Part(tuple(holders[owner] or stored[owner]), bool(holders[owner]) and not common >> owner & 1)
        for owner in choice.owners
    }


def _holders(choice: Choice, found: Sequence[tuple[int, int]]) -> dict[int, list[int]]:
    """Return by owner the first ranks with its part, from the bits of each rank."""
    ranks: dict[int, list[int]] = {owner: [] for owner in choice.owners}
    wanted = _all(choice)
    for rank, bits in found:
        for owner in owners_of(bits & wanted):
            ranks[owner].append(rank)
            if len(ranks[owner]) == _MOST_HOLDERS:
                wanted ^= 1 << owner
    return ranks


def _stored(offer: Peer, choice: Choice) -> int:
    """Return the bits of the owners whose parts a member finds on durable storage."""
    if any(map(choice.includes, offer.durable)):
        return _all(choice)
    return reduce(or_, (each.owners for each in offer.parts if choice.has(each)), 0)


def _all(choice: Choice) -> int:
    return 1 << choice.owner if choice.writers == 1 else (1 << choice.writers) - 1
