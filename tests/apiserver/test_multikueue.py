"""A job that the real MultiKueue hands to another cluster: Workloads of the operators' own in both."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from pytorchjob_operator.names import LABEL_KUEUE_QUEUE
from tests.apiserver import kueue_process as kueue
from tests.apiserver.cluster import ControlPlane
from tests.apiserver.kueue_process import Object, have, holds, submit, workload
from tests.apiserver.operator_process import Jobs, Kubelet
from tests.waiting import becomes, until_async

pytestmark = kueue.MARKS
jobs = kueue.jobs
NAME = "other"
"""Of everything that leads to the other cluster."""
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
QUEUE = {LABEL_KUEUE_QUEUE: kueue.QUEUE}
HIGH = QUEUE | {kueue.LABEL_PRIORITY: kueue.HIGH}


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The cluster in which jobs run."""
    with kueue.serving(tmp_path_factory.mktemp("kueue-worker"), kueue.POD, external=True) as plane:
        yield plane


@pytest.fixture(scope="module")
def manager(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The cluster in which people submit them."""
    settings = {"origin": "manager", "externalFrameworks": [{"name": kueue.EXTERNAL}]}
    folder = tmp_path_factory.mktemp("kueue-manager")
    with kueue.serving(folder, kueue.POD, external=True, multiKueue=settings) as plane:
        made = plane.apply(kueue.flavor(), *leads_to(control_plane))
        assert made.returncode == 0, made.stderr
        yield plane


def leads_to(plane: ControlPlane) -> Iterator[Object]:
    """What tells Kueue of another cluster, and an admission check that hands jobs to it."""
    config = yaml.safe_load(plane.kubeconfig.read_text())
    [cluster] = config["clusters"]
    cluster["cluster"] = {
        "server": plane.url,
        "certificate-authority-data": base64.b64encode(plane.ca.read_bytes()).decode(),
    }
    meta = {"name": NAME, "namespace": "kueue-system"}
    yield {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"kubeconfig": json.dumps(config)}}
    source = {"kubeConfig": {"location": NAME, "locationType": "Secret"}}
    yield kueue.resource("MultiKueueCluster", {"name": NAME}, spec={"clusterSource": source})
    yield kueue.resource("MultiKueueConfig", {"name": NAME}, spec={"clusters": [NAME]})
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": NAME}
    spec = {"controllerName": MULTIKUEUE, "parameters": parameters}
    yield kueue.resource("AdmissionCheck", {"name": NAME}, spec=spec)


@pytest.fixture
def here(manager: ControlPlane, jobs: Jobs) -> Iterator[Jobs]:
    """The same namespace where people submit jobs, with a queue that hands all of them over."""
    made = Jobs(manager, jobs.namespace)
    made.kubectl("create", "namespace", made.namespace)
    kueue.add_queue(made, kueue.QUEUE, 10, admissionChecksStrategy={"admissionChecks": [{"name": NAME}]})
    yield made
    made.kubectl("delete", "ptj", "--all")
    manager.kubectl("delete", "namespace", made.namespace, "--wait=false")


def hand_over(here: Jobs, name: str, **given: Any) -> None:
    submit(here, name, master=0, labels=QUEUE, managed_by=MULTIKUEUE, **given)


async def test_an_elastic_job_runs_and_grows_in_the_other_cluster(here: Jobs, jobs: Jobs, kubelet: Kubelet) -> None:
    hand_over(here, "x", workers=3, elastic={"minReplicas": 2, "maxReplicas": 3})
    await until_async(lambda: have(kubelet, "x", 3))
    await becomes(lambda: here.condition("x", "Running"))
    assert here.count("pods") == 0
    assert jobs.get("x")["metadata"]["labels"]["kueue.x-k8s.io/multikueue-origin"] == "manager"
    await kubelet.report("Succeeded")
    await becomes(lambda: here.condition("x", "Succeeded"))
    await becomes(lambda: holds(workload(here, "x"), "Finished"))
    await becomes(lambda: jobs.count("ptj", "pods") == 0)


async def test_a_job_that_is_evicted_there_is_handed_over_again(here: Jobs, jobs: Jobs, kubelet: Kubelet) -> None:
    hand_over(here, "x", workers=2)
    await becomes(lambda: here.condition("x", "Running"))
    first = jobs.get("x")["metadata"]["uid"]
    submit(jobs, "urgent", workers=3, master=0, labels=HIGH)
    await becomes(lambda: jobs.condition("urgent", "Running"))
    await until_async(lambda: have(kubelet, "x", 0))
    await kubelet.report("Succeeded")
    await until_async(lambda: have(kubelet, "x", 2))
    await becomes(lambda: here.condition("x", "Running"))
    assert jobs.get("x")["metadata"]["uid"] != first


async def test_a_job_that_is_deleted_here_leaves_nothing_there(here: Jobs, jobs: Jobs, kubelet: Kubelet) -> None:
    hand_over(here, "x", workers=2)
    await until_async(lambda: have(kubelet, "x", 2))
    here.kubectl("delete", "ptj", "x")
    await becomes(lambda: jobs.count("ptj", "pods", "workloads.kueue.x-k8s.io") == 0)
