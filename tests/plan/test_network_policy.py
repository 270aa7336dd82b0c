"""The NetworkPolicy of a job that asks for one: made before the pods, given back at the end."""

from typing import Any

import pytest

from pytorchjob_operator.model import ConditionType, PyTorchJob
from pytorchjob_operator.names import ChildKind
from pytorchjob_operator.observed import Child, Observed
from pytorchjob_operator.plan import Plan, make_plan, network_policy, owner
from pytorchjob_operator.plan.writes import CreateChild, CreatePod, DeleteChild
from tests.factories import at, full_job, make_job, make_service, workers

KIND = ChildKind.NETWORK_POLICY
CLOSED = {"networkPolicy": True}


def job(**spec: Any) -> PyTorchJob:
    return make_job(master=None, workers=2, **spec)


def planned(job: PyTorchJob, *children: Child, pods: Any = (), unserved: dict[ChildKind, str] | None = None) -> Plan:
    return make_plan(Observed(job, at(0), pods, (make_service(), *children), unserved=unserved or {}))


def up_to_date() -> Child:
    body = network_policy.wanted(full_job(master=None, workers=2, agent=CLOSED))
    assert body is not None
    return Child.from_api(KIND, {**body, "metadata": {**body["metadata"], "uid": "uid-policy"}})


def test_only_pods_of_the_job_reach_its_pods() -> None:
    closed = full_job(master=None, workers=2, agent=CLOSED)
    body = network_policy.wanted(closed)
    assert body is not None
    assert (body["apiVersion"], body["kind"], body["metadata"]["name"]) == (
        "networking.k8s.io/v1",
        "NetworkPolicy",
        "x",
    )
    assert body["metadata"]["ownerReferences"] == owner.references(closed)
    selector = body["spec"]["podSelector"]
    assert selector["matchLabels"]["training.kubeflow.org/job-name"] == "x"
    assert body["spec"] == {
        "podSelector": selector,
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": selector}]}],
    }


def test_it_is_made_before_the_pods() -> None:
    writes = planned(job(agent=CLOSED)).writes
    made = [type(write) for write in writes if isinstance(write, CreatePod | CreateChild)]
    assert made[0] is CreateChild
    assert CreatePod in made


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="no agent"),
        pytest.param({"agent": {}}, id="nothing set"),
        pytest.param({"agent": {"networkPolicy": False}}, id="false"),
    ],
)
def test_a_job_that_does_not_ask_has_none(spec: dict[str, Any]) -> None:
    plan = planned(job(**spec))
    assert not [write for write in plan.writes if isinstance(write, CreateChild) and write.kind is KIND]
    assert KIND not in plan.needs


def test_it_is_left_alone_while_it_is_right_and_deleted_when_it_is_not_wanted() -> None:
    pods = workers("Running", "Running")
    assert not planned(job(agent=CLOSED), up_to_date(), pods=pods).writes
    writes = planned(job(), up_to_date(), pods=pods).writes
    assert [write.kind for write in writes if isinstance(write, DeleteChild)] == [KIND]


def test_without_the_right_the_job_trains_and_reports_it() -> None:
    plan = planned(job(agent=CLOSED), unserved={KIND: "Forbidden (403): no"})
    assert plan.needs == {KIND}
    assert [write for write in plan.writes if isinstance(write, CreatePod)]
    assert plan.status is not None
    found = plan.status.condition(ConditionType.CONFIG_VALID)
    assert found is not None
    assert found.reason == "NetworkPolicyUnavailable"


def test_a_job_that_does_not_ask_reports_nothing() -> None:
    plan = planned(job(), unserved={KIND: "Forbidden (403): no"})
    assert plan.status is not None
    assert plan.status.condition(ConditionType.CONFIG_VALID) is None
