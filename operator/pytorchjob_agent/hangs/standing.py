"""For how long the whole job has made no progress, by what each member tells of its ranks. Pure.

A rank is still if nothing of it moves (`stillness`). One that waits in a collective for a rank that has not begun it is
still too, whatever it does with its processor: polling for a GPU looks like work. Which ranks wait is known only
when the members' counts are together, so rank 0's agent decides.
"""

from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple
from zlib import crc32

from pytorchjob_agent.rendezvous.agreement import MemberStanding

_MOST_GROUPS = 4
_ENDED = "e"


class RankStanding(NamedTuple):
    """What is known of one rank."""

    still: float = 0.0
    """For how many seconds nothing of it has moved; infinity: it has ended."""
    unmoved: float = 0.0
    """For how many seconds it has begun no collective, done no step, and shown no other sign than CPU time."""
    begun: Sequence[tuple[str, int]] = ()
    """How many collectives it has begun, by process group: that of the last collective first."""


def key(group: str) -> str:
    """Return a short name of a process group."""
    return f"{crc32(group.encode()):08x}"


def note(ranks: Iterable[RankStanding]) -> str:
    """Return what a member tells rank 0's agent of its ranks."""
    return "|".join(map(_write, ranks))


def _write(rank: RankStanding) -> str:
    still = _ENDED if rank.still == inf else str(int(rank.still))
    groups = (f"{name}={number}" for name, number in rank.begun[:_MOST_GROUPS])
    return ".".join((still, str(int(rank.unmoved)), *groups))


def read_note(text: str) -> list[RankStanding] | None:
    """Return the ranks of a note; None for what no member writes."""
    try:
        return [_read(part) for part in text.split("|")]
    except ValueError:
        return None


def _read(text: str) -> RankStanding:
    still, unmoved, *groups = text.split(".")
    begun = [(name, int(number)) for name, number in (group.split("=") for group in groups)]
    return RankStanding(inf if still == _ENDED else float(int(still)), float(int(unmoved)), begun)


def job_still_for(own: Sequence[RankStanding], others: Sequence[MemberStanding] | None) -> float:
    """Return for how long no rank of the job has made progress, as far as that is certain.

    `others` are the standings of all other members, None if they are not known here. Infinity: all ranks have ended.
    """
    if others is None:
        return 0.0
    ranks = [*own]
    for member in others:
        ranks += (read_note(member.note) if member.note else None) or [RankStanding(member.still)]
    least: dict[str, int] = {}
    for rank in ranks:
        for name, number in rank.begun:
            least[name] = min(least.get(name, number), number)
    return min((rank.unmoved if _waits(rank, least) else rank.still for rank in ranks), default=inf)


def _waits(rank: RankStanding, least: dict[str, int]) -> bool:
    """Return whether a rank is in a collective that another one has not begun, and not known to be still for longer."""
    if not rank.begun or rank.still >= rank.unmoved:
        return False
    name, number = rank.begun[0]
    return least[name] < number
