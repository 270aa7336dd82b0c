"""Reads fields of API objects. A missing or malformed field reads as empty and never raises: any client may write."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.problem import read_time

Object = Mapping[str, Any]

_AMOUNT = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([numkKMGTPE]?i?)")
_UNITS = {
    **{unit: 1000.0**power for power, unit in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)},
    **{unit: 1024.0**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}
_LEASE = timedelta(seconds=120)
"""A Lease that is not renewed for this long is old, even if this machine's clock differs from the cluster's."""
_NPROC = ("PET_NPROC_PER_NODE", "NPROC_PER_NODE")
_LAUNCHERS = ("torchrun", "torch.distributed", "pytorchjob-agent", "pytorchjob_agent", "accelerate", "deepspeed")
_PYTHON = re.compile(r"(?:^|[\s/])python[0-9.]*(?=\s|$)")
_SPACE = re.compile(r"\s+")


def part(obj: Object, *path: str) -> Object:
    """Return an object inside another one; empty if it is missing or no object."""
    found: Any = obj
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def items(obj: Object, *path: str) -> Sequence[Object]:
    """Return the objects of a list inside an object."""
    found = part(obj, *path[:-1]).get(path[-1])
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list | tuple) else []


def name_of(obj: Object) -> str:
    """Return `metadata.name`."""
    return str(part(obj, "metadata").get("name") or "")


def namespace_of(obj: Object) -> str:
    """Return `metadata.namespace`."""
    return str(part(obj, "metadata").get("namespace") or "")


def uid_of(obj: Object) -> str:
    """Return `metadata.uid`."""
    return str(part(obj, "metadata").get("uid") or "")


def created_at(obj: Object) -> datetime | None:
    """Return when the object was created."""
    return read_time(part(obj, "metadata").get("creationTimestamp"))


def deleting(obj: Object) -> bool:
    """Whether the object is being deleted."""
    return bool(part(obj, "metadata").get("deletionTimestamp"))


def condition(obj: Object, kind: str, status: str = "True") -> Object:
    """Return the condition of a type if it has this status; otherwise an empty object."""
    found = (entry for entry in items(obj, "status", "conditions") if entry.get("type") == kind)
    return next((entry for entry in found if entry.get("status") == status), {})


def is_held(lease: Object, now: datetime) -> bool:
    """Whether a leader holds a Lease: it has a holder that renews it."""
    return bool(part(lease, "spec").get("holderIdentity")) and not is_old(lease, now)


def is_old(lease: Object, now: datetime) -> bool:
    """Whether no leader has renewed a Lease for long."""
    renewed = read_time(part(lease, "spec").get("renewTime"))
    return renewed is None or now - renewed > _LEASE


def ended(job: Object) -> str:
    """Return `Succeeded` or `Failed` once the job has ended; empty before."""
    return next((kind for kind in ("Succeeded", "Failed") if condition(job, kind)), "")


def suspended(job: Object) -> bool:
    """Whether the job's spec suspends it."""
    return part(job, "spec", "runPolicy").get("suspend") is True


def held(job: Object) -> bool:
    """Whether the job may not have pods: its spec suspends it, or the operator waits for its queue."""
    return suspended(job) or condition(job, "Suspended").get("reason") == names.Reason.QUEUED


def queued(job: Object) -> bool:
    """Whether the whole job waits in a queue of Kueue."""
    return bool(queue_of(job)) and held(job) and not ended(job)


def queue_of(obj: Object) -> str:
    """Return the queue of Kueue of a job or a pod; empty without one."""
    return str(part(obj, "metadata", "labels").get(names.LABEL_KUEUE_QUEUE) or "")


def belongs(obj: Object, job: Object) -> bool:
    """Whether the job owns an object."""
    return any(owner.get("uid") == uid_of(job) for owner in items(obj, "metadata", "ownerReferences"))


def gates_of(pod: Object) -> tuple[str, ...]:
    """Return the names of the scheduling gates that hold a pod back."""
    return tuple(str(gate.get("name")) for gate in items(pod, "spec", "schedulingGates"))


def held_group(pod: Object) -> str:
    """Return the pod's group if Kueue holds the pod back as part of a group; empty otherwise."""
    group = part(pod, "metadata", "labels").get(names.LABEL_KUEUE_GROUP)
    return str(group or "") if names.GATE_KUEUE in gates_of(pod) else ""


def changed_at(entry: Object) -> datetime | None:
    """Return when a condition last changed."""
    return read_time(entry.get("lastTransitionTime")) or read_time(entry.get("lastUpdateTime"))


