"""For how long a worker has been still. Time is simulated, with a reading every five seconds."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import cycle

import pytest

from pytorchjob_agent.hangs.activity import TreeReading
from pytorchjob_agent.hangs.stillness import Pauses, StillnessTracker
from pytorchjob_agent.stacks.stack_analysis import StackPlace

START = TreeReading(main=7, processes=frozenset({(7, 1)}), states=frozenset("S"), traffic={}, main_traffic={})
Readings = Callable[[int], TreeReading]
"""The reading at a second."""


def stack(*frames: str, collective: str | None = None, external: bool = False) -> StackPlace:
    """A stack; each frame is `file:line name`."""
    parts = tuple((*frame.split()[0].split(":"), frame.split()[1]) for frame in frames)
    return StackPlace(frames[0], collective, external=external, frames=parts)  # type: ignore[arg-type]


SLEEPS = stack("train.py:9 main")
REDUCES = stack("distributed_c10d.py:2810 all_reduce", "train.py:12 step", collective="all_reduce")
POLLS = [stack(f"train.py:{line} main", collective="is_completed") for line in (20, 21)]
COMPUTES = stack("train.py:30 evaluate")
RECEIVES = stack("/usr/lib/python3.11/socket.py:706 readinto", "train.py:40 load", external=True)
BACKWARD = stack("torch/autograd/graph.py:769 _engine_run_backward", "train.py:14 step", collective="backward")


def rests(_: int) -> TreeReading:
    return START


def spins(second: int) -> TreeReading:
    return replace(START, main_cpu=float(second), cpu=float(second))


def polls(second: int) -> TreeReading:
    """It sleeps for a second, again and again."""
    return replace(START, main_cpu=second * 0.0001, cpu=second * 0.0001, switches=second)


def is_stopped(_: int) -> TreeReading:
    return replace(START, states=frozenset("T"))


def is_traced(_: int) -> TreeReading:
    return replace(START, states=frozenset("t"), traced=True)


def ended(_: int) -> TreeReading:
    return TreeReading()


def every(seconds: int, **step: float) -> Readings:
    """Counters that grow once in so many seconds."""

    def read(second: int) -> TreeReading:
        return replace(START, **{name: second // seconds * amount for name, amount in step.items()})  # type: ignore[arg-type]

    return read


def until(second: int, first: Readings, then: Readings) -> Readings:
    return lambda now: first(now) if now < second else then(now)


def still(
    reads: Readings, places: Iterable[StackPlace | None], seconds: int, pauses: Pauses
) -> Iterator[tuple[int, float]]:
    """Each second with a reading, and for how long the worker counts as still then."""
    tracker, answers, asked = StillnessTracker(pauses), iter(places), False
    for now in range(0, seconds + 1, 5):
        tracker.take(reads(now), float(now), 100 if asked else None)
        place = next(answers, None) if asked else None
        if place is not None:
            tracker.see(place, float(now))
        asked = tracker.needs_stack(float(now))
        yield now, tracker.still_for(float(now))


def longest(reads: Readings, *places: StackPlace, seconds: int = 600) -> float:
    return max(found for _, found in still(reads, cycle(places), seconds, Pauses()))


@pytest.mark.parametrize(
    ("reads", "places"),
    [
        pytest.param(rests, [SLEEPS], id="it sleeps"),
        pytest.param(polls, [SLEEPS], id="it sleeps in a loop"),
        pytest.param(rests, [REDUCES], id="it waits in a collective"),
        pytest.param(rests, [BACKWARD], id="it waits for the collective of a backward pass"),
        pytest.param(spins, [REDUCES], id="it spins in a collective"),
        pytest.param(spins, POLLS, id="it polls a collective, in a loop of two lines"),
        pytest.param(lambda now: spins(now // 20 * 20), POLLS, id="it polls a collective, on a machine that is busy"),
        pytest.param(is_stopped, [], id="it is stopped"),
        pytest.param(until(300, spins, is_stopped), [COMPUTES], id="it computes, and is stopped"),
        pytest.param(until(300, every(20, main_bytes=10.0), rests), [SLEEPS], id="it trains, and sleeps"),
    ],
)
def test_still(reads: Readings, places: list[StackPlace]) -> None:
    found = dict(still(reads, cycle(places), 600, Pauses()))
    begin = 300 if found[300] == 0.0 else 0
    first = next(second for second, seconds in found.items() if seconds > 120)
    assert first - begin <= 140, "two minutes, and two readings"


@pytest.mark.parametrize(
    ("reads", "places"),
    [
        pytest.param(spins, [COMPUTES], id="it computes"),
        pytest.param(spins, [BACKWARD], id="it computes a long backward pass"),
        pytest.param(spins, [REDUCES, COMPUTES], id="it computes between collectives"),
        pytest.param(rests, [SLEEPS, COMPUTES], id="its stack changes"),
        pytest.param(rests, [RECEIVES], id="it waits for the network"),
        pytest.param(rests, [], id="it gives no stack: no Python, or one that the agent does not know"),
        pytest.param(is_traced, [SLEEPS], id="a debugger is attached"),
        pytest.param(every(60, main_bytes=20.0), [SLEEPS], id="it prints a line a minute"),
        pytest.param(every(60, main_cpu=0.001, cpu=0.001), [SLEEPS], id="it does a small step a minute"),
        pytest.param(every(3, main_cpu=0.001, cpu=0.001, switches=1), [SLEEPS], id="every three seconds"),
        pytest.param(every(30, bytes=1e6), [REDUCES], id="a child reads now and then"),
        pytest.param(every(60, cpu=3.0), [REDUCES], id="a child computes now and then"),
    ],
)
def test_not_still_for_an_hour(reads: Readings, places: list[StackPlace]) -> None:
    assert longest(reads, *places, seconds=3600) <= 120


def test_a_worker_that_has_ended_holds_nobody_up() -> None:
    assert longest(ended) == float("inf")


@pytest.mark.parametrize(
    ("then", "known"),
    [
        pytest.param(rests, SLEEPS, id="nothing has happened since"),
        pytest.param(lambda _: replace(START, main_bytes=9.0), None, id="it printed a line since"),
        pytest.param(is_stopped, None, id="it was stopped: it gives no stack"),
    ],
)
def test_where_a_worker_is_that_does_not_answer_in_time(then: Readings, known: StackPlace | None) -> None:
    tracker = StillnessTracker(Pauses())
    for now in (0.0, 10.0):
        tracker.take(START, now)
    assert tracker.last_place() is None
    tracker.see(SLEEPS, 10.0)
    tracker.take(then(20), 20.0)
    assert tracker.last_place() == known


def test_a_single_stack_proves_nothing() -> None:
    found = dict(still(rests, [SLEEPS], 600, Pauses()))
    assert max(found.values()) == 0


def test_the_time_in_which_the_agent_itself_was_frozen_does_not_count() -> None:
    tracker = StillnessTracker(Pauses())
    for now in (0.0, 10.0, 900.0):
        tracker.take(is_stopped(0), now)
    assert tracker.suspect_for(900.0) == 30
    assert tracker.activity(900.0).stopped_for == 30
    assert tracker.activity(900.0).quiet_for == 30


def test_a_worker_that_computes_is_seldom_asked_for_its_stack() -> None:
    asked = []
    tracker = StillnessTracker(Pauses())
    for now in range(0, 3600, 5):
        tracker.take(spins(now), float(now))
        if tracker.needs_stack(float(now)):
            asked.append(now)
            tracker.see(COMPUTES, float(now))
    assert len(asked) <= 60, "once a minute"


def test_a_worker_that_waits_for_an_hour_is_seldom_asked_for_its_stack() -> None:
    tracker, asked = StillnessTracker(Pauses()), 0
    for now in range(0, 3600, 5):
        tracker.take(START, float(now))
        if tracker.needs_stack(float(now)):
            asked += 1
            tracker.see(REDUCES, float(now))
    assert asked <= 75


def test_the_pauses_follow_from_the_limit() -> None:
    tracker_of = dict(still(rests, cycle([SLEEPS]), 60, Pauses(24.0)))
    assert max(tracker_of.values()) >= 24
    short = Pauses(24.0)
    assert (short.calm, short.close, short.suspect, short.again) == (2.0, 1.0, 6.0, 3.0)


@pytest.mark.parametrize(
    ("reads", "collectives", "seconds"),
    [
        pytest.param(spins, lambda _: 5, 595, id="it spins, as one does that waits for a GPU"),
        pytest.param(every(5, cpu=4.0), lambda _: 5, 595, id="another thread of it spins"),
        pytest.param(spins, lambda now: now // 60, 55, id="it begins a collective a minute"),
        pytest.param(spins, lambda _: 0, 0, id="nothing is known of its collectives"),
        pytest.param(every(60, main_bytes=20.0), lambda _: 5, 55, id="it prints a line a minute"),
        pytest.param(every(60, bytes=1e6), lambda _: 5, 55, id="a child reads now and then"),
        pytest.param(is_traced, lambda _: 5, 0, id="a debugger is attached"),
    ],
)
def test_for_how_long_a_rank_shows_no_sign_but_cpu_time(
    reads: Readings, collectives: Callable[[int], int], seconds: float
) -> None:
    tracker, longest = StillnessTracker(Pauses()), 0.0
    for now in range(0, 600, 5):
        tracker.move((0, collectives(now)), float(now))
        tracker.take(reads(now), float(now))
        longest = max(longest, tracker.unmoved_for(float(now)))
    assert longest == seconds
