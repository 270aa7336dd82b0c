"""What `kubectl describe` shows: one event per change, not one per pod."""

from typing import Any

import pytest

from pytorchjob_operator.model import ConditionType, JobStatus
from pytorchjob_operator.names import EventType, Reason
from pytorchjob_operator.observed import Pod, PodPhase
from pytorchjob_operator.plan import make_plan
from pytorchjob_operator.plan.events import build_events
from pytorchjob_operator.plan.outcome import JobPhase, Outcome
from pytorchjob_operator.plan.writes import Event
from tests.factories import condition, make_job, make_pod, make_template, observed, pods

RUN, DONE, BAD = PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED
SUSPENDED = JobStatus(conditions=(condition(ConditionType.SUSPENDED),))
RUNNING = JobStatus(conditions=(condition(ConditionType.CREATED), condition(ConditionType.RUNNING)))
COUNTED = JobStatus(conditions=(condition(ConditionType.RESTARTING),), restarts=1, replacing=("uid-worker-0",))
WARNING = EventType.WARNING


@pytest.mark.parametrize(
    ("case", "seen", "expected"),
    [
        pytest.param(
            {}, (), [Event(Reason.CREATED_POD, "Created 2 pods: x-master-0, x-worker-0")], id="one event for all pods"
        ),
        pytest.param(
            {}, pods(RUN), [Event(Reason.CREATED_POD, "Created pod: x-worker-0")], id="one pod is named alone"
        ),
        pytest.param(
            {"workers": 9, "master": None},
            (),
            [Event(Reason.CREATED_POD, "Created 9 pods: " + "".join(f"x-worker-{n}, " for n in range(8)) + "...")],
            id="a long list is cut",
        ),
        pytest.param(
            {"workers": 8, "master": None},
            (),
            [Event(Reason.CREATED_POD, "Created 8 pods: " + ", ".join(f"x-worker-{n}" for n in range(8)))],
            id="eight pods are all named",
        ),
        pytest.param(
            {"status": RUNNING},
            pods(RUN, RUN, RUN),
            [Event(Reason.DELETED_POD, "Deleted pod: x-worker-1: the job was scaled down")],
            id="scaled down",
        ),
        pytest.param(
            {"status": RUNNING},
            pods(RUN, BAD),
            [
                Event(Reason.RESTARTING, "job x is restarting because Worker replica(s) failed.", WARNING),
            ],
            id="a failed pod is told of when it is counted",
        ),
        pytest.param(
            {"status": COUNTED},
            pods(RUN, BAD),
            [Event(Reason.DELETED_POD, "Deleted pod: x-worker-0: x-worker-0 failed and restartPolicy is OnFailure")],
            id="and once more when it goes",
        ),
        pytest.param(
            {"status": RUNNING},
            pods(DONE, DONE),
            [Event(Reason.SUCCEEDED, "PyTorchJob x is successfully completed.")],
            id="the end",
        ),
        pytest.param(
            {"status": RUNNING, "restart": "Never"},
            pods(RUN, BAD),
            [Event(Reason.FAILED, "PyTorchJob x is failed because 1 Worker replica(s) failed.", WARNING)],
            id="the bad end",
        ),
        pytest.param(
            {"status": JobStatus(conditions=(condition(ConditionType.RESTARTING),))},
            (*pods(RUN), make_pod("worker-0", deleting=True)),
            [],
            id="a restart that was told is not told again",
        ),
    ],
)
def test_events(case: dict[str, Any], seen: tuple[Pod, ...], expected: list[Event]) -> None:
    assert list(make_plan(observed(make_job(**case), *seen)).events) == expected


def waits(reason: str) -> JobStatus:
    return JobStatus(conditions=(condition(ConditionType.WAITING, reason=reason),))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(
            JobStatus(), waits("PodGroupPending"), [(Reason.POD_GROUP_PENDING, EventType.NORMAL)], id="it is queued"
        ),
        pytest.param(
            JobStatus(),
            waits("PodGroupUnschedulable"),
            [(Reason.POD_GROUP_UNSCHEDULABLE, WARNING)],
            id="it has no room",
        ),
        pytest.param(
            waits("PodGroupPending"),
            waits("PodGroupUnschedulable"),
            [(Reason.POD_GROUP_UNSCHEDULABLE, WARNING)],
            id="the reason has changed",
        ),
        pytest.param(waits("PodGroupPending"), waits("PodGroupPending"), [], id="the reason is the same"),
        pytest.param(JobStatus(), waits("ImagePullBackOff"), [], id="a pod's reason has an event of its own"),
        pytest.param(waits("PodGroupPending"), JobStatus(), [], id="it waits no more"),
    ],
)
def test_a_gang_that_is_held_back(
    before: JobStatus, after: JobStatus, expected: list[tuple[Reason, EventType]]
) -> None:
    job = make_job(status=before)
    events = list(build_events(job, Outcome(JobPhase.PENDING, ""), (), after))
    assert events == [Event(reason, "it is Waiting", kind) for reason, kind in expected]


def test_a_job_that_stays_suspended_is_not_reported_as_resumed() -> None:
    job = make_job(status=SUSPENDED)
    assert list(build_events(job, Outcome(JobPhase.SUSPENDED, "it is suspended"), (), SUSPENDED)) == []


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(JobStatus(), True, id="with the job's first pods"),
        pytest.param(RUNNING, False, id="not again with a later pod"),
        pytest.param(SUSPENDED, False, id="nor when it is resumed"),
    ],
)
def test_a_restart_policy_inside_a_template_is_warned_of(status: JobStatus, expected: bool) -> None:
    job = make_job(workers=None, template=make_template(restartPolicy="Never"), status=status)
    message = (
        "spec.pytorchReplicaSpecs.Master.template.spec.restartPolicy (Never) is overwritten by"
        " spec.pytorchReplicaSpecs.Master.restartPolicy"
    )
    warning = Event(Reason.TEMPLATE_RESTART_POLICY, message, WARNING)
    assert (warning in make_plan(observed(job)).events) is expected


def test_a_job_that_is_made_suspended_is_warned_of_too() -> None:
    job = make_job(template=make_template(restartPolicy="Never"), runPolicy={"suspend": True})
    assert Reason.TEMPLATE_RESTART_POLICY in [event.reason for event in make_plan(observed(job, service=False)).events]
