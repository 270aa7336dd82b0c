"""What a pod shows of a log: whether it can be read, and whether it has ended."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from pytorchjob.logs.lines import from_moment
from pytorchjob.view.reading import has_finished, node_of
from pytorchjob_operator import names

Object = dict[str, Any]


class LogPhase(Enum):
    """The life of a container's log."""

    NOT_STARTED = "not started"
    OPEN = "open"
    """The container runs, or will run again."""
    ENDED = "ended"
    """The container will not run again in this pod."""
    GONE = "gone"
    """The pod does not exist any more."""


@dataclass(frozen=True, slots=True)
class LogState:
    """What a pod shows of the log of one of its containers."""

    phase: LogPhase
    restarts: int = 0
    started: int | None = None
    """When the container began whose log the node gives: nanoseconds, in whole seconds."""
    reason: str = ""
    """Why it has not started."""
    begun: bool = False
    """The container has started at least once in this pod."""


GONE = LogState(LogPhase.GONE)


def log_state(pod: Object, container: str) -> LogState:
    """Read the state of a container's log."""
    found = _status(pod.get("status") or {}, container)
    now, before = found.get("state") or {}, (found.get("lastState") or {}).get("terminated") or {}
    current = now.get("running") or now.get("terminated") or before
    started, restarts = _time(current.get("startedAt")), int(found.get("restartCount") or 0)
    if has_finished(pod) or _is_last(pod, container, now.get("terminated")):
        return LogState(LogPhase.ENDED, restarts, started, begun=bool(current))
    if not current:
        return LogState(LogPhase.NOT_STARTED, restarts, None, _why_not(pod, now.get("waiting") or {}))
    return LogState(LogPhase.OPEN, restarts, started, begun=True)


def container_names(pod: Object) -> list[str]:
    """The names of all containers, those that train first."""
    spec = pod["spec"]
    kinds = ("containers", "initContainers", "ephemeralContainers")
    return [str(item["name"]) for kind in kinds for item in spec.get(kind) or ()]


def short_name(pod: Object) -> str:
    """The pod's name without the job's: `worker-1`."""
    labels = pod["metadata"].get("labels") or {}
    role, index = labels.get(names.LABEL_REPLICA_TYPE), labels.get(names.LABEL_REPLICA_INDEX)
    return f"{role}-{index}" if role and index else str(pod["metadata"]["name"])


def _status(status: Object, container: str) -> Object:
    kinds = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    found = (item for kind in kinds for item in status.get(kind) or () if item.get("name") == container)
    return next(found, {})


def _is_last(pod: Object, container: str, ended: Object | None) -> bool:
    """True if the container has ended and is not started again."""
    if ended is None:
        return False
    policy = pod["spec"].get("restartPolicy", "Always")
    succeeded = ended.get("exitCode") == 0
    is_init = any(item.get("name") == container for item in pod["spec"].get("initContainers") or ())
    return policy == "Never" or (succeeded and (policy == "OnFailure" or is_init))


def _why_not(pod: Object, waiting: Object) -> str:
    if reason := waiting.get("reason"):
        return str(reason)
    return "no node yet" if not node_of(pod) else "starting"


def _time(text: str | None) -> int | None:
    return from_moment(datetime.fromisoformat(text)) if text else None
