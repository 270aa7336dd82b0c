"""What training-operator v1 leaves in a cluster for a running job of one Master and some Workers (contract A.6 to A.9).

`tests/apiserver/test_takeover.py` does the same with the real v1; here the pods are real.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from e2e.kubectl import Kubectl, until

Object = dict[str, Any]

_PREFIX = "training.kubeflow.org"
_PORT = {"name": "pytorchjob-port", "containerPort": 23456}
_WAIT_FOR_MASTER = """
import socket, sys, time
for _ in range(100):
    try:
        sys.exit(not socket.gethostbyname("%s"))
    except OSError:
        time.sleep(2)
sys.exit(1)
"""


def leave(kubectl: Kubectl, name: str, workers: int, template: Object) -> None:
    """Make the job, its pods and Services, and once all pods run its status; no operator may be there."""
    roles = {"Master": {"replicas": 1, "template": template}, "Worker": {"replicas": workers, "template": template}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}}
    _apply(kubectl, {**job, "spec": {"pytorchReplicaSpecs": roles}})
    uid = kubectl.job(name)["metadata"]["uid"]
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name, "uid": uid}
    _apply(kubectl, *_children({**owner, "controller": True, "blockOwnerDeletion": True}, workers, template))
    until(lambda: {pod["status"]["phase"] for pod in kubectl.pods(name)} == {"Running"}, 180, lambda: _story(kubectl))
    change = json.dumps({"status": _status(name, workers)})
    kubectl("patch", "pytorchjob", name, "--subresource=status", "--type=merge", "-p", change)


def _apply(kubectl: Kubectl, *objects: Object) -> None:
    kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


def _story(kubectl: Kubectl) -> str:
    return kubectl("describe", "pods", check=False)[-6000:]


def _children(owner: Object, workers: int, template: Object) -> Iterator[Object]:
    for rank, (role, index) in enumerate([("master", 0), *(("worker", index) for index in range(workers))]):
        labels = {**_labels(owner["name"]), f"{_PREFIX}/replica-type": role, f"{_PREFIX}/replica-index": str(index)}
        meta = {"name": f"{owner['name']}-{role}-{index}", "labels": labels, "ownerReferences": [owner]}
        ports = [{"name": _PORT["name"], "port": _PORT["containerPort"]}]
        spec = {"clusterIP": "None", "selector": labels, "ports": ports}
        yield {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}
        if rank == 0:
            meta = {**meta, "labels": {**labels, f"{_PREFIX}/job-role": "master"}}
        pod = _pod_spec(f"{owner['name']}-master-0", rank, workers + 1, template["spec"])
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod}


def _labels(job: str) -> dict[str, str]:
    return {f"{_PREFIX}/operator-name": "pytorchjob-controller", f"{_PREFIX}/job-name": job}


def _pod_spec(master: str, rank: int, size: int, given: Object) -> Object:
    """The template with v1's port, env and init container; neither hostname nor subdomain."""
    (container,) = given["containers"]
    env = {
        "PYTHONUNBUFFERED": "1",
        "MASTER_PORT": str(_PORT["containerPort"]),
        "PET_MASTER_PORT": str(_PORT["containerPort"]),
        "MASTER_ADDR": master,
        "PET_MASTER_ADDR": master,
        "WORLD_SIZE": str(size),
        "RANK": str(rank),
        "PET_NODE_RANK": str(rank),
        "PET_NPROC_PER_NODE": "auto",
        "PET_NNODES": str(size),
    }
    told = [{"name": key, "value": value} for key, value in env.items()]
    first = {**container, "name": "init-pytorch", "command": ["python", "-c", _WAIT_FOR_MASTER % master]}
    made = {"restartPolicy": "OnFailure", "containers": [{**container, "ports": [_PORT], "env": told}]}
    return {**given, **made, **({"initContainers": [first]} if rank else {})}


def _status(name: str, workers: int) -> Object:
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    times = {"lastUpdateTime": now, "lastTransitionTime": now}
    conditions = [
        {"type": kind, "status": "True", "reason": f"PyTorchJob{kind}", "message": f"PyTorchJob {name} is {said}."}
        for kind, said in (("Created", "created"), ("Running", "running"))
    ]
    labels = sorted(f"{key}={value}" for key, value in _labels(name).items())
    counts = {
        role: {"active": count, "selector": ",".join([*labels, f"{_PREFIX}/replica-type={role.lower()}"])}
        for role, count in (("Master", 1), ("Worker", workers))
    }
    listed = [{**condition, **times} for condition in conditions]
    return {"conditions": listed, "replicaStatuses": counts, "startTime": now}
