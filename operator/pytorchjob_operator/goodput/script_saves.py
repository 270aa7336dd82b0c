"""The saves that a script makes by itself: how many, how long they take, and how many steps lie between them. Pure.

A heartbeat has the figures of one member since the workers' start. The members wait for each other, so of all members
the longest saves count. They are booked when they are complete: the time of an unfinished save stays where it was.
"""

from dataclasses import dataclass, replace

SETTLE_SECONDS = 5.0
"""For this long after a round becomes known, its members report what is in the ledger already."""


@dataclass(frozen=True, slots=True)
class SavesSeen:
    """What a heartbeat shows; see the fields of `Heartbeat`."""

    saves: int | None = None
    seconds: float = 0.0
    step: int | None = None
    load_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ScriptSaves:
    """The saves over the job's life, and what of the present round is in them already."""

    saves: int = 0
    """Saves with a known number of steps before them."""
    seconds: float = 0.0
    """Seconds in these saves."""
    steps: int = 0
    """Steps before these saves, from the round's start or the save before."""
    unseen: bool = False
    """True if the script may have saved in a way that no worker measures."""
    round_saves: int = 0
    round_seconds: float = 0.0
    round_loads: float = 0.0
    counted_to: int | None = None
    """The step of this round up to which `steps` counts. None: unknown."""
    settles: float | None = None
    """Until then, the figures of a round that has become known count as known already."""

    def in_round(self, settles: float | None = None) -> "ScriptSaves":
        """Return the saves at the start of a round."""
        return replace(self, round_saves=0, round_seconds=0.0, round_loads=0.0, counted_to=None, settles=settles)

    def shows_more(self, seen: SavesSeen, step: int | None) -> bool:
        """Return whether a heartbeat with this step shows more than is known."""
        more = (seen.saves or 0) > self.round_saves or seen.seconds > self.round_seconds
        hides = step is not None and seen.saves is None and not self.unseen
        return more or hides or seen.load_seconds > self.round_loads

    def settling(self, now: float) -> bool:
        """Return whether the figures of this round are in the ledger already."""
        return self.settles is not None and now < self.settles

    def begun(self, first_step: int | None, step: int, *, later: bool) -> "ScriptSaves":
        """Return the saves after the first step of a round that is seen; `later`: an earlier round had steps.

        A script that continues after its first step has saved somehow.
        """
        resumed = later and (first_step is None or first_step > 1)
        counted_to = None if self.settles is not None else (step if first_step is None else first_step) - 1
        return replace(self, counted_to=counted_to, unseen=self.unseen or (resumed and not self.saves))

    def counted(self, seen: SavesSeen, now: float, *, steps_known: bool) -> "ScriptSaves":
        """Return the saves after a heartbeat. Saves before a round's first step do not count."""
        new = max((seen.saves or 0) - self.round_saves, 0)
        known = replace(
            self,
            unseen=self.unseen or (seen.saves is None and steps_known),
            round_saves=self.round_saves + new,
            round_seconds=max(seen.seconds, self.round_seconds),
            round_loads=max(seen.load_seconds, self.round_loads),
            counted_to=seen.step if new and seen.step is not None and steps_known else self.counted_to,
        )
        if self.settling(now) or self.counted_to is None:
            return known
        steps = max(seen.step - self.counted_to, 0) if new and seen.step is not None else 0
        spent = known.round_seconds - self.round_seconds
        return replace(known, saves=self.saves + new, seconds=self.seconds + spent, steps=self.steps + steps)
