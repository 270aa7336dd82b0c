"""Real torch jobs under the quota of the real Kueue."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import ROOT, fresh_namespace, install
from e2e.elastic import elastic, elastic_job, log, starts, steps, submit, until_step
from e2e.faults import on_kind, restarts
from e2e.kubectl import Kubectl, until
from e2e.kueue import kueue, used, watched_pods
from e2e.screen import Screen
from pytorchjob_operator.names import LABEL_KUEUE_QUEUE
from tests.apiserver.kueue_process import BUILT, QUEUE, flavor, queue

pytestmark = [
    pytest.mark.long,
    pytest.mark.alone,
    pytest.mark.skipif(not on_kind(), reason="Kueue's manager runs beside nodes that are containers"),
    pytest.mark.skipif(not BUILT, reason="Kueue is not built: run `make binaries-kueue`"),
]
TRAIN = (Path(__file__).parent / "queued_training.py").read_text()
EACH = 100
"""Thousandths of a processor that each pod asks for."""


@pytest.fixture(scope="module")
def queued(cluster: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """The cluster with Kueue, whose queues the operator knows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HELM_ARGS", "--set kueue.externalFramework=true")
        system = install(cluster)
        with kueue(cluster, tmp_path_factory.mktemp("kueue")):
            yield system
        patch.undo()
        install(cluster)


@pytest.fixture
def kubectl(queued: Kubectl) -> Iterator[Kubectl]:
    """A fresh namespace with a queue for three pods."""
    with fresh_namespace(queued) as fresh:
        offer(fresh, 3)
        yield fresh


def offer(kubectl: Kubectl, pods: int) -> None:
    """Give the queue quota for so many pods."""
    objects = [flavor(), *queue(kubectl.namespace, QUEUE, f"{EACH * pods}m")]
    kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


def queued_job(name: str, workers: int, **spec: Any) -> dict[str, Any]:
    """A job in that queue; keywords go into its spec."""
    job = elastic_job(name, workers, train=TRAIN, **spec)
    job["metadata"]["labels"] = {LABEL_KUEUE_QUEUE: QUEUE}
    (container,) = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"cpu": f"{EACH}m"}}
    return job


def sizes(kubectl: Kubectl, job: str) -> list[int]:
    """The workers of each round in which worker 0 has trained."""
    return [start["world"] for start in starts(log(kubectl, job, 0))]


def test_two_four_two_four_workers_train_as_quota_comes_and_goes(kubectl: Kubectl, tmp_path: Path) -> None:
    with watched_pods(kubectl, tmp_path / "pods") as watched:
        submit(kubectl, queued_job("other", 1))
        until_step(kubectl, "other", 0, 5)
        submit(kubectl, queued_job("x", 4, elasticPolicy={"minReplicas": 2, "maxReplicas": 4}))
        until_step(kubectl, "x", 0, 10)
        assert sizes(kubectl, "x") == [2]
        few, first = len(used(watched)), {pod["metadata"]["uid"] for pod in kubectl.pods("x")}
        offer(kubectl, 5)
        until(lambda: sizes(kubectl, "x")[-1:] == [4], 120, lambda: kubectl.story("x"))
        submit(kubectl, queued_job("late", 2))
        until(lambda: sizes(kubectl, "x")[-1:] == [2], 120, lambda: kubectl.story("x"))
        until_step(kubectl, "late", 1, 5)
        kubectl("exec", "late-worker-0", "--", "touch", "/tmp/stop")
        until(lambda: sizes(kubectl, "x")[-1:] == [4], 120, lambda: kubectl.story("x"))
        assert first < {pod["metadata"]["uid"] for pod in kubectl.pods("x")}
        assert set(restarts(kubectl, "x").values()) == {0}
        assert elastic(kubectl, "x").get("restarts", 0) == 0
        kubectl("exec", "x-worker-0", "--", "touch", "/tmp/stop")
        assert "Succeeded" in kubectl.finish("x")
        assert "Succeeded" in kubectl.finish("late")

        trained = steps(log(kubectl, "x", 0))
        assert trained == [*range(1, len(trained) + 1)], "no step is lost, and none is done twice"
        until(lambda: used(watched)[-1] == EACH, 60, "only the other job is left")
        usage = used(watched)
        assert max(usage[:few]) == 3 * EACH
        assert max(usage) == 5 * EACH
    suspended = next(each for each in kubectl.job("x")["status"]["conditions"] if each["type"] == "Suspended")
    assert suspended["status"] == "False"
    reasons = [each["reason"] for each in kubectl.get("events")["items"] if each["involvedObject"]["name"] == "x"]
    assert reasons.count("PyTorchJobQueued") <= 1


def test_what_people_see_of_jobs_in_a_queue(kubectl: Kubectl) -> None:
    """One job trains with a part of its workers, one has no quota yet, one never will, one names no queue."""
    offer(kubectl, 4)
    submit(kubectl, queued_job("other", 1))
    until_step(kubectl, "other", 0, 5)
    submit(kubectl, queued_job("elastic", 4, elasticPolicy={"minReplicas": 2, "maxReplicas": 4}))
    until(lambda: sizes(kubectl, "elastic")[-1:] == [3], 180, lambda: kubectl.story("elastic"))
    submit(kubectl, queued_job("waits", 3))
    submit(kubectl, queued_job("large", 5))
    lost = queued_job("lost", 1)
    lost["metadata"]["labels"] = {LABEL_KUEUE_QUEUE: "nobodys"}
    submit(kubectl, lost)
    until(lambda: all(waiting_for(kubectl, job) for job in ("waits", "large")), 60, lambda: kubectl.story("waits"))
    until(lambda: waiting_for(kubectl, "lost") == "QueueMissing", 60, lambda: kubectl.story("lost"))

    screen = Screen(kubectl)
    listed = screen("pytorchjob list")
    assert "place 1 of " in listed
    shown = screen("pytorchjob status elastic")
    assert "1 more worker waits" in shown
    assert "insufficient unused quota for cpu in flavor default" in shown
    assert "KueueWaitsForQuota" in screen("pytorchjob doctor waits", check=False)
    assert "KueueQueueMissing" in screen("pytorchjob doctor lost", check=False)
    screen.keep("kueue")


def waiting_for(kubectl: Kubectl, job: str) -> str:
    """The reason of the condition Waiting."""
    conditions = kubectl.job(job).get("status", {}).get("conditions", [])
    return next((str(each["reason"]) for each in conditions if each["type"] == "Waiting"), "")


def test_the_example_trains_with_what_its_queue_has(kubectl: Kubectl) -> None:
    folder = ROOT / "examples" / "queue"
    kubectl("apply", "-f", str(folder / "queue.yaml"))
    kubectl("apply", "-f", str(folder / "pytorchjob.yaml"))
    until(lambda: elastic(kubectl, "queued").get("members") == 2, 180, lambda: kubectl.story("queued"))
    more = (folder / "queue.yaml").read_text().replace("500m", "750m")
    kubectl("apply", "-f", "-", stdin=more)
    assert "Succeeded" in kubectl.finish("queued")
