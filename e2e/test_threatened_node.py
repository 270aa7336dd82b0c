"""A node is cordoned: the workers on it and elsewhere save at once, and train on where they are."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.elastic import elastic, elastic_job, events, log, submit
from e2e.kubectl import Kubectl, until

pytestmark = pytest.mark.alone
NAME = "threatened"
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
