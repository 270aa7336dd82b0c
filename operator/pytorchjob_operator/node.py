"""Nodes, as far as decisions need them: whether a node can run pods, and what announces that it may lose them. Pure.

A scheduler puts no pod onto a node with a taint that the pod does not tolerate. So such a taint came later: an
autoscaler, a spot notice, an upgrade or a repair wants the pods to go. This holds for taints of any name.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from sys import intern
from typing import Any, NamedTuple

from pytorchjob_operator import names
from pytorchjob_operator.problem import read_time

Json = Mapping[str, Any]

NOTICES = frozenset(
    {
        names.TAINT_OUT_OF_SERVICE,
        "aws-node-termination-handler/asg-lifecycle-termination",
        "aws-node-termination-handler/rebalance-recommendation",
        "aws-node-termination-handler/scheduled-maintenance",
        "aws-node-termination-handler/spot-itn",
        "cloud.google.com/impending-node-termination",
        "karpenter.sh/disrupted",
        "remediator.kubernetes.azure.com/unschedulable",
        "ToBeDeletedByClusterAutoscaler",
    }
)
"""Taints that announce the end of a node. It takes the pods with it that tolerate every taint."""
_SOFT = "PreferNoSchedule"
_EVICTS = "NoExecute"
_BAD = frozenset(
    {
        "VMEventScheduled=True",  # AKS: the machine is about to be rebooted, moved or reclaimed
        "GPUMissing=True",  # AKS
        "AcceleratedHardwareReady=False",  # the EKS node monitoring agent: a GPU is broken
        "NebiusGPUError=True",
        "NebiusBootDiskIOError=True",
        "KernelDeadlock=True",  # node-problem-detector
        "ReadonlyFilesystem=True",
    }
)
"""Conditions, with the status that announces the loss of a node's pods. Types have no common polarity."""
_LONGEST = 200
"""Characters that are kept of what others write."""


class NodeHealth(StrEnum):
    """Whether a node can run pods."""

    READY = "ready"
    NOT_READY = "not ready"
    OUT_OF_SERVICE = "out of service"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NodeState:
    """The state of a node."""

    health: NodeHealth
    since: datetime | None = None
    """Since when the node reports not to be ready; None if it does not report a time."""

    @classmethod
    def from_api(cls, obj: dict[str, Any]) -> "NodeState":
        """Read an API object; a node without the condition Ready is unknown."""
        conditions = (obj.get("status") or {}).get("conditions") or ()
        taints = (obj.get("spec") or {}).get("taints") or ()
        ready = next((condition for condition in conditions if condition.get("type") == "Ready"), None)
        if ready is not None and ready.get("status") == "True":
            return cls(NodeHealth.READY)
        if any(taint.get("key") == names.TAINT_OUT_OF_SERVICE for taint in taints):
            return cls(NodeHealth.OUT_OF_SERVICE)
        if ready is None:
            return cls(NodeHealth.UNKNOWN)
        return cls(NodeHealth.NOT_READY, read_time(ready.get("lastTransitionTime")))


class Taint(NamedTuple):
    """A taint of a node."""

    key: str
    value: str
    effect: str


class Toleration(NamedTuple):
    """A toleration of a pod; empty fields match anything."""

    key: str
    operator: str
    value: str
    effect: str
    ends: bool
    """Whether it ends after some seconds, so that the pod is deleted then."""

    def covers(self, taint: Taint) -> bool:
        """Return whether a pod with it may stay on a node with this taint, for some time at least."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (self.key == taint.key and self.value == taint.value)


@dataclass(frozen=True, slots=True)
class Node:
    """What announces that a node may lose its pods, and its zone. A cluster has thousands: there is no more."""

    name: str
    uid: str
    resource_version: int
    cordoned: bool = False
    taints: tuple[Taint, ...] = ()
    """Those that keep pods away. Most of them belong to the node for good, and its pods tolerate them."""
    condition: str = ""
    """The condition that announces a loss, as `type=status`."""
    zone: str = ""
    """Empty: unknown."""
    namespace: str = ""
    owner_uid: str | None = None

    @classmethod
    def from_api(cls, obj: Json, conditions: Collection[str] = ()) -> "Node":
        """Read an API object; `conditions` announce a loss beside the known ones, as `type=status`."""
        meta, spec = obj["metadata"], obj.get("spec") or {}
        taints = tuple(map(_taint, spec.get("taints") or ()))
        return cls(
            name=meta["name"],
            uid=meta.get("uid", ""),
            resource_version=int(meta.get("resourceVersion") or 0),
            cordoned=bool(spec.get("unschedulable")) or any(taint.key == names.TAINT_UNSCHEDULABLE for taint in taints),
            taints=_shared_taints(taints),
            condition=_bad_condition((obj.get("status") or {}).get("conditions") or (), conditions),
            zone=intern(str((meta.get("labels") or {}).get(names.LABEL_ZONE) or "")[:_LONGEST]),
        )

    @property
    def marks(self) -> tuple[bool, tuple[Taint, ...], str, str]:
        """All that a decision depends on; the rest changes with each heartbeat."""
        return self.cordoned, self.taints, self.condition, self.zone

    @property
    def marked(self) -> bool:
        """Whether it may lose pods."""
        return bool(self.cordoned or self.taints or self.condition)

    def threat(self, tolerations: tuple[Toleration, ...]) -> str:
        """Return why a pod with these tolerations may be lost, without a subject; empty if nothing is known."""
        ending = next((taint for taint in self.taints if taint.key in NOTICES), None)
        foreign = ending or next((taint for taint in self.taints if not _stays(taint, tolerations)), None)
        if foreign is not None:
            return f"its node {self.name} has the taint {foreign.key}"
        if self.condition:
            return f"its node {self.name} reports {self.condition}"
        return f"its node {self.name} is cordoned" if self.cordoned else ""


def read_tolerations(spec: Json) -> tuple[Toleration, ...]:
    """Return the tolerations of a pod's spec. Pods of a template share the value."""
    return _shared_tolerations(tuple(map(_toleration, spec.get("tolerations") or ())))


def _stays(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Return whether a pod may stay on a node with this taint for any time."""
    return any(each.covers(taint) and (taint.effect != _EVICTS or not each.ends) for each in tolerations)


def _taint(entry: Json) -> Taint:
    key, value = (str(entry.get(field) or "")[:_LONGEST] for field in ("key", "value"))
    return Taint(key, value, str(entry.get("effect") or ""))


def _toleration(entry: Json) -> Toleration:
    key, operator, value, effect = (str(entry.get(field) or "") for field in ("key", "operator", "value", "effect"))
    return Toleration(key, operator, value, effect, entry.get("tolerationSeconds") is not None)


@lru_cache(maxsize=512)
def _shared_taints(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """Return the taints that keep pods away, in a fixed order; a cordon has a field of its own."""
    hard = (taint for taint in taints if taint.effect != _SOFT and taint.key != names.TAINT_UNSCHEDULABLE)
    return tuple(sorted(hard))


@lru_cache(maxsize=512)
def _shared_tolerations(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    return tolerations


def _bad_condition(found: Any, more: Collection[str]) -> str:
    """Return the first such condition. Its message may change all the time, so it is left out."""
    known = (f"{entry.get('type')}={entry.get('status')}" for entry in found)
    return next((condition for condition in known if condition in _BAD or condition in more), "")
