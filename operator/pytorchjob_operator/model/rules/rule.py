"""What a rule is, and the few questions about a job's dict that several rules ask."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.model.defaults import DEFAULT_REPLICAS

Node = dict[str, Any]

MASTER, WORKER = names.ReplicaType.MASTER, names.ReplicaType.WORKER
SPECS = "spec.pytorchReplicaSpecs"
ROLES = "self.pytorchReplicaSpecs"
"""The same for CEL, in a rule that looks at the spec."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that must hold, where it is checked, and what to say if it does not."""

    path: str
    """The schema node that the rule looks at: keys joined by dots, `*` for any key, `[]` for any element."""
    field: str
    """The field to name, relative to `path`; empty for the node itself."""
    message: str
    cel: str
    broken: Callable[[Any], bool] | None


def replicas(spec: Node, kind: names.ReplicaType) -> int:
    """How many pods of a role the spec asks for; 0 where it has no such role."""
    roles: Node = spec["pytorchReplicaSpecs"]
    return int(roles[kind].get("replicas", DEFAULT_REPLICAS)) if kind in roles else 0


def elastic_policy(spec: Node) -> Node:
    """The elasticPolicy; empty where there is none."""
    policy: Node = spec.get("elasticPolicy") or {}
    return policy
