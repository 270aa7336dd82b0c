"""The autoscaler of an elastic job: made, kept up to date, given back."""

from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_operator import names
from pytorchjob_operator.model import ConditionType, JobStatus, PyTorchJob
from pytorchjob_operator.names import ChildKind
from pytorchjob_operator.observed import Child, Observed, Options, PodPhase
from pytorchjob_operator.plan import Plan, autoscaler, make_plan, owner
from tests.factories import at, condition, full_job, make_child, make_job, make_service, workers, written

METRIC = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
ELASTIC = {"minReplicas": 2, "maxReplicas": 4, "metrics": [METRIC]}
QUEUED = {"labels": {"kueue.x-k8s.io/queue-name": "q"}}
HPA = ChildKind.AUTOSCALER


def elastic(policy: dict[str, Any] | None = None, **case: Any) -> PyTorchJob:
    return make_job(master=None, workers=2, elasticPolicy=ELASTIC if policy is None else policy, **case)


def up_to_date(job: PyTorchJob | None = None) -> Child:
    """The autoscaler as the operator would have written it for this job."""
    body = autoscaler.wanted(full_job(master=None, workers=2, elasticPolicy=ELASTIC) if job is None else job, Options())
    assert body is not None
    return Child.from_api(HPA, {**body, "metadata": {**body["metadata"], "uid": "uid-hpa"}})


def planned(job: PyTorchJob, *children: Child, unserved: dict[ChildKind, str] | None = None) -> Plan:
    """The plan for two running workers."""
    pods = workers("Running", "Running")
    return make_plan(Observed(job, at(0), pods, (make_service(), *children), unserved=unserved or {}))


def test_it_scales_the_job_between_its_bounds_by_the_users_metrics() -> None:
    job = full_job(master=None, workers=2, elasticPolicy=ELASTIC)
    body = autoscaler.wanted(job, Options())
    assert body is not None
    assert (body["apiVersion"], body["kind"]) == ("autoscaling/v2", "HorizontalPodAutoscaler")
    assert body["metadata"]["ownerReferences"] == owner.references(job)
    assert body["spec"] == {
        "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "x"},
        "minReplicas": 2,
        "maxReplicas": 4,
        "metrics": [METRIC],
    }


SUSPENDED = JobStatus(conditions=(condition(ConditionType.SUSPENDED),))
ENDED = JobStatus(conditions=(condition(ConditionType.SUCCEEDED),))
HELD = {"runPolicy": {"suspend": True}}


@pytest.mark.parametrize(
    ("job", "children", "expected"),
    [
        pytest.param(elastic(), (), [f"+{HPA}"], id="metrics make it"),
        pytest.param(elastic({**ELASTIC, "metrics": []}), (), [f"+{HPA}"], id="no metric: Kubernetes' own default"),
        pytest.param(elastic({"minReplicas": 2}), (), [], id="without metrics there is none"),
        pytest.param(elastic(), (up_to_date(),), [], id="it is up to date"),
        pytest.param(
            elastic({**ELASTIC, "maxReplicas": 5}), (up_to_date(),), [f"~{HPA}"], id="the bounds have changed"
        ),
        pytest.param(elastic(), (make_child(HPA),), [f"~{HPA}"], id="v1's is taken over"),
        pytest.param(elastic({}), (up_to_date(),), [f"-{HPA}"], id="the metrics were taken away"),
        pytest.param(elastic({}), (replace(up_to_date(), deleting=True),), [], id="it goes already"),
        pytest.param(elastic(status=SUSPENDED, **HELD), (up_to_date(),), [f"-{HPA}"], id="suspended"),
        pytest.param(elastic(status=ENDED), (up_to_date(),), [f"-{HPA}"], id="ended, whatever cleanPodPolicy says"),
        pytest.param(elastic(meta=QUEUED), (), [], id="under Kueue there is none"),
    ],
)
def test_it_is_there_while_the_job_runs(job: PyTorchJob, children: tuple[Child, ...], expected: list[str]) -> None:
    assert [write for write in written(planned(job, *children)) if HPA.value in write] == expected


def test_nothing_is_concluded_while_it_cannot_be_seen() -> None:
    plan = planned(elastic(), unserved={HPA: ""})
    assert (written(plan), plan.needs) == ([], {HPA})


def test_an_ended_job_needs_to_see_it_to_give_it_back() -> None:
    assert planned(elastic(status=ENDED), unserved={HPA: ""}).needs == {HPA}


@pytest.mark.parametrize(
    ("job", "unserved", "reason"),
    [
        pytest.param(elastic(), {}, None, id="all is well"),
        pytest.param(elastic(), {HPA: ""}, None, id="it has not been looked for yet"),
        pytest.param(elastic(), {HPA: "Forbidden (403): no"}, "AutoscalerUnavailable", id="it may not be seen"),
        pytest.param(elastic(meta=QUEUED), {}, "ElasticWithKueueUnsupported", id="Kueue holds the job's size"),
        pytest.param(elastic({}, meta=QUEUED), {}, None, id="a job without metrics has no such trouble"),
    ],
)
def test_metrics_without_effect_are_told(job: PyTorchJob, unserved: dict[ChildKind, str], reason: str | None) -> None:
    status = planned(job, unserved=unserved).status
    found = status.condition(ConditionType.CONFIG_VALID) if status else None
    assert (found.reason if found else None) == reason
    assert status is not None
    assert status.conditions[-1].type is ConditionType.RUNNING


@pytest.mark.parametrize(
    ("job", "why", "message"),
    [
        pytest.param(elastic(), "Forbidden (403): no", "has no effect: Forbidden (403): no", id="the server's words"),
        pytest.param(
            elastic(meta=QUEUED),
            "",
            "has no effect on a job that Kueue has admitted: remove the metrics, "
            "or the label kueue.x-k8s.io/queue-name",
            id="what to do",
        ),
    ],
)
def test_why_metrics_have_no_effect(job: PyTorchJob, why: str, message: str) -> None:
    found = autoscaler.problem(job, Options(), {HPA: why})
    assert found is not None
    assert found[1] == f"spec.elasticPolicy.metrics {message}"


def test_under_workloads_of_the_operators_own_metrics_scale_a_job_as_ever() -> None:
    job, options = elastic(meta=QUEUED), Options(kueue=True)
    assert autoscaler.wanted(job, options) == autoscaler.wanted(elastic(), options)
    assert autoscaler.problem(job, options, {}) is None


def test_a_worker_that_comes_late_to_the_end_is_not_made() -> None:
    job = make_job(workers=3, elasticPolicy={"minReplicas": 1, "maxReplicas": 3})
    pods = (*workers("Succeeded", "Running"),)
    master = replace(pods[0], name="x-master-0", uid="m", replica_type=names.ReplicaType.MASTER, phase=PodPhase.RUNNING)
    assert written(make_plan(Observed(job, at(0), (master, *pods), (make_service(),)))) == []
