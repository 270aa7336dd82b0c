"""The real `Cluster`: each method is one or two requests about jobs and what belongs to them."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC
from difflib import get_close_matches
from typing import Any

from pytorchjob.cluster.api import Change, LogRequest, Object
from pytorchjob.cluster.errors import AlreadyExists, ClusterError, JobMissing, Missing, NoPermission, NotInstalled
from pytorchjob.cluster.failures import no_api_server
from pytorchjob.cluster.http import Http, Query, Request
from pytorchjob.cluster.kinds import Kinds
from pytorchjob.cluster.paths import check_name
from pytorchjob.cluster.watching import ObjectWatch, list_all
from pytorchjob_operator import names

_API = f"/apis/{names.API_VERSION}"
_MERGE = "application/merge-patch+json"
_POD = "pods/"
_SILENT_SECONDS = 90.0
"""A followed log without a line for this long may be a connection that broke in silence."""
_ROLES = [kind.label for kind in names.ReplicaType]


class RemoteCluster:
    """One namespace of a cluster that answers over HTTP."""

    def __init__(self, http: Http, namespace: str, silence: float = _SILENT_SECONDS) -> None:
        """`silence`: seconds without a line after which a followed log counts as broken."""
        self.namespace = check_name(namespace, "namespace")
        self._http, self._silence = http, silence
        self._kinds = Kinds(http)

    @property
    def server(self) -> str:
        """The API server's address."""
        return str(self._http.access.configuration.host)

    def job(self, name: str) -> Object:
        """Read a job."""
        try:
            found: Object = self._http.json(Request("GET", self._job(name)))
        except Missing as error:
            raise self._missing(name) from error
        if "metadata" not in found:
            raise no_api_server(self._http.access.source, "no object of Kubernetes")
        return found

    def jobs(self, selector: str = "", *, all_namespaces: bool = False) -> Sequence[Object]:
        """Read the jobs that match a label selector."""
        path = f"{_API}/{names.PLURAL}" if all_namespaces else self._jobs()
        return self._list(path, {"labelSelector": selector} if selector else {})

    def pods(self, job: str) -> Sequence[Object]:
        """Read a job's pods, by role and index."""
        return sorted(self._list(self._core("pods"), _pods_of(job)), key=_place)

    def events(self, names: Sequence[str] = ()) -> Sequence[Object]:
        """Read the events of objects with these names, oldest first."""
        query = {"fieldSelector": f"involvedObject.name={names[0]}"} if len(names) == 1 else {}
        found = self._list(self._core("events"), query)
        return sorted(
            (event for event in found if not names or event["involvedObject"].get("name") in names), key=_time
        )

    def nodes(self) -> Sequence[Object] | None:
        """Read all nodes; None if this person may not."""
        try:
            return self._list("/api/v1/nodes", {})
        except NoPermission:
            return None

    def read(self, path: str) -> Object | None:
        """Read any object or list by its path; None if it does not exist or this person may not."""
        try:
            found: Object = self._http.json(Request("GET", path))
        except (Missing, NotInstalled, NoPermission):
            return None
        return found

    def create(self, body: Object, *, dry_run: bool = False) -> Object:
        """Create one object of any kind."""
        meta = body.get("metadata") or {}
        path = self._kinds.path(body, meta.get("namespace") or self.namespace)
        query = {"fieldValidation": "Strict", "fieldManager": "pytorchjob", **_dry(dry_run)}
        try:
            made: Object = self._http.json(Request("POST", path, query, body))
        except AlreadyExists as error:
            what = f"the {body.get('kind')} {meta.get('name')}"
            raise AlreadyExists(
                f"{what} already exists", error.remedy, self.read(f"{path}/{meta.get('name')}")
            ) from error
        return made

    def patch(self, name: str, change: Object, *, subresource: str = "", dry_run: bool = False) -> Object:
        """Change a job by a JSON merge patch."""
        path = f"{self._job(name)}/{subresource}" if subresource else self._job(name)
        query = {"fieldManager": "pytorchjob", **_dry(dry_run)}
        try:
            changed: Object = self._http.json(Request("PATCH", path, query, change, _MERGE))
        except Missing as error:
            raise self._missing(name) from error
        return changed

    def delete(self, name: str, *, foreground: bool = False) -> None:
        """Delete a job, or a pod of it if the name is `pods/NAME`."""
        is_pod, plain = name.startswith(_POD), name.removeprefix(_POD)
        path = f"{self._core('pods')}/{check_name(plain, 'pod')}" if is_pod else self._job(plain)
        options = {"propagationPolicy": "Foreground" if foreground else "Background"}
        try:
            self._http.json(Request("DELETE", path, None, options))
        except Missing as error:
            if is_pod:
                raise Missing(f"the pod {plain} does not exist in the namespace {self.namespace}") from error
            raise self._missing(plain) from error

    def watch(self, job: str | None = None) -> Iterator[Change]:
        """Yield the jobs (or this one) as they are, then each change, without an end."""
        query = {"fieldSelector": f"metadata.name={job}"} if job else {}
        return iter(ObjectWatch(self._http, self._jobs(), query))

    def watch_pods(self, job: str) -> Iterator[Change]:
        """Yield a job's pods as they are, then each change, without an end."""
        return iter(ObjectWatch(self._http, self._core("pods"), _pods_of(job)))

    def log(self, request: LogRequest) -> AbstractContextManager[Iterator[bytes]]:
        """Open a container's log: lines with the node's timestamp and their line end."""
        query = {"container": request.container, "timestamps": "true"}
        if request.follow:
            query["follow"] = "true"
        if request.previous:
            query["previous"] = "true"
        if request.since is not None:
            query["sinceTime"] = request.since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if request.tail is not None:
            query["tailLines"] = str(request.tail)
        silence = self._silence if request.follow else None
        path = f"/api/v1/namespaces/{request.namespace or self.namespace}/pods/{request.pod}/log"
        return self._http.lines(Request("GET", path, query), silence)

    def _jobs(self) -> str:
        return f"{_API}/namespaces/{self.namespace}/{names.PLURAL}"

    def _job(self, name: str) -> str:
        return f"{self._jobs()}/{check_name(name, 'job')}"

    def _core(self, plural: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/{plural}"

    def _list(self, path: str, query: Query) -> list[Object]:
        return list_all(self._http, path, query)[0]

    def _missing(self, name: str) -> JobMissing:
        """Return the error for a job that does not exist, with the names that it may have been meant for."""
        sentence = f"there is no job {name} in the namespace {self.namespace}"
        remedy = "`pytorchjob list -A` shows all jobs"
        try:
            here = [job["metadata"]["name"] for job in self.jobs()]
            if near := get_close_matches(name, here, n=1):
                return JobMissing(sentence, f"did you mean {near[0]}?")
            elsewhere = [job["metadata"] for job in self.jobs(all_namespaces=True)]
            if spaces := [meta["namespace"] for meta in elsewhere if meta["name"] == name]:
                return JobMissing(sentence, f"it is in another namespace: -n {spaces[0]}")
        except ClusterError:
            remedy = f"`pytorchjob list -n {self.namespace}` shows the jobs there"
        return JobMissing(sentence, remedy)


def _dry(dry_run: bool) -> Query:
    return {"dryRun": "All"} if dry_run else {}


def _pods_of(job: str) -> Query:
    return {"labelSelector": f"{names.LABEL_JOB_NAME}={job}"}


def _place(pod: Object) -> tuple[int, int]:
    labels: dict[str, Any] = pod["metadata"].get("labels") or {}
    role, index = labels.get(names.LABEL_REPLICA_TYPE), str(labels.get(names.LABEL_REPLICA_INDEX, ""))
    number = int(index) if index.isdecimal() and len(index) < 10 else 0
    return _ROLES.index(role) if role in _ROLES else len(_ROLES), number


def _time(event: Object) -> str:
    """Return when an event was last seen; RFC 3339 in UTC sorts as text."""
    series = event.get("series") or {}
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(last or event["metadata"].get("creationTimestamp") or "")
