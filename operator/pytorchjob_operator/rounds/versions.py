"""Do the members' versions and clocks agree? The messages name the member that differs, and the remedy."""

from collections import Counter
from collections.abc import Sequence

from pytorchjob_operator.rounds.values import Member

_PARTS = {"torch": 2, "nccl": 2, "cuda": 1, "python": 2}
"""How many parts of a version must be equal: torch 2.4 and 2.5 differ, 2.4.0 and 2.4.1 do not."""

CLOCK_SECONDS = 5.0
"""A larger difference of clocks is a problem. It is far more than a hello takes."""


def unequal_versions(members: Sequence[Member]) -> str | None:
    """Return a sentence about members whose versions differ from most others. None: all agree."""
    found = [words for name, parts in _PARTS.items() if (words := _odd_versions(members, name, parts))]
    return "; ".join(found)[:1000] or None


def unequal_clocks(members: Sequence[Member]) -> str | None:
    """Return a sentence about the member whose clock is wrong. None: all are within five seconds."""
    offsets = sorted((member.clock_offset, member.pod) for member in members if member.clock_offset is not None)
    if not offsets:
        return None
    (low, behind), (middle, _), (high, ahead) = offsets[0], offsets[(len(offsets) - 1) // 2], offsets[-1]
    if high - low <= CLOCK_SECONDS:
        return None
    odd, way, other = (ahead, "ahead of", behind) if high - middle >= middle - low else (behind, "behind", ahead)
    return f"the clock of {odd} is {high - low:.0f} s {way} {other}'s; synchronize the nodes' clocks (NTP, chrony)"


def _odd_versions(members: Sequence[Member], name: str, parts: int) -> str | None:
    reported = [(member, member.versions[name]) for member in members if name in member.versions]
    kinds = Counter(_shorten(version, parts) for _, version in reported)
    if len(kinds) <= 1:
        return None
    usual = kinds.most_common(1)[0][0]
    odd = [f"{member.pod} has {version or 'none'}" for member, version in reported if _shorten(version, parts) != usual]
    more = f" and {len(odd) - 3} more" if len(odd) > 3 else ""
    return (
        f"{name} versions differ: {', '.join(odd[:3])}{more}, the others have {usual or 'none'};"
        " use one image for all replicas"
    )


def _shorten(version: str | None, parts: int) -> str:
    return ".".join((version or "").partition("+")[0].split(".")[:parts])
