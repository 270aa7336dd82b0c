"""What Kueue relies on, one test for each thing that its PyTorchJob integration reads or writes; the test is Kueue."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.apiserver.cluster import ControlPlane
from tests.apiserver.operator_process import Audit, Jobs, Kubelet
from tests.factories import make_template
from tests.waiting import becomes, until_async

pytestmark = [pytest.mark.apiserver]

Object = dict[str, Any]
QUEUE = {"kueue.x-k8s.io/queue-name": "q"}
SELECTOR = "training.kubeflow.org/job-name=x,training.kubeflow.org/operator-name=pytorchjob-controller"
ADMITTED = {
    "metadata": {"labels": {"kueue.x-k8s.io/podset": "w"}, "annotations": {"kueue.x-k8s.io/workload": "x"}},
    "spec": {
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}],
    },
}


@pytest.fixture
def submit(jobs: Jobs, control_plane: ControlPlane) -> Callable[..., None]:
    """A user submits a job of two pods, and Kueue's webhook suspends it."""

    def submit(**run_policy: Any) -> None:
        role = {"template": make_template()}
        spec = {"pytorchReplicaSpecs": {"Master": role, "Worker": role}, "runPolicy": {"suspend": True, **run_policy}}
        meta = {"name": "x", "namespace": jobs.namespace, "labels": QUEUE}
        done = control_plane.apply(
            {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}
        )
        assert done.returncode == 0, done.stderr

    return submit


def set_pods(jobs: Jobs, *, suspend: bool, template: Object) -> None:
    """One update, as Kueue sends it at admission and at eviction."""
    role = {"template": template}
    jobs.patch(
        "x", {"spec": {"runPolicy": {"suspend": suspend}, "pytorchReplicaSpecs": {"Master": role, "Worker": role}}}
    )


async def running(jobs: Jobs, kubelet: Kubelet) -> None:
    await until_async(lambda: pods_are(kubelet, 2))
    await kubelet.report("Running")
    await becomes(lambda: jobs.condition("x", "Running"))


async def pods_are(kubelet: Kubelet, count: int) -> bool:
    return len(await kubelet.pods()) == count


def active(jobs: Jobs) -> list[int]:
    """Kueue's IsActive: whether any of these is not 0."""
    return [role.get("active", 0) for role in jobs.get("x")["status"].get("replicaStatuses", {}).values()]


async def test_suspended_by_the_webhook_it_holds_nothing(submit: Callable[..., None], jobs: Jobs) -> None:
    submit()
    await becomes(lambda: ("Suspended", "True") in jobs.conditions("x"))
    assert (jobs.count("pods", "services"), set(active(jobs))) == (0, {0})


async def test_admission_changes_templates_and_resumes_in_one_update(
    submit: Callable[..., None], jobs: Jobs, kubelet: Kubelet
) -> None:
    submit()
    await becomes(lambda: ("Suspended", "True") in jobs.conditions("x"))
    set_pods(jobs, suspend=False, template=ADMITTED)
    await until_async(lambda: pods_are(kubelet, 2))
    for pod in (await kubelet.pods()).values():
        for key, value in ADMITTED["spec"].items():
            assert value == pod["spec"][key] or all(entry in pod["spec"][key] for entry in value), key
        for kind in ("labels", "annotations"):
            assert ADMITTED["metadata"][kind].items() <= pod["metadata"][kind].items()


async def test_eviction_suspends_and_restores_the_templates_in_one_update(
    submit: Callable[..., None], jobs: Jobs, kubelet: Kubelet
) -> None:
    submit()
    set_pods(jobs, suspend=False, template={"spec": {"nodeSelector": {"pool": "a"}}})
    await running(jobs, kubelet)
    set_pods(jobs, suspend=True, template={"spec": {"nodeSelector": {"pool": None}}})
    await becomes(lambda: jobs.count("pods", "services") == 0)
    await becomes(lambda: set(active(jobs)) == {0})
    assert "pool" not in jobs.get("x")["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"].get(
        "nodeSelector", {}
    )
    set_pods(jobs, suspend=False, template={"spec": {"nodeSelector": {"pool": "b"}}})
    await running(jobs, kubelet)
    assert {pod["spec"]["nodeSelector"]["pool"] for pod in (await kubelet.pods()).values()} == {"b"}


async def test_running_is_pods_ready_and_the_end_is_finished(
    submit: Callable[..., None], jobs: Jobs, kubelet: Kubelet
) -> None:
    submit()
    set_pods(jobs, suspend=False, template={})
    await running(jobs, kubelet)
    assert sum(active(jobs)) == 2
    await kubelet.report("Succeeded")
    await becomes(lambda: jobs.condition("x", "Succeeded"))
    assert ("Running", "False") in jobs.conditions("x")


async def test_a_failure_is_finished_too(submit: Callable[..., None], jobs: Jobs, kubelet: Kubelet) -> None:
    submit(backoffLimit=1)
    set_pods(jobs, suspend=False, template={})
    await running(jobs, kubelet)
    await kubelet.report("Failed", "x-worker-0", exit_code=1)
    await becomes(lambda: jobs.condition("x", "Failed"))


async def test_its_selectors_find_the_pods(submit: Callable[..., None], jobs: Jobs, kubelet: Kubelet) -> None:
    submit()
    set_pods(jobs, suspend=False, template={})
    await until_async(lambda: pods_are(kubelet, 2))
    assert len(jobs.kubectl("get", "pods", "-l", SELECTOR, "-o", "name").split()) == 2
    labels = {name: pod["metadata"]["labels"] for name, pod in (await kubelet.pods()).items()}
    assert {name: each["training.kubeflow.org/replica-index"] for name, each in labels.items()} == {
        "x-master-0": "0",
        "x-worker-0": "0",
    }
    assert {each["training.kubeflow.org/replica-type"] for each in labels.values()} == {"master", "worker"}


async def test_counts_and_priority_stand_where_kueue_reads_them(submit: Callable[..., None], jobs: Jobs) -> None:
    submit(schedulingPolicy={"priorityClass": "high"})
    spec = jobs.get("x")["spec"]
    assert [role["replicas"] for role in spec["pytorchReplicaSpecs"].values()] == [1, 1]
    assert spec["runPolicy"]["schedulingPolicy"]["priorityClass"] == "high"


async def test_a_job_of_multikueue_is_left_to_it(
    submit: Callable[..., None], jobs: Jobs, control_plane: ControlPlane
) -> None:
    audit = Audit(control_plane)
    submit(managedBy="kueue.x-k8s.io/multikueue", suspend=False)
    change = json.dumps({"spec": {"runPolicy": {"managedBy": "kubeflow.org/training-operator"}}})
    refused = control_plane.kubectl("-n", jobs.namespace, "patch", "ptj", "x", "--type=merge", "-p", change)
    assert "runPolicy.managedBy" in refused.stderr
    jobs.apply("other", 1)
    await becomes(lambda: jobs.conditions("other"))
    assert not [asked for asked in audit.operator(jobs.namespace) if asked.name.startswith("x")]
    assert "status" not in jobs.get("x")
