"""What a rule is, and what several rules read from a job's dict."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.model.defaults import DEFAULT_REPLICAS

Node = dict[str, Any]

MASTER, WORKER = names.ReplicaType.MASTER, names.ReplicaType.WORKER
SPECS = "spec.pytorchReplicaSpecs"
ROLES = "self.pytorchReplicaSpecs"
"""The same for CEL, in a rule whose path is the spec."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One condition on a job: where it is checked, and the message if it is broken."""

    path: str
    """The schema node that the rule checks: keys joined by dots, `*` for any key, `[]` for any element."""
    field: str
    """The field to name, relative to `path`; empty for the node itself."""
    message: str
    cel: str
    broken: Callable[[Any], bool] | None
    culprits_cel: str = ""
    """A list of texts in CEL, the first of which ends the API server's message; empty: the message is complete."""
    culprits: Callable[[Any], list[str]] | None = None
    """The same list; all of them end our own message."""
    hint: Callable[[Any], str] | None = None
    """The very end of our own message. The API server's message lacks it."""

    def explain(self, node: Any) -> str:
        """Return the message for a node that breaks the rule."""
        listed = "" if self.culprits is None else f": {', '.join(self.culprits(node))}"
        return f"{self.message}{listed}{self.hint(node) if self.hint else ''}"


def replicas(spec: Node, kind: names.ReplicaType) -> int:
    """Return the number of pods of a role in the spec; 0 without that role."""
    roles: Node = spec["pytorchReplicaSpecs"]
    return int(roles[kind].get("replicas", DEFAULT_REPLICAS)) if kind in roles else 0


def elastic_policy(spec: Node) -> Node:
    """Return the elasticPolicy, or an empty dict."""
    policy: Node = spec.get("elasticPolicy") or {}
    return policy
