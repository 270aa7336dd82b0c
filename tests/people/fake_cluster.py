"""A `Cluster` in memory, for every test of a command, a view or the client. It behaves like an API server.

    cluster = FakeCluster(a_job("digits"), a_pod("digits", "worker-0"))
    cluster.script(lambda: cluster.put(finished), lambda: cluster.write("digits-worker-0", "line"))

Watches and followed logs run the next step of the script when they have nothing left to deliver, and end after the
last step, so that a test needs neither a clock nor a thread. After `wait_for_more()` they wait for threads instead.
"""

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any

from pytorchjob.cluster.api import Change, LogRequest, Object
from pytorchjob.cluster.errors import AlreadyExists, ClusterError, JobMissing, Missing, Rejected
from pytorchjob_operator import names

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NAMESPACE = "team"
Line = bytes | Exception
Key = tuple[str, str, str]
"""Kind, namespace, name."""


def timestamp(seconds: float = 0) -> str:
    """Return the time this many seconds after the start of the test, as Kubernetes writes it."""
    return (NOW + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def a_job(name: str = "digits", *, workers: int = 2, state: str = "Running", **fields: Any) -> Object:
    """A job of one master and some workers in this state (empty: no operator knows it). Keywords go into its spec."""
    template = {"spec": {"containers": [{"name": names.CONTAINER, "image": "train:1"}]}}
    roles = {"Master": {"replicas": 1, "template": template}, "Worker": {"replicas": workers, "template": template}}
    condition = {"type": state, "status": "True", "reason": f"{names.KIND}{state}", "lastTransitionTime": timestamp()}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "creationTimestamp": timestamp()},
        "spec": {"pytorchReplicaSpecs": roles, **fields},
        "status": {"conditions": [condition], "startTime": timestamp()} if state else {},
    }


def a_pod(job: str, replica: str, *, phase: str = "Running", node: str = "node-1", restarts: int = 0) -> Object:
    """The pod of `master-0`, `worker-3` ... of a job."""
    role, _, index = replica.rpartition("-")
    replica_type = names.ReplicaType(role.capitalize())
    state = {
        "Running": {"running": {"startedAt": timestamp()}},
        "Pending": {"waiting": {"reason": "ContainerCreating"}},
    }
    container = {
        "name": names.CONTAINER,
        "restartCount": restarts,
        "ready": phase == "Running",
        "state": state.get(phase, {"terminated": {"exitCode": 0 if phase == "Succeeded" else 1}}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": names.pod_name(job, replica_type, int(index)),
            "labels": names.replica_labels(job, replica_type, int(index)),
            "creationTimestamp": timestamp(),
        },
        "spec": {"nodeName": node, "containers": [{"name": names.CONTAINER, "image": "train:1"}]},
        "status": {"phase": phase, "containerStatuses": [container]},
    }


def an_event(about: str, reason: str, message: str, *, kind: str = names.KIND, seconds: float = 0) -> Object:
    """An event of the object with this name; a Warning if its reason is a failure."""
    problem = any(word in reason for word in ("Fail", "BackOff", "Unhealthy", "Hang"))
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about}.{reason}.{seconds:g}"},
        "involvedObject": {"kind": kind, "name": about},
        "type": "Warning" if problem else "Normal",
        "reason": reason,
        "message": message,
        "count": 1,
        "firstTimestamp": timestamp(seconds),
        "lastTimestamp": timestamp(seconds),
        "source": {"component": names.CONTROLLER},
    }


def a_node(name: str = "node-1", *, ready: bool = True, **status: Any) -> Object:
    """A node; keywords go into its status."""
    condition = {"type": "Ready", "status": "True" if ready else "Unknown"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {},
        "status": {"conditions": [condition], **status},
    }


