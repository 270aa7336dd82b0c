"""The state of a job in a word or two, since when, and the reason in a sentence.

The conditions decide first, then the coordinator's report, then the pods. A state is about now: a restart that is over
is in the recent causes.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from pytorchjob.view import reading
from pytorchjob.view.reading import Object
from pytorchjob.view.seen import Seen
from pytorchjob_agent.contract.coordinator_endpoint import COORDINATOR
from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_operator.names import AGENT_INSTALL, Reason
from pytorchjob_operator.rounds.values import count

_PULLING = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_FIRST_ROUND = timedelta(seconds=60)
"""Agents that have not reported within this time are probably not there."""
_NO_MEMBER = (
    "The pods run, and none of their agents has reported: the command trains without the agent."
    " docs/agent.md says which commands become members."
)
_CREATING = ("", "ContainerCreating", "PodInitializing")


class State(StrEnum):
    """The states."""

    SUBMITTED = "Submitted"
    """No operator has reacted to the job yet."""
    SUSPENDED = "Suspended"
    QUEUED = "Queued"
    """Kueue, a gang scheduler or a scheduling gate holds it back."""
    REFUSED = "Refused"
    """The API server refuses a part of it."""
    CREATING = "Creating"
    """Its pods are being created."""
    PENDING = "Pending"
    """Pods have no node."""
    PULLING = "Pulling image"
    STARTING = "Starting"
    """Containers are being created."""
    JOINING = "Joining"
    """The agents wait for each other."""
    TRAINING = "Training"
    """A round of the coordinator runs."""
    RUNNING = "Running"
    """Its pods run; without a coordinator it is not known whether they train."""
    RESTARTING = "Restarting"
    CRASHING = "Crashing"
    """A container ends again and again."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DELETING = "Deleting"


class Shown(NamedTuple):
    """A state with its beginning and its reason."""

    state: State
    since: datetime | None
    reason: str


def decide(seen: Seen) -> Shown:
    """Return the present state."""
    if reading.deleting(seen.job):
        return Shown(State.DELETING, None, "The job is being deleted.")
    for kind, state in (("Succeeded", State.SUCCEEDED), ("Failed", State.FAILED)):
        if shown := reading.condition(seen.job, kind):
            return _of_condition(state, shown)
    if seen.suspended or seen.has("Suspended"):
        return _suspended(seen)
    if not reading.items(seen.job, "status", "conditions"):
        return Shown(State.SUBMITTED, reading.created_at(seen.job), "No operator has accepted the job yet.")
    return _without_pods(seen) if not seen.readable else _held(seen) or _of_pods(seen)


def _without_pods(seen: Seen) -> Shown:
    """Return what the conditions alone show."""
    words = "You may not read the job's pods."
    for kind, state in (("Restarting", State.RESTARTING), ("Running", State.RUNNING)):
        if shown := reading.condition(seen.job, kind):
            return Shown(state, reading.changed_at(shown), words)
    return Shown(State.CREATING, reading.created_at(seen.job), words)


def _of_condition(state: State, shown: Object) -> Shown:
    return Shown(state, reading.changed_at(shown), reading.line_of(shown.get("message"), 600))


def _suspended(seen: Seen) -> Shown:
    since = reading.changed_at(reading.condition(seen.job, "Suspended")) or reading.created_at(seen.job)
    if seen.queue:
        said = reading.line_of(reading.condition(seen.job, "Waiting").get("message"), 600)
        words = f"Kueue has not admitted the job yet; its queue is {seen.queue}."
        return Shown(State.QUEUED, since, f"{words} It waits for this: {said}" if said else words)
    return Shown(State.SUSPENDED, since, "The job is suspended: spec.runPolicy.suspend is true.")


def _held(seen: Seen) -> Shown | None:
    """Return what keeps the job from having all its pods."""
    refused, waiting = reading.condition(seen.job, "ReplicaFailure"), reading.condition(seen.job, "Waiting")
    if refused and seen.lacks_pods():
        return _of_condition(State.REFUSED, refused)
    gang = (Reason.POD_GROUP_PENDING, Reason.POD_GROUP_UNSCHEDULABLE, Reason.GANG_SCHEDULER_UNAVAILABLE)
    if waiting.get("reason") in (*gang, "SchedulingGated"):
        return _of_condition(State.QUEUED, waiting)
    return None


