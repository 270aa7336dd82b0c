"""The transitions that are counted, from one version of a job to the next; and the phase in a stored status."""

from datetime import timedelta
from typing import Any

import pytest

from pytorchjob_operator.model import Condition, ConditionType, JobStatus
from pytorchjob_operator.plan.lifecycle import Edges, compare, phase
from pytorchjob_operator.plan.outcome import JobPhase
from tests.factories import NOW, at, condition, make_job

KIND = ConditionType
CREATED = condition(KIND.CREATED)
RUNNING, RAN = condition(KIND.RUNNING, seconds=30), condition(KIND.RUNNING, true=False)
RESTARTING = condition(KIND.RESTARTING)
SUCCEEDED, FAILED = condition(KIND.SUCCEEDED), condition(KIND.FAILED)
SUSPENDED, RESUMED = condition(KIND.SUSPENDED), condition(KIND.SUSPENDED, true=False)
MADE = {"meta": {"creationTimestamp": NOW.isoformat()}}
OTHERS = {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}


def status(*conditions: Condition, **fields: Any) -> JobStatus:
    return JobStatus(conditions=conditions, **fields)


def replacing(*uids: str, last: Condition = RESTARTING) -> JobStatus:
    return status(CREATED, last, replacing=uids)


def edges(old: JobStatus, new: JobStatus, **job: Any) -> Edges:
    return compare(make_job(status=old, **job), make_job(status=new, **job))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(status(), status(CREATED), Edges(created=True), id="the first status"),
        pytest.param(status(), status(CREATED, SUSPENDED), Edges(created=True), id="also of one that is suspended"),
        pytest.param(status(CREATED), status(CREATED), Edges(), id="nothing happened"),
        pytest.param(status(CREATED), status(CREATED, RAN, SUSPENDED), Edges(), id="a suspension is not counted"),
        pytest.param(status(CREATED, RUNNING), status(CREATED, RAN, SUCCEEDED), Edges(succeeded=True), id="a good end"),
        pytest.param(status(CREATED, RUNNING), status(CREATED, RAN, FAILED), Edges(failed=True), id="a bad end"),
        pytest.param(
            status(), status(CREATED, FAILED), Edges(created=True, failed=True), id="an end with the first status"
        ),
        pytest.param(status(CREATED, FAILED), status(CREATED, FAILED), Edges(), id="an end counts once"),
        pytest.param(
            status(CREATED, RUNNING),
            replacing("a", "b"),
            Edges(restarted=True, replaced=("a", "b")),
            id="two failed pods, one decision",
        ),
        pytest.param(
            replacing("a"), replacing("a", "b"), Edges(restarted=True, replaced=("b",)), id="a further one, later"
        ),
        pytest.param(replacing("a"), replacing("a"), Edges(), id="a pod that is listed still"),
        pytest.param(replacing("a"), replacing(), Edges(), id="a pod that is gone"),
        pytest.param(
            status(CREATED, RUNNING), status(CREATED, RESTARTING), Edges(restarted=True), id="a pod that was taken away"
        ),
        pytest.param(
            replacing("a", last=RUNNING), status(CREATED, RAN, FAILED), Edges(failed=True), id="the last attempt"
        ),
    ],
)
def test_edges(old: JobStatus, new: JobStatus, expected: Edges) -> None:
    assert edges(old, new) == expected


def test_a_job_of_another_controller_has_none() -> None:
    assert edges(status(), status(CREATED, SUCCEEDED), **OTHERS) == Edges()


@pytest.mark.parametrize(
    ("old", "new", "seconds"),
    [
        pytest.param(status(CREATED), status(CREATED, RUNNING), 30, id="since it was made"),
        pytest.param(
            status(CREATED, RAN, RESUMED, start_time=at(20)),
            status(CREATED, RESUMED, RUNNING, start_time=at(20)),
            10,
            id="since it was resumed",
        ),
        pytest.param(status(CREATED, RESTARTING), status(CREATED, RUNNING), None, id="a restart is no start"),
        pytest.param(
            status(CREATED, RESUMED, RESTARTING, start_time=at(20)),
            status(CREATED, RESUMED, RUNNING, start_time=at(20)),
            None,
            id="nor one after a resume",
        ),
        pytest.param(
            status(CREATED, RESTARTING, RESUMED, start_time=at(20)),
            status(CREATED, RESUMED, RUNNING, start_time=at(20)),
            10,
            id="a job that was suspended while it restarted was resumed",
        ),
        pytest.param(status(CREATED, RUNNING), status(CREATED, RUNNING), None, id="it runs already"),
        pytest.param(
            status(CREATED, RAN, RESUMED, start_time=at(40)),
            status(CREATED, RESUMED, RUNNING, start_time=at(40)),
            0,
            id="clocks that differ make no negative time",
        ),
    ],
)
def test_time_to_running(old: JobStatus, new: JobStatus, seconds: int | None) -> None:
    expected = None if seconds is None else timedelta(seconds=seconds)
    assert edges(old, new, **MADE).started_after == expected


def test_without_its_times_it_is_unknown_when_a_job_started() -> None:
    assert edges(status(CREATED), status(CREATED, RUNNING)).started_after is None
    timeless = RUNNING.model_copy(update={"last_transition_time": None})
    assert edges(status(CREATED), status(CREATED, timeless), **MADE).started_after is None


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        pytest.param(status(), JobPhase.PENDING, id="no status yet"),
        pytest.param(status(CREATED), JobPhase.PENDING, id="created"),
        pytest.param(status(CREATED, RUNNING), JobPhase.RUNNING, id="running"),
        pytest.param(status(CREATED, RESTARTING), JobPhase.RESTARTING, id="restarting"),
        pytest.param(status(CREATED, RAN, SUSPENDED), JobPhase.SUSPENDED, id="suspended"),
        pytest.param(status(CREATED, RAN, RESUMED), JobPhase.PENDING, id="resumed"),
        pytest.param(status(CREATED, RESTARTING, SUCCEEDED), JobPhase.SUCCEEDED, id="an end is stronger than all else"),
        pytest.param(status(CREATED, RAN, FAILED), JobPhase.FAILED, id="failed"),
    ],
)
def test_phase(stored: JobStatus, expected: JobPhase) -> None:
    assert phase(stored) is expected
