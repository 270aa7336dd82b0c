"""Which rank did not take part in a collective, by how many each rank has begun in each process group. Pure.

All ranks of a group begin the same collectives in the same order. So of ranks that wait for each other, the one that
has begun fewer is late, whatever its processor does; and the first one that is not the same for all is the mistake.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .fields import MAX_INT, is_int, is_text
from .reasons import CollectiveFaultKind

MOST_POSITIONS = 64
"""Positions in one message: 8 groups of each of 8 ranks."""
MOST_RECENT = 16
WAITED = 2.0
"""Seconds: ranks that have begun a collective so long ago wait for those that have not."""
_LONGEST_GROUP, _LONGEST_CALL = 64, 64


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """How far one rank is in one process group."""

    rank: int
    """Of the whole job."""
    group: str
    """The group's name, the same at all of its ranks."""
    begun: int
    """Collectives that the rank has begun in it."""
    latest: bool = False
    """True if the last collective that the rank has begun is of this group."""
    age: int = 0
    """Milliseconds since the rank began the last one here."""
    recent: tuple[str, ...] = ()
    """The last of them, the newest last: what all ranks have to call equally, like `all_reduce float32[3]`."""

    @property
    def words(self) -> str:
        """Say it to people."""
        last = f", the last one {self.recent[-1]} {self.age / 1000:.1f} s ago" if self.recent else ""
        return f"{self.begun} collectives begun in group {self.group}{last}"

    def call(self, number: int) -> str:
        """Return the collective with this number, from 1 on; empty if it is not known any more, or not begun."""
        at = number - 1 - self.begun + len(self.recent)
        return self.recent[at] if 0 <= at < len(self.recent) else ""


@dataclass(frozen=True, slots=True)
class CollectiveFault:
    """The collective in which ranks wait for nothing, and the ranks at fault."""

    kind: CollectiveFaultKind
    ranks: tuple[int, ...]
    group: str
    number: int
    """Of the collective within its group, from 1 on."""
    call: str = ""
    """The collective of the others. Empty: not known."""
    own: str = ""
    """What these ranks have begun instead. Empty: nothing."""
    place: str = ""
    """Where another rank waits in it, by its script's innermost frame. Empty: not known."""


Places = Mapping[str, str | None]
"""Where ranks are, by the rank; None: it gives no stack."""
NOWHERE: Places = {}
_Group = Mapping[int, GroupPosition]
"""The positions in one group, by rank."""


def find_fault(
    positions: Iterable[GroupPosition], waited: float = WAITED, places: Places = NOWHERE
) -> CollectiveFault | None:
    """Return which ranks keep others waiting; None if all have begun the same, or none waits for `waited` seconds.

    Of two equal halves, the one with the lowest rank counts as right. `places` has where ranks are.
    """
    groups: dict[str, dict[int, GroupPosition]] = {}
    for position in positions:
        groups.setdefault(position.group, {})[position.rank] = position
    old = {name: group for name, group in sorted(groups.items()) if len(group) > 1 and _waits(group, waited)}
    found = next(filter(None, (_difference(name, group) for name, group in old.items())), None) or _late(old, groups)
    return None if found is None else replace(found, place=_place(found, groups[found.group], places))


def _place(fault: CollectiveFault, group: _Group, places: Places) -> str:
    """Return where a rank is that is in the collective itself; one that has begun more is elsewhere."""
    inside = (rank for rank, each in sorted(group.items()) if each.latest and each.begun == fault.number)
    return next(filter(None, (places.get(str(rank)) for rank in inside if rank not in fault.ranks)), "")


def _waits(group: _Group, seconds: float) -> bool:
    """Return whether the ranks that are the furthest have begun nothing in this group since then."""
    most = _most(group)
    return min(position.age for position in group.values() if position.begun == most) >= 1000 * seconds


def _difference(name: str, group: _Group) -> CollectiveFault | None:
    """Return the first collective, of those that are known, that is not the same for all ranks."""
    last = min(position.begun for position in group.values())
    for number in range(max(1, last - MOST_RECENT), last + 1):
        calls = {rank: call for rank, position in group.items() if (call := position.call(number))}
        if len({*calls.values()}) > 1:
            ranks, right = _fewest(calls)
            return CollectiveFault(CollectiveFaultKind.DIFFERS, ranks, name, number, right, calls[ranks[0]])
    return None


