"""Jobs with one seeded fault each, in the shapes and words in which Kubernetes writes them.

The objects are small, and have every field that the real component sets and a rule may read.
"""

from collections.abc import Callable
from typing import Any

from pytorchjob.cluster import gather
from pytorchjob_agent.contract.termination import TerminationMessage
from pytorchjob_operator import names
from tests.people.fake_cluster import NAMESPACE, FakeCluster, an_event, timestamp

Object = dict[str, Any]
JOB = "train"
IMAGE = "registry.example.com/team/train:1"
START, CREATED = timestamp(-290), timestamp(-300)
MASTER, W0, W1 = "train-master-0", "train-worker-0", "train-worker-1"


def condition(kind: str, message: str = "", *, reason: str = "", status: str = "True", seconds: float = -60) -> Object:
    """A condition of a job, a pod or a node."""
    words = reason or f"PyTorchJob{kind}"
    return {
        "type": kind,
        "status": status,
        "reason": words,
        "message": message or words,
        "lastTransitionTime": timestamp(seconds),
    }


def job(
    *conditions: Object,
    workers: int = 2,
    created: str = CREATED,
    labels: Object | None = None,
    container: Object | None = None,
    status: Object | None = None,
    **spec: Any,
) -> Object:
    """A job of one master and some workers that an operator has accepted."""
    main = {"name": names.CONTAINER, "image": IMAGE, **(container or {})}
    template = {"spec": {"containers": [main]}}
    known = [condition("Created", "PyTorchJob train is created.", seconds=-299), *conditions]
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {
            "name": JOB,
            "uid": "uid-train",
            "generation": 1,
            "creationTimestamp": created,
            "labels": labels or {},
        },
        "spec": {
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "template": template},
                "Worker": {"replicas": workers, "template": template},
            },
            **spec,
        },
        "status": {"conditions": known, "observedGeneration": 1, **(status or {})},
    }


RUNNING = condition("Running", "PyTorchJob train is running.", seconds=-280)


def failed(message: str) -> Object:
    return condition("Failed", message)


def failure(reason: str, **first: Any) -> Object:
    """What the status of a failed job has for programs: why it ended, and which rank failed first."""
    known = {"kind": "WorkerFailed", "rank": 1, "pod": W0, **first}
    return {"failure": {"reason": reason, **({"first": known} if first else {})}}


def new_job(**fields: Any) -> Object:
    """A job that no operator has seen."""
    return {**job(**fields), "status": {}}


def container(state: Object, *, restarts: int = 0, last: Object | None = None, name: str = names.CONTAINER) -> Object:
    return {
        "name": name,
        "image": IMAGE,
        "imageID": "",
        "ready": "running" in state,
        "started": "running" in state,
        "restartCount": restarts,
        "state": state,
        "lastState": last or {},
    }


def running(seconds: float = -280) -> Object:
    return {"running": {"startedAt": timestamp(seconds)}}


def waiting(reason: str, message: str = "") -> Object:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def ended(code: int, message: str = "", *, reason: str = "Error", seconds: float = -20) -> Object:
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "startedAt": timestamp(seconds - 10),
            "finishedAt": timestamp(seconds),
            **({"message": message} if message else {}),
        }
    }


def agent(reason: str, code: int, message: str, **fields: Any) -> Object:
    """A container of an agent that ended."""
    return ended(code, TerminationMessage(reason, code, message=message, **fields).to_json())


def pod(
    name: str, *states: Object, phase: str = "Running", node: str = "node-1", status: Object | None = None, **spec: Any
) -> Object:
    """A pod of the job; without states its container runs."""
    role, _, index = name.removeprefix("train-").rpartition("-")
    statuses = [state if "restartCount" in state else container(state) for state in states or (running(),)]
    ready = all(found["ready"] for found in statuses)
    conditions = [
        condition("PodScheduled", status="True"),
        condition("Ready", status=str(ready), reason="" if ready else "ContainersNotReady"),
    ]
    placed = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": timestamp(-295),
            "labels": names.replica_labels(JOB, names.ReplicaType(role.capitalize()), int(index)),
        },
        "spec": {
            "serviceAccountName": "default",
            "containers": [{"name": names.CONTAINER, "image": IMAGE}],
            **placed,
            **spec,
        },
        "status": {"phase": phase, "conditions": conditions, "containerStatuses": statuses, **(status or {})},
    }


