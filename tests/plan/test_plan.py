"""The decision as a whole: which writes, in which order, and when there is nothing to do, why."""

from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_operator.model import ConditionType, JobStatus
from pytorchjob_operator.names import ChildKind
from pytorchjob_operator.observed import Pod, PodPhase
from pytorchjob_operator.plan import make_plan
from pytorchjob_operator.plan.writes import DeletePod, Plan, manifests
from tests.factories import at, condition, make_child, make_job, make_pod, observed, pods, written

RUN, DONE, BAD, WAIT = PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.PENDING

COUNTED = JobStatus(restarts=1, replacing=("uid-worker-0",))


@pytest.mark.parametrize(
    ("case", "seen", "service", "expected"),
    [
        pytest.param(
            {}, (), False, ["+Service", "+x-master-0", "+x-worker-0"], id="a new job: the Service, then by rank"
        ),
        pytest.param({}, pods(RUN, RUN), True, [], id="nothing when all is there"),
        pytest.param(
            {"status": JobStatus(conditions=(condition(ConditionType.CREATED),))},
            pods(RUN, RUN),
            False,
            ["+Service"],
            id="a Service that vanished is made again",
        ),
        pytest.param({}, pods(RUN), True, ["+x-worker-0"], id="a pod that vanished is made again"),
        pytest.param({"restart": "Never"}, pods(RUN), True, ["+x-worker-0"], id="also under Never, as v1 does"),
        pytest.param(
            {}, pods(RUN, RUN, RUN, RUN), True, ["-x-worker-2", "-x-worker-1"], id="scaled down, the highest first"
        ),
        pytest.param(
            {},
            (*pods(RUN, RUN), make_pod("worker-1", deleting=True)),
            True,
            [],
            id="what is being deleted is not deleted again",
        ),
        pytest.param(
            {"status": COUNTED},
            pods(RUN, BAD),
            True,
            ["-x-worker-0"],
            id="a failed pod that is counted goes, its place is filled later",
        ),
        pytest.param({}, pods(RUN, BAD), True, [], id="a failed pod is counted before it goes"),
        pytest.param({"restart": "Never"}, pods(RUN, BAD), True, [], id="a job that just failed writes nothing"),
        pytest.param({}, pods(DONE), False, [], id="a job that just succeeded writes nothing"),
        pytest.param(
            {"workers": 3, "status": COUNTED},
            pods(RUN, BAD, RUN),
            True,
            ["-x-worker-0", "+x-worker-2"],
            id="what must go, before what comes",
        ),
    ],
)
def test_writes(case: dict[str, Any], seen: tuple[Pod, ...], service: bool, expected: list[str]) -> None:
    plan = make_plan(observed(make_job(**case), *seen, service=service))
    assert written(plan) == expected


def test_a_pod_is_deleted_by_its_uid() -> None:
    job = make_job(status=JobStatus(restarts=1, replacing=("this one",)))
    plan = make_plan(observed(job, *pods(RUN), make_pod("worker-0", BAD, uid="this one")))
    reason = "x-worker-0 failed and restartPolicy is OnFailure"
    assert plan.writes == (DeletePod("x-worker-0", "this one", reason),)


ENDED = JobStatus(conditions=(condition(ConditionType.SUCCEEDED),))
FAILED = JobStatus(conditions=(condition(ConditionType.FAILED),))


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        pytest.param({"status": ENDED}, "the job has succeeded: nothing to do", id="a job that succeeded"),
        pytest.param({"status": FAILED}, "the job has failed: nothing to do", id="a job that failed"),
        pytest.param(
            {"meta": {"deletionTimestamp": "2026-01-02T03:04:05Z"}},
            "the job is being deleted: the garbage collector removes its children",
            id="a job that goes",
        ),
        pytest.param(
            {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}},
            "the job is managed by kueue.x-k8s.io/multikueue",
            id="somebody else's job",
        ),
        pytest.param(
            {
                "managedBy": "kueue.x-k8s.io/multikueue",
                "runPolicy": {"managedBy": "kubeflow.org/training-operator"},
            },
            "the job is managed by kueue.x-k8s.io/multikueue",
            id="somebody else's job, where MultiKueue's adapter reads it",
        ),
    ],
)
def test_hands_off(case: dict[str, Any], reason: str) -> None:
    assert make_plan(observed(make_job(**case), *pods(BAD), service=False)) == Plan(reason=reason)


