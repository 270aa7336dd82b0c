"""Decides which ranks are slower than the others, from their time outside collectives. Pure.

A worker reports its own time window by window (the agent's `workers/startup/pytorchjob_own_time`). Once all ranks of
the round have reported a new window, each rank is compared with the median of the others. A few slow windows, as at a
save, name no rank.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from pytorchjob_agent.contract.messages import RoundId

COMPARISONS = 4
"""How many comparisons in a row decide. A window is 4 s, so a slow rank is named after 16 to 20 s of short steps."""
WARM_UP = 1
"""So many first windows of a worker do not count: its first steps compile, allocate and read for the first time."""
SLOW = 0.17
"""A rank is slow if its own time is at least this much above the median, on average over the comparisons. A rank that
is a fifth slower is then found in spite of some noise."""
ALWAYS_SLOW = 0.10
"""And at least this much in each of them."""
EQUAL = 0.10
"""A slow rank is equal again once half of the comparisons are below this: one very slow window keeps no name."""
LEAST_COST = 0.05
"""A rank is slow only if it costs this part of the wall clock: own time hardly matters where ranks only communicate."""

MOST_PLACES = 32

Worker = tuple[int, int]
"""A member's index, and the local rank of its worker."""


@dataclass(frozen=True, slots=True)
class Window:
    """What a worker has measured last."""

    number: int
    share: float
    """Its own time, as a part of the window."""


@dataclass(frozen=True, slots=True)
class Lag:
    """A worker compared with the median of the others."""

    excess: float
    """How much more own time it needs, as a part of theirs."""
    cost: float
    """How much longer the others wait, as a part of the wall clock."""


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """The own times of a round's workers."""

    round: RoundId | None = None
    windows: Mapping[Worker, Window] = field(default_factory=dict)
    new: frozenset[Worker] = frozenset()
    """Workers with a window that is not compared yet."""
    lags: tuple[Mapping[Worker, Lag], ...] = ()
    """The last comparisons."""
    places: Mapping[Worker, Mapping[str, float]] = field(default_factory=dict)
    """At which lines of the script each worker was lately, as parts of its time."""
    slow: Mapping[Worker, float] = field(default_factory=dict)
    """The slow workers, each with the time at which it was found."""

    @property
    def known(self) -> bool:
        """True if the ranks have been compared often enough in this round."""
        return len(self.lags) == COMPARISONS

    def percent(self, worker: Worker) -> int:
        """Return how much slower a worker was in the last comparisons."""
        return round(100 * _mean([lags[worker].excess for lags in self.lags if worker in lags]))

    def own_work(self, worker: Worker) -> str:
        """Return the line of the script at which a slow worker does what the others do not; empty: there is none.

        A slow node makes the lines of all ranks slower. So the others are hardly at this line, and it explains at
        least half of what the worker costs.
        """
        cost = _mean([lags[worker].cost for lags in self.lags if worker in lags])
        others = [parts for each, parts in self.places.items() if each != worker]
        best, largest = "", cost / 2
        for place, part in self.places.get(worker, {}).items() if others and cost > 0 else ():
            theirs = median(parts.get(place, 0.0) for parts in others)
            if theirs < part / 2 and part - theirs > largest:
                best, largest = place, part - theirs
        return best


def with_places(known: RoundTimes, worker: Worker, parts: Mapping[str, float]) -> RoundTimes:
    """Return the own times with the places of a worker's new window: half of what is known of it is older."""
    before = known.places.get(worker, parts)
    mixed = {place: (before.get(place, 0.0) + parts.get(place, 0.0)) / 2 for place in {**before, **parts}}
    kept = sorted(mixed, key=lambda place: -mixed[place])[:MOST_PLACES]
    return replace(known, places={**known.places, worker: {place: mixed[place] for place in kept}})


def add(known: RoundTimes, windows: Mapping[Worker, Window], workers: int, now: float) -> RoundTimes:
    """Return the own times with new windows of a member; `workers` is how many the round has."""
    windows = {worker: window for worker, window in windows.items() if window.number > WARM_UP}
    later = {worker for worker, window in windows.items() if known.windows.get(worker) != window}
    if not later:
        return known
    known = replace(known, windows={**known.windows, **windows}, new=known.new | later)
    if len(known.new) < workers or workers < 2:
        return known
    lags = compare({worker: window.share for worker, window in known.windows.items()})
    known = replace(known, new=frozenset(), lags=(*known.lags, lags)[-COMPARISONS:])
    slow = {worker: known.slow.get(worker, now) for worker in lags if _is_slow(known, worker)}
    return replace(known, slow=slow)


def compare(shares: Mapping[Worker, float]) -> dict[Worker, Lag]:
    """Compare each worker with the median of the others; there are at least two."""
    ordered = sorted(shares.values())
    found = {}
    for worker, share in shares.items():
        middle = _median_without(ordered, bisect_left(ordered, share))
        found[worker] = Lag(share / max(middle, 0.001) - 1, share - middle)
    return found


def _is_slow(known: RoundTimes, worker: Worker) -> bool:
    found = [lags[worker] for lags in known.lags if worker in lags]
    if len(found) < COMPARISONS:
        return False
    if worker in known.slow:
        return median(lag.excess for lag in found) >= EQUAL
    excess = _mean([lag.excess for lag in found])
    costs = _mean([lag.cost for lag in found]) >= LEAST_COST
    return costs and excess >= SLOW and min(lag.excess for lag in found) >= ALWAYS_SLOW


def _median_without(ordered: Sequence[float], left_out: int) -> float:
    others = len(ordered) - 1
    middle = [at + (at >= left_out) for at in ((others - 1) // 2, others // 2)]
    return _mean([ordered[at] for at in middle])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
