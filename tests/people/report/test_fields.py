"""Which fields of an object a report holds: a table."""

from typing import Any

import pytest

from pytorchjob.report.fields import EVENT, JOB, POD, SERVICE, Tree, listed
from tests.people.fake_cluster import a_pod

HIDDEN = "-"


def a_container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "pytorch", **fields}]}}


def a_volume(**fields: Any) -> dict[str, Any]:
    return {"spec": {"volumes": [{"name": "v", **fields}]}}


def a_reference(kind: str) -> dict[str, Any]:
    return a_container(env=[{"name": "T", "valueFrom": {kind: {"name": "hf", "key": "token"}}}])


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(a_container(command=["python", "train.py"], args=["--lr", "1"]), id="a command"),
        pytest.param(a_container(resources={"limits": {"nvidia.com/gpu": 1}}), id="resources"),
        pytest.param(a_reference("secretKeyRef"), id="the name of a Secret"),
        pytest.param(a_reference("configMapKeyRef"), id="the name of a ConfigMap"),
        pytest.param(a_container(envFrom=[{"secretRef": {"name": "all"}}]), id="variables from a Secret"),
        pytest.param(a_volume(secret={"secretName": "tls", "items": [{"key": "a", "path": "b"}]}), id="a Secret"),
        pytest.param(a_volume(persistentVolumeClaim={"claimName": "data"}), id="a claim"),
        pytest.param({"spec": {"affinity": {"nodeAffinity": {"a": [{"b": "c"}]}}}}, id="affinity"),
        pytest.param({"metadata": {"labels": {"training.kubeflow.org/job-name": "j"}}}, id="a label of the operator"),
        pytest.param({"metadata": {"annotations": {"kueue.x-k8s.io/a": "b"}}}, id="an annotation of Kueue"),
        pytest.param({"metadata": {"creationTimestamp": None}}, id="nothing"),
        pytest.param(a_pod("digits", "master-0")["status"], id="what the kubelet reports"),
    ],
)
def test_what_stays(body: dict[str, Any]) -> None:
    kept = {"status": body} if "containerStatuses" in body else body
    assert listed(kept, POD, HIDDEN) == kept


@pytest.mark.parametrize(
    ("tree", "body", "left"),
    [
        pytest.param(
            POD, a_container(env=[{"name": "A", "value": "1"}]), a_container(env=[{"name": "A", "value": HIDDEN}])
        ),
        pytest.param(POD, a_container(later={"a": 1}), a_container(later=HIDDEN), id="a field of a later Kubernetes"),
        pytest.param(POD, a_container(env={"A": "1"}), a_container(env={"A": HIDDEN}), id="a map for a list"),
        pytest.param(POD, a_container(env=["A=1"]), a_container(env=[HIDDEN]), id="a text for a map"),
        pytest.param(POD, a_container(image={"a": "b"}), a_container(image=HIDDEN), id="a map for a text"),
        pytest.param(
            POD,
            a_container(readinessProbe={"httpGet": {"path": "/", "httpHeaders": [{"name": "X", "value": "1"}]}}),
            a_container(readinessProbe={"httpGet": {"path": "/", "httpHeaders": HIDDEN}}),
            id="headers",
        ),
        pytest.param(
            POD,
            a_volume(csi={"driver": "d", "volumeAttributes": {"a": "b"}}),
            a_volume(csi={"driver": "d", "volumeAttributes": HIDDEN}),
            id="attributes of a driver",
        ),
        pytest.param(
            POD, {"metadata": {"labels": {"team": "x"}}}, {"metadata": {"labels": {"team": HIDDEN}}}, id="a label"
        ),
        pytest.param(
            POD,
            {"metadata": {"annotations": {"notk8s.io/a": "b", "k8s.io": "b"}}},
            {"metadata": {"annotations": {"notk8s.io/a": HIDDEN, "k8s.io": HIDDEN}}},
            id="an owner with a similar name",
        ),
        pytest.param(
            JOB,
            {"spec": {"elasticPolicy": {"rdzvConf": [{"key": "a", "value": "b"}]}}},
            {"spec": {"elasticPolicy": {"rdzvConf": [{"key": "a", "value": HIDDEN}]}}},
            id="a setting of the rendezvous",
        ),
        pytest.param(SERVICE, {"spec": {"externalName": "x"}}, {"spec": {"externalName": HIDDEN}}, id="a Service"),
        pytest.param(EVENT, {"note": "x", "reason": "R"}, {"note": HIDDEN, "reason": "R"}, id="an event"),
        pytest.param(JOB, "text", HIDDEN, id="no object at all"),
    ],
)
def test_what_is_left_out(tree: Tree, body: Any, left: Any) -> None:
    assert listed(body, tree, HIDDEN) == left
