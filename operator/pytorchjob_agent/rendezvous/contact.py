"""When a round's members last heard from the control plane: what fenceSeconds counts from. Pure.

The control plane is the coordinator, and the Kubernetes API server while the coordinator does not answer. A group that
hears neither may have been replaced. One member in contact is enough for all: it would be commanded to stop.
"""

from collections.abc import Sequence

from pytorchjob_agent.rendezvous.signed_store import SignedStore

_KEY = "contact"
ASK_SECONDS = 5.0
"""A member without contact for this time asks rank 0 for the contact of the others."""

Report = tuple[int, int]
"""A counter, and how many seconds ago a member had contact when rank 0 wrote it."""


class Contact:
    """The contact of one member and, by their heartbeats, of the others. Times are monotonic seconds."""

    def __init__(self, now: float) -> None:
        """Start in contact: a member has just been assigned, or the members have just agreed."""
        self.own_at = now
        """When this agent itself last had contact."""
        self._others_at = float("-inf")
        self._count = self._known = 0
        self._asked_at = now
        self._cut_off = False

    def cut_off(self, now: float, fence_seconds: float) -> bool:
        """Return whether the group may have been replaced. Once it may, only the coordinator's next round ends that.

        So members that are reached again do not agree on a round among themselves: others may train by then.
        """
        self._cut_off = self._cut_off or self.seconds(now) >= fence_seconds
        return self._cut_off

    def seconds(self, now: float) -> float:
        """Return for how long no member that this agent hears has had contact."""
        return max(now - max(self.own_at, self._others_at), 0.0)

    def age(self, now: float) -> int:
        """Return what this member's heartbeat reports: whole seconds since its contact, rounded up."""
        return int(max(now - self.own_at, 0.0)) + 1

    def heard(self, age: int, not_before: float) -> None:
        """Take a member's report that was written at `not_before` or later."""
        self._others_at = max(self._others_at, not_before - age)

    def publish(self, store: SignedStore, now: float) -> None:
        """As rank 0: write what is known of all members."""
        self._count += 1
        store.write(_KEY, write(self._count, int(self.seconds(now)) + 1))

    def ask(self, store: SignedStore, now: float) -> None:
        """As another rank: read what rank 0 knows, if this member has had no contact for a while."""
        if now - self.own_at < ASK_SECONDS:
            return
        signed = store.read(_KEY, 0)
        found = None if signed is None else read(signed.value)
        if found is not None and found[0] > self._known:
            if self._known:  # the first answer may be old
                self.heard(found[1], self._asked_at)
            self._known = found[0]
        self._asked_at = now


def write(count: int, age: int) -> str:
    """Return a report as the store has it."""
    return f"{count} {age}"


def read(text: str) -> Report | None:
    """Return the report that `write` wrote; None for anything else."""
    parts: Sequence[str] = text.split(" ")
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() and len(part) <= 16 for part in parts):
        return None
    return int(parts[0]), int(parts[1])
