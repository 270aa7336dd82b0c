"""The cluster as a value: is the operator there, does it lead, do its versions fit, are the nodes well."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytorchjob.view import reading
from pytorchjob.view.causes.cause import Finding
from pytorchjob.view.causes.table import diagnose
from pytorchjob.view.reading import Object
from pytorchjob.view.seen import Seen
from pytorchjob_operator.names import PLURAL
from pytorchjob_operator.problem import read_time


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked."""

    name: str
    ok: bool | None
    """None: this person may not read it."""
    text: str


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One screen about a cluster."""

    checks: tuple[Check, ...]
    findings: tuple[Finding, ...]


def make_cluster_view(seen: Seen, client_version: str) -> ClusterView:
    """Return the view of this snapshot."""
    checks = (
        Check("API server", True, f"version {seen.operator.version or 'unknown'}"),
        _definition(seen),
        _deployment(seen, client_version),
        _lease(seen),
        _nodes(seen),
    )
    return ClusterView(checks, diagnose(seen).findings)


def _definition(seen: Seen) -> Check:
    if seen.operator.installed is False:
        return Check("definition", False, f"{PLURAL} are not known")
    versions = ", ".join(
        str(version.get("name")) for version in reading.items(seen.operator.definition or {}, "spec", "versions")
    )
    return Check("definition", True, f"{PLURAL} are served{f' ({versions})' if versions else ''}")


def _deployment(seen: Seen, client_version: str) -> Check:
    found = seen.operator.deployments
    if found is None:
        return Check("operator", None, "you may not read Deployments of all namespaces")
    if not found:
        return Check("operator", False, "no Deployment with the label app.kubernetes.io/name=pytorchjob-operator")
    ready = all(reading.part(deployment, "status").get("availableReplicas") for deployment in found)
    return Check("operator", ready, "; ".join(_words(deployment, client_version) for deployment in found))


def _words(deployment: Object, client_version: str) -> str:
    meta = reading.part(deployment, "metadata")
    version = str(reading.part(meta, "labels").get("app.kubernetes.io/version") or "")
    differs = f", and this command is {client_version}" if version and version != client_version else ""
    return (
        f"{meta.get('namespace')}/{meta.get('name')}: {reading.available(deployment)} available"
        f"{f', version {version}{differs}' if version else ''}"
    )


def _lease(seen: Seen) -> Check:
    found = seen.operator.leases
    if found is None:
        return Check("leader", None, "you may not read Leases of all namespaces")
    return next(_holders(seen, found), Check("leader", False, "no Lease: no operator has ever led"))


def _holders(seen: Seen, leases: Sequence[Object]) -> Iterator[Check]:
    for lease in leases:
        spec = reading.part(lease, "spec")
        renewed, holder = read_time(spec.get("renewTime")), str(spec.get("holderIdentity") or "")
        age = (seen.now - renewed).total_seconds() if renewed else None
        words = f"{holder or 'no pod'}, renewed {f'{max(age, 0):.0f} s ago' if age is not None else 'never'}"
        yield Check("leader", reading.is_held(lease, seen.now), words)


def _nodes(seen: Seen) -> Check:
    if seen.nodes is None:
        return Check("nodes", None, "you may not read nodes")
    unready = [reading.name_of(node) for node in seen.nodes if not reading.condition(node, "Ready")]
    total = len(seen.nodes)
    words = f"{total - len(unready)} of {total} are ready"
    named = f"; not ready: {', '.join(unready[:8])}" if unready else ""
    return Check("nodes", total > 0 and not unready, f"{words}{named}")