def event_time(event: Object) -> datetime | None:
    """Return when an event last occurred."""
    times = (part(event, "series").get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((time for time in map(read_time, times) if time), None) or created_at(event)


def event_concerns(event: Object, job: str) -> bool:
    """Whether an event is about a job, or about an object that the operator made for it."""
    name = str(part(event, "involvedObject").get("name") or "")
    return name == job or re.fullmatch(rf"{re.escape(job)}-(master|worker)-\d+", name) is not None


def containers(pod: Object) -> Sequence[Object]:
    """Return the statuses of a pod's containers, the init containers first."""
    return [*items(pod, "status", "initContainerStatuses"), *items(pod, "status", "containerStatuses")]


def main_status(pod: Object) -> Object:
    """Return the status of container `pytorch`; empty until the kubelet reports it."""
    return next((found for found in items(pod, "status", "containerStatuses") if _is_main(found)), {})


def main_spec(pod_spec: Object) -> Object:
    """Return container `pytorch` of a pod's spec, or of a template's."""
    return next((found for found in items(pod_spec, "containers") if _is_main(found)), {})


def _is_main(container: Object) -> bool:
    return container.get("name") == names.CONTAINER


def runs(pod: Object) -> bool:
    """Whether container `pytorch` runs."""
    return "running" in part(main_status(pod), "state")


def ended_without_message(pod: Object) -> bool:
    """Whether container `pytorch` has ended, for now or for good, and left no termination message."""
    main = main_status(pod)
    endings = [ended for key in ("state", "lastState") if (ended := part(main, key, "terminated"))]
    return not runs(pod) and bool(endings) and not any(ended.get("message") for ended in endings)


def phase_of(pod: Object) -> str:
    """Return the pod's phase; a new pod is Pending."""
    return str(part(pod, "status").get("phase") or "Pending")


def has_finished(pod: Object) -> bool:
    """Whether all containers of the pod have ended for good."""
    return phase_of(pod) in ("Succeeded", "Failed")


def role_of(pod: Object) -> str:
    """Return the role of a pod as a job's spec writes it: `Master`, `Worker`; empty without its label."""
    return str(part(pod, "metadata", "labels").get(names.LABEL_REPLICA_TYPE) or "").capitalize()


def node_of(pod: Object) -> str:
    """Return the name of the pod's node; empty before it has one."""
    return str(part(pod, "spec").get("nodeName") or "")


def restarts(pod: Object) -> int:
    """Return how often the kubelet has restarted the pod's containers."""
    return sum(whole(container.get("restartCount")) or 0 for container in containers(pod))


def available(deployment: Object) -> str:
    """Return how many pods of a Deployment are available: `1 of 2 pods`."""
    wanted = part(deployment, "spec").get("replicas", 1)
    return f"{part(deployment, 'status').get('availableReplicas') or 0} of {wanted} pods"


def roles(job: Object) -> Iterator[tuple[str, int, Object]]:
    """Yield each role of a job, the Master first: its name, its replicas, the spec of its template."""
    specs = part(job, "spec", "pytorchReplicaSpecs")
    for role in names.ReplicaType:
        if role.value in specs:
            number = whole(part(specs, role.value).get("replicas"))
            yield role.value, 1 if number is None else number, part(specs, role.value, "template", "spec")


def wanted_pods(job: Object) -> int:
    """Return how many pods the job's spec asks for."""
    return sum(count for _, count, _ in roles(job))


def words_of(container: Object) -> list[str]:
    """Return command and arguments of a container."""
    lists = (container.get(key) for key in ("command", "args"))
    return [str(word) for found in lists if isinstance(found, list | tuple) for word in found]


def variable(container: Object, name: str) -> str:
    """Return the value of an environment variable that is written in the container's spec; empty without it."""
    found = (entry.get("value") for entry in items(container, "env") if entry.get("name") == name)
    return str(next(found, "") or "")


def processes(container: Object) -> int | None:
    """Return how many ranks a container has; None if only its launcher, or its image's own command, knows.

    A script that Python starts without a launcher is a single rank.
    """
    given = (whole(variable(container, name)) for name in _NPROC)
    if (number := next((found for found in given if found is not None), None)) is not None:
        return number
    words = " ".join(words_of(container))
    launched = any(launcher in words for launcher in _LAUNCHERS)
    return 1 if _PYTHON.search(words) and not launched else None


def whole(value: object) -> int | None:
    """Return a whole number, also if it is written as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return int(value) if isinstance(value, int) or (value.isascii() and value.isdigit() and len(value) < 10) else None


def amount(quantity: object) -> float:
    """Return a quantity such as `500m` or `4Gi` as a number that is exact enough to compare; 0 if it is malformed."""
    found = _AMOUNT.fullmatch(str(quantity))
    try:
        return float(found[1]) * _UNITS[found[2]] if found else 0.0
    except (KeyError, ValueError):
        return 0.0


def line_of(text: object, most: int = 300) -> str:
    """Return a text as a single line of limited length."""
    line = _SPACE.sub(" ", str(text or "")).strip()
    return line if len(line) <= most else f"{line[: most - 3]}..."