def pending(
    name: str, message: str, *, requests: Object | None = None, reason: str = "Unschedulable", **spec: Any
) -> Object:
    """A pod without a node, as kube-scheduler leaves it."""
    main = {"name": names.CONTAINER, "image": IMAGE, "resources": {"requests": requests or {}}}
    unscheduled = condition("PodScheduled", message, reason=reason, status="False")
    found = pod(name, phase="Pending", node="", **{"containers": [main], **spec})
    return {**found, "status": {"phase": "Pending", "conditions": [unscheduled]}}


def starting(name: str, reason: str, message: str = "") -> Object:
    """A pod on a node. Its container waits."""
    return pod(name, waiting(reason, message), phase="Pending")


def looping(name: str, last: Object, restarts: int = 4) -> Object:
    """A pod in a crash loop."""
    message = f"back-off 1m20s restarting failed container=pytorch pod={name}_{NAMESPACE}(uid-{name})"
    return pod(name, container(waiting("CrashLoopBackOff", message), restarts=restarts, last=last))


def lost(name: str, reason: str, message: str, disruption: Object | None = None) -> Object:
    """A pod that its node has given up."""
    found = pod(name, ended(137), phase="Failed", status={"reason": reason, "message": message, "phase": "Failed"})
    if disruption:
        found["status"]["conditions"].append(disruption)
    return found


def rejected(name: str, reason: str, message: str) -> Object:
    """A pod that the kubelet did not start."""
    found = pod(name, phase="Failed")
    return {**found, "status": {"phase": "Failed", "reason": reason, "message": message}}


def deleted(name: str, reason: str, message: str) -> Object:
    """A pod that is being deleted."""
    found = pod(name)
    found["metadata"]["deletionTimestamp"] = timestamp(10)
    found["status"]["conditions"].append(condition("DisruptionTarget", message, reason=reason))
    return found


def node(
    name: str, *, ready: bool = True, taints: list[Object] | None = None, labels: Object | None = None, **offers: str
) -> Object:
    """A node; keywords are its resources, with `_` for `.` and `/`."""
    known = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    offered = {"nvidia.com/gpu" if key == "gpu" else key: value for key, value in offers.items()}
    state = (
        condition("Ready", "kubelet is posting ready status", reason="KubeletReady")
        if ready
        else condition("Ready", "Kubelet stopped posting node status.", reason="NodeStatusUnknown", status="Unknown")
    )
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": taints or []},
        "status": {"allocatable": {**known, **offered}, "conditions": [state]},
    }


def refused(message: str, reason: str = "FailedCreatePod") -> Object:
    """The condition that the operator sets while it cannot create a pod."""
    return condition("ReplicaFailure", message, reason=reason)


def degraded(reason: str, message: str) -> Object:
    return condition("Degraded", message, reason=reason)


def held(name: str) -> Object:
    """A pod that Kueue holds back as part of the group `group`."""
    made = pod(name, phase="Pending", node="", schedulingGates=[{"name": names.GATE_KUEUE}])
    made["metadata"]["labels"] |= {names.LABEL_KUEUE_QUEUE: "gpu", names.LABEL_KUEUE_GROUP: "group"}
    made["status"]["containerStatuses"] = []
    made["status"]["conditions"] = [condition("PodScheduled", reason="SchedulingGated", status="False")]
    return made


