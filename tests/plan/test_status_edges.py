"""The time and generation of each condition, and the counters that a job keeps at its end or suspension."""

from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_operator.coordinator_report import PhaseName, Report
from pytorchjob_operator.model import ConditionType, JobStatus, PyTorchJob, UnfitPod
from pytorchjob_operator.names import ChildKind, Reason
from pytorchjob_operator.observed import Pod, PodPhase, Refusal
from pytorchjob_operator.plan import make_plan
from pytorchjob_operator.problem import Crash, PodProblem
from tests.factories import at, condition, make_child, make_job, make_pod, observed, pods

RUN, DONE, BAD, WAIT = PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.PENDING
CREATED, RUNNING, WAITING, DEGRADED, SUSPENDED = (
    ConditionType.CREATED,
    ConditionType.RUNNING,
    ConditionType.WAITING,
    ConditionType.DEGRADED,
    ConditionType.SUSPENDED,
)
HELD = {"runPolicy": {"suspend": True}}
WRONG = Report(round="1.1", phase=PhaseName.RUNNING, members=2, world=2, problems={"PeerUnreachable": "no"})
COUNTED = JobStatus(restarts=1, replacing=("uid-worker-0",))
NO_ROOM = make_pod("worker-0", WAIT, problem=PodProblem("Unschedulable", "no node"))
NO_IMAGE = make_pod("worker-0", WAIT, problem=PodProblem("ImagePullBackOff", "no image"))


def status_after(job: PyTorchJob, *seen: Pod, seconds: float = 60, **changes: Any) -> JobStatus:
    """Return the present status, after all that may wait has waited."""
    found = replace(observed(job, *seen, seconds=seconds), status_due=at(seconds), **changes)
    status = make_plan(found).status
    assert status is not None
    return status


@pytest.mark.parametrize(
    ("before", "now", "case", "changes", "kinds"),
    [
        pytest.param(pods(WAIT, WAIT), pods(RUN, RUN), {}, {}, {RUNNING}, id="it runs"),
        pytest.param(pods(RUN, RUN), pods(RUN, RUN), HELD, {}, {RUNNING, SUSPENDED}, id="it is suspended"),
        pytest.param(
            pods(RUN, RUN), pods(DONE, RUN), {}, {}, {RUNNING, ConditionType.SUCCEEDED}, id="it has succeeded"
        ),
        pytest.param(pods(RUN, RUN), pods(RUN, BAD), {}, {}, {ConditionType.RESTARTING}, id="it restarts"),
        pytest.param(pods(WAIT, WAIT), (NO_ROOM,), {}, {}, {WAITING}, id="it waits"),
        pytest.param((NO_ROOM,), (NO_IMAGE,), {}, {}, {WAITING}, id="it waits for something else"),
        pytest.param(pods(RUN, RUN), pods(RUN, RUN), {}, {"report": WRONG}, {DEGRADED}, id="it has a problem"),
        pytest.param(
            pods(RUN, RUN),
            pods(RUN, RUN),
            {"agent": {"inject": True}},
            {},
            {ConditionType.CONFIG_VALID},
            id="a part of the spec has no effect",
        ),
        pytest.param(
            pods(WAIT, WAIT),
            pods(WAIT, WAIT),
            {},
            {"refusal": Refusal(Reason.FAILED_CREATE_POD, "exceeded quota")},
            {ConditionType.REPLICA_FAILURE},
            id="a child is refused",
        ),
    ],
)
def test_what_changes_has_the_time_of_the_change(
    before: tuple[Pod, ...],
    now: tuple[Pod, ...],
    case: dict[str, Any],
    changes: dict[str, Any],
    kinds: set[ConditionType],
) -> None:
    first = status_after(make_job(), *before, seconds=0)
    status = status_after(make_job(status=first, **case), *now, **changes)
    new = {each.type for each in status.conditions if each.last_update_time == each.last_transition_time == at(60)}
    old = {each.type for each in status.conditions if each.last_update_time == each.last_transition_time == at(0)}
    assert (new, old) == (kinds, {each.type for each in status.conditions} - kinds)


def test_what_is_resumed_has_the_time_of_the_change() -> None:
    job = make_job(status=JobStatus(conditions=(condition(CREATED), condition(SUSPENDED))))
    created, resumed = status_after(job, children=()).conditions
    assert (created, resumed.type) == (condition(CREATED), SUSPENDED)
    assert (resumed.last_update_time, resumed.last_transition_time) == (at(60), at(60))


