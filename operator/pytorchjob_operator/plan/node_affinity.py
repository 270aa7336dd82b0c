"""Affinities of pods for single nodes, by name, beside those of the template. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NODE_NAME = "metadata.name"
_WEIGHT = 100
Json = Mapping[str, Any]


def field(operator: str, node: str) -> dict[str, Any]:
    """Return the expression that a node with this name matches: `In` or `NotIn`. It may name a single node."""
    return {"key": _NODE_NAME, "operator": operator, "values": [node]}


def prefer(spec: Json, fields: Iterable[Json]) -> dict[str, Any]:
    """Return the spec of a pod that prefers nodes which match all fields, beside its other preferences."""
    affinity = _of_nodes(spec.get("affinity") or {})
    term = {"weight": _WEIGHT, "preference": {"matchFields": [*fields]}}
    affinity["nodeAffinity"][_PREFERRED] = [*(affinity["nodeAffinity"].get(_PREFERRED) or ()), term]
    return {**spec, "affinity": affinity}


def elsewhere(affinity: Json, node: str) -> dict[str, Any]:
    """Return the affinity without this node: a node with a broken device still takes pods."""
    found = _of_nodes(affinity)
    required = found["nodeAffinity"].get(_REQUIRED) or {}
    # One of the terms is enough, so each of them excludes the node. A term without content matches no node.
    terms = [
        {**term, "matchFields": [*(term.get("matchFields") or ()), field("NotIn", node)]} if term else term
        for term in required.get("nodeSelectorTerms") or [{"matchFields": []}]
    ]
    found["nodeAffinity"][_REQUIRED] = {"nodeSelectorTerms": terms}
    return found


def _of_nodes(affinity: Json) -> dict[str, Any]:
    """Return a copy of the affinity, of which the part about nodes may be changed."""
    return {**affinity, "nodeAffinity": dict(affinity.get("nodeAffinity") or {})}
