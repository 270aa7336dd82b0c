"""Deadline and restart budget: when they end a job, in v1's words, and when they have not yet."""

from typing import Any

import pytest

from pytorchjob_operator.model import Condition, ConditionType, JobStatus
from pytorchjob_operator.observed import Pod, PodPhase
from pytorchjob_operator.plan import make_plan
from pytorchjob_operator.plan.writes import Plan
from tests.factories import at, condition, make_job, make_pod, make_template, observed, pods, workers

RUN, DONE, BAD = PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED
OVERRAN = "Job x has failed because it was active longer than specified deadline"
USED_UP = "Job x has failed because it has reached the specified backoff limit"


def plan_for(*seen: Pod, policy: dict[str, Any], seconds: float = 60, **status: Any) -> Plan:
    """The plan for a job of a Master and a Worker that started at 0 s."""
    stored = JobStatus(**{"conditions": (condition(ConditionType.CREATED),), "start_time": at(0), **status})
    return make_plan(observed(make_job(status=stored, runPolicy=policy), *seen, seconds=seconds))


def failure(plan: Plan) -> str | None:
    """The message of Failed, if the plan fails the job."""
    found = plan.status and plan.status.condition(ConditionType.FAILED)
    return found.message if isinstance(found, Condition) else None


@pytest.mark.parametrize(
    ("policy", "seconds", "message", "wake_at"),
    [
        pytest.param({"activeDeadlineSeconds": 20}, 19.5, None, 20, id="the last second: it is woken in time"),
        pytest.param({"activeDeadlineSeconds": 20}, 20, OVERRAN, None, id="over, to the second"),
        pytest.param({"activeDeadlineSeconds": 20}, 9000, OVERRAN, None, id="over while the operator was away"),
        pytest.param({"activeDeadlineSeconds": 0}, 0, OVERRAN, None, id="a deadline of 0 is over at once"),
        pytest.param({}, 10**9, None, None, id="no deadline"),
        pytest.param({"activeDeadlineSeconds": 2**53 - 1}, 60, None, None, id="a deadline beyond the calendar"),
        pytest.param({"activeDeadlineSeconds": 20, "suspend": True}, 60, None, None, id="not while it is suspended"),
    ],
)
def test_the_deadline(policy: dict[str, Any], seconds: float, message: str | None, wake_at: float | None) -> None:
    plan = plan_for(*pods(RUN, RUN), policy=policy, seconds=seconds)
    assert (failure(plan), plan.wake_at) == (message, None if wake_at is None else at(wake_at))


def test_a_job_that_overran_has_a_time_of_completion() -> None:
    status = plan_for(*pods(RUN, RUN), policy={"activeDeadlineSeconds": 20}, seconds=21.5).status
    assert status is not None
    assert status.completion_time == at(21)


def test_success_in_the_same_look_is_success() -> None:
    plan = plan_for(*pods(DONE, RUN), policy={"activeDeadlineSeconds": 20, "backoffLimit": 0}, restarts=1)
    assert plan.status is not None
    assert plan.status.holds(ConditionType.SUCCEEDED)


def test_the_deadline_counts_anew_from_a_resume() -> None:
    suspended = JobStatus(conditions=(condition(ConditionType.SUSPENDED),), start_time=at(0))
    job = make_job(status=suspended, runPolicy={"activeDeadlineSeconds": 20})
    resumed = make_plan(observed(job, service=False, seconds=60))
    assert resumed.status is not None
    assert (failure(resumed), resumed.status.start_time) == (None, at(60))
    later = plan_for(*pods(RUN, RUN), policy={"activeDeadlineSeconds": 20}, start_time=at(60), seconds=79)
    assert (failure(later), later.wake_at) == (None, at(80))


def test_a_write_that_is_put_off_wakes_before_the_deadline() -> None:
    plan = plan_for(*pods(RUN), policy={"activeDeadlineSeconds": 70}, observed_generation=1)
    assert plan.wake_at == plan.status_due
    assert plan.wake_at is not None
    assert plan.wake_at < at(70)


def again(times: int, phase: PodPhase = RUN, who: str = "worker-0", **fields: Any) -> Pod:
    """A pod whose containers have started again so many times."""
    return make_pod(who, phase, restarts=times, **fields)


ALL_FAILED = tuple(make_pod(who, BAD) for who in ("master-0", "worker-0"))


@pytest.mark.parametrize(
    ("limit", "seen", "status", "ends"),
    [
        pytest.param(None, (again(10**6),), {"restarts": 10**6}, False, id="no limit, no end"),
        pytest.param(0, (again(0),), {}, False, id="0: nothing has failed"),
        pytest.param(0, (again(1),), {}, True, id="0: one restart of a container"),
        pytest.param(0, pods(RUN, BAD), {}, True, id="0: one failed pod, which is not even deleted"),
        pytest.param(1, (again(1),), {}, True, id="1: the first restart reaches it, as under v1"),
        pytest.param(3, (again(2),), {}, False, id="3: two"),
        pytest.param(3, (again(2), again(1, who="master-0")), {}, True, id="3: three in two pods"),
        pytest.param(3, (again(1),), {"restarts": 2}, True, id="3: two replaced pods and a container"),
        pytest.param(3, (again(1),), {"restarts": 1}, False, id="3: one replaced pod and a container"),
        pytest.param(3, ALL_FAILED, {"restarts": 1}, True, id="3: two more pods fail in this look"),
        pytest.param(
            3,
            (again(1, BAD, uid="a"),),
            {"restarts": 2, "replacing": ("a",)},
            False,
            id="a counted pod's containers do not count twice",
        ),
        pytest.param(
            3,
            (again(1, RUN, uid="a", deleting=True),),
            {"restarts": 2, "replacing": ("a",)},
            False,
            id="nor while it terminates",
        ),
        pytest.param(3, (again(3, DONE),), {}, True, id="those of a pod that succeeded count"),
        pytest.param(1, (again(9, who="worker-7"),), {}, False, id="those of a surplus pod do not"),
    ],
)
def test_the_budget(limit: int | None, seen: tuple[Pod, ...], status: dict[str, Any], ends: bool) -> None:
    policy = {} if limit is None else {"backoffLimit": limit}
    plan = plan_for(*seen, policy=policy, **status)
    assert failure(plan) == (USED_UP if ends else None)
    assert not (ends and plan.writes)


def test_sidecars_under_never_do_not_use_up_the_budget() -> None:
    job = make_job(master=None, restart="Never", runPolicy={"backoffLimit": 0})
    plan = make_plan(observed(job, *(again(3),)))
    assert failure(plan) is None


def test_the_budget_is_looked_at_before_the_deadline() -> None:
    plan = plan_for(again(1), *workers(), policy={"backoffLimit": 1, "activeDeadlineSeconds": 1})
    assert failure(plan) == USED_UP


def test_each_role_has_a_policy_of_its_own() -> None:
    roles = {
        role: {"template": make_template(), "restartPolicy": policy}
        for role, policy in (("Master", "Never"), ("Worker", "OnFailure"))
    }
    job = make_job(pytorchReplicaSpecs=roles, runPolicy={"backoffLimit": 0})
    seen = (again(1, who="master-0"), make_pod("worker-0"))
    assert failure(make_plan(observed(job, *seen))) is None, "sidecars of a pod that is never restarted"
