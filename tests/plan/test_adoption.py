"""Jobs that training-operator v1 started: what is made beside v1's pods leads to them, and they to it."""

from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_operator.model import ConditionType, JobStatus, PyTorchJob
from pytorchjob_operator.names import ChildKind, Reason, ReplicaType
from pytorchjob_operator.observed import Observed, Options, Pod, PodPhase
from pytorchjob_operator.plan import make_plan
from pytorchjob_operator.plan.writes import CreatePod, Plan
from tests.factories import NOW, condition, make_child, make_job, make_pod, written

RUNS = PodPhase.RUNNING
ELASTIC: dict[str, Any] = {"master": None, "elasticPolicy": {"minReplicas": 1, "maxReplicas": 3}}
ETCD = {**ELASTIC, "elasticPolicy": {**ELASTIC["elasticPolicy"], "rdzvBackend": "etcd-v2", "rdzvHost": "etcd"}}


def by_v1(*who: str) -> tuple[Pod, ...]:
    """Running pods that v1 made."""
    return tuple(make_pod(name, RUNS, anonymous=True) for name in who)


def plan(job: PyTorchJob, *pods: Pod, services: tuple[str, ...] = ("x",), options: Options | None = None) -> Plan:
    """The plan for a job with these pods and Services."""
    children = tuple(make_child(ChildKind.SERVICE, name, uid=f"uid-{name}") for name in services)
    return make_plan(Observed(job=job, now=NOW, pods=pods, children=children, options=options or Options()))


def env(made: Plan, variable: str) -> str | None:
    """The value of a variable of the plan's only new pod."""
    (body,) = (write.body for write in made.writes if isinstance(write, CreatePod))
    return {item["name"]: item["value"] for item in body["spec"]["containers"][0]["env"]}.get(variable)


V1_SERVICES = ("x-master-0", "x-worker-0")
ALL = ("x", *V1_SERVICES)


@pytest.mark.parametrize(
    ("services", "expected"),
    [
        pytest.param(V1_SERVICES, ["+Service"], id="the job's own Service is all that is missing"),
        pytest.param(ALL, [], id="nothing is missing: nothing is done, v1's Services stay"),
        pytest.param(("x",), ["+Service"] * 2, id="v1 ended before it had made its Services"),
    ],
)
def test_services(services: tuple[str, ...], expected: list[str]) -> None:
    assert written(plan(make_job(), *by_v1("master-0", "worker-0"), services=services)) == expected


@pytest.mark.parametrize(
    ("job", "pods", "services", "variable", "expected"),
    [
        pytest.param(
            make_job(), by_v1("master-0"), ALL, "MASTER_ADDR", "x-master-0", id="a new worker finds v1's master"
        ),
        pytest.param(
            make_job(), by_v1("worker-0"), ALL, "MASTER_ADDR", "x-master-0", id="a new master is found by v1's worker"
        ),
        pytest.param(
            make_job(), (make_pod("master-0"),), ALL, "MASTER_ADDR", "x-master-0.x", id="once v1's pods are gone"
        ),
        pytest.param(
            make_job(workers=2, **ELASTIC),
            by_v1("worker-0"),
            ALL,
            "PET_RDZV_ENDPOINT",
            "x-worker-0:23456",
            id="an elastic job's rendezvous",
        ),
        pytest.param(
            make_job(workers=2, **ETCD), by_v1("worker-0"), ALL, "PET_RDZV_ID", None, id="v1 gives no rendezvous id"
        ),
        pytest.param(
            make_job(workers=2, **ETCD), (make_pod("worker-0"),), ALL, "PET_RDZV_ID", "uid-x", id="this operator does"
        ),
    ],
)
def test_what_a_new_pod_is_told(
    job: PyTorchJob, pods: tuple[Pod, ...], services: tuple[str, ...], variable: str, expected: str | None
) -> None:
    assert env(plan(job, *pods, services=services), variable) == expected


def test_with_v1s_services_switched_on_pods_know_each_other_by_them() -> None:
    made = plan(make_job(), make_pod("master-0"), services=ALL, options=Options(replica_services=True))
    assert env(made, "MASTER_ADDR") == "x-master-0"


def test_a_replica_that_is_scaled_away_loses_v1s_service_too() -> None:
    gone = make_child(ChildKind.SERVICE, "x-worker-1", replica_type=ReplicaType.WORKER, index=1)
    job, pods = make_job(), by_v1("master-0", "worker-0", "worker-1")
    seen = Observed(
        job=job, now=NOW, pods=pods, children=(gone, *(make_child(ChildKind.SERVICE, name) for name in ALL))
    )
    assert written(make_plan(seen)) == ["-Service", "-x-worker-1"]


OF_V1 = JobStatus(conditions=(condition(ConditionType.CREATED), condition(ConditionType.RUNNING)))
OURS = OF_V1.model_copy(update={"observed_generation": 1})
SUSPENDS: dict[str, Any] = {"runPolicy": {"suspend": True}}


def taken_over(job: PyTorchJob, *pods: Pod) -> list[str]:
    """The messages of the events about a take-over."""
    return [event.message for event in plan(job, *pods).events if event.reason == Reason.TAKEN_OVER]


@pytest.mark.parametrize(
    ("case", "pods", "expected"),
    [
        pytest.param({"status": OF_V1}, by_v1("master-0", "worker-0"), "2 pods", id="a job that v1 ran"),
        pytest.param({"status": OF_V1}, by_v1("master-0"), "1 pod", id="a job of which a pod is missing"),
        pytest.param(
            {"status": OF_V1},
            (*by_v1("master-0"), make_pod("worker-0", PodPhase.FAILED, anonymous=True)),
            "1 pod",
            id="a job of which a pod is replaced",
        ),
        pytest.param({"status": OURS}, by_v1("master-0", "worker-0"), "", id="a job that this operator has served"),
        pytest.param({}, by_v1("master-0", "worker-0"), "", id="a job that v1 has not begun"),
        pytest.param({"status": OF_V1}, (make_pod("master-0"), make_pod("worker-0")), "", id="a job without v1's pods"),
        pytest.param({"status": OF_V1, **SUSPENDS}, by_v1("master-0", "worker-0"), "", id="a job that is suspended"),
    ],
)
def test_a_take_over_is_reported(case: dict[str, Any], pods: tuple[Pod, ...], expected: str) -> None:
    of = f"PyTorchJob x continues with {expected} that training-operator v1 created; none was created again."
    assert taken_over(make_job(**case), *pods) == ([of] if expected else [])


def test_a_take_over_is_reported_once_also_by_the_next_operator() -> None:
    job, pods = make_job(status=OF_V1), by_v1("master-0", "worker-0")
    first = plan(job, *pods)
    assert first.status is not None
    assert [event for event in first.events if event.reason == Reason.TAKEN_OVER]
    stored = job.model_copy(update={"status": first.status})
    changed = tuple(replace(pod, phase=PodPhase.SUCCEEDED) for pod in pods)
    assert taken_over(stored, *pods) == taken_over(stored, *changed) == []


def test_a_take_over_that_the_status_cannot_note_is_not_reported() -> None:
    """A job without a generation, as no API server stores it, would report it in every pass."""
    job = make_job(status=OF_V1, meta={"generation": 0})
    assert taken_over(job, *by_v1("master-0", "worker-0")) == []
