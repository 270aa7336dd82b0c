"""An elastic job and its autoscaler against a real API server; pods report what the test says."""

import json
from typing import Any

import pytest

from tests.apiserver.cluster import ControlPlane
from tests.apiserver.operator_process import Jobs, Kubelet
from tests.factories import make_template
from tests.waiting import becomes, until_async

pytestmark = [pytest.mark.apiserver]

CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
HPA = "horizontalpodautoscalers"


def submit(jobs: Jobs, plane: ControlPlane, labels: dict[str, str] | None = None, **policy: Any) -> None:
    """An elastic job of two workers."""
    spec = {
        "elasticPolicy": {"minReplicas": 2, "maxReplicas": 3, "metrics": [CPU], **policy},
        "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": make_template()}},
    }
    meta = {"name": "x", "namespace": jobs.namespace, "labels": labels or {}}
    done = plane.apply({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec})
    assert done.returncode == 0, done.stderr


async def started(jobs: Jobs, kubelet: Kubelet, plane: ControlPlane, **policy: Any) -> None:
    submit(jobs, plane, **policy)
    await until_async(lambda: pods_are(kubelet, 2))
    await kubelet.report("Running")
    await becomes(lambda: jobs.condition("x", "Running"))


async def pods_are(kubelet: Kubelet, count: int) -> bool:
    return set(await kubelet.pods()) == {f"x-worker-{index}" for index in range(count)}


def autoscaler(jobs: Jobs) -> dict[str, Any] | None:
    found = jobs.plane.get("-n", jobs.namespace, HPA)["items"]
    return found[0] if found else None


def bounds(jobs: Jobs) -> tuple[int, int] | None:
    found = autoscaler(jobs)
    return (found["spec"]["minReplicas"], found["spec"]["maxReplicas"]) if found else None


async def test_the_autoscaler_lives_as_long_as_the_job_runs(
    control_plane: ControlPlane, jobs: Jobs, kubelet: Kubelet
) -> None:
    await started(jobs, kubelet, control_plane)
    await becomes(lambda: bounds(jobs) == (2, 3))
    jobs.kubectl("patch", HPA, "x", "--type=merge", "-p", json.dumps({"spec": {"behavior": {"scaleDown": {}}}}))
    jobs.patch("x", {"spec": {"elasticPolicy": {"maxReplicas": 4}}})
    await becomes(lambda: bounds(jobs) == (2, 4))
    assert "behavior" in (autoscaler(jobs) or {})["spec"]
    jobs.patch("x", {"spec": {"runPolicy": {"suspend": True}}})
    await becomes(lambda: autoscaler(jobs) is None)
    jobs.patch("x", {"spec": {"runPolicy": {"suspend": False}}})
    await becomes(lambda: bounds(jobs) == (2, 4))
    await until_async(lambda: pods_are(kubelet, 2))
    await kubelet.report("Succeeded", "x-worker-0")
    await becomes(lambda: jobs.condition("x", "Succeeded"))
    await becomes(lambda: autoscaler(jobs) is None)


async def test_scaling_leaves_the_other_pods_alone(control_plane: ControlPlane, jobs: Jobs, kubelet: Kubelet) -> None:
    await started(jobs, kubelet, control_plane)
    uids = {name: pod["metadata"]["uid"] for name, pod in (await kubelet.pods()).items()}
    jobs.kubectl("scale", "ptj", "x", "--replicas=3")
    await until_async(lambda: pods_are(kubelet, 3))
    await kubelet.report("Running", "x-worker-2")
    await becomes(lambda: scale(jobs) == (3, 3))
    jobs.kubectl("scale", "ptj", "x", "--replicas=2")
    await until_async(lambda: pods_are(kubelet, 2))
    assert {name: pod["metadata"]["uid"] for name, pod in (await kubelet.pods()).items()} == uids
    await becomes(lambda: scale(jobs) == (2, 2))
    assert jobs.conditions("x") == [("Created", "True"), ("Running", "True")]


def scale(jobs: Jobs) -> tuple[int, int]:
    """Wanted and running workers, as an autoscaler reads them, with a selector that finds its pods."""
    path = f"/apis/kubeflow.org/v1/namespaces/{jobs.namespace}/pytorchjobs/x/scale"
    found = json.loads(jobs.kubectl("get", "--raw", path))
    selected = jobs.kubectl("get", "pods", "-l", found["status"]["selector"], "-o", "name").split()
    assert len(selected) >= found["status"]["replicas"]
    return found["spec"]["replicas"], found["status"]["replicas"]


async def test_a_metric_that_no_autoscaler_takes_is_told_and_the_job_runs(
    control_plane: ControlPlane, jobs: Jobs, kubelet: Kubelet
) -> None:
    wrong = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}
    submit(jobs, control_plane, metrics=[wrong])
    await until_async(lambda: pods_are(kubelet, 2))
    await becomes(lambda: jobs.condition("x", "ReplicaFailure"))
    told = jobs.condition("x", "ReplicaFailure") or {}
    assert told["reason"] == "FailedCreateAutoscaler"
    assert "averageUtilization" in told["message"]


async def test_under_kueue_the_metrics_have_no_effect_and_the_job_says_so(
    control_plane: ControlPlane, jobs: Jobs, kubelet: Kubelet
) -> None:
    submit(jobs, control_plane, {"kueue.x-k8s.io/queue-name": "q"})
    await until_async(lambda: pods_are(kubelet, 2))
    await kubelet.report("Running")
    await becomes(lambda: ("Running", "True") in jobs.conditions("x"))
    first = jobs.get("x")["status"]["conditions"][0]
    assert (first["type"], first["status"], first["reason"]) == ("ConfigValid", "False", "ElasticWithKueueUnsupported")
    assert autoscaler(jobs) is None
