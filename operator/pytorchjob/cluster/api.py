"""What commands and the Python client may ask of a cluster. `connect` gives the real one; tests may give another.

Objects are plain dicts, as the API server sends them: typed models would drop unknown fields.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

Object = dict[str, Any]
DELETED = "DELETED"


class Change(NamedTuple):
    """One event of a watch."""

    kind: str
    """ADDED, MODIFIED or DELETED."""
    object: Object

    @property
    def is_deleted(self) -> bool:
        """Whether the object does not exist any more."""
        return self.kind == DELETED


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Which lines of a container to read, as `kubectl logs` understands it."""

    pod: str
    container: str
    follow: bool = False
    previous: bool = False
    since: datetime | None = None
    """Lines from this moment on, to the second; None: all that the node still has."""
    tail: int | None = None
    namespace: str = ""
    """Of the pod; empty: that of the cluster's jobs."""


class Cluster(Protocol):
    """One namespace of one cluster, with one person's rights. All methods raise `ClusterError`."""

    namespace: str
    """Where jobs are read and created: `-n`, or that of the kubeconfig's context."""

    def job(self, name: str) -> Object:
        """Read a job; raises `JobMissing` with the names that are most like it."""

    def jobs(self, selector: str = "", *, all_namespaces: bool = False) -> Sequence[Object]:
        """Read the jobs that match a label selector."""

    def pods(self, job: str) -> Sequence[Object]:
        """Read a job's pods, by role and index; those that are being deleted too."""

    def events(self, names: Sequence[str] = ()) -> Sequence[Object]:
        """Read the events of objects with these names, oldest first; of the namespace if none is given."""

    def nodes(self) -> Sequence[Object] | None:
        """Read all nodes; None if this person may not."""

    def read(self, path: str) -> Object | None:
        """Read any object or list by its path (`/apis/...`); None if it does not exist or this person may not."""

    def create(self, body: Object, *, dry_run: bool = False) -> Object:
        """Create one object of any kind; `dry_run`: the server checks it and stores nothing."""

    def patch(self, name: str, change: Object, *, subresource: str = "", dry_run: bool = False) -> Object:
        """Change a job by a JSON merge patch."""

    def delete(self, name: str, *, foreground: bool = False) -> None:
        """Delete a job, or a pod of it if the name is `pods/NAME`."""

    def watch(self, job: str | None = None) -> Iterator[Change]:
        """Yield the jobs (or this one) as they are, then each change, without an end; opens a lost watch again."""

    def watch_pods(self, job: str) -> Iterator[Change]:
        """Yield a job's pods as they are, then each change, without an end; opens a lost watch again."""

    def log(self, request: LogRequest) -> AbstractContextManager[Iterator[bytes]]:
        """Open a container's log: lines with the node's timestamp and their line end; ends when the log does.

        The last line may lack its end: the connection ended within it, or the container did. A broken connection raises
        `ApiServerUnreachable`. So does one on which nothing arrives: for a minute or more if it is followed, else for
        the time of a request.
        """