class FakeCluster:
    """Holds objects and logs, and records every change."""

    def __init__(self, *objects: Object, namespace: str = NAMESPACE) -> None:
        self.namespace = namespace
        self.changes: list[tuple[Any, ...]] = []
        """Every accepted write: ("create", kind, name), ("patch", name, change), ("delete", name)."""
        self._objects: dict[Key, Object] = {}
        self._paths: dict[str, Object] = {}
        self._failures: dict[str, list[ClusterError]] = {}
        self._logs: dict[tuple[str, str, bool], list[Line]] = {}
        self._closed: set[tuple[str, str, bool]] = set()
        self._history: list[Change] = []
        self._steps: list[Callable[[], object]] = []
        self._more = threading.Condition(threading.RLock())
        self._waits = False
        self._version = 0
        self._may_read_nodes = True
        self._forbidden: set[str] = set()
        self.put(*objects)

    # What a test changes.

    def put(self, *objects: Object) -> None:
        """Store objects, as new or in place of those with the same name; watches deliver the changes."""
        with self._more:
            for body in objects:
                self._put(copy.deepcopy(body))
            self._more.notify_all()

    def remove(self, kind: str, name: str) -> None:
        """Remove an object; watches deliver it."""
        with self._more:
            body = self._objects.pop((kind, self._namespace_of(kind), name))
            self._history.append(Change("DELETED", body))
            self._more.notify_all()

    def write(self, pod: str, *lines: str | Line, container: str = names.CONTAINER, previous: bool = False) -> None:
        """Append lines to a log: text gets a timestamp, a second after the last; an exception breaks the stream."""
        with self._more:
            log = self._logs.setdefault((pod, container, previous), [])
            for line in lines:
                seconds = len(log) + len(self._logs.get((pod, container, True), ()))  # a restart resets no clock
                log.append(f"{timestamp(seconds)} {line}\n".encode() if isinstance(line, str) else line)
            self._more.notify_all()

    def restart(self, pod: str, container: str = names.CONTAINER) -> None:
        """End a container's log and begin a new log. The old log becomes the previous log."""
        with self._more:
            self._logs[pod, container, True] = self._logs.pop((pod, container, False), [])
            self._closed |= {(pod, container, True)}
            self._logs[pod, container, False] = []
            self._more.notify_all()

    def close(self, pod: str, container: str = names.CONTAINER) -> None:
        """End a container's log, also for its followers."""
        with self._more:
            self._closed.add((pod, container, False))
            self._more.notify_all()

    def serve(self, path: str, body: Object) -> None:
        """Answer `read(path)` with this body."""
        self._paths[path] = body

    def hide(self, path: str) -> None:
        """Answer `read(path)` as for a person who may not read it."""
        self._paths.pop(path, None)

    def fail(self, method: str, *errors: ClusterError) -> None:
        """Let the next calls of a method raise these errors, in this order. `create Pod` is `create` of that kind."""
        self._failures.setdefault(method, []).extend(errors)

    def refuse_nodes(self) -> None:
        """Take away the right to read nodes."""
        self._may_read_nodes = False

    def forbid(self, *subresources: str) -> None:
        """Take away the right to these subresources of pods, for example `exec`."""
        self._forbidden.update(subresources)

    def script(self, *steps: Callable[[], object]) -> None:
        """Run these steps one by one, each when watches and followed logs have delivered everything so far."""
        with self._more:
            self._steps.extend(steps)

    def wait_for_more(self, waits: bool = True) -> None:
        """Let watches and followed logs wait for other threads after the script; `waits=False` ends them."""
        with self._more:
            self._waits = waits
            self._more.notify_all()

    # The interface.

    def job(self, name: str) -> Object:
        self._fail("job")
        if found := self._objects.get((names.KIND, self.namespace, name)):
            return copy.deepcopy(found)
        raise self._missing(name)

    def jobs(self, selector: str = "", *, all_namespaces: bool = False) -> Sequence[Object]:
        self._fail("jobs")
        found = self._of_kind(names.KIND, None if all_namespaces else self.namespace)
        return [body for body in found if _matches(selector, body)]

    def pods(self, job: str) -> Sequence[Object]:
        self._fail("pods")
        found = [body for body in self._of_kind("Pod", self.namespace) if _job_of(body) == job]
        return sorted(found, key=_place)

    def events(self, names: Sequence[str] = ()) -> Sequence[Object]:
        self._fail("events")
        found = self._of_kind("Event", self.namespace)
        chosen = [body for body in found if not names or body["involvedObject"]["name"] in names]
        return sorted(chosen, key=lambda body: str(body["lastTimestamp"]))

    def nodes(self) -> Sequence[Object] | None:
        self._fail("nodes")
        return self._of_kind("Node", "") if self._may_read_nodes else None

    def read(self, path: str) -> Object | None:
        self._fail("read")
        place, _, name = path.rpartition("/")
        pod = self._objects.get(("Pod", self.namespace, name)) if place.endswith("/pods") else None
        return copy.deepcopy(self._paths.get(path, pod))

    def create(self, body: Object, *, dry_run: bool = False) -> Object:
        self._fail("create")
        made = copy.deepcopy(body)
        if made.get("kind") == "SelfSubjectAccessReview":
            asked = made["spec"]["resourceAttributes"]
            return made | {"status": {"allowed": asked["subresource"] not in self._forbidden}}
        meta = made.setdefault("metadata", {})
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = f"{meta['generateName']}abcde"
        kind, name = made.get("kind", ""), meta.get("name", "")
        self._fail(f"create {kind}")
        if not kind or not name:
            raise Rejected(f"the API server refuses the object: {'kind' if not kind else 'metadata.name'} is required")
        key = (kind, meta.get("namespace") or self._namespace_of(kind), name)
        if key in self._objects:
            raise AlreadyExists(f"the {kind} {name} already exists", existing=copy.deepcopy(self._objects[key]))
        if not dry_run:
            self.changes.append(("create", kind, name))
            self.put(made)
        return made

    def patch(self, name: str, change: Object, *, subresource: str = "", dry_run: bool = False) -> Object:
        self._fail("patch")
        changed = _merged(self.job(name), change)
        if not dry_run:
            self.changes.append(("patch", f"{name}/{subresource}" if subresource else name, change))
            self.put(changed)
        return changed

    def delete(self, name: str, *, foreground: bool = False) -> None:
        self._fail("delete")
        kind, _, plain = name.rpartition("/")
        key = ("Pod" if kind == "pods" else names.KIND, self.namespace, plain)
        if key not in self._objects:
            raise Missing(f"the pod {plain} does not exist") if kind else self._missing(plain)
        self.changes.append(("delete", name))
        self.remove(key[0], plain)

    def watch(self, job: str | None = None) -> Iterator[Change]:
        self._fail("watch")
        return self._watch(lambda body: body["kind"] == names.KIND and job in (None, body["metadata"]["name"]))

    def watch_pods(self, job: str) -> Iterator[Change]:
        self._fail("watch_pods")
        return self._watch(lambda body: body["kind"] == "Pod" and _job_of(body) == job)

    def log(self, request: LogRequest) -> AbstractContextManager[Iterator[bytes]]:
        self._fail("log")
        key = (request.pod, request.container, request.previous)
        if ("Pod", request.namespace or self.namespace, request.pod) not in self._objects and key not in self._logs:
            raise Missing(f"the pod {request.pod} does not exist")
        if request.previous and key not in self._logs:
            raise ClusterError(f"the container {request.container} of {request.pod} has no earlier log")
        return self._open(request, self._logs.setdefault(key, []))

    # How it works.

    def _put(self, body: Object) -> None:
        meta = body["metadata"]
        if space := self._namespace_of(body["kind"]):
            meta.setdefault("namespace", space)
        key = (body["kind"], meta.get("namespace", ""), meta["name"])
        self._version += 1
        meta["resourceVersion"] = str(self._version)
        meta.setdefault("uid", f"uid-{meta['name']}")
        meta.setdefault("creationTimestamp", timestamp())
        self._history.append(Change("MODIFIED" if key in self._objects else "ADDED", body))
        self._objects[key] = body

    def _namespace_of(self, kind: str) -> str:
        return "" if kind in ("Node", "Namespace", "ClusterRole") else self.namespace

    def _of_kind(self, kind: str, namespace: str | None) -> list[Object]:
        with self._more:
            found = [body for key, body in self._objects.items() if key[0] == kind and namespace in (None, key[1])]
        return copy.deepcopy(sorted(found, key=lambda body: str(body["metadata"]["name"])))

    def _fail(self, method: str) -> None:
        if errors := self._failures.get(method):
            raise errors.pop(0)

    def _missing(self, name: str) -> JobMissing:
        known = [body["metadata"]["name"] for body in self._of_kind(names.KIND, self.namespace)]
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else "`pytorchjob list` shows the jobs that exist"
        return JobMissing(f"there is no job {name} in the namespace {self.namespace}", hint)

    def _watch(self, wanted: Callable[[Object], bool]) -> Iterator[Change]:
        with self._more:
            now = [body for body in self._objects.values() if wanted(body)]
            position = len(self._history)
        yield from (Change("ADDED", copy.deepcopy(body)) for body in now)
        while self._grown(position):
            change = self._history[position]
            position += 1
            if wanted(change.object):
                yield Change(change.kind, copy.deepcopy(change.object))

    def _grown(self, position: int) -> bool:
        return self._advance(lambda: position < len(self._history))

    def _advance(self, more: Callable[[], bool]) -> bool:
        """Run the next step, or wait for more to deliver. Return False if nothing more can come."""
        with self._more:
            while not more():
                if self._steps:
                    self._steps.pop(0)()
                    return True if more() else self._advance(more)
                if not self._waits:
                    return False
                self._more.wait(1)
        return True

    @contextmanager
    def _open(self, request: LogRequest, log: list[Line]) -> Iterator[Iterator[bytes]]:
        yield self._lines(request, log)

    def _lines(self, request: LogRequest, log: list[Line]) -> Iterator[bytes]:
        key = (request.pod, request.container, request.previous)
        position = max(len(log) - request.tail, 0) if request.tail is not None else 0
        while position < len(log) or (request.follow and self._follow(key, log, position)):
            if position >= len(log):
                return
            line = log[position]
            position += 1
            if isinstance(line, Exception):
                log.pop(position - 1)  # the next request reads on
                raise line
            if request.since is None or _time_of(line) >= request.since.replace(microsecond=0):
                yield line

    def _follow(self, key: tuple[str, str, bool], log: list[Line], position: int) -> bool:
        """Wait for a line after this position. Return False if the log is closed or its container has restarted."""

        def ended() -> bool:
            return key in self._closed or self._logs.get(key) is not log

        return not ended() and self._advance(lambda: position < len(log) or ended())


def _time_of(line: bytes) -> datetime:
    return datetime.fromisoformat(line.split(b" ", 1)[0].decode()[:19] + "+00:00")


def _matches(selector: str, body: Object) -> bool:
    labels = body["metadata"].get("labels") or {}
    return all(
        labels.get(key) == value for key, _, value in (part.partition("=") for part in selector.split(",") if part)
    )


def _job_of(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.LABEL_JOB_NAME))


def _place(pod: Object) -> tuple[str, int]:
    labels = pod["metadata"]["labels"]
    return labels[names.LABEL_REPLICA_TYPE], int(labels[names.LABEL_REPLICA_INDEX])


def _merged(old: Any, change: Any) -> Any:
    """Apply a JSON merge patch."""
    if not isinstance(change, dict):
        return copy.deepcopy(change)
    merged = dict(old) if isinstance(old, dict) else {}
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged
