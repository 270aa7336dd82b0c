"""A node is cordoned: the workers save at once and train on where they are, and a reserve pod keeps another place."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.elastic import elastic, elastic_job, events, log, submit
from e2e.kubectl import JOB_LABEL, Kubectl, until

pytestmark = pytest.mark.alone
NAME = "threatened"
RESERVE_FOR = "training.kubeflow.org/reserve-for"
TRAIN = """
import os, time
import torch, torch.distributed as dist
from pytorchjob_agent import checkpoint_requested, progress, should_stop

dist.init_process_group("gloo")
enough = torch.zeros(1)
for step in range(1, int(os.environ["STEPS"]) + 1):
    enough.fill_(os.path.exists("/tmp/enough"))
    dist.all_reduce(enough)
    progress(step)
    if checkpoint_requested():
        print(f"saved={step}", flush=True)
    if should_stop() or enough:
        break
    time.sleep(float(os.environ["STEP_SECONDS"]))
dist.destroy_process_group()
print("done", flush=True)
"""


@pytest.fixture
def nodes(kubectl: Kubectl) -> Iterator[list[str]]:
    """The nodes that the test has cordoned; they are open again when it has ended."""
    cordoned: list[str] = []
    yield cordoned
    for node in cordoned:
        kubectl("uncordon", node)


def node_of(kubectl: Kubectl, worker: int) -> str:
    pods: list[dict[str, Any]] = kubectl.pods(NAME)
    return str(next(pod["spec"]["nodeName"] for pod in pods if pod["metadata"]["name"] == f"{NAME}-worker-{worker}"))


def saved(kubectl: Kubectl, worker: int) -> list[str]:
    return re.findall(r"saved=(\d+)", log(kubectl, NAME, worker))


def test_workers_save_when_their_node_is_cordoned_and_train_on(kubectl: Kubectl, nodes: list[str]) -> None:
    submit(kubectl, elastic_job(NAME, 2, steps=6000, seconds=0.1, train=TRAIN))
    until(lambda: (kubectl.job(NAME).get("status", {}).get("progress") or {}).get("step"), 180, "no step")
    first = elastic(kubectl, NAME)["round"]
    nodes.append(node_of(kubectl, 1))
    kubectl("cordon", nodes[0])
    until(lambda: {"PodThreatened", "CheckpointSaved"} <= events(kubectl, NAME), 180, lambda: kubectl.story(NAME))
    kubectl("exec", f"{NAME}-worker-0", "--", "touch", "/tmp/enough")
    assert "Succeeded" in kubectl.finish(NAME)
    steps = [saved(kubectl, worker) for worker in (0, 1)]
    assert len(steps[0]) == 1
    assert steps[0] == steps[1]
    assert elastic(kubectl, NAME)["round"] == first
    told = kubectl("get", "events", "--field-selector=reason=PodThreatened", "-o", "jsonpath={.items[*].message}")
    assert f"its node {nodes[0]} is cordoned" in told


def reserve(kubectl: Kubectl) -> dict[str, Any]:
    """The reserve pod of worker 1; empty if there is none."""
    found = kubectl.get("pods", "-l", f"{RESERVE_FOR}={NAME}-worker-1")["items"]
    return found[0] if found else {}


def reserve_runs(kubectl: Kubectl) -> str:
    """The node on which it runs; empty until then."""
    pod = reserve(kubectl)
    return str(pod["spec"]["nodeName"]) if pod.get("status", {}).get("phase") == "Running" else ""


def is_ready(kubectl: Kubectl, worker: int, but: str) -> bool:
    """Whether another pod than the one with this uid runs as this worker."""
    pods = [pod for pod in kubectl.pods(NAME) if pod["metadata"]["name"] == f"{NAME}-worker-{worker}"]
    return any(pod["metadata"]["uid"] != but and pod["status"].get("phase") == "Running" for pod in pods)


def test_a_drained_worker_starts_again_on_the_node_of_its_reserve_pod(kubectl: Kubectl, nodes: list[str]) -> None:
    job = elastic_job(NAME, 2, steps=6000, seconds=0.1, train=TRAIN, agent={"reservePods": 1})
    apart = {"labelSelector": {"matchLabels": {JOB_LABEL: NAME}}, "topologyKey": "kubernetes.io/hostname"}
    template = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    submit(kubectl, job)
    until(lambda: (kubectl.job(NAME).get("status", {}).get("progress") or {}).get("step"), 180, "no step")
    first = elastic(kubectl, NAME)["round"]
    lost = kubectl.get("pod", f"{NAME}-worker-1")["metadata"]["uid"]
    nodes.append(node_of(kubectl, 1))
    kubectl("cordon", nodes[0])
    kept = until_node(kubectl)
    assert kept not in {nodes[0], node_of(kubectl, 0)}
    assert elastic(kubectl, NAME)["round"] == first, "the workers train on meanwhile"
    selector = f"--pod-selector={JOB_LABEL}={NAME}"
    kubectl("drain", nodes[0], "--ignore-daemonsets", "--delete-emptydir-data", selector, "--timeout=120s")
    until(lambda: is_ready(kubectl, 1, but=lost), 120, lambda: kubectl.story(NAME))
    assert node_of(kubectl, 1) == kept
    assert not reserve(kubectl)
    until(lambda: elastic(kubectl, NAME)["members"] == 2 and elastic(kubectl, NAME)["round"] != first, 120, "no round")
    kubectl("exec", f"{NAME}-worker-0", "--", "touch", "/tmp/enough")
    assert "Succeeded" in kubectl.finish(NAME)
    assert "ReservePodCreated" in events(kubectl, NAME)


def until_node(kubectl: Kubectl) -> str:
    """Wait for the node of the reserve pod."""
    until(lambda: reserve_runs(kubectl), 180, lambda: kubectl.story(NAME))
    return reserve_runs(kubectl)
