"""The operator's caches of the cluster, and the only place that turns them into an observation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pytorchjob_operator.control.job_cache import JobCache
from pytorchjob_operator.kube.store import Store
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.names import ChildKind
from pytorchjob_operator.node import Node
from pytorchjob_operator.observed import Child, Observed, Options, Pod, Refusal


@dataclass
class Caches:
    """The jobs and their children, kept up to date by watches and by responses to the operator's own writes."""

    jobs: JobCache
    pods: Store[Pod]
    children: Mapping[ChildKind, Store[Child]]
    """One store for each kind of child: names are unique only within a kind."""
    nodes: Store[Node] | None = None
    """All nodes, while a job has pods and the operator may watch nodes."""
    options: Options = field(default_factory=Options)
    """Replaced when the coordinator's credentials are loaded, and when its certificates change."""
    unserved: dict[ChildKind, str] = field(default_factory=dict)
    """Kinds that are not watched now, with the reason."""

    def observe(
        self, job: PyTorchJob, now: datetime, refusal: Refusal | None = None, status_due: datetime | None = None
    ) -> Observed:
        """Return a snapshot of a job and its children; an object of another namespace is no child."""
        uid, namespace = job.metadata.uid, job.metadata.namespace
        pods = tuple(pod for pod in self.pods.by_owner(uid) if pod.namespace == namespace)
        nodes = self._nodes(pods)
        return Observed(
            job=job,
            now=now,
            pods=pods,
            children=tuple(
                child
                for store in self.children.values()
                for child in store.by_owner(uid)
                if child.namespace == namespace
            ),
            unserved=dict(self.unserved),
            refusal=refusal,
            status_due=status_due,
            options=self.options,
            marked={node.name: node for node in nodes if node.marked},
            zones={node.name: node.zone for node in nodes if node.zone},
        )

    def _nodes(self, pods: tuple[Pod, ...]) -> list[Node]:
        """Return the known nodes of these pods."""
        if self.nodes is None:
            return []
        found = (self.nodes.get("", name) for name in {pod.node for pod in pods})
        return [node for node in found if node is not None]
