"""Reads Kueue's objects: the Workloads of a job, and who waits in a queue."""

from collections.abc import Sequence

from pytorchjob.cluster.api import Cluster
from pytorchjob.cluster.paths import check_name
from pytorchjob.view import reading
from pytorchjob.view.reading import Object

VERSIONS = ("v1beta2", "v1beta1")
"""Of Kueue's API, and of the one that tells who waits."""


def workloads_of(cluster: Cluster, job: Object, pods: Sequence[Object]) -> Sequence[Object] | None:
    """Return the Workloads of a job that waits for a queue, as a whole or in part, itself or by its pods as a group.

    None: it does not wait, or they cannot be read.
    """
    groups = {group for pod in pods if (group := reading.held_group(pod))}
    if not groups and not _waits(job, pods):
        return None
    found = _items(cluster, "kueue.x-k8s.io", f"namespaces/{cluster.namespace}/workloads")
    if found is None:
        return None
    return [entry for entry in found if reading.belongs(entry, job) or reading.name_of(entry) in groups]


def waiting_in(cluster: Cluster, namespace: str, queue: str) -> Sequence[Object] | None:
    """Return the Workloads that wait in a queue, the next one first; None: they cannot be read."""
    path = f"namespaces/{namespace}/localqueues/{check_name(queue, 'queue')}/pendingworkloads"
    return _items(cluster, "visibility.kueue.x-k8s.io", path)


def _waits(job: Object, pods: Sequence[Object]) -> bool:
    trains = bool(reading.queue_of(job)) and not reading.ended(job)
    return reading.queued(job) or (trains and len(pods) < reading.wanted_pods(job))


def _items(cluster: Cluster, group: str, path: str) -> Sequence[Object] | None:
    answers = (cluster.read(f"/apis/{group}/{version}/{path}") for version in VERSIONS)
    found = next((each for each in answers if each is not None), None)
    return None if found is None else reading.items(found, "items")
