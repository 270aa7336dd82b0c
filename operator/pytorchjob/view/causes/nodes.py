"""Pods that lose their node or their place on it: eviction, preemption, drains, and nodes that do not answer."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from pytorchjob.view import reading
from pytorchjob.view.causes.cause import (
    Cause,
    CauseEvidence,
    Finding,
    Remedy,
    Symptom,
    delete_and_apply,
    from_pod,
    merge,
    values_of,
)
from pytorchjob.view.causes.endings import past_events
from pytorchjob.view.reading import Object
from pytorchjob.view.seen import Seen

_AGAIN = Remedy(
    "The operator creates the pod again if `restartPolicy` allows it; training continues meanwhile if it can."
)

NODE_LOST = Cause(
    "NodeLost",
    Symptom.STOPPING,
    "`status` shows pods on a node that is not Ready.",
    "The node {node} does not answer, or is gone; {count} of the job's pods are on it.",
    (
        Remedy("Read the node's conditions.", "kubectl describe node {node}"),
        Remedy(
            "Kubernetes waits five minutes for it. If the node is off, mark it: its pods are then replaced at once.",
            "kubectl taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
        ),
    ),
)
EVICTED_MEMORY = Cause(
    "EvictedForMemory",
    Symptom.STOPPING,
    "A pod has failed with `Evicted`, and the message has `low on resource: memory`.",
    "The node {node} ran out of memory and evicted {pod}, which uses more than it requests.",
    delete_and_apply("Set `resources.requests.memory` to what the pod needs, equal to the limit."),
)
EVICTED_DISK = Cause(
    "EvictedForDisk",
    Symptom.STOPPING,
    "A pod has failed with `Evicted`, and the message has `ephemeral-storage`, `EmptyDir` or `ephemeral storage`.",
    "{pod} wrote more to the node's local disk than it may: {words}",
    (
        Remedy("Write checkpoints and data to a volume, not into the container or an `emptyDir`."),
        *delete_and_apply("Or raise `sizeLimit` of the `emptyDir`, or `resources.limits.ephemeral-storage`."),
    ),
)
EVICTED = Cause(
    "Evicted",
    Symptom.STOPPING,
    "A pod has failed with `Evicted`, and the message names another resource.",
    "The node {node} evicted {pod}: {words}",
    (Remedy("Read the node's conditions.", "kubectl describe node {node}"), _AGAIN),
)
PREEMPTED = Cause(
    "Preempted",
    Symptom.STOPPING,
    "A pod has the condition `DisruptionTarget` with the reason `PreemptionByScheduler`.",
    "A pod of higher priority took the place of {pod}.",
    (
        _AGAIN,
        Remedy("See the priorities.", "kubectl get priorityclasses"),
        Remedy("Set `priorityClassName` in the templates if this job should stay."),
    ),
)
DRAINED = Cause(
    "Drained",
    Symptom.STOPPING,
    "A pod has the condition `DisruptionTarget` with the reason `EvictionByEvictionAPI`.",
    "{pod} was evicted through the API, as `kubectl drain` and autoscalers of nodes do.",
    (
        _AGAIN,
        Remedy("See which nodes are cordoned.", "kubectl get nodes"),
        Remedy("A PodDisruptionBudget keeps a job above its minimum; docs/elastic.md has an example."),
    ),
)
TAINTED = Cause(
    "EvictedByTaint",
    Symptom.STOPPING,
    "A pod has the condition `DisruptionTarget` with the reason `DeletionByTaintManager`.",
    "{pod} was deleted because its node {node} got a taint that it does not tolerate.",
    (Remedy("See the taint.", "kubectl describe node {node}"), _AGAIN),
)
NODE_SHUTDOWN = Cause(
    "NodeShutdown",
    Symptom.STOPPING,
    "A pod has failed with `Terminated`, `NodeShutdown`, or the message has `imminent node shutdown`.",
    "The node {node} of {pod} was shut down.",
    (_AGAIN, Remedy("See the node.", "kubectl describe node {node}")),
)
REJECTED = Cause(
    "RejectedByNode",
    Symptom.STOPPING,
    "A pod has failed with `UnexpectedAdmissionError`, `OutOfcpu`, `OutOfmemory` or `OutOfnvidia.com/gpu`.",
    "The node {node} did not accept {pod}: {words}",
    (
        _AGAIN,
        Remedy("See what the node offers, and what is in use.", "kubectl describe node {node}"),
        Remedy("If devices are missing, restart their device plugin on that node."),
    ),
)
CAUSES = (
    NODE_LOST,
    EVICTED_MEMORY,
    EVICTED_DISK,
    EVICTED,
    PREEMPTED,
    DRAINED,
    TAINTED,
    NODE_SHUTDOWN,
    REJECTED,
)


class _Rule(NamedTuple):
    reason: re.Pattern[str]
    message: re.Pattern[str]
    cause: Cause


def _rule(reason: str, cause: Cause, message: str = "") -> _Rule:
    return _Rule(re.compile(reason), re.compile(message), cause)


_RULES = (
    _rule("^Evicted$", EVICTED_DISK, r"ephemeral[- ](?:local )?storage|EmptyDir|nodefs|imagefs"),
    _rule("^Evicted$", EVICTED_MEMORY, r"low on resource: memory"),
    _rule("^Evicted$", EVICTED),
    _rule("^PreemptionByScheduler$|^Preempting$", PREEMPTED),
    _rule("^EvictionByEvictionAPI$", DRAINED),
    _rule("^DeletionByTaintManager$", TAINTED),
    _rule("^NodeShutdown$|^Shutdown$", NODE_SHUTDOWN),
    _rule("^Terminated$", NODE_SHUTDOWN, "shutdown"),
    _rule("^TerminationByKubelet$", NODE_SHUTDOWN, "shutdown"),
    _rule("^UnexpectedAdmissionError$|^OutOf|^NodeAffinity$|^NodePorts$", REJECTED),
    _rule("^NodeLost$|^DeletionByPodGC$", NODE_LOST),
)


_REPORTED = re.compile(r"Error pod (?P<pod>\S+) \S+ message: (?P<words>.*)", re.DOTALL)
"""As the operator reports it (`plan/pod_events`)."""


def find(seen: Seen) -> Iterator[Finding]:
    """Yield the nodes that are lost, then why pods lost their places; a job that has succeeded needs no reason."""
    if seen.ended == "Succeeded":
        return
    lost = [*_lost_nodes(seen)]
    yield from lost
    known = {name for finding in lost for name in finding.pods}
    displaced = (_displaced(pod) for pod in seen.pods if reading.name_of(pod) not in known)
    yield from merge((*filter(None, displaced), *_reported(seen)))


def _lost_nodes(seen: Seen) -> Iterator[Finding]:
    """Yield the nodes of living pods that are not ready, if nodes can be read."""
    if not seen.nodes:
        return
    by_node: dict[str, list[str]] = {}
    for pod in seen.pods:
        node = reading.node_of(pod)
        if node and not reading.has_finished(pod):
            by_node.setdefault(node, []).append(reading.name_of(pod))
    for name, pods in by_node.items():
        words = _unready(seen.node(name))
        if words:
            values = {"node": name, "count": str(len(pods))}
            yield Finding(NODE_LOST, values, (CauseEvidence(f"node {name}", words),), tuple(pods))


def _unready(node: Object | None) -> str:
    """Return how a node that is not ready reports that; empty for one that is."""
    if node is None:
        return "it does not exist"
    ready = [entry for entry in reading.items(node, "status", "conditions") if entry.get("type") == "Ready"]
    if not ready or ready[0].get("status") == "True":
        return ""
    words = (f"Ready is {ready[0].get('status')}", ready[0].get("reason"), ready[0].get("message"))
    return reading.line_of(": ".join(str(word) for word in words if word))


def _first_rule(*texts: tuple[str, str]) -> tuple[Cause, str, str] | None:
    """Return the cause of the first rule that fits one of these reasons with its message, and both."""
    fits = (
        (rule.cause, reason, message)
        for rule in _RULES
        for reason, message in texts
        if rule.reason.search(reason) and rule.message.search(message)
    )
    return next(fits, None)


def _reported(seen: Seen) -> Iterator[Finding]:
    """Yield what the operator has reported of pods that are replaced by now."""
    for event in past_events(seen):
        reason, message = str(event.get("reason") or ""), str(event.get("message") or "")
        about = _REPORTED.match(message)
        found = _first_rule((reason, message))
        if about and found and found[0] is not NODE_LOST:
            values = {"pod": about["pod"], "words": reading.line_of(about["words"], 200)}
            yield Finding(
                found[0], values, (CauseEvidence(f"event {reason}", reading.line_of(message)),), (about["pod"],)
            )


def _displaced(pod: Object) -> Finding | None:
    """Return why the pod was removed from its node."""
    status = reading.part(pod, "status")
    disrupted = reading.condition(pod, "DisruptionTarget")
    gone = reading.deleting(pod) or reading.phase_of(pod) == "Failed"
    texts = ((str(obj.get("reason") or ""), str(obj.get("message") or "")) for obj in (disrupted, status) if gone)
    found = _first_rule(*texts)
    if found is None:
        return None
    cause, reason, message = found
    values = {**values_of(pod, message), "count": "1"}
    return Finding(cause, values, (from_pod(pod, reason, message),), (reading.name_of(pod),))
