"""The moments at which a worker counts as stuck, one by one: at a limit it does not yet, beyond it it does."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.hang_rules import Comparison, HangRules, LogRule
from pytorchjob_agent.hangs import judge
from pytorchjob_agent.hangs.judge import Activity, RoundObservation, StepPace, WatchedWorker
from pytorchjob_agent.hangs.log_tracker import LogEvidence
from pytorchjob_agent.rendezvous.hang_verdict import HangVerdict
from pytorchjob_agent.stacks.stack_analysis import StackPlace

NOW = 1000.0
STOPPED, QUIET = Activity(500.0, stopped_for=500.0), Activity(quiet_for=500.0)
BLOCKED = StackPlace("data.py:9 next()", blocked=True)
EPOCH = LogRule("epoch", "epoch", start_seconds=60.0, every_seconds=30.0)


def silent(seconds: float, **more: object) -> WatchedWorker:
    worker = WatchedWorker(0, step=5, at=NOW - seconds, pace=0.1, activity=Activity())
    return replace(worker, **more)  # type: ignore[arg-type]


def judged(worker: WatchedWorker, rules: HangRules = HangRules(), **more: object) -> HangVerdict | None:  # noqa: B008
    found = judge.judge_workers(replace(RoundObservation(0.0, (worker,)), **more), rules, NOW)  # type: ignore[arg-type]
    assert found is None or isinstance(found, HangVerdict)
    return found


@pytest.mark.parametrize(
    ("at_limit", "beyond", "rules"),
    [
        pytest.param(silent(10), silent(10.1), HangRules(10.0), id="the author's limit"),
        pytest.param(silent(1200), silent(1200.1), HangRules(), id="the limit of the first step"),
        pytest.param(silent(3, activity=STOPPED), silent(3.1, activity=STOPPED), HangRules(), id="a stopped process"),
        pytest.param(
            silent(60, activity=QUIET, asked=True, place=BLOCKED),
            silent(60.1, activity=QUIET, asked=True, place=BLOCKED),
            HangRules(),
            id="a process that does nothing",
        ),
        pytest.param(
            silent(99, activity=Activity(29.9), asked=True, place=BLOCKED),
            silent(99, activity=Activity(30.0), asked=True, place=BLOCKED),
            HangRules(),
            id="half of that time quiet is enough",
        ),
        pytest.param(
            WatchedWorker(0), WatchedWorker(0), HangRules(None, NOW), id="the first step, by the round's beginning"
        ),
    ],
)
def test_a_worker_is_stuck_beyond_a_limit(at_limit: WatchedWorker, beyond: WatchedWorker, rules: HangRules) -> None:
    assert judged(at_limit, rules) is None
    assert judged(beyond, rules, started=-0.1) is not None


def test_an_idle_worker_is_stuck_beyond_the_limit() -> None:
    rules = HangRules(idle_seconds=300.0)
    assert judged(WatchedWorker(0), rules, idle_for=300.0) is None
    found = judged(WatchedWorker(0), rules, idle_for=300.1)
    assert found is not None
    assert found.idle > 0


@pytest.mark.parametrize(
    ("log", "late"),
    [
        pytest.param(LogEvidence(EPOCH, 950.0, NOW - 30), False, id="the last match just as long ago as it may be"),
        pytest.param(LogEvidence(EPOCH, 950.0, NOW - 30.1), True, id="longer ago"),
    ],
)
def test_a_line_is_missed_beyond_its_limit(log: LogEvidence, late: bool) -> None:
    assert (judged(WatchedWorker(0), logs=(log,)) is not None) is late


@pytest.mark.parametrize(
    ("started", "late"), [pytest.param(NOW - 60, False, id="at the limit"), pytest.param(NOW - 60.1, True, id="beyond")]
)
def test_the_first_line_is_missed_beyond_its_limit(started: float, late: bool) -> None:
    assert (judged(WatchedWorker(0), logs=(LogEvidence(EPOCH),), started=started) is not None) is late


@pytest.mark.parametrize(
    ("points", "words"),
    [pytest.param(1, "lt 80 once, at last", id="once"), pytest.param(2, "lt 80 2 times in a row", id="twice")],
)
def test_bad_numbers_are_counted_in_words(points: int, words: str) -> None:
    rule = LogRule("speed", "(.*)/s", operator=Comparison.LT, value=80.0, points=points)
    found = judged(WatchedWorker(0), logs=(LogEvidence(rule, 1, 2, "79/s", bad=points),))
    assert found is not None
    assert words in found.reason


def test_a_worker_without_activity_does_not_hide_the_next_one() -> None:
    workers = (silent(99, activity=None), silent(99, local_rank=1))
    found = judge.judge_workers(RoundObservation(0.0, workers), HangRules(10.0), NOW)
    assert isinstance(found, HangVerdict)
    assert found.local_ranks == (1,)


@pytest.mark.parametrize(
    ("worker", "stuck"),
    [
        pytest.param(silent(99, step=None, total=1), True, id="no step of one: not done"),
        pytest.param(silent(99, step=5, total=5), False, id="all steps: it may save"),
    ],
)
def test_a_worker_whose_steps_are_done_may_be_silent(worker: WatchedWorker, stuck: bool) -> None:
    assert (judged(worker, HangRules(10.0)) is not None) is stuck


def test_a_worker_that_is_done_has_no_limit_where_the_author_wants_none_for_the_first_step() -> None:
    assert judged(silent(1e6, total=5), HangRules(10.0, 0.0)) is None


def test_the_words_of_a_verdict() -> None:
    found = judged(silent(11), HangRules(10.0))
    assert found is not None
    assert found.reason == "local rank 0: no step after 5 for 11 s (limit 10 s)"


def test_a_step_that_is_reported_twice_counts_once() -> None:
    pace = StepPace()
    for step, at in ((0, 0.0), (5, 5.0), (5, 9.0), (10, 15.0), (11, 16.0)):
        pace.take(step, at)
    assert pace.p99 == 2.0


def test_a_pace_is_known_from_the_first_report_on_whenever_that_was() -> None:
    pace = StepPace()
    pace.take(30, 120.0, first=(10, 100.0))
    assert pace.p99 == 1.0


def test_a_step_that_takes_too_long_is_named_before_a_job_in_which_nothing_moves() -> None:
    found = judged(silent(1300), still_for=130.0)
    assert found is not None
    assert "(limit 1200 s)" in found.reason


def test_the_worker_that_has_been_stopped_for_the_longest_time_is_named() -> None:
    words = "local rank 1: stopped by a signal (SIGSTOP) for 90 s (limit 60 s)"
    found = judged(WatchedWorker(1), stopped={2: 61.0, 1: 90.0, 0: 60.0})
    assert found == HangVerdict(words, (1, 2), 90.0, stopped=True)


@pytest.mark.parametrize(("seconds", "hangs"), [(120.0, False), (120.5, True)])
def test_a_job_in_which_nothing_moves_for_its_limit_still_trains(seconds: float, hangs: bool) -> None:
    words = "no rank has made progress of any kind for 120 s (limit 120 s)"
    expected = HangVerdict(words, idle=seconds)
    assert judged(WatchedWorker(0), still_for=seconds) == (expected if hangs else None)
