"""What is wrong with a pod, read from its status: the trouble in words for people, the cause as a word of a closed set.

The words are the scheduler's, the kubelet's and the API server's. All of them are bounded, and equal troubles are one
object, because the cache holds thousands of pods.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from pytorchjob_operator import names
from pytorchjob_operator.names import Cause

SCHEDULING_GATED = "SchedulingGated"
_MAX_REASON = 128
_MAX_MESSAGE = 512
_MAX_GATES = 8
_STARTING = ("", "ContainerCreating", "PodInitializing")
"""What a container waits for that is about to start."""
_SAME = {"ErrImagePull": "ImagePullBackOff"}
"""The kubelet says the one and the other in turns: for a reader it is one trouble."""
_FIRST_SIGNAL = 128
_CAUSES = {
    "PreemptionByScheduler": Cause.PREEMPTED,
    "EvictionByEvictionAPI": Cause.EVICTED,
    "DeletionByTaintManager": Cause.NODE_LOST,
    "DeletionByPodGC": Cause.NODE_LOST,
    "TerminationByKubelet": Cause.EVICTED,
    "Evicted": Cause.EVICTED,
    "Preempting": Cause.PREEMPTED,
    "Terminated": Cause.NODE_SHUTDOWN,
    "NodeShutdown": Cause.NODE_SHUTDOWN,
    "Shutdown": Cause.NODE_SHUTDOWN,
    "NodeLost": Cause.NODE_LOST,
    "DeadlineExceeded": Cause.DEADLINE,
}
"""Reasons of the pod's status (the kubelet's) and of its condition DisruptionTarget."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodProblem:
    """What keeps somebody from going on: one CamelCase word for programs, one sentence for people."""

    reason: str
    message: str
    where: str = ""
    """What the sentence is about, as v1's events name it: `container pytorch waiting`, `condition`."""


class _Exit(NamedTuple):
    """A container that has ended badly."""

    container: str
    code: int
    reason: str
    message: str


def find_problem(pod: Json, *, failed: bool, deleting: bool) -> PodProblem | None:
    """What is wrong with a pod: what it lacks, or what took it away if it has failed or is being deleted."""
    status = pod.get("status") or {}
    if deleting:
        return _loss(status)
    if failed:
        return _loss(status) or _bad_end(status)
    spec = pod.get("spec") or {}
    return _hindrance(status) or (None if spec.get("nodeName") else _unscheduled(status, spec))


def find_cause(status: Json, *, deleting: bool) -> Cause:
    """Why a pod is lost that has failed, is being deleted, or will have failed once the kubelet says so."""
    said = (status.get("reason"), _condition(status, "DisruptionTarget", "True").get("reason"))
    known = next((_CAUSES[word] for word in said if word in _CAUSES), None)
    if known is not None or deleting:
        return known or Cause.DELETED
    ended = next(_exits(status), None)
    if ended is None:
        return Cause.REJECTED if status.get("reason") else Cause.UNKNOWN
    if ended.reason == Cause.OOM_KILLED:
        return Cause.OOM_KILLED
    return Cause.SIGNAL if ended.code >= _FIRST_SIGNAL else Cause.ERROR


def _hindrance(status: Json) -> PodProblem | None:
    """What the kubelet says that keeps a container from running."""
    for one in _containers(status):
        waiting = (one.get("state") or {}).get("waiting") or {}
        reason = str(waiting.get("reason") or "")
        if reason not in _STARTING:
            return _problem(_SAME.get(reason, reason), waiting.get("message"), f"container {one.get('name')} waiting")
    return None


def _unscheduled(status: Json, spec: Json) -> PodProblem | None:
    """Why the pod has no node, in the scheduler's words; or who holds it back before the scheduler may see it."""
    said = _condition(status, "PodScheduled", "False")
    reason, message = str(said.get("reason") or ""), said.get("message")
    if reason == SCHEDULING_GATED:
        gates = [str(one.get("name")) for one in spec.get("schedulingGates") or ()]
        message = f"held by the scheduling gates {', '.join(gates[:_MAX_GATES])}" if gates else message
    return _problem(reason, message) if reason else None


def _loss(status: Json) -> PodProblem | None:
    """Who took the pod away."""
    disrupted = _condition(status, "DisruptionTarget", "True")
    if status.get("reason"):
        return _problem(str(status["reason"]), status.get("message") or disrupted.get("message"), "status")
    if disrupted.get("reason"):
        return _problem(str(disrupted["reason"]), disrupted.get("message"))
    return None


def _bad_end(status: Json) -> PodProblem | None:
    """Which other container ended the pod; an exit code of the main one tells enough by itself."""
    ended = next(_exits(status), None)
    if ended is None or ended.container == names.CONTAINER:
        return None
    where = f"container {ended.container} exitCode: {ended.code} terminated"
    return _problem(ended.reason or "Error", ended.message, where)


def _exits(status: Json) -> Iterator[_Exit]:
    """The containers that ended badly, the main one first."""
    main_first = sorted(_containers(status), key=lambda one: one.get("name") != names.CONTAINER)
    for one in main_first:
        ended = (one.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            message = str(ended.get("message") or "")
            yield _Exit(str(one.get("name")), int(ended["exitCode"]), str(ended.get("reason") or ""), message)


def _containers(status: Json) -> Sequence[Json]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _condition(status: Json, kind: str, value: str) -> Json:
    """The condition of this type, if it has this status; empty otherwise."""
    found = (one for one in status.get("conditions") or () if one.get("type") == kind and one.get("status") == value)
    return next(found, {})


def _problem(reason: str, message: object, where: str = "condition") -> PodProblem:
    return _shared(reason[:_MAX_REASON], str(message or reason)[:_MAX_MESSAGE], where[:_MAX_REASON])


@lru_cache(maxsize=512)
def _shared(reason: str, message: str, where: str) -> PodProblem:
    return PodProblem(reason, message, where)