def _fewest(values: Mapping[int, str]) -> tuple[tuple[int, ...], str]:
    """Return the ranks whose value is not that of most ranks, and that value."""
    counts, first = Counter(values.values()), values[min(values)]
    most = max(sorted(counts), key=lambda value: (counts[value], value == first))
    return tuple(sorted(rank for rank, value in values.items() if value != most)), most


def _late(old: Mapping[str, _Group], groups: Mapping[str, _Group]) -> CollectiveFault | None:
    """Return the ranks for which others wait while they wait for none; or those in the wrong one of two groups."""
    inside = {rank: name for name, group in groups.items() for rank, position in group.items() if position.latest}
    missed = {name: _behind(group) for name, group in old.items()}
    for name, late in sorted(missed.items(), key=lambda item: len(item[1]) - len(groups[item[0]])):
        free = [rank for rank in late if not _may_wait(rank, inside, groups)]
        if free:
            begun = min(groups[name][rank].begun for rank in free)
            ranks = tuple(sorted(rank for rank in free if groups[name][rank].begun == begun))
            call = _call(groups[name], begun + 1)
            return CollectiveFault(CollectiveFaultKind.NOT_BEGUN, ranks, name, begun + 1, call)
    return _other_order({rank: inside[rank] for late in missed.values() for rank in late if rank in inside}, groups)


def _most(group: _Group) -> int:
    return max(position.begun for position in group.values())


def _behind(group: _Group) -> list[int]:
    most = _most(group)
    return [rank for rank, position in group.items() if position.begun < most]


def _may_wait(rank: int, inside: Mapping[int, str], groups: Mapping[str, _Group]) -> bool:
    """Return whether a rank is in a collective that another rank has not begun, or of whose ranks no other is known."""
    group = groups[inside[rank]] if rank in inside else {}
    return len(group) == 1 or any(position.begun < group[rank].begun for position in group.values())


def _other_order(inside: Mapping[int, str], groups: Mapping[str, _Group]) -> CollectiveFault | None:
    """Return the ranks that are in another group than most of those that wait for each other."""
    if len({*inside.values()}) < 2:
        return None
    ranks, name = _fewest(inside)
    begun = _most(groups[name])
    own = groups[inside[ranks[0]]][ranks[0]]
    call = _call(groups[name], begun)
    return CollectiveFault(CollectiveFaultKind.OTHER_ORDER, ranks, name, begun, call, own.call(own.begun))


def _call(group: _Group, number: int) -> str:
    return next(filter(None, (position.call(number) for position in group.values())), "")


def some_positions(**more: Any) -> Any:
    """Positions of the ranks of one pod, as lists; a sender drops what is too much."""

    def bound(value: Sequence[GroupPosition]) -> list[list[Any]]:
        return [
            [
                _count(each.rank),
                _plain(each.group, _LONGEST_GROUP),
                _count(each.begun),
                each.latest,
                _count(each.age),
                [_plain(call, _LONGEST_CALL) for call in each.recent[-MOST_RECENT:]],
            ]
            for each in value[:MOST_POSITIONS]
        ]

    metadata: dict[str, Callable[..., Any] | str] = {
        "check": lambda value: isinstance(value, list) and len(value) <= MOST_POSITIONS and all(map(_is_one, value)),
        "form": "a list of [rank, group, begun, latest, age, calls]",
        "read": lambda value: tuple(map(_read, value)),
        "bound": bound,
        "shorten": lambda value, most: value[:most],
    }
    return field(metadata=metadata, **more)


def _count(number: int) -> int:
    return min(max(number, 0), MAX_INT)


def _plain(text: str, limit: int) -> str:
    return "".join(sign if sign.isascii() and sign.isprintable() else "?" for sign in text[:limit])


def _read(value: Sequence[Any]) -> GroupPosition:
    rank, group, begun, latest, age, recent = value
    return GroupPosition(rank, group, begun, latest, age, tuple(recent))


def _is_one(value: Any) -> bool:
    if not (isinstance(value, list) and len(value) == 6):
        return False
    rank, group, begun, latest, age, recent = value
    counts = all(map(is_int, (rank, begun, age)))
    texts = isinstance(recent, list) and len(recent) <= MOST_RECENT
    return (
        counts
        and type(latest) is bool
        and _is_text(group, _LONGEST_GROUP)
        and texts
        and all(_is_text(call, _LONGEST_CALL) for call in recent)
    )


def _is_text(value: Any, limit: int) -> bool:
    return is_text(value, limit) and value.isascii() and value.isprintable()
