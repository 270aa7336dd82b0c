"""Reads what pods use from metrics.k8s.io, the API of a metrics server. It is read raw, as all else."""

from collections.abc import Sequence

from pytorchjob.cluster.api import Cluster, Object
from pytorchjob.cluster.errors import ApiServerUnreachable, ClusterError, NoPermission
from pytorchjob.cluster.paths import labelled
from pytorchjob_operator.names import LABEL_JOB_NAME

METRICS = "/apis/metrics.k8s.io/v1beta1"
SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"
_STEPS = "`pytorchjob progress JOB` shows the step rate without it"


def read_pod_metrics(cluster: Cluster, job: str | None = None, *, all_namespaces: bool = False) -> Sequence[Object]:
    """Return the metrics of the pods of a job, or of all jobs; raises ClusterError if there are no metrics."""
    path = f"{METRICS}{pods_of_jobs(cluster.namespace, job, all_namespaces=all_namespaces)}"
    try:
        found = cluster.read(path)
    except ApiServerUnreachable as error:
        raise _silent(cluster, error) from error
    if found is not None:
        return list(found.get("items") or ())
    if cluster.read(METRICS) is None:
        remedy = f"an administrator has to install metrics-server; {_STEPS}"
        raise ClusterError("the cluster has no metrics server: its API server does not serve metrics.k8s.io", remedy)
    place = "all namespaces" if all_namespaces else f"the namespace {cluster.namespace}"
    where = "--all-namespaces" if all_namespaces else f"-n {cluster.namespace}"
    raise NoPermission(
        f"you may not list pods.metrics.k8s.io in {place}",
        f"ask an administrator for it; `kubectl auth can-i list pods.metrics.k8s.io {where}` checks it",
    )


def pods_of_jobs(namespace: str, job: str | None, *, all_namespaces: bool = False) -> str:
    """Return the end of a path that lists the pods of a job, or of all jobs."""
    place = "" if all_namespaces else f"/namespaces/{namespace}"
    return labelled(f"{place}/pods", LABEL_JOB_NAME, job or "")


def _silent(cluster: Cluster, error: ApiServerUnreachable) -> ClusterError:
    """Return the error for an API server that answers, but not for the metrics server behind it."""
    service = cluster.read(SERVICE) or {}
    conditions = (service.get("status") or {}).get("conditions") or ()
    why = next((each.get("message") for each in conditions if each.get("type") == "Available"), "")
    if not service:
        return error
    remedy = f"an administrator has to repair it: kubectl get apiservices v1beta1.metrics.k8s.io; {_STEPS}"
    return ClusterError(f"the metrics server does not answer: {why or error.message}", remedy)
