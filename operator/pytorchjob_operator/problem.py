"""The problem of a pod, read from its status: a message for people, the cause as a word of a closed set, and crashes.

The messages come from the scheduler, the kubelet and the API server. All of them are bounded, and equal problems share
an object, because the cache holds thousands of pods.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from pytorchjob_agent.contract.printed_error import last_error
from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.contract.reasons import UNFIT_NODE
from pytorchjob_agent.contract.termination import TerminationMessage
from pytorchjob_operator import names
from pytorchjob_operator.names import LossCause

SCHEDULING_GATED = "SchedulingGated"
_MAX_REASON = 128
_MAX_MESSAGE = 512
_MAX_GATES = 8
_STARTING = ("", "ContainerCreating", "PodInitializing")
"""Reasons for waiting of a container that is about to start."""
_SAME = {"ErrImagePull": "ImagePullBackOff"}
"""The kubelet reports these two in turn; for a reader they are the same problem."""
_FIRST_SIGNAL = 128
_MAX_LINE = 300
BRIEF_SECONDS = 600
"""A container that ran this long did not crash at its start: the kubelet resets its back-off too."""
_CAUSES = {
    "PreemptionByScheduler": LossCause.PREEMPTED,
    "EvictionByEvictionAPI": LossCause.EVICTED,
    "DeletionByTaintManager": LossCause.NODE_LOST,
    "DeletionByPodGC": LossCause.NODE_LOST,
    "TerminationByKubelet": LossCause.EVICTED,
    "Evicted": LossCause.EVICTED,
    "Preempting": LossCause.PREEMPTED,
    "Terminated": LossCause.NODE_SHUTDOWN,
    "NodeShutdown": LossCause.NODE_SHUTDOWN,
    "Shutdown": LossCause.NODE_SHUTDOWN,
    "NodeLost": LossCause.NODE_LOST,
    "DeadlineExceeded": LossCause.DEADLINE,
}
"""Reasons of the pod's status (the kubelet's) and of its condition DisruptionTarget."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodProblem:
    """What keeps a pod, a gang or a round from running: a CamelCase word for programs, a sentence for people."""

    reason: str
    message: str
    where: str = ""
    """The subject of the sentence, as v1's events name it: `container pytorch waiting`, `condition`."""


@dataclass(frozen=True, slots=True)
class Crash:
    """The last exit of container `pytorch`: with an error, and soon after its start."""

    exits: int
    """How often the container has ended so far; in a local run, how often in a row with the same code."""
    code: int
    reason: str = ""
    """The agent's own reason (`ExitReason`); empty for a container without the agent."""
    message: str = ""
    """The agent's message, or the last line that the container wrote."""
    running_since: datetime | None = None
    """When the container was started again; None while it waits for that, or has ended for good."""

    @property
    def unfit(self) -> bool:
        """Return whether the agent found the pod unfit for the job, so that another node may be better."""
        return self.reason in UNFIT_NODE


class _Exit(NamedTuple):
    """A container that ended with an error."""

    container: str
    code: int
    reason: str
    message: str


def find_problem(pod: Json, *, failed: bool, deleting: bool) -> PodProblem | None:
    """Return a pod's problem: why it does not run, or why it was lost if it has failed or is being deleted."""
    status = pod.get("status") or {}
    if deleting:
        return _loss(status)
    if failed:
        return _loss(status) or _failed_sidecar(status)
    spec = pod.get("spec") or {}
    return _not_starting(status) or (None if spec.get("nodeName") else _unscheduled(status, spec))


def find_cause(status: Json, *, deleting: bool) -> LossCause:
    """Return why a pod is lost that has failed, is being deleted, or whose main container has failed."""
    reasons = (status.get("reason"), _condition(status, "DisruptionTarget", "True").get("reason"))
    known = next((_CAUSES[word] for word in reasons if word in _CAUSES), None)
    if known is not None or deleting:
        return known or LossCause.DELETED
    ended = next(_exits(status), None)
    if ended is None:
        return LossCause.REJECTED if status.get("reason") else LossCause.UNKNOWN
    if ended.reason == LossCause.OOM_KILLED:
        return LossCause.OOM_KILLED
    return LossCause.SIGNAL if ended.code >= _FIRST_SIGNAL else LossCause.ERROR


