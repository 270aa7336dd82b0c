"""Suspended and resumed: v1's conditions, times and events, and no pod of the life before that means a failure."""

from typing import Any

import pytest

from pytorchjob_operator.model import ConditionType, JobStatus
from pytorchjob_operator.names import ChildKind, Reason
from pytorchjob_operator.observed import Pod, PodPhase
from pytorchjob_operator.plan import make_plan
from pytorchjob_operator.plan.writes import DeleteChild, DeletePod, Plan
from tests.factories import at, condition, make_job, make_pod, observed, pods, written
from tests.plan.model_cluster import ModelCluster

CREATED = "Created=True PyTorchJobCreated"
RUNNING = "Running=True PyTorchJobRunning"
STOPPED = "Running=False PyTorchJobSuspended"
SUSPENDED = "Suspended=True PyTorchJobSuspended"
RESUMED = "Suspended=False PyTorchJobResumed"
NO_LONGER_RESTARTING = "Restarting=False PyTorchJobSuspended"
HELD = {"runPolicy": {"suspend": True}}
IS_SUSPENDED = JobStatus(conditions=(condition(ConditionType.SUSPENDED),), start_time=at(0))
WAS_SUSPENDED = JobStatus(
    conditions=(condition(ConditionType.SUSPENDED, true=False, reason=Reason.RESUMED),), start_time=at(100)
)


def lived(steps: str, **case: Any) -> ModelCluster:
    """A job that goes through these steps, five seconds apart."""
    cluster = ModelCluster(make_job(**case))
    for step in steps.split():
        take(cluster, step)
        cluster.now += 5
    return cluster


def take(cluster: ModelCluster, step: str) -> None:
    """One of the operator (`pass`, or `crash` before it writes the status), the user, the kubelet, or all of them."""
    if step in ("suspend", "resume"):
        cluster.suspend(step == "suspend")
    elif step == "settle":
        cluster.settle()
    elif step == "kubelet":
        cluster.kubelet()
    elif step == "drain":
        cluster.delete("x-worker-0")
    else:
        cluster.see()
        cluster.reconcile(None if step == "pass" else len(cluster.plan().writes))


@pytest.mark.parametrize(
    ("case", "steps", "expected"),
    [
        pytest.param(HELD, "settle", [CREATED, SUSPENDED], id="made suspended"),
        pytest.param({}, "settle suspend settle", [CREATED, STOPPED, SUSPENDED], id="suspended while it runs"),
        pytest.param({}, "pass pass suspend settle", [CREATED, SUSPENDED], id="suspended before it runs"),
        pytest.param(
            {},
            "settle drain pass suspend settle",
            [CREATED, NO_LONGER_RESTARTING, SUSPENDED],
            id="suspended while it restarts",
        ),
        pytest.param(
            {}, "settle suspend settle resume pass pass", [CREATED, STOPPED, RESUMED], id="resumed, and not running yet"
        ),
        pytest.param({}, "settle suspend settle resume settle", [CREATED, RESUMED, RUNNING], id="resumed, and running"),
        pytest.param(HELD, "settle resume settle", [CREATED, RESUMED, RUNNING], id="made suspended, then resumed"),
        pytest.param(
            {},
            "settle suspend settle resume settle suspend settle",
            [CREATED, STOPPED, SUSPENDED],
            id="suspended for the second time",
        ),
        pytest.param(
            {"restart": "Never"},
            "settle suspend pass pass resume pass pass pass settle",
            [CREATED, RESUMED, RUNNING],
            id="Never: resumed while the old pods still terminate",
        ),
        pytest.param(
            {"restart": "Never"},
            "settle suspend pass resume settle",
            [CREATED, RESUMED, RUNNING],
            id="Never: resumed before a pod was told to go",
        ),
        pytest.param(
            {"restart": "Never"},
            "settle suspend crash resume settle",
            [CREATED, RUNNING],
            id="Never: the operator died before it wrote that the job is suspended",
        ),
        pytest.param({}, "settle suspend resume settle", [CREATED, RUNNING], id="resumed before anybody looked"),
    ],
)
def test_conditions(case: dict[str, Any], steps: str, expected: list[str]) -> None:
    assert lived(steps, **case).conditions() == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param("settle suspend settle pass pass", [Reason.SUSPENDED], id="suspended is told once"),
        pytest.param(
            "settle suspend settle resume settle pass", [Reason.SUSPENDED, Reason.RESUMED], id="resumed is told once"
        ),
        pytest.param("settle suspend resume settle", [], id="what nobody saw is not told"),
    ],
)
def test_events(steps: str, expected: list[Reason]) -> None:
    events = [event for event in lived(steps).events if event.reason in (Reason.SUSPENDED, Reason.RESUMED)]
    assert [event.reason for event in events] == expected
    assert {event.message for event in events} <= {"PyTorchJob x is suspended.", "PyTorchJob x is resumed."}


