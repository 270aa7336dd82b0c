"""The versions of the operator, of its API and of the cluster."""

from typing import Any

from pytorchjob.cluster.api import Cluster
from pytorchjob.cluster.gather import DEPLOYMENTS, VERSION
from pytorchjob_operator import names

_VERSION_LABEL = "app.kubernetes.io/version"
_UNKNOWN = "unknown (this person may not read the operator's Deployment)"


def read_versions(cluster: Cluster) -> dict[str, str]:
    """Return the versions by part; what this person may not read is `unknown`."""
    server = cluster.read(VERSION) or {}
    known = cluster.read(f"/apis/{names.API_VERSION}")
    operators = cluster.read(DEPLOYMENTS)
    return {
        "operator": _operator(operators) if known else "not installed",
        "api": names.API_VERSION if known else "not installed",
        "cluster": str(server.get("gitVersion") or "unknown"),
    }


def _operator(found: dict[str, Any] | None) -> str:
    if found is None:
        return _UNKNOWN
    versions = {
        (item["metadata"].get("labels") or {}).get(_VERSION_LABEL)
        or item["spec"]["template"]["spec"]["containers"][0]["image"].rpartition(":")[2]
        for item in found.get("items") or ()
    }
    return ", ".join(sorted(versions)) or "no Deployment found"