def find_crash(status: Json) -> Crash | None:
    """Return the last exit of container `pytorch` if it was an error soon after the start, or of an unfit node."""
    containers = status.get("containerStatuses") or ()
    main: Json = next((container for container in containers if container.get("name") == names.CONTAINER), {})
    state = main.get("state") or {}
    ended = state.get("terminated") or (main.get("lastState") or {}).get("terminated") or {}
    reason, message = last_words(str(ended.get("message") or ""))
    if not ended.get("exitCode") or (_lasted(ended) >= BRIEF_SECONDS and reason not in UNFIT_NODE):
        return None
    running = state.get("running")
    exits = int(main.get("restartCount") or 0) + (0 if running else 1)
    return Crash(exits, int(ended["exitCode"]), reason, message, read_time((running or {}).get("startedAt")))


def last_words(text: str) -> tuple[str, str]:
    """Return reason and message of an agent's termination message; of any other text, no reason and its last error."""
    try:
        message = TerminationMessage.from_json(text)
    except ContractError:
        return "", last_error(text)[:_MAX_LINE]
    return message.reason[:_MAX_REASON], message.message[:_MAX_MESSAGE]


def read_time(text: object) -> datetime | None:
    """Return a time as the API server writes it; None if it is missing or malformed."""
    try:
        time = datetime.fromisoformat(str(text)) if text else None
    except ValueError:
        return None
    return time if time is not None and time.tzinfo else None


def _lasted(ended: Json) -> float:
    """Return how many seconds a container ran; 0 if it could not start."""
    start, end = read_time(ended.get("startedAt")), read_time(ended.get("finishedAt"))
    return (end - start).total_seconds() if start and end else 0.0


def _not_starting(status: Json) -> PodProblem | None:
    """Return why a container does not run, as the kubelet reports it."""
    for container in _containers(status):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = str(waiting.get("reason") or "")
        if reason not in _STARTING:
            return _problem(
                _SAME.get(reason, reason), waiting.get("message"), f"container {container.get('name')} waiting"
            )
    return None


def _unscheduled(status: Json, spec: Json) -> PodProblem | None:
    """Return why the pod has no node, as the scheduler reports it, or which gates hold it back."""
    found = _condition(status, "PodScheduled", "False")
    reason, message = str(found.get("reason") or ""), found.get("message")
    if reason == SCHEDULING_GATED:
        gates = [str(gate.get("name")) for gate in spec.get("schedulingGates") or ()]
        message = f"held by the scheduling gates {', '.join(gates[:_MAX_GATES])}" if gates else message
    return _problem(reason, message) if reason else None


def _loss(status: Json) -> PodProblem | None:
    """Return why the pod was removed."""
    disrupted = _condition(status, "DisruptionTarget", "True")
    if status.get("reason"):
        return _problem(str(status["reason"]), status.get("message") or disrupted.get("message"), "status")
    if disrupted.get("reason"):
        return _problem(str(disrupted["reason"]), disrupted.get("message"))
    return None


def _failed_sidecar(status: Json) -> PodProblem | None:
    """Return which other container ended the pod; the exit code of the main container suffices by itself."""
    ended = next(_exits(status), None)
    if ended is None or ended.container == names.CONTAINER:
        return None
    where = f"container {ended.container} exitCode: {ended.code} terminated"
    return _problem(ended.reason or "Error", ended.message, where)


def _exits(status: Json) -> Iterator[_Exit]:
    """Yield the containers that ended with an error, the main container first."""
    main_first = sorted(_containers(status), key=lambda container: container.get("name") != names.CONTAINER)
    for container in main_first:
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            message = str(ended.get("message") or "")
            yield _Exit(str(container.get("name")), int(ended["exitCode"]), str(ended.get("reason") or ""), message)


def _containers(status: Json) -> Sequence[Json]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _condition(status: Json, kind: str, value: str) -> Json:
    """Return the condition of this type if it has this status; otherwise an empty dict."""
    found = (
        condition
        for condition in status.get("conditions") or ()
        if condition.get("type") == kind and condition.get("status") == value
    )
    return next(found, {})


def _problem(reason: str, message: object, where: str = "condition") -> PodProblem:
    return _shared(reason[:_MAX_REASON], str(message or reason)[:_MAX_MESSAGE], where[:_MAX_REASON])


@lru_cache(maxsize=512)
def _shared(reason: str, message: str, where: str) -> PodProblem:
    return PodProblem(reason, message, where)
