"""Stuck or not: all that is known, and what follows from it. `now` is 1000, the round began at 0."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.hang_rules import Comparison, HangRules, LogRule
from pytorchjob_agent.hangs import judge
from pytorchjob_agent.hangs.judge import (
    Activity,
    RoundObservation,
    StackRequest,
    StepPace,
    WatchedWorker,
)
from pytorchjob_agent.hangs.log_tracker import LogEvidence
from pytorchjob_agent.rendezvous.hang_verdict import HangVerdict
from pytorchjob_agent.stacks.stack_analysis import StackPlace

LATE = LogRule("epoch", "epoch", start_seconds=60.0, every_seconds=30.0)
SLOW = LogRule("speed", "(.*)/s", operator=Comparison.LT, value=80.0, points=3)
FAULT = LogRule("xid", "Xid", fault_on_match=True)
NOW = 1000.0
BUSY, QUIET, STOPPED, GONE = (
    Activity(),
    Activity(quiet_for=500.0),
    Activity(500.0, stopped_for=500.0),
    Activity(500.0, gone=True),
)
BLOCKED, IN_C = StackPlace("data.py:9 next()", blocked=True), StackPlace("train.py:42 step()")
IN_COLLECTIVE = StackPlace("train.py:41 step()", "all_reduce")


def silent(seconds: float, **more: object) -> WatchedWorker:
    """A worker that was at step 5 so long ago, and busy since."""
    worker = WatchedWorker(0, step=5, at=NOW - seconds, pace=0.1, activity=BUSY)
    return replace(worker, **more)  # type: ignore[arg-type]


def judged(worker: WatchedWorker, rules: HangRules = HangRules(), **more: object) -> HangVerdict | StackRequest | None:  # noqa: B008
    return judge.judge_workers(replace(RoundObservation(0.0, (worker,)), **more), rules, NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("worker", "rules", "reason"),
    [
        pytest.param(silent(2.9, activity=STOPPED), HangRules(), None, id="stopped for 2.9 s: not yet"),
        pytest.param(silent(3.1, activity=STOPPED), HangRules(), "it is stopped (SIGSTOP)", id="stopped for 3.1 s"),
        pytest.param(silent(30, activity=STOPPED, pace=10.0), HangRules(), None, id="stopped, but its steps are long"),
        pytest.param(silent(51, activity=STOPPED, pace=10.0), HangRules(), "limit 50 s", id="longer than five steps"),
        pytest.param(silent(11, activity=QUIET), HangRules(), None, id="waiting for data for 11 s"),
        pytest.param(
            silent(61, activity=QUIET, asked=True, place=BLOCKED),
            HangRules(),
            "does nothing: it is in data.py:9 next()",
            id="doing nothing for 61 s, and waiting for no other rank",
        ),
        pytest.param(
            silent(61, activity=QUIET, asked=True, place=IN_COLLECTIVE),
            HangRules(),
            None,
            id="waiting for another rank",
        ),
        pytest.param(
            silent(61, activity=QUIET, asked=True, place=IN_C), HangRules(), None, id="in C, maybe for another rank"
        ),
        pytest.param(silent(61, activity=QUIET, asked=True), HangRules(), None, id="no stack: nothing to judge by"),
        pytest.param(silent(61, activity=Activity(20)), HangRules(), None, id="quiet only lately"),
        pytest.param(silent(700), HangRules(), None, id="working for 700 s: evaluating, maybe"),
        pytest.param(silent(1300), HangRules(), "limit 1200 s", id="working for longer than the first step may take"),
        pytest.param(silent(1300), HangRules(None, 0.0), None, id="unless that is off"),
        pytest.param(silent(61, pace=None, activity=STOPPED), HangRules(), None, id="no pace yet"),
        pytest.param(silent(61, total=5, activity=STOPPED), HangRules(), None, id="its last step is done"),
        pytest.param(silent(11), HangRules(10.0), "no step after 5 for 11 s (limit 10 s)", id="the author's limit"),
        pytest.param(silent(9), HangRules(10.0), None, id="within the author's limit"),
        pytest.param(silent(4000, activity=Activity(traced=True)), HangRules(), None, id="in a debugger, for an hour"),
        pytest.param(silent(99), HangRules(0.0), None, id="the author wants no limit"),
        pytest.param(silent(1300), HangRules(0.0), None, id="none at all"),
        pytest.param(silent(99, total=5), HangRules(10.0), None, id="done, within the limit of the first step"),
        pytest.param(silent(1300, total=5), HangRules(10.0), "limit 1200 s", id="done, and not gone"),
        pytest.param(silent(99, activity=GONE), HangRules(10.0), None, id="it has ended: no hang"),
        pytest.param(silent(99, activity=None), HangRules(10.0), None, id="not looked at yet"),
        pytest.param(silent(11, step=None), HangRules(10.0), "no step for 11 s", id="a word, but no step"),
    ],
)
def test_a_silent_worker(worker: WatchedWorker, rules: HangRules, reason: str | None) -> None:
    verdict = judged(worker, rules)
    if reason is None:
        assert verdict is None
    else:
        assert isinstance(verdict, HangVerdict)
        assert verdict.local_ranks == (0,)
        assert verdict.idle > 0
        assert reason in verdict.reason


def test_stacks_are_asked_for_before_a_quiet_worker_is_judged() -> None:
    assert judged(silent(61, activity=QUIET)) == StackRequest((0,), "local rank 0 has done nothing for 61 s")


def test_stacks_of_all_quiet_workers_are_asked_for_at_once() -> None:
    workers = tuple(silent(61, local_rank=rank, activity=QUIET) for rank in range(3))
    look = judge.judge_workers(RoundObservation(0.0, workers), HangRules(), NOW)
    assert isinstance(look, StackRequest)
    assert look.local_ranks == (0, 1, 2)


def test_a_verdict_goes_before_a_question() -> None:
    workers = (silent(61, activity=QUIET), silent(61, local_rank=1, activity=STOPPED))
    verdict = judge.judge_workers(RoundObservation(0.0, workers), HangRules(), NOW)
    assert isinstance(verdict, HangVerdict)
    assert verdict.local_ranks == (1,)


def test_a_worker_that_never_reports_is_not_judged_beside_one_that_does() -> None:
    assert judge.judge_workers(RoundObservation(0.0, (silent(1), WatchedWorker(1))), HangRules(5.0), NOW) is None


@pytest.mark.parametrize(
    ("rules", "reports", "has_rank_0", "stuck"),
    [
        pytest.param(HangRules(), False, True, False, id="a script that may never report"),
        pytest.param(HangRules(None, 900.0), False, True, True, id="the author says that it does"),
        pytest.param(HangRules(None, 1100.0), False, True, False, id="within the author's limit"),
        pytest.param(HangRules(None, 900.0), False, False, False, id="rank 0 is elsewhere"),
        pytest.param(HangRules(), True, True, False, id="it did before, within 20 minutes"),
        pytest.param(HangRules(None, 0.0), True, True, False, id="the author wants no limit"),
    ],
)
def test_the_first_step(rules: HangRules, reports: bool, has_rank_0: bool, stuck: bool) -> None:
    verdict = judged(WatchedWorker(0), rules, reports=reports, has_rank_0=has_rank_0)
    expected = HangVerdict("no first step within 900 s", (0,), 1000.0)
    assert verdict == (expected if stuck else None)


def test_the_first_step_of_a_script_that_reported_in_an_earlier_round() -> None:
    seen = RoundObservation(NOW - 1201, (WatchedWorker(0),), reports=True)
    assert judge.judge_workers(seen, HangRules(), NOW) == HangVerdict("no first step within 1200 s", (0,), 1201.0)


@pytest.mark.parametrize(
    ("rules", "idle", "reports", "stuck"),
    [
        pytest.param(HangRules(), 900.0, False, False, id="not asked for"),
        pytest.param(HangRules(idle_seconds=300.0), 200.0, False, False, id="not idle for that long"),
        pytest.param(HangRules(idle_seconds=300.0), 301.0, False, True, id="idle"),
        pytest.param(HangRules(idle_seconds=300.0), 301.0, True, False, id="a script that reports is judged by that"),
        pytest.param(
            HangRules(idle_seconds=300.0, log_rules=(LATE,)), 301.0, False, False, id="or by the time between its lines"
        ),
        pytest.param(HangRules(idle_seconds=300.0, log_rules=(FAULT, SLOW)), 301.0, False, True, id="other rules"),
    ],
)
def test_idleness(rules: HangRules, idle: float, reports: bool, stuck: bool) -> None:
    verdict = judged(WatchedWorker(0), rules, idle_for=idle, reports=reports, started=900.0)
    assert (verdict is not None) == stuck
    if isinstance(verdict, HangVerdict):
        assert verdict.reason == "no CPU time and no network traffic for 301 s (limit 300 s)"


@pytest.mark.parametrize(
    ("rules", "still", "found"),
    [
        pytest.param(HangRules(), 119.0, None, id="not for two minutes yet"),
        pytest.param(HangRules(), 121.0, "for 121 s (limit 120 s)", id="for two minutes, without any setting"),
        pytest.param(HangRules(), float("inf"), None, id="all have ended"),
        pytest.param(HangRules(idle_seconds=600.0), 599.0, None, id="within the author's limit"),
        pytest.param(HangRules(idle_seconds=600.0), 601.0, "(limit 600 s)", id="beyond it"),
        pytest.param(HangRules(idle_seconds=0.0), 9999.0, None, id="the author wants no limit"),
        pytest.param(HangRules(log_rules=(LATE,)), 9999.0, None, id="the author limits the time between lines"),
        pytest.param(HangRules(log_rules=(FAULT, SLOW)), 121.0, "(limit 120 s)", id="other rules limit no time"),
        pytest.param(HangRules(None, 2000.0), 9999.0, None, id="and a limit for the first step, which is to come"),
        pytest.param(HangRules(2000.0), 121.0, "(limit 120 s)", id="the author's limit for steps needs a first one"),
    ],
)
def test_a_job_in_which_nothing_moves(rules: HangRules, still: float, found: str | None) -> None:
    verdict = judged(WatchedWorker(0), rules, still_for=still)
    assert (verdict is not None) == (found is not None)
    if isinstance(verdict, HangVerdict):
        assert verdict.reason.startswith("no rank has made progress of any kind")
        assert verdict.reason.endswith(found or "?")


def test_the_authors_limit_for_steps_holds_although_nothing_moves() -> None:
    assert judged(silent(500), HangRules(2000.0), still_for=500.0) is None


def test_a_worker_that_reports_and_waits_in_c_is_found_with_all_the_others() -> None:
    verdict = judged(silent(130, activity=QUIET, asked=True, place=IN_C), still_for=130.0)
    assert isinstance(verdict, HangVerdict)


@pytest.mark.parametrize(
    ("worker", "stopped"),
    [
        pytest.param(silent(4, activity=Activity(4, stopped_for=0.5)), True, id="it was looked at late"),
        pytest.param(silent(1300, activity=Activity(4, stopped_for=0.5)), False, id="silent long before"),
        pytest.param(silent(1300), False, id="busy"),
    ],
)
def test_that_a_signal_has_stopped_a_worker_is_the_cause_if_it_is_what_was_noticed(
    worker: WatchedWorker, stopped: bool
) -> None:
    verdict = judged(worker)
    assert isinstance(verdict, HangVerdict)
    assert verdict.stopped == stopped


@pytest.mark.parametrize(
    ("rules", "seconds", "found"),
    [
        pytest.param(HangRules(), 59.0, False, id="for less than a minute"),
        pytest.param(HangRules(), 61.0, True, id="for a minute"),
        pytest.param(HangRules(idle_seconds=600.0), 61.0, False, id="within the author's limit"),
        pytest.param(HangRules(idle_seconds=600.0), 601.0, True, id="beyond it"),
        pytest.param(HangRules(idle_seconds=0.0), 601.0, False, id="the author wants no limit"),
    ],
)
def test_a_stopped_worker_that_reports_nothing(rules: HangRules, seconds: float, found: bool) -> None:
    verdict = judged(WatchedWorker(1), rules, stopped={1: seconds})
    assert (verdict is not None) == found
    if isinstance(verdict, HangVerdict):
        assert verdict.local_ranks == (1,)
        assert "stopped by a signal (SIGSTOP)" in verdict.reason


@pytest.mark.parametrize(
    ("log", "started", "has_rank_0", "verdict"),
    [
        pytest.param(LogEvidence(LATE), 950.0, True, None, id="no match yet, in time"),
        pytest.param(LogEvidence(LATE), 900.0, True, (True, "within 60 s of the start"), id="no match in time"),
        pytest.param(LogEvidence(LATE), 900.0, False, None, id="no match, but others may print instead"),
        pytest.param(LogEvidence(LATE, 910, 980), 900.0, False, None, id="a match 20 s ago"),
        pytest.param(LogEvidence(LATE, 910, 960), 900.0, False, (True, "for 40 s (limit 30 s)"), id="40 s ago"),
        pytest.param(LogEvidence(LATE, 910, 960, over=True), 900.0, True, None, id="40 s ago, but the rule is over"),
        pytest.param(LogEvidence(SLOW, 1, 2, "79/s", bad=2), 0.0, True, None, id="two bad numbers of three"),
        pytest.param(LogEvidence(SLOW, 1, 2, "79/s", bad=3), 0.0, True, (False, "lt 80 3 times in a row"), id="three"),
        pytest.param(LogEvidence(FAULT, 1, 2, "Xid 79"), 0.0, True, None, id="a match that is no fault"),
        pytest.param(LogEvidence(FAULT, 1, 2, "Xid 79", fault=True), 0.0, True, (False, "found: Xid 79"), id="is"),
    ],
)
def test_lines(log: LogEvidence, started: float, has_rank_0: bool, verdict: tuple[bool, str] | None) -> None:
    found = judged(WatchedWorker(0), logs=(log,), started=started, has_rank_0=has_rank_0)
    if verdict is None:
        assert found is None
    else:
        assert isinstance(found, HangVerdict)
        assert (found.idle > 0) is verdict[0]
        assert found.reason.startswith(f"log rule {log.rule.name!r}")
        assert verdict[1] in found.reason


@pytest.mark.parametrize(
    ("worker", "rules", "seconds"),
    [
        pytest.param(silent(0), HangRules(), 1.5, id="half of the automatic limit"),
        pytest.param(silent(0, pace=None), HangRules(), 600.0, id="half of the first step's before there is a pace"),
        pytest.param(silent(0), HangRules(4.0), 2.0, id="half of the author's"),
        pytest.param(silent(0), HangRules(0.0, 0.0), float("inf"), id="never"),
    ],
)
def test_when_a_silent_worker_is_looked_at(worker: WatchedWorker, rules: HangRules, seconds: float) -> None:
    assert judge.attention_after(worker, rules) == seconds


def pace(*steps: tuple[int, float]) -> StepPace:
    found = StepPace()
    for step, at in steps:
        found.take(step, at)
    return found


def test_the_pace_needs_ten_steps() -> None:
    assert pace((0, 0.0), (9, 9.0)).p99 is None
    assert pace((0, 0.0), (10, 10.0)).p99 == 1.0


def test_the_pace_is_that_of_the_slowest_percent() -> None:
    steps = [(step, float(step)) for step in range(100)]
    assert pace(*steps, (100, 150.0)).p99 == 1.0
    assert pace(*steps, (100, 150.0), (101, 200.0)).p99 == 50.0


def test_the_pace_of_long_ago_is_forgotten() -> None:
    slow = [(step, step * 100.0) for step in range(20)]
    fast = [(step, 1900.0 + step - 19) for step in range(20, 240)]
    assert pace(*slow, *fast).p99 == 1.0


def test_the_steps_of_a_worker_that_was_seen_once_count_from_its_first_report() -> None:
    found = StepPace()
    found.take(25, 1.5, (0, 0.0))
    assert found.p99 == 0.06


@pytest.mark.parametrize(
    ("step", "known"),
    [
        pytest.param(109, 7.0, id="nine steps: the pace of the previous round"),
        pytest.param(110, 0.5, id="ten steps: their own"),
    ],
)
def test_the_pace_of_the_previous_round_holds_for_ten_steps(step: int, known: float) -> None:
    found = StepPace(prior=7.0)
    found.take(step, 5.0, (100, 0.0))
    assert found.p99 == known


def test_a_step_back_begins_anew() -> None:
    assert pace(*((step, float(step)) for step in range(12)), (3, 100.0), (4, 101.0)).p99 == 1.0
