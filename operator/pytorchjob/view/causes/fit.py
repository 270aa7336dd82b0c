"""Why a pod fits on no node: from the nodes themselves where they can be read, otherwise from the scheduler's message.

A message counts nodes by reason, and a node that lacks GPUs altogether is "insufficient" too. The nodes show which
reason is left once the unsuitable nodes are put aside.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from pytorchjob.view import reading
from pytorchjob.view.reading import Object

_PARTS = re.compile(r"(\d+) ((?:\([^)]*\)|\{[^}]*\}|[^,({])+(?:\{[^}]*\})?)")
_TAINT = re.compile(r"\{([^:}]*):? ?([^}]*)\}")
_CONTROL_PLANE = re.compile(r"node-role\.kubernetes\.io/(control-plane|master)")
_CORDON = "node.kubernetes.io/unschedulable"
_NOT_FOR_PODS = ("NoSchedule", "NoExecute")


class UnfitKind(Enum):
    """The kinds of reasons for which a pod does not fit on a node."""

    RESOURCE = "Insufficient"
    TAINT = "taint"
    AFFINITY = "affinity"
    CORDONED = "unschedulable"
    PORTS = "ports"
    TOO_MANY = "Too many pods"
    VOLUME = "volume"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class UnfitReason:
    """A reason, and for how many nodes it holds."""

    kind: UnfitKind
    what: str
    """The resource, the taint, or the scheduler's words."""
    nodes: int


def read_message(message: str) -> list[UnfitReason]:
    """Return the reasons in a message of the scheduler, those of most nodes first."""
    head = message.partition("preemption:")[0]
    _, _, listed = head.partition("available:")
    # Newer schedulers add `no new claims to deallocate` after the last reason.
    found = [_reason(int(number), words.partition(". ")[0].strip(" .,")) for number, words in _PARTS.findall(listed)]
    return sorted(found, key=lambda reason: -reason.nodes)


def _reason(nodes: int, words: str) -> UnfitReason:
    if words.startswith("Insufficient "):
        return UnfitReason(UnfitKind.RESOURCE, words.removeprefix("Insufficient ").strip(), nodes)
    if "taint" in words:
        taint = _TAINT.search(words)
        return UnfitReason(UnfitKind.TAINT, ": ".join(filter(None, taint.groups())) if taint else "", nodes)
    for kind, pattern in (
        (UnfitKind.VOLUME, "volume node affinity|volume|PersistentVolume"),
        (UnfitKind.AFFINITY, "affinity|selector|topology spread"),
        (UnfitKind.CORDONED, "were unschedulable"),
        (UnfitKind.PORTS, "free ports"),
        (UnfitKind.TOO_MANY, "Too many pods"),
    ):
        if re.search(pattern, words):
            return UnfitReason(kind, words, nodes)
    return UnfitReason(UnfitKind.OTHER, words, nodes)


def narrow(reasons: Sequence[UnfitReason], pod: Object, nodes: Sequence[Object] | None) -> list[UnfitReason]:
    """Return the reasons that are left without the nodes that could not run the pod anyway.

    The reason of a node with several obstacles counts only if no node has fewer.
    """
    workers = [
        reason for reason in reasons if not (reason.kind is UnfitKind.TAINT and _CONTROL_PLANE.search(reason.what))
    ]
    kinds = {reason.kind for reason in workers}
    if nodes is None or (len(kinds) < 2 and all(reason.what for reason in workers)):
        return workers or list(reasons)
    known = [[*_obstacles(reading.part(pod, "spec"), node)] for node in nodes if not _is_control_plane(node)]
    large = [found for found in known if not any(kind is UnfitKind.RESOURCE for kind, _ in found)]
    obstacles = large or known  # a node that is too small for the pod is no candidate, if another one is not
    least = min((len(found) for found in obstacles), default=0)
    if least > 0:
        counts = Counter(found[0] for found in obstacles if len(found) == least)
        return [UnfitReason(kind, what, number) for (kind, what), number in counts.most_common()]
    if kinds <= {UnfitKind.RESOURCE, UnfitKind.TAINT}:  # a node suits, and other pods use what it has
        return [reason for reason in workers if reason.kind is UnfitKind.RESOURCE] or workers
    return workers


def _obstacles(spec: Object, node: Object) -> Iterator[tuple[UnfitKind, str]]:
    """Yield why this node could not run the pod even if no other pod ran there."""
    if reading.part(node, "spec").get("unschedulable"):
        yield UnfitKind.CORDONED, "node(s) were unschedulable"
    for taint in reading.items(node, "spec", "taints"):
        blocks = taint.get("effect") in _NOT_FOR_PODS and taint.get("key") != _CORDON
        if blocks and not _tolerated(spec, taint):
            value = taint.get("value")
            yield UnfitKind.TAINT, f"{taint.get('key')}{f': {value}' if value else ''}"
    wanted, labels = reading.part(spec, "nodeSelector"), reading.part(node, "metadata", "labels")
    odd = [f"{key}={value}" for key, value in wanted.items() if labels.get(key) != value]
    if odd:
        yield UnfitKind.AFFINITY, f"no node has the label {odd[0]}"
    offered = reading.part(node, "status", "allocatable")
    for name, asked in requests(spec).items():
        if asked > reading.amount(offered.get(name, "0")):
            yield UnfitKind.RESOURCE, name


def requests(spec: Object) -> Mapping[str, float]:
    """Return what the containers of a pod request together."""
    total: dict[str, float] = {}
    for container in reading.items(spec, "containers"):
        limits, asked = reading.part(container, "resources", "limits"), reading.part(container, "resources", "requests")
        for name, quantity in {**limits, **asked}.items():
            total[name] = total.get(name, 0) + reading.amount(quantity)
    return total


def _tolerated(spec: Object, taint: Object) -> bool:
    for toleration in reading.items(spec, "tolerations"):
        key, operator = toleration.get("key"), toleration.get("operator") or "Equal"
        same_value = operator == "Exists" or (toleration.get("value") or "") == (taint.get("value") or "")
        same_effect = toleration.get("effect") in (None, "", taint.get("effect"))
        if key in (None, "", taint.get("key")) and same_value and same_effect:
            return True
    return False


def _is_control_plane(node: Object) -> bool:
    return any(_CONTROL_PLANE.search(str(taint.get("key"))) for taint in reading.items(node, "spec", "taints"))
