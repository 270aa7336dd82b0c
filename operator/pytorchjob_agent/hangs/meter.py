"""Measures the workers of one round: reads /proc and, where that shows nothing, traffic and stacks.

A healthy worker costs one reading of /proc in ten seconds. `stillness` decides what the readings mean.
"""

from collections.abc import Mapping

from pytorchjob_agent.hangs import process_reader
from pytorchjob_agent.hangs.judge import Activity
from pytorchjob_agent.hangs.standing import RankStanding, key
from pytorchjob_agent.hangs.stillness import Pauses, StillnessTracker
from pytorchjob_agent.stacks import stack_analysis
from pytorchjob_agent.stacks.recorders import Recorders
from pytorchjob_agent.stacks.stack_analysis import StackPlace
from pytorchjob_agent.stacks.stack_dump import StackDumps, source_around

_PAUSES = Pauses()


class WorkerMeter:
    """The measurements of one round's workers."""

    def __init__(
        self,
        pids: Mapping[int, int],
        stacks: StackDumps | None = None,
        pauses: Pauses = _PAUSES,
        store_port: int | None = None,
        recorders: Recorders | None = None,
    ) -> None:
        """Take the workers' pids by local rank; `store_port` is the round's store, whose traffic is no progress."""
        self.pids, self._stacks, self._pauses, self._store_port = dict(pids), stacks, pauses, store_port
        self._recorders = recorders
        self._trackers = {local_rank: StillnessTracker(pauses) for local_rank in pids}
        self.asked: set[int] = set()
        """The workers that were asked for their stacks since the last reading."""
        self._last = self._next = 0.0

    def measure(self, now: float, every: float | None = None) -> None:
        """Read, if it is time, or if the last reading is older than `every` seconds."""
        if now < self._next and (every is None or now < self._last + every):
            return
        readings = process_reader.read_trees(self.pids.values())
        for local_rank, pid in self.pids.items():
            tracker, reading = self._trackers[local_rank], readings[pid]
            if self._recorders is not None:
                tracker.move(self._recorders.moves(local_rank), now)
            if tracker.needs_traffic(reading, now):
                reading = process_reader.with_traffic(reading, self._store_port)
            tracker.take(reading, now, self._dumped(local_rank))
            self._see(local_rank, now)
        close = any(tracker.suspect_for(now) >= self._pauses.calm for tracker in self._trackers.values())
        self._last, self._next = now, now + (self._pauses.close if close else self._pauses.calm)
        self.ask(*(local_rank for local_rank, tracker in self._trackers.items() if tracker.needs_stack(now)))

    def _dumped(self, local_rank: int) -> int | None:
        if local_rank not in self.asked or self._stacks is None:
            return None
        return self._stacks.size(local_rank)

    def _see(self, local_rank: int, now: float) -> None:
        place = self.place(local_rank) if local_rank in self.asked else None
        if place is not None:
            self._trackers[local_rank].see(place, now)
        self.asked.discard(local_rank)

    def ask(self, *local_ranks: int) -> None:
        """Ask these workers for their stacks."""
        if self._stacks is not None and local_ranks:
            self.asked.update(local_ranks)
            self._stacks.ask({local_rank: self.pids[local_rank] for local_rank in local_ranks})

    def place(self, local_rank: int) -> StackPlace | None:
        """Return where a worker was when it was last asked; None: it gave no answer (yet)."""
        if self._stacks is None:
            return None
        return stack_analysis.place(self._stacks.read_worker(local_rank), source_around)

    def last_place(self, local_rank: int) -> StackPlace | None:
        """Return where a worker without any sign of life since then was when it last gave its stack."""
        return self._trackers[local_rank].last_place()

    def activity(self, local_rank: int, now: float) -> Activity:
        """Return what a worker did, by the last reading."""
        return self._trackers[local_rank].activity(now)

    def standings(self, now: float) -> list[RankStanding]:
        """Return what is known of each worker; of its collectives only once it has begun none for a while."""
        late = any(tracker.unmoved_for(now) >= self._pauses.suspect for tracker in self._trackers.values())
        begun: dict[int, list[tuple[str, int]]] = {}
        for position in self._recorders.positions(0, 0) if late and self._recorders is not None else ():
            begun.setdefault(position.rank, []).append((key(position.group), position.begun))
        return [
            RankStanding(tracker.still_for(now), tracker.unmoved_for(now), begun.get(local_rank, []))
            for local_rank, tracker in self._trackers.items()
        ]

    def idle_for(self, now: float) -> float:
        """Return for how long none has worked, whatever it waits for; 0 if all have ended."""
        found = [activity for rank in self.pids if not (activity := self.activity(rank, now)).gone]
        return min((activity.quiet_for for activity in found), default=0.0)

    def stopped(self, now: float) -> dict[int, float]:
        """Return for how long workers have been stopped by a signal, by local rank."""
        found = {local_rank: self.activity(local_rank, now).stopped_for for local_rank in self.pids}
        return {local_rank: seconds for local_rank, seconds in found.items() if seconds is not None}
