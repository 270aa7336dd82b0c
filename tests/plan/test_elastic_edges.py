"""Progress, restarts and speed in the status where the coordinator's report is at an edge."""

from dataclasses import replace

import pytest

from pytorchjob_operator.coordinator_report import LastRestart, Report
from pytorchjob_operator.model import ConditionType, ProgressStatus, RestartStatus
from tests.factories import at, make_job
from tests.plan.test_elastic import FELL, ROUND, SHOWN, STEP, after, running


def progress(step: int, total: int, percent: int, **fields: object) -> ProgressStatus:
    return ProgressStatus(step=step, total=total, percent=percent, time=at(100)).model_copy(update=fields)


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        pytest.param(replace(ROUND, step=2, total=3), progress(2, 3, 66), id="a part of a percent does not count"),
        pytest.param(replace(ROUND, step=995, total=1000), progress(995, 1000, 99), id="not quite all"),
        pytest.param(replace(ROUND, step=5, total=4), progress(5, 4, 100), id="more steps than were planned"),
        pytest.param(
            replace(ROUND, step=1, total=2, metrics={"most": 1e15, "more": 1.1e15}),
            progress(1, 2, 50, metrics={"most": 1e15}),
            id="the largest number",
        ),
    ],
)
def test_the_first_progress(report: Report, expected: ProgressStatus) -> None:
    assert after(running(elastic=SHOWN), report).progress == expected


@pytest.mark.parametrize(
    ("seconds", "step", "total", "remaining"),
    [
        pytest.param(0, 1000, 1000, 0, id="nothing remains"),
        pytest.param(0, 101, 201, 10000, id="a single step has a speed"),
        pytest.param(99, 110, 120, 1, id="a second is enough"),
        pytest.param(0, 100, 120, 9, id="without a new step the speed is unknown"),
        pytest.param(100, 110, 120, 9, id="and so it is without a later time"),
    ],
)
def test_the_remaining_seconds_at_the_speed_since_the_last_status(
    seconds: float, step: int, total: int, remaining: int
) -> None:
    stored = STEP.model_copy(update={"time": at(seconds), "remaining_seconds": 9})
    found = after(running(elastic=SHOWN, progress=stored), replace(ROUND, step=step, total=total)).progress
    assert found is not None
    assert (found.time, found.remaining_seconds) == (at(100), remaining)


@pytest.mark.parametrize("unknown", ["step", "time"])
def test_without_an_earlier_step_or_time_there_is_no_speed(unknown: str) -> None:
    stored = STEP.model_copy(update={"remaining_seconds": 9, unknown: None})
    found = after(running(elastic=SHOWN, progress=stored), replace(ROUND, step=300, total=1000)).progress
    assert found is not None
    assert (found.step, found.remaining_seconds) == (300, None)


@pytest.mark.parametrize(
    ("last", "seconds", "expected"),
    [
        pytest.param(replace(FELL, age=0.0), 97, 93, id="4 s later: the same restart"),
        pytest.param(replace(FELL, age=0.0), 98, 98, id="5 s later: another restart"),
        pytest.param(replace(FELL, age=0.0), 300, 300, id="much later: another restart"),
        pytest.param(replace(FELL, age=6.0, message="another text"), 100, 94, id="another message"),
        pytest.param(replace(FELL, age=6.0, reason="MemberLost"), 100, 94, id="another reason"),
    ],
)
def test_which_restart_is_a_new_one(last: LastRestart, seconds: float, expected: float) -> None:
    first = after(running(), replace(ROUND, restarts=1, last_restart=FELL)).elastic
    again = after(running(elastic=first), replace(ROUND, restarts=2, last_restart=last), seconds=seconds).elastic
    assert again is not None
    assert again.last_restart == RestartStatus(time=at(expected), reason=last.reason, message=last.message)


def test_restarts_of_an_elastic_job_without_a_budget_of_its_own_count_against_backoff_limit() -> None:
    policy = {"minReplicas": 1, "maxReplicas": 1}
    job = make_job(runPolicy={"backoffLimit": 3}, elasticPolicy=policy, status=running(elastic=SHOWN).status)
    assert after(job, replace(ROUND, restarts=3)).holds(ConditionType.FAILED)
