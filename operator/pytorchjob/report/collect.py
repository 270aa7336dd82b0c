"""Reads what a report holds. Secrets and ConfigMaps are never read; what this person may not read is left out."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from pytorchjob.cluster.api import Cluster, LogRequest, Object
from pytorchjob.cluster.errors import ClusterError
from pytorchjob.cluster.gather import NAME_LABEL, OPERATOR, gather_job
from pytorchjob.cluster.paths import labelled
from pytorchjob.cluster.versions import read_versions
from pytorchjob.logs.containers import container_names
from pytorchjob.report.log_ends import LogEnd, read_log_ends
from pytorchjob.report.sources import ReportSources
from pytorchjob.view import reading
from pytorchjob.view.seen import Seen
from pytorchjob_operator import names

_OPERATOR_LINES = 20_000
T = TypeVar("T")


def collect(cluster: Cluster, job: str, now: datetime, lines: int) -> ReportSources:
    """Read a job and all that belongs to it; `lines`: of each log at most, 0: no logs.

    Raises `ClusterError` only if the job itself cannot be read.
    """
    seen = gather_job(cluster, job, now)
    found = ReportSources(seen, seen)
    allowed = _Allowed(found.left_out)
    found.deep = allowed("doctor.txt is based on less", lambda: gather_job(cluster, job, now, deep=True), seen)
    nothing: Sequence[Object] = ()
    found.pods = allowed("the job's pods", lambda: cluster.pods(job), nothing)
    events = allowed("events", cluster.events, nothing)
    found.events = [event for event in events if reading.event_concerns(event, job)]
    found.services = _services(cluster, job, found.left_out)
    found.versions = allowed("versions", lambda: read_versions(cluster), {})
    requests = dict(_requests(found.pods, lines))
    operators, namespace = _operator_pods(cluster, found.deep)
    if not lines:
        found.left_out["logs"] = "not wanted (--no-logs)"
    elif not operators:
        found.left_out["the operator's log"] = "the operator's pods are not there, or you may not read them"
    requests |= _operator_requests(operators, namespace) if lines else {}
    about = lines_about(cluster.namespace, job)
    for name, end in read_log_ends(cluster, requests).items():
        _add_log(found, name, about(end) if name.startswith("operator/") else end)
    return found


class _Allowed:
    """Reads, and notes what could not be read."""

    def __init__(self, left_out: dict[str, str]) -> None:
        self._left_out = left_out

    def __call__(self, what: str, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except ClusterError as error:
            self._left_out[what] = error.message
            return otherwise


def _add_log(found: ReportSources, name: str, end: LogEnd) -> None:
    if end.text:
        found.logs[name] = end.text
    if end.problem or not end.text:
        found.left_out[name] = end.problem or "it is empty"


def _services(cluster: Cluster, job: str, left_out: dict[str, str]) -> Sequence[Object]:
    path = labelled(f"/api/v1/namespaces/{cluster.namespace}/services", names.LABEL_JOB_NAME, job)
    found = _Allowed(left_out)("services", lambda: cluster.read(path), None)
    if found is None:
        left_out.setdefault("services", "you may not list services in this namespace")
        return ()
    return [{"apiVersion": "v1", "kind": "Service", **item} for item in reading.items(found, "items")]


def _requests(pods: Sequence[Object], lines: int) -> "dict[str, LogRequest]":
    """Return the requests for all logs of the job's pods by the names of their files."""
    found: dict[str, LogRequest] = {}
    for pod in pods if lines else ():
        name = reading.name_of(pod)
        restarted = {str(each.get("name")) for each in reading.containers(pod) if each.get("restartCount")}
        for container in container_names(dict(pod)):
            found[f"logs/{name}/{container}.log"] = LogRequest(name, container, tail=lines)
            if container in restarted:
                file = f"logs/{name}/{container}.previous.log"
                found[file] = LogRequest(name, container, previous=True, tail=lines)
    return found


def _operator_pods(cluster: Cluster, seen: Seen) -> tuple[Sequence[Object], str]:
    """Return the operator's pods and their namespace."""
    for deployment in seen.operator.deployments or ():
        namespace = str(reading.part(deployment, "metadata").get("namespace") or "")
        path = labelled(f"/api/v1/namespaces/{namespace}/pods", NAME_LABEL, OPERATOR)
        try:
            found = cluster.read(path)
        except ClusterError:
            found = None
        if pods := reading.items(found or {}, "items"):
            return [dict(pod) for pod in pods], namespace
    return (), ""


def _operator_requests(pods: Sequence[Object], namespace: str) -> dict[str, LogRequest]:
    return {
        f"operator/{reading.name_of(pod)}.log": LogRequest(
            reading.name_of(pod), container_names(dict(pod))[0], tail=_OPERATOR_LINES, namespace=namespace
        )
        for pod in pods
    }


_RECORD = re.compile(r"\S+ (?:\d{4}-|\{)")
"""A node's timestamp and the beginning of a record; a traceback goes on without it."""


def lines_about(namespace: str, job: str) -> Callable[[LogEnd], LogEnd]:
    """Return what keeps of the operator's log the records about this job, with their tracebacks."""
    place = rf"{re.escape(namespace)}/{re.escape(job)}"
    wanted = re.compile(rf"(?<![\w./-]){place}(?:-(?:master|worker)-\d+)?(?![\w-]|\.\w)")

    def filtered(end: LogEnd) -> LogEnd:
        kept: list[str] = []
        is_kept = False
        for line in end.text.splitlines(keepends=True):
            is_kept = bool(wanted.search(line)) or (is_kept and not _RECORD.match(line))
            kept += [line] if is_kept else []
        problem = end.problem or ("" if kept else "no line is about this job")
        return LogEnd("".join(kept), problem)

    return filtered
