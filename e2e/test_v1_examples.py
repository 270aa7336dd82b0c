"""The shapes of training-operator v1's examples, with plain python and torchrun: each one reaches Succeeded."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from e2e.conftest import ROOT, fresh_namespace
from e2e.kubectl import JOB_LABEL, Kubectl, until
from e2e.screen import Screen


@pytest.fixture(scope="module")
def namespace(operator: Kubectl) -> Iterator[Kubectl]:
    """For the jobs one after the other: all at once are twenty processes that import torch."""
    with fresh_namespace(operator) as kubectl:
        yield kubectl


@pytest.fixture(scope="module")
def by_etcd(operator: Kubectl) -> Iterator[Kubectl]:
    """The jobs that meet by etcd, without any others.

    An etcd that is short of CPU loses requests, and torch closes the rendezvous for ever when one of its agents ends.
    """
    with fresh_namespace(operator) as kubectl:
        _apply(kubectl, "etcd")
        kubectl("wait", "--for=condition=Available", "--timeout=120s", "deployment/etcd")
        yield kubectl


def _apply(kubectl: Kubectl, name: str, **spec: Any) -> None:
    """Submit what is in the file; `spec`: what the job has besides."""
    documents = [*yaml.safe_load_all((ROOT / "e2e" / "v1" / f"{name}.yaml").read_text())]
    for document in documents:
        if document["kind"] == "PyTorchJob":
            document["spec"] |= spec
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))


SIMPLE = pytest.param("simple", "world_size=2 accuracy=", id="simple: python, 1 master and 1 worker")
CPU_DEMO = pytest.param("cpu-demo", "world_size=4 sum=6", id="cpu-demo: torchrun with two processes in each pod")
SEND_RECV = pytest.param("send-recv", "non-blocking: rank 3 answered 9", id="send and receive: 1 master and 3 workers")
MNIST = pytest.param("mnist-gloo", "world_size=2 accuracy=0.9", id="mnist: training with gloo, without any agent")
C10D = pytest.param("echo-c10d", "GROUP_RANK=1", id="elastic echo: two workers meet by c10d")
STATIC = pytest.param("echo-static", "GROUP_RANK=1", id="elastic echo: two workers by the ranks that they were given")
STANDALONE = pytest.param("standalone", "met everybody", id="standalone: one worker has no peers")


@pytest.mark.parametrize(("job", "said"), [SIMPLE, CPU_DEMO, SEND_RECV, MNIST, C10D, STATIC, STANDALONE])
def test_an_example_of_v1_succeeds(namespace: Kubectl, job: str, said: str) -> None:
    _apply(namespace, job)
    _succeeds(namespace, job, said)


@pytest.mark.long
@pytest.mark.parametrize(("job", "said"), [SIMPLE, CPU_DEMO, SEND_RECV, MNIST, C10D])
def test_an_example_of_v1_succeeds_with_the_agent(operator: Kubectl, job: str, said: str) -> None:
    """Without another changed line."""
    with fresh_namespace(operator) as kubectl:
        _apply(kubectl, job, agent={"inject": True})
        _succeeds(kubectl, job, said)
        assert kubectl.job(job)["status"]["elastic"]["round"], kubectl.story(job)


def _succeeds(submitted: Kubectl, job: str, said: str) -> None:
    assert "Succeeded" in submitted.finish(job), submitted.story(job)
    until(
        lambda: said in submitted("logs", f"--selector={JOB_LABEL}={job}", "--tail=-1"),
        60,
        lambda: submitted.story(job),
    )


@pytest.mark.alone
@pytest.mark.parametrize(
    ("job", "said"),
    [
        pytest.param("echo-etcd", "GROUP_RANK=1", id="elastic echo: two workers meet by etcd"),
        pytest.param("echo-etcd-v2", "GROUP_RANK=1", id="elastic echo: two workers meet by etcd-v2"),
    ],
)
def test_an_example_that_meets_by_etcd_succeeds(by_etcd: Kubectl, job: str, said: str) -> None:
    _apply(by_etcd, job)
    _succeeds(by_etcd, job, said)


@pytest.mark.long
def test_jobs_of_v1_in_a_labelled_namespace_outlive_a_pod(operator: Kubectl) -> None:
    """Their files say nothing of the agent."""
    with fresh_namespace(operator) as kubectl:
        screen = Screen(kubectl)
        screen(f"kubectl label namespace {kubectl.namespace} training.kubeflow.org/agent=Inject")
        _outlives(kubectl, screen, stays="mnist-gloo-master-0", goes="mnist-gloo-worker-0")
        _outlives(kubectl, screen, stays="mnist-torchrun-worker-0", goes="mnist-torchrun-master-0")
        _outlives(kubectl, screen, stays="mnist-elastic-worker-0", goes="mnist-elastic-worker-1")
        screen.keep("v1")


def _outlives(kubectl: Kubectl, screen: Screen, stays: str, goes: str) -> None:
    """Apply a job, and lose one of its two pods; the other one starts its workers again in the same container."""
    job = "-".join(stays.split("-")[:2])
    screen(f"kubectl apply -f {ROOT}/e2e/v1/{job}.yaml")
    until(lambda: _elastic(kubectl, job).get("members") == 2, 180, lambda: kubectl.story(job))
    uid, round_ = kubectl.get("pod", stays)["metadata"]["uid"], _elastic(kubectl, job)["round"]
    screen(f"kubectl delete pod {goes} --force --grace-period=0")
    until(lambda: _elastic(kubectl, job).get("round") != round_, 180, lambda: kubectl.story(job))
    screen(f"pytorchjob status {job}")
    assert "Succeeded" in kubectl.finish(job), kubectl.story(job)
    screen(f"kubectl logs {stays} -c pytorch", tail=12)
    screen(f"kubectl get pytorchjob {job}")
    [survivor] = [pod for pod in kubectl.pods(job) if pod["metadata"]["name"] == stays]
    assert survivor["metadata"]["uid"] == uid
    assert [each["restartCount"] for each in survivor["status"]["containerStatuses"]] == [0]


def _elastic(kubectl: Kubectl, job: str) -> dict[str, Any]:
    found: dict[str, Any] = kubectl.job(job).get("status", {}).get("elastic", {})
    return found
