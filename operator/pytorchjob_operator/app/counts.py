"""Counts what happens to jobs, by comparing each version of a job with the previous one.

The cache of jobs calls it, so that each written change counts once, even if the response to the write was lost. A job
that is seen for the first time is not counted: the operator process that wrote its status has counted it. Only the
leader counts.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from pytorchjob_operator.app.metrics import JobCount, Metrics
from pytorchjob_operator.kube.store import Store
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.names import LossCause
from pytorchjob_operator.observed import Pod
from pytorchjob_operator.plan import lifecycle
from pytorchjob_operator.plan.lifecycle import PHASES, Edges


class JobCounts:
    """Turns changes from the cache of jobs, and lost pods from the reconciler, into metrics."""

    def __init__(self, metrics: Metrics, pods: Store[Pod], leads: Callable[[], bool]) -> None:
        self._metrics = metrics
        self._pods = pods
        self._leads = leads

    def changed(self, old: PyTorchJob | None, new: PyTorchJob | None) -> None:
        """Count a newer version of a job; without `old` the job was not known before, without `new` it was deleted."""
        if new is not None and old is None:
            self._metrics.on_namespace(new.metadata.namespace)
        elif old is not None and self._leads():
            self._count(old, new)

    def lost(self, namespace: str, causes: Iterable[LossCause]) -> None:
        """Count lost pods that are replaced, by cause."""
        for cause in causes:
            self._metrics.on_pod_restart(namespace, cause)

    def _count(self, old: PyTorchJob, new: PyTorchJob | None) -> None:
        namespace = old.metadata.namespace
        if new is None:
            if lifecycle.is_ours(old) and lifecycle.is_taken_up(old):
                self._metrics.on_job(namespace, JobCount.DELETED)
            return
        edges = lifecycle.compare(old, new)
        for what, happened in _happened(edges):
            if happened:
                self._metrics.on_job(namespace, what)
        if edges.started_after is not None:
            self._metrics.on_start(edges.started_after.total_seconds())
        if edges.replaced:
            causes = {pod.uid: pod.cause for pod in self._pods.by_owner(new.metadata.uid)}
            self.lost(namespace, (causes.get(uid) or LossCause.UNKNOWN for uid in edges.replaced))


def by_phase(jobs: Iterable[PyTorchJob]) -> dict[str, int]:
    """The number of jobs in each phase."""
    found = Counter(lifecycle.phase(job.status) for job in jobs)
    return {phase.value: found[phase] for phase in PHASES}


def _happened(edges: Edges) -> tuple[tuple[JobCount, bool], ...]:
    return (
        (JobCount.CREATED, edges.created),
        (JobCount.SUCCESSFUL, edges.succeeded),
        (JobCount.FAILED, edges.failed),
        (JobCount.RESTARTED, edges.restarted),
    )
