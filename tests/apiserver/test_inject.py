"""A pod with an agent put into it, before a real API server: Pod Security `restricted`, quotas and QoS."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from pytorchjob_operator.observed import CoordinatorAccess, Options
from pytorchjob_operator.plan.pods import build_pod
from tests.apiserver.cluster import ControlPlane
from tests.factories import full_job, make_template, replica

pytestmark = pytest.mark.apiserver

SPACE = "restricted"
OPTIONS = Options(coordinator=CoordinatorAccess("coordinator.ops.svc:29600"), agent_image="agent:1")
RESOURCES = {"cpu": "1", "memory": "1Gi"}
CONTAINER = {
    "name": "pytorch",
    "image": "train:1",
    "env": [{"name": "PYTHONPATH", "value": "/code"}],
    "resources": {"requests": RESOURCES, "limits": RESOURCES},
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
RESTRICTED = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}


@pytest.fixture(scope="module")
def space(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A namespace that enforces the strictest standard, and a quota that every container has to count for."""
    meta = {"name": SPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
    hard = {"limits.cpu": "2", "limits.memory": "2Gi", "requests.cpu": "2", "requests.memory": "2Gi"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "all", "namespace": SPACE}}
    made = control_plane.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}, {**quota, "spec": {"hard": hard}}
    )
    assert made.returncode == 0, made.stderr
    yield control_plane
    control_plane.kubectl("delete", "namespace", SPACE, "--wait=false")


def pod(inject: bool) -> dict[str, Any]:
    """Worker 0 of a job that keeps to the standard itself."""
    template = make_template(containers=[copy.deepcopy(CONTAINER)], securityContext=RESTRICTED)
    job = full_job(template=template, agent={"inject": inject})
    body = build_pod(job, replica("worker-0"), OPTIONS)
    meta = {"name": body["metadata"]["name"], "namespace": SPACE}
    # This API server names no service account by itself, and a pod with a token of one has to.
    account = {"serviceAccountName": "default", "automountServiceAccountToken": False}
    return {**body, "metadata": meta, "spec": {**body["spec"], **account}}


@pytest.mark.parametrize("inject", [pytest.param(False, id="as it was"), pytest.param(True, id="with the agent")])
def test_a_strict_namespace_takes_the_pod_and_it_stays_guaranteed(space: ControlPlane, inject: bool) -> None:
    code, said = space.post(f"/api/v1/namespaces/{SPACE}/pods", pod(inject))
    assert code == 201, said
    made = json.loads(said)
    assert made["status"]["qosClass"] == "Guaranteed"
    assert bool(made["spec"].get("initContainers")) is inject


def test_a_pod_that_keeps_to_less_would_be_refused(space: ControlPlane) -> None:
    body = pod(inject=True)
    del body["spec"]["initContainers"][0]["securityContext"]
    code, said = space.post(f"/api/v1/namespaces/{SPACE}/pods", body)
    assert (code, "violates PodSecurity" in said) == (403, True)