def workload(message: str, reason: str = "Pending", name: str = "") -> Object:
    """Kueue's object for the job, or for a group of pods with this name."""
    owners = [] if name else [{"uid": "uid-train", "controller": True}]
    return {
        "metadata": {"name": name or "pytorchjob-train-1a2b3", "ownerReferences": owners},
        "status": {"conditions": [condition("QuotaReserved", message, reason=reason, status="False")]},
    }


def workload_with(*conditions: Object, name: str = "pytorchjob-train", active: bool = True) -> Object:
    """A Workload of the job with these conditions."""
    owners = [{"uid": "uid-train", "controller": True}]
    metadata = {"name": name, "ownerReferences": owners, "creationTimestamp": timestamp(-60)}
    return {"metadata": metadata, "spec": {"active": active}, "status": {"conditions": [*conditions]}}


def operator(
    available: int = 2, namespaces: str = "", renewed: float = -3, wanted: int = 2
) -> Callable[[FakeCluster], None]:
    """The operator's Deployment, pods and Lease."""
    environment = [{"name": "PYTORCHJOB_NAMESPACES", "value": namespaces}]
    container = {"name": "operator", "env": environment}
    made = deployment("pytorchjob-operator", "pytorchjob-system", container, available=available, replicas=wanted)
    pods = [{"metadata": {"name": f"pytorchjob-operator-{n}", "namespace": "pytorchjob-system"}} for n in range(wanted)]

    def serve(cluster: FakeCluster) -> None:
        cluster.serve(gather.DEPLOYMENTS, {"items": [made]})
        cluster.serve(gather.OPERATOR_PODS, {"items": pods})
        cluster.serve(gather.LEASES, {"items": [lease(renewed)]})

    return serve


def deployment(name: str, namespace: str, container: Object, *, available: int = 1, replicas: int = 1) -> Object:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
        "status": {"availableReplicas": available} if available else {},
    }


def lease(renewed: float) -> Object:
    """The operator's Lease, renewed by a pod this many seconds after the start of the test."""
    times = {"renewTime": timestamp(renewed), "leaseDurationSeconds": 15}
    return {
        "metadata": {"name": "pytorchjob-operator", "namespace": "pytorchjob-system"},
        "spec": {"holderIdentity": "pytorchjob-operator-abc", **times},
    }


def no_operator(cluster: FakeCluster) -> None:
    for path in (gather.DEPLOYMENTS, gather.OPERATOR_PODS, gather.LEASES, gather.V1_DEPLOYMENTS):
        cluster.serve(path, {"items": []})


def uninstalled(cluster: FakeCluster) -> None:
    """What `helm uninstall` leaves: the Lease, which its leader could not release any more."""
    no_operator(cluster)
    cluster.serve(gather.LEASES, {"items": [lease(-67)]})


def v1(*arguments: str, available: int = 1, replicas: int = 1, namespace: str = "") -> Callable[[FakeCluster], None]:
    """training-operator v1's Deployment."""
    environment = [{"name": "KUBEFLOW_NAMESPACE", "value": namespace}] if namespace else []
    container = {"name": "training-operator", "command": ["/manager"], "args": [*arguments], "env": environment}
    made = deployment("training-operator", "kubeflow", container, available=available, replicas=replicas)
    return lambda cluster: cluster.serve(gather.V1_DEPLOYMENTS, {"items": [made]})


def kueue(*workloads: Object) -> Callable[[FakeCluster], None]:
    path = f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{NAMESPACE}/workloads"
    return lambda cluster: cluster.serve(path, {"items": list(workloads)})


def of_pod(name: str, reason: str, message: str, seconds: float = -30) -> Object:
    return an_event(name, reason, message, kind="Pod", seconds=seconds)


def cluster_with(*parts: Object | Callable[[FakeCluster], None]) -> FakeCluster:
    """A cluster with these objects, and with what the functions serve."""
    made = FakeCluster(*(part for part in parts if isinstance(part, dict)))
    for part in parts:
        if not isinstance(part, dict):
            part(made)
    return made
