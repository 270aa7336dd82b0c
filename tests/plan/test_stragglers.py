"""Slow ranks in the status and in events."""

from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_operator.coordinator_report import PhaseName, Report, SlowRank
from pytorchjob_operator.model import StragglerStatus
from pytorchjob_operator.plan import Plan, make_plan
from pytorchjob_operator.plan.stragglers import events
from tests.factories import NOW, at, make_job, make_pod, observed

SLOW = SlowRank(1, "x-worker-0", 25, 10.0)
SHOWN = StragglerStatus(rank=1, pod="x-worker-0", node="n1", percent=25, since=at(90))
REPORT = Report(round="1.1", phase=PhaseName.RUNNING, members=2, world=2)


def plan(shown: tuple[StragglerStatus, ...] | None, report: Report | None, **case: Any) -> Plan:
    """The plan of a running job with this status, 100 s after its start."""
    pods = (make_pod("master-0", node="n0"), make_pod("worker-0", node="n1"))
    first = make_plan(observed(make_job(**case), *pods))
    assert first.status is not None
    job = make_job(**case).model_copy(update={"status": first.status.model_copy(update={"stragglers": shown})})
    found = observed(job, *pods, seconds=100)
    return make_plan(replace(found, report=report, status_due=found.now))


def named(report: Report | None, shown: tuple[StragglerStatus, ...] | None = None) -> tuple[StragglerStatus, ...]:
    found = plan(shown, report).status
    return (shown if found is None else found.stragglers) or ()


@pytest.mark.parametrize(
    ("slow", "shown", "expected"),
    [
        pytest.param((SLOW,), None, (SHOWN,), id="a new one"),
        pytest.param((), None, (), id="none"),
        pytest.param(None, (SHOWN,), (SHOWN,), id="a round that is not measured yet"),
        pytest.param((), (SHOWN,), (), id="a rank that is fast again"),
        pytest.param((replace(SLOW, percent=34, age=1.0),), (SHOWN,), (SHOWN,), id="a small change"),
        pytest.param(
            (replace(SLOW, rank=0, pod="x-master-0"),),
            (SHOWN,),
            (SHOWN.model_copy(update={"rank": 0, "pod": "x-master-0", "node": "n0"}),),
            id="another pod",
        ),
        pytest.param((replace(SLOW, percent=-3),), None, (SHOWN.model_copy(update={"percent": 0}),), id="no percent"),
        pytest.param(
            (replace(SLOW, pod="x-gone-0"),),
            None,
            (SHOWN.model_copy(update={"pod": "x-gone-0", "node": ""}),),
            id="a pod that is not seen",
        ),
    ],
)
def test_the_status_names_slow_ranks_with_their_nodes(
    slow: tuple[SlowRank, ...] | None,
    shown: tuple[StragglerStatus, ...] | None,
    expected: tuple[StragglerStatus, ...],
) -> None:
    assert named(replace(REPORT, stragglers=slow), shown) == expected


def test_a_larger_change_is_written() -> None:
    report = replace(REPORT, stragglers=(replace(SLOW, percent=60),))
    assert named(report, (SHOWN,)) == (SHOWN.model_copy(update={"percent": 60}),)


def test_without_a_report_the_status_stays() -> None:
    assert named(None, (SHOWN,)) == (SHOWN,)


def test_a_suspended_job_has_no_stragglers() -> None:
    found = plan((SHOWN,), replace(REPORT, stragglers=(SLOW,)), runPolicy={"suspend": True})
    assert found.status is not None
    assert found.status.stragglers is None


def told(shown: tuple[StragglerStatus, ...] | None, *slow: SlowRank) -> list[tuple[str, str]]:
    found = plan(shown, replace(REPORT, stragglers=slow))
    return [(event.reason, event.message) for event in found.events if event.reason.startswith("Straggler")]


def test_a_new_straggler_is_an_event_with_its_node() -> None:
    (event,) = told(None, SLOW)
    assert event[0] == "StragglerFound"
    assert event[1].startswith("Rank 1 (x-worker-0 on node n1) needs 25 % more time outside collectives")


def test_the_advice_is_about_the_script_where_only_this_rank_works() -> None:
    (node,), (script,) = told(None, SLOW), told(None, replace(SLOW, place="train.py:9 log"))
    assert ("train.py:9 log" in script[1], script[1] == node[1]) == (True, False)


def test_the_ranks_of_a_pod_are_a_single_event() -> None:
    (event,) = told(None, SLOW, replace(SLOW, rank=2, percent=30))
    assert event[1].startswith("Ranks 1, 2 (x-worker-0 on node n1) need 30 % more time")


def test_a_straggler_that_is_known_is_no_event() -> None:
    assert told((SHOWN,), SLOW) == []


def test_a_rank_that_is_fast_again_is_an_event() -> None:
    assert told((SHOWN,)) == [("StragglerRecovered", "Pod x-worker-0 is no longer slower than the others.")]


def test_the_end_of_a_job_recovers_no_rank() -> None:
    job = make_job().model_copy(update={"status": make_job().status.model_copy(update={"stragglers": (SHOWN,)})})
    ended = job.status.model_copy(update={"stragglers": None, "completion_time": NOW})
    assert [*events(job, ended)] == []
