"""Containers that cannot be created: volumes, Secrets, the runtime and the pod's network, by the kubelet's reports."""

from collections.abc import Iterator

from pytorchjob.view import reading
from pytorchjob.view.causes.cause import Cause, Finding, Remedy, Symptom, delete_and_apply, from_pod, merge, values_of
from pytorchjob.view.causes.rules import TextRule, first_cause, rule
from pytorchjob.view.reading import Object
from pytorchjob.view.seen import Seen

_DESCRIBE = Remedy("Read the pod's events.", "kubectl describe pod {pod} -n {namespace}")

CONFIG_MISSING = Cause(
    "SecretOrConfigMapMissing",
    Symptom.NOT_STARTING,
    "The container waits with `CreateContainerConfigError`, or the event `FailedMount` has `secret` or `configmap` and"
    " `not found`.",
    "The {kind} {name} that {pod} uses does not exist in the namespace {namespace}.",
    (
        Remedy("See which exist.", "kubectl get secrets,configmaps -n {namespace}"),
        Remedy("Create it; the kubelet tries again by itself. Or correct the name in the job's file."),
    ),
)
KEY_MISSING = Cause(
    "KeyMissing",
    Symptom.NOT_STARTING,
    "The container waits with `CreateContainerConfigError`, and the message has `couldn't find key`.",
    "The {kind} {name} has no key {key}, which {pod} uses.",
    (
        Remedy("See its keys.", "kubectl describe {kind} {name} -n {namespace}"),
        Remedy("Add the key; the kubelet tries again by itself. Or correct the name in the job's file."),
    ),
)
ROOT_IMAGE = Cause(
    "ImageRunsAsRoot",
    Symptom.NOT_STARTING,
    "The container waits with `CreateContainerConfigError`, and the message has `runAsNonRoot`.",
    "{pod} must not run as root, and its image does.",
    delete_and_apply("Set `securityContext.runAsUser` to a number other than 0, or `USER 1000` in the Dockerfile."),
)
NO_COMMAND = Cause(
    "NoCommand",
    Symptom.NOT_STARTING,
    "The container waits with `CreateContainerError`, and the message has `no command specified`.",
    "The image of {pod} has no default command, and the job names none.",
    delete_and_apply("Set `command` of the container in the job's file."),
)
VOLUME_IN_USE = Cause(
    "VolumeInUse",
    Symptom.NOT_STARTING,
    "The event `FailedAttachVolume` has `Multi-Attach error`.",
    "The volume of {pod} can be attached to a single node, and another node has it.",
    (
        _DESCRIBE,
        Remedy("Use a volume with the access mode ReadWriteMany (NFS, CephFS, Lustre) for data that all pods share."),
    ),
)
MOUNT_FAILS = Cause(
    "VolumeMountFails",
    Symptom.NOT_STARTING,
    "The event `FailedMount` or `FailedAttachVolume`, for minutes.",
    "A volume of {pod} cannot be mounted: {words}",
    (_DESCRIBE, Remedy("See whether the driver of the storage runs.", "kubectl get csidrivers,pods -n kube-system")),
)
SANDBOX = Cause(
    "PodNetworkFails",
    Symptom.NOT_STARTING,
    "The event `FailedCreatePodSandBox`.",
    "The node {node} cannot set up the network of {pod}.",
    (
        _DESCRIBE,
        Remedy(
            "See whether the network plugin runs on the node.", "kubectl get pods -n kube-system -o wide | grep {node}"
        ),
        Remedy("Try another node.", "kubectl cordon {node} && kubectl delete pod {pod} -n {namespace}"),
    ),
)
CANNOT_CREATE = Cause(
    "ContainerCannotBeCreated",
    Symptom.NOT_STARTING,
    "The container waits with `CreateContainerError` or `RunContainerError`.",
    "A container of {pod} cannot be created: {words}",
    (_DESCRIBE,),
)
CAUSES = (
    CONFIG_MISSING,
    KEY_MISSING,
    ROOT_IMAGE,
    NO_COMMAND,
    VOLUME_IN_USE,
    MOUNT_FAILS,
    SANDBOX,
    CANNOT_CREATE,
)

_WAITING = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CreatePodSandboxError")
_RULES = (
    rule(r"couldn't find key (?P<key>\S+) in (?P<kind>Secret|ConfigMap) (?:[^/\s]+/)?(?P<name>\S+)", KEY_MISSING),
    rule(r"(?P<kind>secret|configmap) \"(?P<name>[^\"]+)\" not found", CONFIG_MISSING),
    rule(r"runAsNonRoot", ROOT_IMAGE),
    rule(r"no command specified", NO_COMMAND),
)
_EVENTS = {
    "FailedAttachVolume": ((rule("Multi-Attach error", VOLUME_IN_USE),), MOUNT_FAILS),
    "FailedMount": ((_RULES[1],), MOUNT_FAILS),
    "FailedCreatePodSandBox": ((), SANDBOX),
}
"""By the event's reason: rules for its message, and the cause if none of them fits."""


def find(seen: Seen) -> Iterator[Finding]:
    """Yield why containers cannot be created: each cause once, with the pods that have it."""
    found = (_waiting(pod) or _events(seen, pod) for pod in seen.living_pods())
    yield from merge(filter(None, found), apart="name")


def _waiting(pod: Object) -> Finding | None:
    for container in reading.containers(pod):
        waiting = reading.part(container, "state", "waiting")
        if waiting.get("reason") in _WAITING:
            message = str(waiting.get("message") or "")
            source = f"container {container.get('name')} waits: {waiting.get('reason')}"
            return _finding(pod, (_RULES, CANNOT_CREATE), message, source)
    return None


def _events(seen: Seen, pod: Object) -> Finding | None:
    """Return why a pod that has a node, and no container yet, does not get further."""
    states = [reading.part(container, "state") for container in reading.containers(pod)]
    starts = all("waiting" in state or not state for state in states)
    if not (starts and reading.node_of(pod) and reading.phase_of(pod) == "Pending"):
        return None
    for event in seen.events_of(pod):
        rules = _EVENTS.get(str(event.get("reason")))
        if rules:
            return _finding(pod, rules, str(event.get("message") or ""), f"event {event.get('reason')}")
    return None


def _finding(pod: Object, known: tuple[tuple[TextRule, ...], Cause], message: str, source: str) -> Finding:
    """Return the finding of the first rule that fits, or of the cause beside the rules."""
    rules, otherwise = known
    cause, named = first_cause(rules, message) or (otherwise, {})
    values = {**values_of(pod, message), **named}
    return Finding(cause, values, (from_pod(pod, source, message),), (reading.name_of(pod),))
