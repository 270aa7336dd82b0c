"""The own time of workers in heartbeats, and what the coordinator reports of it."""

from collections.abc import Mapping
from typing import Any

import pytest

from pytorchjob_agent.contract.messages import Heartbeat
from pytorchjob_operator.coordinator_report import SlowRank
from pytorchjob_operator.rounds.summary import summarize
from tests.rounds.story import Job, running

FAST, SLOW = 700, 900


def measures(job: Job, shares: Mapping[int, Any], times: int = 4, first: int = 2) -> None:
    """Each member reports this number of windows, of one worker or of several."""
    for number in range(first, first + times):
        job.now += 4
        for index, given in shares.items():
            own = given if isinstance(given, tuple) else (given,)
            job.says(index, Heartbeat(own_windows=(number,) * len(own), own_shares=own))


def stragglers(job: Job) -> tuple[SlowRank, ...] | None:
    return summarize(job.state, job.now).stragglers


def test_a_slow_rank_is_reported_with_its_pod_and_for_how_long() -> None:
    job = running(3)
    measures(job, {0: FAST, 1: FAST, 2: SLOW})
    job.now += 10
    assert stragglers(job) == (SlowRank(2, "pod-2", 29, 10.0),)


@pytest.mark.parametrize(
    ("places", "named"),
    [
        pytest.param(({"0 a.py:1 f": 900.0}, {"0 a.py:1 f": 700.0}), "", id="all are slower where all work: the node"),
        pytest.param(
            ({"0 a.py:1 f": 900.0, "0 a.py:7 log": 220.0}, {"0 a.py:1 f": 900.0}),
            "a.py:7 log",
            id="only this rank logs",
        ),
        pytest.param(
            ({"0 a.py:1 f": 900.0, "0 a.py:7 log": 30.0}, {"0 a.py:1 f": 700.0}), "", id="what only it does is short"
        ),
        pytest.param(({}, {}), "", id="no rank reports its times"),
        pytest.param(({"x": 5000.0, "": 1.0}, {}), "", id="no place of a worker"),
    ],
)
def test_own_work_of_a_slow_rank_is_told_from_a_slow_node(
    places: tuple[dict[str, float], dict[str, float]], named: str
) -> None:
    job, (slow, fast) = running(3), places
    for number in range(2, 6):
        job.now += 4
        for index in range(3):
            own, at = (SLOW, slow) if index == 2 else (FAST, fast)
            job.says(index, Heartbeat(own_windows=(number,), own_shares=(own,), own_places=at))
    found = stragglers(job)
    assert found is not None
    assert [(one.rank, one.place) for one in found] == [(2, named)]


def test_before_the_ranks_are_compared_often_enough_nothing_is_known() -> None:
    job = running(3)
    measures(job, {0: FAST, 1: FAST, 2: SLOW}, times=3)
    assert stragglers(job) is None
    measures(job, {0: FAST, 1: FAST, 2: FAST}, first=5)
    assert stragglers(job) == ()


def test_a_rank_of_a_pod_with_several_workers_is_found() -> None:
    job = Job(2)
    job.waits(0, 1, nproc=2)
    measures(job, {0: (FAST, FAST), 1: (FAST, SLOW)})
    found = stragglers(job)
    assert found is not None
    assert [(slow.rank, slow.pod) for slow in found] == [(3, "pod-1")]


def test_without_its_times_a_rank_is_unknown() -> None:
    job = running(3)
    for number in range(1, 9):
        job.says(0, Heartbeat(own_windows=(number,), own_shares=(FAST,)))
        job.says(1, Heartbeat(own_windows=(number,), own_shares=(SLOW,)))
        job.says(2, Heartbeat())
    assert stragglers(job) is None


def test_a_new_round_is_measured_from_its_beginning() -> None:
    job = running(3)
    measures(job, {0: FAST, 1: FAST, 2: SLOW})
    job.fails(0)
    assert stragglers(job) is None
    job.joins(0, 1, 2)
    job.passes(5)
    assert job.runs
    assert stragglers(job) is None
    measures(job, {0: FAST, 1: FAST, 2: FAST})
    assert stragglers(job) == ()


def test_a_single_rank_is_no_straggler() -> None:
    job = running(1)
    assert stragglers(job) == ()
    measures(job, {0: SLOW})
    assert stragglers(job) == ()


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"own_windows": (1, 2, 3, 4), "own_shares": (FAST, SLOW, SLOW, SLOW)}, id="too many workers"),
        pytest.param({"own_windows": (5,), "own_shares": ()}, id="no shares"),
        pytest.param({"own_windows": (), "own_shares": (SLOW,)}, id="no windows"),
    ],
)
def test_an_impossible_report_is_ignored(said: dict[str, Any]) -> None:
    job = running(2)
    for _ in range(8):
        job.says(0, Heartbeat(**said))
    assert {worker for worker in job.state.own_times.windows if worker != (0, 0)} == set()


def test_a_report_outside_of_a_round_is_ignored() -> None:
    job = Job(2)
    job.waits(0)
    job.says(0, Heartbeat(own_windows=(1,), own_shares=(SLOW,)))
    assert not job.state.own_times.windows
