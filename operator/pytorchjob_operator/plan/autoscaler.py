"""The HorizontalPodAutoscaler of an elastic job: it scales the workers by the user's metrics (docs/compatibility.md).

Created if `elasticPolicy.metrics` is set, kept up to date with it, and deleted at suspension and at the job's end,
which v1 did not do.
"""

from collections.abc import Mapping
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.names import ChildKind, Reason
from pytorchjob_operator.observed import Options
from pytorchjob_operator.plan import children, queue

API_VERSION = "autoscaling/v2"


def wanted(job: PyTorchJob, options: Options) -> dict[str, Any] | None:
    """Return the autoscaler that the job should have now, or None. `job` has its defaults."""
    elastic = job.spec.elastic_policy
    if elastic is None or elastic.metrics is None or _is_sized_by_kueue(job, options):
        return None
    spec = {
        "scaleTargetRef": {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": job.metadata.name},
        "minReplicas": elastic.min_replicas,
        "maxReplicas": elastic.max_replicas,
        "metrics": list(elastic.metrics),
    }
    return children.build_child(job, API_VERSION, ChildKind.AUTOSCALER.value, spec)


def problem(job: PyTorchJob, options: Options, unserved: Mapping[ChildKind, str]) -> tuple[Reason, str] | None:
    """Return why the user's metrics have no effect, as reason and message of the condition ConfigValid; else None."""
    elastic = job.spec.elastic_policy
    if elastic is None or elastic.metrics is None:
        return None
    if _is_sized_by_kueue(job, options):
        what = "has no effect on a job that Kueue has admitted: remove the metrics, or the label"
        return Reason.ELASTIC_WITH_KUEUE, f"spec.elasticPolicy.metrics {what} {names.LABEL_KUEUE_QUEUE}"
    why = unserved.get(ChildKind.AUTOSCALER)
    if why:
        return Reason.AUTOSCALER_UNAVAILABLE, f"spec.elasticPolicy.metrics has no effect: {why}"
    return None


def _is_sized_by_kueue(job: PyTorchJob, options: Options) -> bool:
    """Whether Kueue's own integration admits the job as a whole: another size would stop it."""
    return bool(queue.queue_of(job)) and not options.kueue
