"""Decides for how long a worker has made no progress of any kind, and whether its stack is needed for that. Pure.

A worker is still if nothing works for it (`activity`), its thread that trains shows no sign of life, and its stack was
the same each time. A worker that uses the CPU is still only if each of its stacks was in the same collective: it polls.
What waits for something outside of the job (the network, a debugger) is not still, because it may continue by itself.

A single still rank means nothing: it may wait for another rank, which evaluates or saves. `judge` needs all of them.
"""

from dataclasses import dataclass

from pytorchjob_agent.contract.hang_rules import DEFAULT_IDLE
from pytorchjob_agent.hangs.activity import Interval, Motion, TreeReading, is_idle, motion, shows_sign
from pytorchjob_agent.hangs.judge import Activity
from pytorchjob_agent.stacks.stack_analysis import BACKWARD, StackPlace

_STACKS = 4
"""Equal ones that are needed."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """When a worker is measured, in seconds; all follow from the limit for idleness."""

    limit: float = DEFAULT_IDLE

    @property
    def calm(self) -> float:
        """Return the time between two readings of /proc."""
        return min(10.0, max(1.0, self.limit / 12))

    @property
    def close(self) -> float:
        """Return the same for workers that may be still."""
        return min(5.0, max(1.0, self.limit / 24))

    @property
    def suspect(self) -> float:
        """Return after what time without a sign of life a stack is requested for the first time."""
        return self.limit / 4

    @property
    def again(self) -> float:
        """Return the time between two requests."""
        return self.limit / 8

    @property
    def later(self) -> float:
        """Return the same for a worker that computes, or that has been still for longer than the limit."""
        return self.limit / 2

    @property
    def longest(self) -> float:
        """Return what the time between two readings counts at most: in a longer one the agent itself was frozen."""
        return 2 * self.calm


class StillnessTracker:
    """What is known of one worker in one round; times in seconds."""

    def __init__(self, pauses: Pauses) -> None:
        """Start without a reading."""
        self._pauses = pauses
        self._before: tuple[float, TreeReading] | None = None
        self._still = self._quiet = self._stopped = 0.0
        """Since when it is still, does no work, and is stopped."""
        self._moves = (0, 0)
        """Its optimizer steps and collectives; 0 collectives: not known."""
        self._moved = self._signed = 0.0
        """When they were last more than before, and when it last showed another sign of life than CPU time."""
        self._motion = Motion.RESTS
        self._place: StackPlace | None = None
        self._equal = 0
        self._seen = self._next = 0.0
        """When its stack was last seen, and when it is needed again."""

    def needs_traffic(self, reading: TreeReading, now: float) -> bool:
        """Return whether the reading shows so little that the traffic has to be read too."""
        if self._before is None:
            return False
        return self.unmoved_for(now) > 0 or self._motion_until(reading, now, 0) is not Motion.BUSY

    def move(self, moves: tuple[int, int], now: float) -> None:
        """Record its optimizer steps and collectives so far: more of them are progress, whatever else it does."""
        if moves != self._moves:
            self._moves, self._moved = moves, now
            self._restart(now)

    def take(self, reading: TreeReading, now: float, dumped: int | None = None) -> None:
        """Record a reading; `dumped` is the size of the stacks that it wrote since the last one, on request."""
        found = self._motion_until(reading, now, dumped)
        if self._shows_sign(reading, now, dumped):
            self._signed = now
        self._leave_out_gap(now)
        if found in (Motion.BUSY, Motion.STIRS) or (found is not self._motion and not self._may_poll()):
            self._restart(now)
        if not self._was_idle(reading, now, dumped):
            self._quiet = now
        if not reading.stopped or self._before is None or not self._before[1].stopped:
            self._stopped = now
        self._before, self._motion = (now, reading), found

    def _leave_out_gap(self, now: float) -> None:
        gap = 0.0 if self._before is None else now - self._before[0] - self._pauses.longest
        if gap > 0:
            self._still, self._quiet, self._stopped = self._still + gap, self._quiet + gap, self._stopped + gap
            self._moved, self._signed = self._moved + gap, self._signed + gap

    def _motion_until(self, reading: TreeReading, now: float, dumped: int | None) -> Motion:
        if self._before is None or now <= self._before[0]:
            return Motion.BUSY
        return motion(self._before[1], reading, Interval(now - self._before[0], dumped))

    def _was_idle(self, reading: TreeReading, now: float, dumped: int | None) -> bool:
        if self._before is None or now <= self._before[0]:
            return False
        return is_idle(self._before[1], reading, Interval(now - self._before[0], dumped))

    def _shows_sign(self, reading: TreeReading, now: float, dumped: int | None) -> bool:
        if self._before is None or now <= self._before[0]:
            return True
        return shows_sign(self._before[1], reading, Interval(now - self._before[0], dumped))

    def _may_poll(self) -> bool:
        """Return whether it may use the CPU at times without any progress, as far as its stacks are known."""
        return not self._equal or self._polls()

    def _polls(self) -> bool:
        return self._place is not None and self._place.collective not in (None, BACKWARD)

    def _restart(self, now: float) -> None:
        self._still, self._equal, self._next = now, 0, 0.0

    def see(self, place: StackPlace, now: float) -> None:
        """Record the stack that it wrote."""
        before, self._place, self._seen = self._place, place, now
        if place.external or (self._motion is Motion.SPINS and not self._polls()):
            self._restart(now)
            self._next = now + self._pauses.later
        elif self._equal and before is not None and not self._same(place, before):
            self._restart(now)
        self._equal += 1

    def _same(self, new: StackPlace, old: StackPlace) -> bool:
        """Return whether nothing has changed; a loop that polls may be seen at each of its lines."""
        return new.functions == old.functions if self._polls() else new.frames == old.frames

    def needs_stack(self, now: float) -> bool:
        """Return whether it is to be asked for its stack; then it is not for a while."""
        if self._before is None or self._before[1].gone or self._before[1].stopped:
            return False
        if self._motion in (Motion.BUSY, Motion.STIRS) or now - self._still < self._pauses.suspect or now < self._next:
            return False
        late = now - self._still > 1.5 * self._pauses.limit
        self._next = now + (self._pauses.later if late else self._pauses.again)
        return True

    @property
    def gone(self) -> bool:
        """Return whether it has ended."""
        return self._before is not None and self._before[1].gone

    def still_for(self, now: float) -> float:
        """Return for how long it has been still, as far as that is certain; infinity once it has ended."""
        if self.gone:
            return float("inf")
        if self._before is not None and self._before[1].stopped:
            return now - self._stopped
        certain = self._equal >= _STACKS and now - self._seen <= self._pauses.limit
        return now - self._still if certain and self._motion in (Motion.RESTS, Motion.SPINS) else 0.0

    def unmoved_for(self, now: float) -> float:
        """Return for how long it has begun no collective, done no step and shown no other sign; 0: not known."""
        return max(now - max(self._moved, self._signed), 0.0) if self._moves[1] else 0.0

    def last_place(self) -> StackPlace | None:
        """Return where it was when it last gave its stack; None: it may be elsewhere by now, or it is stopped."""
        stopped = self._before is not None and self._before[1].stopped
        return self._place if self._equal and not stopped else None

    def suspect_for(self, now: float) -> float:
        """Return for how long nothing was noticed, whatever its stack is."""
        return now - self._still

    def activity(self, now: float) -> Activity:
        """Return what the rules for scripts that report their steps need."""
        if self._before is None:
            return Activity()
        reading = self._before[1]
        stopped = now - self._stopped if reading.stopped else None
        return Activity(now - self._quiet, stopped, reading.gone, reading.traced)