@pytest.mark.parametrize(
    ("case", "steps", "started"),
    [
        pytest.param(HELD, "settle", None, id="made suspended: not started"),
        pytest.param({}, "pass suspend settle", 0, id="suspended: as it was"),
        pytest.param(HELD, "pass resume pass", 10, id="made suspended and resumed: then"),
        pytest.param({}, "pass suspend pass pass resume pass pass", 25, id="resumed: set anew, once"),
    ],
)
def test_start_time(case: dict[str, Any], steps: str, started: float | None) -> None:
    assert lived(steps, **case).job.status.start_time == (None if started is None else at(started))


def plan(*seen: Pod, suspend: bool, status: JobStatus, service: bool = True, **case: Any) -> Plan:
    """The plan for a job a minute after it was resumed, or long before."""
    job = make_job(status=status, runPolicy={"suspend": suspend}, **case)
    return make_plan(observed(job, *seen, service=service, seconds=160))


@pytest.mark.parametrize(
    ("seen", "suspend", "status", "expected"),
    [
        pytest.param(pods("Running", "Pending"), True, JobStatus(), [], id="the status comes first"),
        pytest.param(
            pods("Running", "Succeeded"),
            True,
            IS_SUSPENDED,
            ["-x-master-0", "-x-worker-0", "-Service"],
            id="then everything goes, what has ended too",
        ),
        pytest.param(
            (*pods("Running"), make_pod("worker-0", deleting=True)),
            True,
            IS_SUSPENDED,
            ["-x-master-0", "-Service"],
            id="what goes is not deleted again",
        ),
        pytest.param(pods("Running"), False, IS_SUSPENDED, ["-x-master-0", "-Service"], id="resumed: first it goes"),
    ],
)
def test_writes(seen: tuple[Pod, ...], suspend: bool, status: JobStatus, expected: list[str]) -> None:
    assert written(plan(*seen, suspend=suspend, status=status)) == expected


def test_only_this_pod_and_this_child_are_deleted() -> None:
    assert plan(*pods("Running"), suspend=True, status=IS_SUSPENDED).writes == (
        DeletePod("x-master-0", "uid-master-0", "the job is suspended"),
        DeleteChild(ChildKind.SERVICE, "x", "uid-service"),
    )


def test_a_resumed_job_says_so_before_it_makes_a_pod() -> None:
    first = plan(suspend=False, status=IS_SUSPENDED, service=False)
    assert first.writes == ()
    assert first.status is not None
    then = plan(suspend=False, status=first.status, service=False)
    assert written(then) == ["+Service", "+x-master-0", "+x-worker-0"]


def test_active_is_zero_at_once() -> None:
    status = plan(*pods("Running", "Running"), suspend=True, status=JobStatus()).status
    assert status is not None
    assert status.replica_statuses is not None
    shown = [status.replica_statuses.master, status.replica_statuses.worker]
    assert [role and role.active for role in shown] == [0, 0]


@pytest.mark.parametrize(
    ("status", "made_at", "failed"),
    [
        pytest.param(WAS_SUSPENDED, 50, False, id="made before the resume: it was told to go"),
        pytest.param(WAS_SUSPENDED, 100, True, id="made with the resume: it is lost"),
        pytest.param(JobStatus(start_time=at(100)), 50, True, id="no suspension: lost, however the clocks differ"),
    ],
)
def test_a_pod_that_goes_under_never(status: JobStatus, made_at: float, failed: bool) -> None:
    worker = make_pod("worker-0", deleting=True, created_at=at(made_at))
    found = plan(*pods("Running"), worker, suspend=False, status=status, restart="Never")
    assert (found.status is not None and found.status.holds(ConditionType.FAILED)) is failed
    assert found.writes == ()


def test_a_failed_pod_does_not_count_while_the_job_is_suspended() -> None:
    status = plan(*pods("Running", PodPhase.FAILED), suspend=True, status=JobStatus()).status
    assert status is not None
    assert (status.restarts, status.replacing) == (None, None)