def _of_pods(seen: Seen) -> Shown:
    """Return the state that follows from the pods, and from the round that they form."""
    degraded, restarting = reading.condition(seen.job, "Degraded"), reading.condition(seen.job, "Restarting")
    if degraded.get("reason") == Reason.CRASH_LOOP:
        return _of_condition(State.CRASHING, degraded)
    elastic = reading.part(seen.status, "elastic")
    if degraded.get("reason") in (TrainingReason.WAITING, TrainingReason.TIMED_OUT):
        return _of_condition(State.JOINING, degraded)
    pods = [*seen.living_pods()]
    started = [pod for pod in pods if reading.phase_of(pod) == "Running"]
    if elastic.get("round") and started:
        return Shown(State.TRAINING, _running_since(seen), _round_words(elastic))
    if restarting and len(started) < seen.wanted_pods():
        return _of_condition(State.RESTARTING, restarting)
    if len(started) == seen.wanted_pods() and pods:
        return _without_round(seen, started[0])
    return _starting(seen, pods)


def _without_round(seen: Seen, pod: Object) -> Shown:
    """Return the state of a job whose pods all run. A script that starts no agent never forms a round."""
    since = _running_since(seen)
    new = since is not None and seen.now - since < _FIRST_ROUND
    if new and _coordinated(pod):
        return Shown(State.JOINING, since, "The pods run; their agents have not formed a round yet.")
    if _injected(pod):
        return Shown(State.RUNNING, since, _NO_MEMBER)
    return Shown(State.RUNNING, since, "The pods run.")


def _starting(seen: Seen, pods: list[Object]) -> Shown:
    """Return what the pods that do not run yet wait for: the earliest stage that any of them is in."""
    created = reading.created_at(seen.job)
    if len(pods) < seen.wanted_pods():
        return Shown(State.CREATING, created, f"{len(pods)} of {seen.wanted_pods()} pods exist.")
    waiting = [pod for pod in pods if reading.phase_of(pod) == "Pending"]
    if not waiting:
        running = sum(reading.phase_of(pod) == "Running" for pod in pods)
        return Shown(State.RUNNING, _running_since(seen), f"{running} of {len(pods)} pods run; the others have ended.")
    homeless = [pod for pod in waiting if not reading.node_of(pod)]
    number = f"{len(waiting)} of {len(pods)} pods do not run yet"
    if homeless:
        message = reading.condition(homeless[0], "PodScheduled", "False").get("message")
        return Shown(State.PENDING, created, reading.line_of(message, 600) or f"{number}: no node is chosen yet.")
    reasons = [
        str(reading.part(c, "state", "waiting").get("reason") or "") for p in waiting for c in reading.containers(p)
    ]
    if any(reason in _PULLING for reason in reasons):
        return Shown(State.PULLING, created, f"{number}: an image cannot be pulled.")
    if any(_is_pulling(seen, pod) for pod in waiting):
        return Shown(State.PULLING, created, f"{number}: their nodes pull the image.")
    others = [reason for reason in reasons if reason not in _CREATING]
    return Shown(State.STARTING, created, f"{number}{f': {others[0]}' if others else ''}.")


def _is_pulling(seen: Seen, pod: Object) -> bool:
    """Whether the newest event about an image is that the node pulls it."""
    reasons = (event.get("reason") for event in seen.events_of(pod))
    return next((reason for reason in reasons if reason in ("Pulling", "Pulled")), "") == "Pulling"


def _running_since(seen: Seen) -> datetime | None:
    return reading.changed_at(reading.condition(seen.job, "Running"))


def _round_words(elastic: Object) -> str:
    members, world = int(elastic.get("members") or 0), int(elastic.get("worldSize") or 0)
    return f"Round {elastic.get('round')} has {count(members, 'pod')} and {count(world, 'worker')}."


def _injected(pod: Object) -> bool:
    """Whether the operator has put the agent into the pod."""
    return any(each.get("name") == AGENT_INSTALL for each in reading.items(pod, "spec", "initContainers"))


def _coordinated(pod: Object) -> bool:
    """Whether the pod's container got the coordinator's endpoint, so that a round can be expected."""
    return bool(reading.variable(reading.main_spec(reading.part(pod, "spec")), COORDINATOR))
