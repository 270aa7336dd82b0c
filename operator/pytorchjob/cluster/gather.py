"""Reads what a view and a diagnosis need, with as few requests as the job's state asks for.

What this person may not read stays unknown (None), and the rules conclude nothing from it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from pytorchjob.cluster import queues
from pytorchjob.cluster.api import Cluster, LogRequest, Object
from pytorchjob.cluster.errors import ClusterError, NoPermission, NotInstalled
from pytorchjob.cluster.last_lines import read_last_lines
from pytorchjob.cluster.paths import labelled
from pytorchjob.view import reading
from pytorchjob.view.causes.endings import Ending, find_endings
from pytorchjob.view.causes.installation import is_behind, untouched_for
from pytorchjob.view.seen import OperatorObjects, Seen
from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_operator.names import GROUP, PLURAL

OPERATOR = "pytorchjob-operator"
"""Name of the operator's Lease, and its `NAME_LABEL`."""
NAME_LABEL = "app.kubernetes.io/name"
V1_LABEL, V1_OPERATOR = "control-plane", "kubeflow-training-operator"
"""By which training-operator v1's Deployment is found."""
DEPLOYMENTS = labelled("/apis/apps/v1/deployments", NAME_LABEL, OPERATOR)
OPERATOR_PODS = labelled("/api/v1/pods", NAME_LABEL, OPERATOR)
V1_DEPLOYMENTS = labelled("/apis/apps/v1/deployments", V1_LABEL, V1_OPERATOR)
LEASES = f"/apis/coordination.k8s.io/v1/leases?fieldSelector=metadata.name%3D{OPERATOR}"
DEFINITION = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{PLURAL}.{GROUP}"
VERSION = "/version"
_LINES = 40
"""Lines that are read of the log of a container that failed without a termination message."""
_MOST_LOGS = 3
T = TypeVar("T")


def gather_job(cluster: Cluster, name: str, now: datetime, *, deep: bool = False) -> Seen:
    """Read a job and what is around it; `deep` reads all that the rules may use, also logs of failed containers."""
    job = cluster.job(name)
    found = _allowed(lambda: cluster.pods(name), None)
    pods: Sequence[Object] = found or ()
    events: Sequence[Object] = _allowed(lambda: cluster.events([name, *map(reading.name_of, pods)]), ())
    workloads = queues.workloads_of(cluster, job, pods)
    seen = Seen(
        now,
        cluster.namespace,
        job,
        pods,
        events=events,
        nodes=cluster.nodes() if deep or any(map(_concerns_nodes, pods)) or any(map(_announces, events)) else None,
        workloads=workloads,
        waiting=_waiting(cluster, job, workloads),
        claims=_claims(cluster, pods),
        readable=found is not None,
    )
    lines = read_last_lines(cluster, _with_output(pods))
    reads_operator = deep or untouched_for(seen) > 0 or is_behind(seen)
    return replace(
        seen,
        operator=_operator(cluster) if reads_operator else OperatorObjects(installed=True),
        logs=_logs(cluster, find_endings(seen)) if deep else {},
        last_lines={pod: line.text for pod, line in lines.items()},
        printed_at={pod: line.at for pod, line in lines.items()},
    )


def _with_output(pods: Sequence[Object]) -> list[str]:
    """Return the pods of which container `pytorch` runs, or has ended without a message: its log has the last line."""
    return [reading.name_of(pod) for pod in pods if reading.runs(pod) or reading.ended_without_message(pod)]


def gather_cluster(cluster: Cluster, now: datetime) -> Seen:
    """Read what is needed to judge the operator's installation."""
    try:
        cluster.jobs()
    except NoPermission:
        pass
    except NotInstalled:
        return missing_definition(cluster, now)
    return Seen(now, cluster.namespace, nodes=cluster.nodes(), operator=_operator(cluster))


def missing_definition(cluster: Cluster, now: datetime) -> Seen:
    """Return the snapshot of a cluster that does not know PyTorchJobs."""
    return Seen(now, cluster.namespace, operator=OperatorObjects(installed=False, version=_version(cluster)))


def _allowed(read: Callable[[], T], otherwise: T) -> T:
    try:
        return read()
    except NoPermission:
        return otherwise


def _items(cluster: Cluster, path: str) -> Sequence[Object] | None:
    found = cluster.read(path)
    return None if found is None else list(found.get("items") or ())


def _operator(cluster: Cluster) -> OperatorObjects:
    return OperatorObjects(
        installed=True,
        deployments=_items(cluster, DEPLOYMENTS),
        leases=_items(cluster, LEASES),
        pods=_items(cluster, OPERATOR_PODS),
        v1=_items(cluster, V1_DEPLOYMENTS),
        definition=cluster.read(DEFINITION),
        version=_version(cluster),
    )


def _version(cluster: Cluster) -> str:
    return str((cluster.read(VERSION) or {}).get("gitVersion") or "")


def _concerns_nodes(pod: Object) -> bool:
    """Whether the pod's state may be the fault of nodes: it has none, or it is on its node and not ready."""
    ready = bool(reading.condition(pod, "Ready"))
    return (not reading.has_finished(pod) and not ready) or reading.deleting(pod)


def _announces(event: Object) -> bool:
    """Whether the operator has reported that pods may be lost soon: the nodes show whether that still holds."""
    return event.get("reason") == TrainingReason.POD_THREATENED


def _waiting(
    cluster: Cluster, job: Object, workloads: Sequence[reading.Object] | None
) -> Sequence[reading.Object] | None:
    """Read who waits in the job's queue, if the job does."""
    queue = reading.queue_of(job)
    return queues.waiting_in(cluster, cluster.namespace, queue) if queue and workloads else None


def _claims(cluster: Cluster, pods: Sequence[Object]) -> dict[str, Object | None]:
    """Read the claims of pods that have no node."""
    names = {name for pod in pods if not reading.node_of(pod) for name in _claims_of(pod)}
    path = f"/api/v1/namespaces/{cluster.namespace}/persistentvolumeclaims"
    return {name: cluster.read(f"{path}/{name}") for name in sorted(names)}


def _claims_of(pod: Object) -> Iterator[str]:
    for volume in reading.items(pod, "spec", "volumes"):
        if name := reading.part(volume, "persistentVolumeClaim").get("claimName"):
            yield str(name)


def _logs(cluster: Cluster, endings: Sequence[Ending]) -> dict[str, str]:
    """Read the last lines of the first containers that failed and left no message."""
    silent = [ending for ending in endings if not ending.words.strip()][:_MOST_LOGS]
    return {ending.pod: text for ending in silent if (text := _tail(cluster, ending))}


def _tail(cluster: Cluster, ending: Ending) -> str:
    """Return the end of the log of the container that failed: the previous one if it was started again."""
    request = LogRequest(ending.pod, ending.container, previous=ending.again, tail=_LINES)
    try:
        with cluster.log(request) as lines:
            texts = [line.decode(errors="replace").rstrip("\n") for line in lines]
    except ClusterError:
        return ""
    return "\n".join(text.partition(" ")[2] for text in texts)