def test_our_own_name_in_managed_by_is_ours() -> None:
    job = make_job(runPolicy={"managedBy": "kubeflow.org/training-operator"})
    assert make_plan(observed(job)).writes


def test_the_reason_tells_how_it_stands() -> None:
    plan = make_plan(observed(make_job(workers=2), *pods(RUN, WAIT), make_pod("worker-7")))
    assert plan.reason == "Running: 2 pods exist, 1 missing, 1 surplus; 2 writes"


@pytest.mark.parametrize(
    ("phase", "reason"),
    [
        pytest.param(RUN, "Running: 1 pods exist, 1 missing, 0 surplus; 1 write", id="a single write"),
        pytest.param(
            None, "Pending: 0 pods exist, 2 missing (held back for their PodGroup), 0 surplus; 1 write", id="held"
        ),
    ],
)
def test_the_reason_counts_one_write_and_names_what_holds_pods_back(phase: PodPhase | None, reason: str) -> None:
    policy = {} if phase else {"runPolicy": {"schedulingPolicy": {"gangScheduler": "volcano"}}}
    assert make_plan(observed(make_job(**policy), *(pods(phase) if phase else ()))).reason == reason


def test_a_surplus_pod_is_deleted_by_its_uid() -> None:
    plan = make_plan(observed(make_job(), *pods(RUN, RUN, RUN)))
    assert plan.writes == (DeletePod("x-worker-1", "uid-worker-1", "the job was scaled down"),)


def test_a_job_that_has_just_failed_waits_for_no_deadline() -> None:
    limit = {"restart": "Never", "runPolicy": {"activeDeadlineSeconds": 600}}
    started = JobStatus(start_time=at(0))
    assert make_plan(observed(make_job(status=started, **limit), *pods(RUN, RUN))).wake_at == at(600)
    assert make_plan(observed(make_job(status=started, **limit), *pods(RUN, BAD))).wake_at is None


def test_a_status_that_is_put_off_is_no_event_yet() -> None:
    volcano = {"runPolicy": {"schedulingPolicy": {"gangScheduler": "volcano"}}}
    created = make_plan(observed(make_job(**volcano))).status
    seen = observed(make_job(status=created, **volcano), seconds=60)
    group = make_child(ChildKind.VOLCANO_POD_GROUP, phase="Pending")
    plan = make_plan(replace(seen, children=(*seen.children, group)))
    assert (plan.status, plan.events) == (None, ())


def test_a_job_needs_no_kind_that_it_does_not_use() -> None:
    unserved = {ChildKind.AUTOSCALER: "", ChildKind.NETWORK_POLICY: "", ChildKind.VOLCANO_POD_GROUP: ""}
    assert make_plan(replace(observed(make_job()), unserved=unserved)).needs == frozenset()


def test_manifests_are_what_kubectl_apply_takes() -> None:
    plan = make_plan(observed(make_job(), *pods(WAIT), make_pod("worker-1"), service=False))
    assert [manifest["kind"] for manifest in manifests(plan)] == ["Service", "Pod"]


@pytest.mark.parametrize(
    ("most", "present", "created", "again"),
    [
        pytest.param(None, 1, 4, False, id="no limit"),
        pytest.param(3, 1, 3, True, id="a part, and the next pass at once"),
        pytest.param(1, 1, 1, True, id="a part of one pod"),
        pytest.param(3, 2, 3, False, id="the last part"),
        pytest.param(3, 5, 0, False, id="nothing is missing"),
    ],
)
def test_one_pass_creates_a_bounded_number_of_pods(most: int | None, present: int, created: int, again: bool) -> None:
    seen = observed(make_job(workers=4), *pods(*[RUN] * present))
    plan = make_plan(replace(seen, options=replace(seen.options, pods_per_pass=most)))
    assert len([name for name in written(plan) if name.startswith("+x-")]) == created
    assert (plan.wake_at == seen.now) is again


def test_a_postponed_pod_is_created_at_its_time_and_the_others_now() -> None:
    seen = replace(observed(make_job(workers=2), *pods(RUN)), postponed={"x-worker-0": at(9)})
    plan = make_plan(seen)
    assert written(plan) == ["+x-worker-1"]
    assert (plan.wake_at, "1 postponed" in plan.reason) == (at(9), True)