def test_a_condition_has_the_generation_that_it_is_about() -> None:
    first = status_after(make_job(), seconds=0)
    status = status_after(make_job(status=first, meta={"generation": 2}), *pods(RUN, RUN))
    assert [(each.type, each.observed_generation) for each in status.conditions] == [(CREATED, 1), (RUNNING, 2)]


def test_a_job_without_a_generation_has_conditions_without_one() -> None:
    status = status_after(make_job(meta={"generation": 0}))
    assert [status.observed_generation, *(each.observed_generation for each in status.conditions)] == [None, None]


def test_a_crash_loop_and_a_problem_of_the_training_are_shown_together() -> None:
    crashed = make_pod("worker-0", crash=Crash(3, 1, "", "a line"))
    status = status_after(make_job(), make_pod("master-0"), crashed, report=WRONG)
    found = status.condition(DEGRADED)
    assert found is not None
    assert (found.reason, found.message[:36]) == ("CrashLoop", "pod x-worker-0 has ended 3 times, ea")
    assert found.message.endswith("limits the restarts; no")


@pytest.mark.parametrize(
    ("reason", "since", "expected"),
    [
        pytest.param("PodGroupPending", 5, 5, id="they are held back already"),
        pytest.param("PodGroupPending", None, 60, id="no time is known"),
        pytest.param("Unschedulable", 5, 60, id="they waited for something else before"),
        pytest.param(None, 5, 60, id="they did not wait before"),
    ],
)
def test_since_when_a_gang_scheduler_holds_pods_back(reason: str | None, since: float | None, expected: float) -> None:
    waited = () if reason is None else (condition(WAITING, reason=reason),)
    stored = JobStatus(
        conditions=(condition(CREATED), *waited), last_reconcile_time=None if since is None else at(since)
    )
    job = make_job(status=stored, runPolicy={"schedulingPolicy": {"gangScheduler": "volcano"}})
    group = make_child(ChildKind.VOLCANO_POD_GROUP, phase="Pending")
    children = (*observed(job).children, group)
    assert status_after(job, children=children).last_reconcile_time == at(expected)


@pytest.mark.parametrize(
    ("seen", "case", "replacing"),
    [
        pytest.param(pods(RUN, BAD), {}, ("uid-worker-0",), id="it runs: a counted pod stays counted"),
        pytest.param(pods(DONE, BAD), {}, None, id="it has ended: nothing is replaced"),
        pytest.param(pods(RUN, BAD), HELD, ("uid-worker-0",), id="it is suspended: a counted pod stays counted"),
    ],
)
def test_a_pod_that_is_counted_is_counted_once(
    seen: tuple[Pod, ...], case: dict[str, Any], replacing: tuple[str, ...] | None
) -> None:
    status = status_after(make_job(status=COUNTED, **case), *seen)
    assert (status.restarts, status.replacing) == (1, replacing)


def test_a_suspended_job_forgets_counted_pods_that_are_gone() -> None:
    counted = JobStatus(restarts=2, replacing=("uid-gone", "uid-worker-0"))
    assert status_after(make_job(status=counted, **HELD), *pods(RUN, BAD)).replacing == ("uid-worker-0",)


def test_a_spec_without_an_error_is_not_reported_any_more() -> None:
    wrong = status_after(make_job(agent={"inject": True}), seconds=0)
    assert wrong.condition(ConditionType.CONFIG_VALID) is not None
    assert status_after(make_job(status=wrong)).condition(ConditionType.CONFIG_VALID) is None


def test_a_job_that_has_run_shows_at_once_what_it_waits_for() -> None:
    ran = status_after(make_job(), *pods(RUN, RUN), seconds=0)
    plan = make_plan(observed(make_job(status=ran), make_pod("master-0", WAIT), NO_ROOM, seconds=60))
    assert plan.status is not None
    assert plan.status.conditions[-1].type is WAITING


def test_a_suspended_job_forgets_its_unfit_pods() -> None:
    unfit = JobStatus(unfit_pods=(UnfitPod(name="x-worker-0", uid="uid-old", node="n"),))
    assert status_after(make_job(status=unfit), *pods(RUN, WAIT)).unfit_pods == unfit.unfit_pods
    assert status_after(make_job(status=unfit, **HELD), *pods(RUN, WAIT)).unfit_pods is None


def test_a_pod_that_has_succeeded_has_started() -> None:
    first = make_plan(observed(make_job())).status
    plan = make_plan(observed(make_job(status=first), *pods(RUN, DONE), seconds=60))
    assert plan.status is not None, "all pods have started: the write does not wait"
