"""What a view and a diagnosis may depend on: one snapshot of a job and of what is around it.

`None` always means: this person may not read it, or it was not read. No rule concludes anything from it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pytorchjob.view import reading
from pytorchjob.view.reading import Object

MOST_LOGS = 64
"""Pods of a job whose last line is read: the first ones."""


@dataclass(frozen=True, slots=True)
class OperatorObjects:
    """The objects of the operator's installation."""

    installed: bool | None = None
    """Whether the API server knows PyTorchJobs."""
    deployments: Sequence[Object] | None = None
    leases: Sequence[Object] | None = None
    pods: Sequence[Object] | None = None
    v1: Sequence[Object] | None = None
    """The Deployments of training-operator v1."""
    definition: Object | None = None
    """The custom resource definition."""
    version: str = ""
    """The API server's version."""

    def has_no_pod(self, lease: Object) -> bool:
        """Whether no pod of the operator is left that could hold this Lease; False if pods are not known."""
        namespace = reading.namespace_of(lease)
        return self.pods is not None and not any(
            reading.namespace_of(pod) == namespace and not reading.has_finished(pod) for pod in self.pods
        )

    def is_led(self, lease: Object, now: datetime) -> bool:
        """Whether a leader holds this Lease: it renews it, and it has a pod."""
        return reading.is_held(lease, now) and not self.has_no_pod(lease)


@dataclass(frozen=True, slots=True)
class Seen:
    """The snapshot."""

    now: datetime
    namespace: str
    job: Object = field(default_factory=dict)
    """Empty: the diagnosis is about the cluster alone."""
    pods: Sequence[Object] = ()
    events: Sequence[Object] = ()
    """Of the job and of its pods, the oldest first."""
    nodes: Sequence[Object] | None = None
    operator: OperatorObjects = field(default_factory=OperatorObjects)
    workloads: Sequence[Object] | None = None
    """Kueue's objects that belong to the job."""
    waiting: Sequence[Object] | None = None
    """Kueue's list of who waits in the job's queue, the next one first."""
    claims: Mapping[str, Object | None] = field(default_factory=dict)
    """The PersistentVolumeClaims that the templates name; None for one that cannot be read or does not exist."""
    logs: Mapping[str, str] = field(default_factory=dict)
    """The last lines of pods that failed, by the pod's name."""
    last_lines: Mapping[str, str] = field(default_factory=dict)
    """The last line of pods that run, or that ended without a message."""
    printed_at: Mapping[str, datetime | None] = field(default_factory=dict)
    """When the last line of a pod was printed, by the node's clock; None: it has printed no line. A pod is missing if
    its log was not read."""
    readable: bool = True
    """Whether this person may read the job's pods; otherwise `pods` is empty."""
    _by_object: dict[tuple[str, str], list[Object]] = field(init=False, repr=False, compare=False, default_factory=dict)
    """The events by kind and name of their object, the newest first: a large job has very many."""

    def __post_init__(self) -> None:
        """Sort the events."""
        for event in reversed(self.events):
            about = reading.part(event, "involvedObject")
            key = str(about.get("kind") or ""), str(about.get("name") or "")
            self._by_object.setdefault(key, []).append(event)

    @property
    def name(self) -> str:
        """The job's name."""
        return reading.name_of(self.job)

    @property
    def status(self) -> Object:
        """The job's status; empty before the operator has written one."""
        return reading.part(self.job, "status")

    @property
    def ended(self) -> str:
        """`Succeeded`, `Failed` or empty."""
        return reading.ended(self.job)

    @property
    def suspended(self) -> bool:
        """Whether the job may not have pods, by its spec or by its queue."""
        return reading.held(self.job)

    @property
    def queue(self) -> str:
        """The job's queue of Kueue; empty without one."""
        return reading.queue_of(self.job)

    def has(self, kind: str) -> bool:
        """Whether the job has this condition, and it is True."""
        return bool(reading.condition(self.job, kind))

    def age(self) -> float:
        """Return how many seconds ago the job was created; 0 if that is unknown."""
        created = reading.created_at(self.job)
        return (self.now - created).total_seconds() if created else 0.0

    def wanted_pods(self) -> int:
        """Return how many pods the job's spec asks for."""
        return reading.wanted_pods(self.job)

    def lacks_pods(self) -> bool:
        """Whether the job has fewer pods than its spec asks for; those that are being deleted do not count."""
        return sum(1 for _ in self.living_pods()) < self.wanted_pods()

    def living_pods(self) -> Iterator[Object]:
        """Yield the pods that are not being deleted."""
        yield from (pod for pod in self.pods if not reading.deleting(pod))

    def node(self, name: str) -> Object | None:
        """Return a node by its name; None if nodes cannot be read, or there is no such node."""
        return next((node for node in self.nodes or () if reading.name_of(node) == name), None)

    def events_of(self, obj: Object) -> Iterator[Object]:
        """Yield the events of this very object, the newest first; an older object of its name has other events."""
        for event in self._by_object.get((str(obj.get("kind", "Pod")), reading.name_of(obj)), ()):
            if reading.part(event, "involvedObject").get("uid") in (None, "", reading.uid_of(obj)):
                yield event
