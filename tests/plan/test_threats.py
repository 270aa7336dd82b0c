"""Which pods may be lost soon, by what their node or their own status announces."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_operator.coordinator_update import Sync
from pytorchjob_operator.node import NOTICES, Node
from pytorchjob_operator.observed import CoordinatorAccess, Options, Pod
from pytorchjob_operator.plan import make_plan
from tests.factories import make_job, make_pod, observed

GPU = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
SPOT = {"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
FOR_300_S = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
ANY = {"operator": "Exists"}
Object = dict[str, Any]


def node(
    *taints: Object,
    cordoned: bool = False,
    condition: tuple[str, str] = ("Ready", "True"),
    known: Sequence[str] = (),
) -> Node:
    kind, status = condition
    spec = {"taints": list(taints), **({"unschedulable": True} if cordoned else {})}
    conditions = [{"type": "Ready", "status": "True"}, {"type": kind, "status": status, "message": "now"}]
    return Node.from_api({"metadata": {"name": "n1"}, "spec": spec, "status": {"conditions": conditions}}, known)


def pod(*tolerations: Object, phase: str = "Running", deleted: bool = False, **status: Any) -> Pod:
    """A pod on node n1, as the API server has it."""
    meta = {"name": "x-master-0", "deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {"name": "x-master-0"}
    spec = {"nodeName": "n1", "tolerations": list(tolerations)}
    read = Pod.from_api({"metadata": meta, "spec": spec, "status": {"phase": phase, **status}})
    own = {"node": read.node, "tolerations": read.tolerations, "threat": read.threat, "deleting": read.deleting}
    return make_pod("master-0", read.phase, **own)


def threat(of: Pod, *marked: Node) -> str:
    """The threat that the coordinator receives with the pod."""
    seen = replace(
        observed(make_job(), of, make_pod("worker-0")),
        options=Options(coordinator=CoordinatorAccess("op:29600")),
        marked={each.name: each for each in marked},
    )
    update = make_plan(seen).coordinator
    assert isinstance(update, Sync)
    return update.pods[0].threat if 0 in update.pods else "the pod is not expected"


@pytest.mark.parametrize(
    ("marked", "tolerations", "reason"),
    [
        pytest.param(node(), [], "", id="nothing stands against the node"),
        pytest.param(node(cordoned=True), [], "its node n1 is cordoned", id="the node is cordoned"),
        pytest.param(node(CORDON), [], "its node n1 is cordoned", id="the node has the taint of a cordon"),
        pytest.param(node(cordoned=True), [ANY], "its node n1 is cordoned", id="a drain asks for no tolerations"),
        pytest.param(node(GPU), [{**GPU, "operator": "Equal"}], "", id="a taint of the node that the pod tolerates"),
        pytest.param(node(GPU), [GPU], "", id="an empty operator is Equal"),
        pytest.param(
            node(GPU), [{**GPU, "value": "other"}], "its node n1 has the taint nvidia.com/gpu", id="another value"
        ),
        pytest.param(
            node(GPU), [{**GPU, "effect": "NoExecute"}], "its node n1 has the taint nvidia.com/gpu", id="another effect"
        ),
        pytest.param(node(GPU), [], "its node n1 has the taint nvidia.com/gpu", id="a taint that came later"),
        pytest.param(node({**GPU, "effect": "PreferNoSchedule"}), [], "", id="a preference of the scheduler"),
        pytest.param(
            node(UNREACHABLE),
            [{**FOR_300_S, "tolerationSeconds": 300}],
            "its node n1 has the taint node.kubernetes.io/unreachable",
            id="a toleration that ends: the pod is deleted then",
        ),
        pytest.param(node(UNREACHABLE), [FOR_300_S], "", id="a toleration without an end"),
        pytest.param(
            node(GPU, SPOT, cordoned=True),
            [GPU],
            "its node n1 has the taint aws-node-termination-handler/spot-itn",
            id="a spot notice says more than a cordon",
        ),
        pytest.param(
            node(condition=("VMEventScheduled", "True")),
            [ANY],
            "its node n1 reports VMEventScheduled=True",
            id="a maintenance event",
        ),
        pytest.param(
            node(condition=("AcceleratedHardwareReady", "False")),
            [],
            "its node n1 reports AcceleratedHardwareReady=False",
            id="a broken GPU, by the node's monitor",
        ),
        pytest.param(node(condition=("AcceleratedHardwareReady", "True")), [], "", id="a healthy GPU"),
        pytest.param(
            node(condition=("NebiusGPUError", "True")), [], "its node n1 reports NebiusGPUError=True", id="a broken one"
        ),
        pytest.param(node(condition=("GpuBad", "True")), [], "", id="a condition that nobody knows"),
        pytest.param(
            node(condition=("GpuBad", "True"), known=["GpuBad=True"]),
            [],
            "its node n1 reports GpuBad=True",
            id="a condition of the cluster's own",
        ),
    ],
)
def test_what_a_node_announces(marked: Node, tolerations: list[Object], reason: str) -> None:
    assert threat(pod(*tolerations), marked) == reason


@pytest.mark.parametrize("key", sorted(NOTICES))
def test_a_node_that_ends_takes_pods_with_it_that_tolerate_everything(key: str) -> None:
    marked = node({"key": key, "effect": "NoSchedule"})
    assert threat(pod(ANY), marked) == f"its node n1 has the taint {key}"


DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "preempted"}
DEVICES = [{"resourceID": "GPU-7", "health": "Healthy"}, {"resourceID": "GPU-8", "health": "Unhealthy"}]
ALLOCATED = {"name": "pytorch", "allocatedResourcesStatus": [{"name": "nvidia.com/gpu", "resources": DEVICES}]}


@pytest.mark.parametrize(
    ("threatened", "reason"),
    [
        pytest.param(pod(conditions=[DISRUPTED]), "it is about to be deleted: preempted", id="it is preempted"),
        pytest.param(pod(conditions=[{**DISRUPTED, "status": "False"}]), "", id="it was not preempted after all"),
        pytest.param(
            pod(containerStatuses=[ALLOCATED]), "its nvidia.com/gpu GPU-8 is unhealthy", id="its device is unhealthy"
        ),
        pytest.param(pod(conditions=[DISRUPTED], deleted=True), "the pod is not expected", id="it terminates already"),
        pytest.param(pod(conditions=[DISRUPTED], phase="Succeeded"), "", id="it has succeeded"),
        pytest.param(pod(phase="Pending"), "", id="it has not started"),
    ],
)
def test_what_a_pod_announces_itself(threatened: Pod, reason: str) -> None:
    assert threat(threatened, node()) == reason


def test_a_pod_that_has_not_started_has_nothing_to_lose() -> None:
    assert threat(pod(phase="Pending"), node(cordoned=True)) == ""


def test_without_the_right_to_watch_nodes_only_pods_announce() -> None:
    assert threat(pod()) == ""
    assert threat(pod(conditions=[DISRUPTED])) != ""


def test_heartbeats_of_a_node_change_no_announcement() -> None:
    first, later = node(GPU), replace(node(GPU), resource_version=9)
    assert first.marks == later.marks
