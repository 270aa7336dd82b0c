"""What is left of a job that has ended: its pods by cleanPodPolicy, the job itself until its TTL."""

from typing import Any

import pytest

from pytorchjob_operator.model import Condition, ConditionStatus, ConditionType, JobStatus
from pytorchjob_operator.names import ChildKind, Reason
from pytorchjob_operator.observed import Observed, Pod, PodPhase
from pytorchjob_operator.plan import make_plan
from pytorchjob_operator.plan.writes import DeleteChild, DeleteJob, DeletePod, Event, Plan
from tests.factories import JOB_UID, at, condition, make_job, make_pod, observed, written

STATES = {
    "master-0": PodPhase.SUCCEEDED,
    "worker-0": PodPhase.RUNNING,
    "worker-1": PodPhase.PENDING,
    "worker-2": PodPhase.FAILED,
    "worker-3": PodPhase.UNKNOWN,
}
ONE_OF_EACH = tuple(make_pod(who, phase) for who, phase in STATES.items())
ALIVE = ["-x-worker-0", "-x-worker-1", "-x-worker-3"]
ALL = [f"-x-{who}" for who in STATES]


def seen(
    *there: Pod, end: str = "Succeeded", seconds: float = 60, completed: float | None = 50, **policy: Any
) -> Observed:
    """A job that started at 0 s and ended at 50 s."""
    status = JobStatus(
        conditions=(condition(ConditionType.CREATED), condition(ConditionType(end), seconds=50)),
        start_time=at(0),
        completion_time=None if completed is None else at(completed),
    )
    return observed(make_job(workers=4, status=status, runPolicy=policy), *there, seconds=seconds)


@pytest.mark.parametrize(
    ("end", "policy", "expected"),
    [
        pytest.param("Succeeded", {}, [], id="unset is None: everything stays"),
        pytest.param("Failed", {"cleanPodPolicy": "None"}, [], id="None: everything stays, also after a failure"),
        pytest.param("Succeeded", {"cleanPodPolicy": "Running"}, ALIVE, id="Running: what has not ended goes"),
        pytest.param("Failed", {"cleanPodPolicy": "All"}, [*ALL, "-Service"], id="All: everything goes"),
        pytest.param("Failed", {"activeDeadlineSeconds": 50}, ALIVE, id="the deadline stops what runs, None or not"),
        pytest.param("Failed", {"activeDeadlineSeconds": 51}, [], id="it failed before its deadline: None is None"),
        pytest.param("Succeeded", {"activeDeadlineSeconds": 50}, [], id="it succeeded: None is None"),
        pytest.param("Failed", {"activeDeadlineSeconds": 2**53 - 1}, [], id="a deadline beyond the calendar"),
        pytest.param("Failed", {"suspend": True}, [], id="a job that has ended is not suspended"),
    ],
)
def test_clean_up(end: str, policy: dict[str, Any], expected: list[str]) -> None:
    plan = make_plan(seen(*ONE_OF_EACH, end=end, **policy))
    assert written(plan) == expected
    assert (plan.status, plan.wake_at) == (None, None)


def test_it_deletes_what_it_saw() -> None:
    plan = make_plan(seen(make_pod("worker-0", uid="this one"), cleanPodPolicy="All"))
    reason = "cleanPodPolicy is All"
    assert plan.writes == (
        DeletePod("x-worker-0", "this one", reason),
        DeleteChild(ChildKind.SERVICE, "x", "uid-service"),
    )


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_once_it_is_clean_nothing_is_sent(policy: str) -> None:
    leaving = make_pod("worker-0", deleting=True)
    job = seen(cleanPodPolicy=policy).job
    assert make_plan(observed(job, leaving, service=False)) == Plan(reason="the job has succeeded: nothing to do")


def test_the_reason_says_why_it_cleans() -> None:
    assert make_plan(seen(*ONE_OF_EACH, end="Failed", cleanPodPolicy="Running")).reason == (
        "the job has failed: 3 children to delete"
    )


@pytest.mark.parametrize(
    ("ttl", "seconds", "expired", "wake_at"),
    [
        pytest.param(None, 10**9, False, None, id="no TTL: it is kept"),
        pytest.param(30, 79.9, False, 80, id="not yet: it is woken in time"),
        pytest.param(30, 80, True, None, id="over, to the second"),
        pytest.param(0, 50, True, None, id="a TTL of 0 is over at once"),
    ],
)
@pytest.mark.parametrize("completed", [pytest.param(50, id="completed"), pytest.param(None, id="v1 wrote no time")])
def test_ttl(ttl: int | None, seconds: float, expired: bool, wake_at: float | None, completed: float | None) -> None:
    policy = {} if ttl is None else {"ttlSecondsAfterFinished": ttl}
    plan = make_plan(seen(end="Failed", seconds=seconds, completed=completed, **policy))
    assert plan.writes == ((DeleteJob("x", JOB_UID),) if expired else ())
    assert plan.wake_at == (None if wake_at is None else at(wake_at))


def test_the_deletion_of_the_job_is_told_in_v1s_words() -> None:
    assert make_plan(seen(ttlSecondsAfterFinished=0)).events == (Event(Reason.DELETED_POD, "Deleted job: x"),)


def test_a_ttl_is_waited_for_while_the_pods_are_cleaned_up() -> None:
    plan = make_plan(seen(*ONE_OF_EACH, cleanPodPolicy="Running", ttlSecondsAfterFinished=30))
    assert (written(plan), plan.wake_at) == (ALIVE, at(80))


def test_an_end_of_no_known_time_never_expires() -> None:
    status = JobStatus(conditions=(Condition(type=ConditionType.FAILED, status=ConditionStatus.TRUE),))
    job = make_job(status=status, runPolicy={"ttlSecondsAfterFinished": 0})
    assert make_plan(observed(job)).empty


def test_a_job_whose_ttl_has_passed_says_so() -> None:
    assert make_plan(seen(ttlSecondsAfterFinished=0)).reason == "the job has succeeded and its TTL has passed"


def test_the_ttl_counts_from_the_end_and_not_from_a_later_condition() -> None:
    later = condition(ConditionType.CONFIG_VALID, true=False, seconds=70)
    status = JobStatus(conditions=(condition(ConditionType.FAILED, seconds=50), later))
    job = make_job(status=status, runPolicy={"ttlSecondsAfterFinished": 30})
    assert make_plan(observed(job, seconds=60)).wake_at == at(80)


def test_a_pod_that_its_deadline_stops_is_deleted_for_that() -> None:
    plan = make_plan(seen(make_pod("worker-0"), end="Failed", activeDeadlineSeconds=50))
    assert plan.writes == (DeletePod("x-worker-0", "uid-worker-0", "the job exceeded its deadline"),)


def test_a_job_that_failed_at_no_known_time_did_not_exceed_its_deadline() -> None:
    assert make_plan(seen(*ONE_OF_EACH, end="Failed", completed=None, activeDeadlineSeconds=50)).writes == ()
