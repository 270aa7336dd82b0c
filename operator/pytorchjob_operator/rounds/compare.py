"""Do the members' versions and clocks agree? The odd one is named, with what would be right."""

from collections import Counter
from collections.abc import Sequence

from pytorchjob_operator.rounds.state import Member

_PARTS = {"torch": 2, "nccl": 2, "cuda": 1, "python": 2}
"""How many parts of a version have to be equal: torch 2.4 and 2.5 differ, 2.4.0 and 2.4.1 do not."""

CLOCK_SECONDS = 5.0
"""Clocks that are further apart are told: far more than a hello takes, far less than anybody would overlook."""


def versions(members: Sequence[Member]) -> str | None:
    """Return a sentence about the members that differ from most of the others; None when all agree."""
    found = [words for name, parts in _PARTS.items() if (words := _odd(members, name, parts))]
    return "; ".join(found)[:1000] or None


def clocks(members: Sequence[Member]) -> str | None:
    """Return a sentence about the member whose clock is off; None when all are within five seconds."""
    told = sorted((one.offset, one.pod) for one in members if one.offset is not None)
    if not told:
        return None
    (low, behind), (middle, _), (high, ahead) = told[0], told[(len(told) - 1) // 2], told[-1]
    if high - low <= CLOCK_SECONDS:
        return None
    odd, way, other = (ahead, "ahead of", behind) if high - middle >= middle - low else (behind, "behind", ahead)
    return f"the clock of {odd} is {high - low:.0f} s {way} {other}'s: keep the nodes' time equal (NTP, chrony)"


def _odd(members: Sequence[Member], name: str, parts: int) -> str | None:
    told = [(one, one.versions[name]) for one in members if name in one.versions]
    kinds = Counter(_short(version, parts) for _, version in told)
    if len(kinds) <= 1:
        return None
    usual = kinds.most_common(1)[0][0]
    odd = [f"{one.pod} has {version or 'none'}" for one, version in told if _short(version, parts) != usual]
    more = f" and {len(odd) - 3} more" if len(odd) > 3 else ""
    return f"{name} differs: {', '.join(odd[:3])}{more}, the others have {usual or 'none'}: use one image for all"


def _short(version: str | None, parts: int) -> str:
    return ".".join((version or "").partition("+")[0].split(".")[:parts])
