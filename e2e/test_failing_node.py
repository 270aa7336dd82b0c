"""A node on which each pod of a job fails: the job leaves it."""

import json

from e2e.faults import CONTROL_PLANE
from e2e.kubectl import Kubectl
from e2e.test_dead_node import HOSTNAME, pod_spec

KILLED = 137
SCRIPT = "import os, sys; sys.exit({code} if os.environ['NODE'] == {node!r} else 0)"


def job(node: str) -> str:
    """A job of one pod that likes this node, and fails there."""
    here = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}
    likes = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "preference": here}]}
    spec = pod_spec(SCRIPT.format(code=KILLED, node=node), affinity={"nodeAffinity": likes})
    spec["containers"][0]["env"] = [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    worker = {"replicas": 1, "restartPolicy": "ExitCode", "template": {"spec": spec}}
    return json.dumps(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "careful"},
            "spec": {"agent": {"avoidNodes": True}, "pytorchReplicaSpecs": {"Worker": worker}},
        }
    )


def test_a_job_leaves_a_node_on_which_its_pods_fail(kubectl: Kubectl) -> None:
    node = kubectl.get("nodes", f"--selector=!{CONTROL_PLANE}")["items"][0]["metadata"]["name"]
    kubectl("apply", "-f", "-", stdin=job(node))
    assert "Succeeded" in kubectl.finish("careful")
    status = kubectl.job("careful")["status"]
    assert [(known["node"], known["pods"]) for known in status["nodeFailures"]] == [(node, 2)]
    [pod] = kubectl.pods("careful")
    assert pod["spec"]["nodeName"] != node
    told = kubectl("get", "events", "--field-selector=reason=NodeFailsRepeatedly", "-o", "jsonpath={.items[*].message}")
    assert f"2 pods of this job have failed on node {node}" in told
