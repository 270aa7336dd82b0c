"""The cluster as a value: is the operator there, does it lead, do its versions fit, are the nodes well."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pytorchjob.view import reading
from pytorchjob.view.causes import handover, installation
from pytorchjob.view.causes.cause import Finding, Remedy
from pytorchjob.view.causes.table import diagnose
from pytorchjob.view.reading import Object
from pytorchjob.view.seen import Seen
from pytorchjob_operator.names import PLURAL
from pytorchjob_operator.problem import read_time


@dataclass(frozen=True, slots=True)
class ClusterCheck:
    """One thing that was checked."""

    name: str
    ok: bool | None
    """None: this person may not read it."""
    text: str
    step: Remedy | None = None
    """What to do next, if it is wrong."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One screen about a cluster."""

    checks: tuple[ClusterCheck, ...]
    findings: tuple[Finding, ...]


def make_cluster_view(seen: Seen, client_version: str) -> ClusterView:
    """Return the view of this snapshot."""
    findings = diagnose(seen).findings
    installed = (_definition(seen), _deployment(seen, client_version), _lease(seen))
    checks = (
        ClusterCheck("API server", True, f"version {seen.operator.version or 'unknown'}"),
        *(_explained(check, findings) for check in installed),
        *_v1(seen),
        _nodes(seen),
    )
    return ClusterView(checks, findings)


def _explained(check: ClusterCheck, findings: Sequence[Finding]) -> ClusterCheck:
    """Return the check with the next step: that of the finding about the installation, if there is any."""
    if check.ok is not False or not findings:
        return check
    return replace(check, step=Remedy(f"See {findings[0].cause.name} below."))


def _definition(seen: Seen) -> ClusterCheck:
    if seen.operator.installed is False:
        return ClusterCheck("definition", False, f"{PLURAL} are not known", installation.INSTALL)
    versions = ", ".join(
        str(version.get("name")) for version in reading.items(seen.operator.definition or {}, "spec", "versions")
    )
    return ClusterCheck("definition", True, f"{PLURAL} are served{f' ({versions})' if versions else ''}")


def _deployment(seen: Seen, client_version: str) -> ClusterCheck:
    found = seen.operator.deployments
    if found is None:
        words = "you may not read Deployments of all namespaces, neither this operator's nor training-operator v1's"
        return ClusterCheck("operator", None, words)
    if not found:
        words = "no Deployment with the label app.kubernetes.io/name=pytorchjob-operator"
        return ClusterCheck("operator", False, words, installation.INSTALL)
    words = "; ".join(_words(deployment, client_version) for deployment in found)
    return ClusterCheck("operator", all(map(handover.runs, found)), words, installation.SEE_PODS)


def _v1(seen: Seen) -> Iterator[ClusterCheck]:
    """Yield what training-operator v1 does, if it is there."""
    for deployment in seen.operator.v1 or ():
        serves = "serves PyTorchJobs" if handover.serves_pytorchjobs(deployment) else "serves other kinds only"
        if not reading.part(deployment, "spec").get("replicas", 1):
            serves = "stopped"
        place = f"{reading.namespace_of(deployment)}/{reading.name_of(deployment)}"
        yield ClusterCheck("v1", True, f"{place}: {reading.available(deployment)} available, {serves}")


def _words(deployment: Object, client_version: str) -> str:
    meta = reading.part(deployment, "metadata")
    version = str(reading.part(meta, "labels").get("app.kubernetes.io/version") or "")
    differs = f", and this command is {client_version}" if version and version != client_version else ""
    return (
        f"{meta.get('namespace')}/{meta.get('name')}: {reading.available(deployment)} available"
        f"{f', version {version}{differs}' if version else ''}"
    )


def _lease(seen: Seen) -> ClusterCheck:
    found = seen.operator.leases
    if found is None:
        return ClusterCheck("leader", None, "you may not read Leases of all namespaces")
    missing = ClusterCheck("leader", False, "no Lease: no operator has ever led", installation.SEE_PODS)
    return next(_holders(seen, found), missing)


def _holders(seen: Seen, leases: Sequence[Object]) -> Iterator[ClusterCheck]:
    for lease in leases:
        spec = reading.part(lease, "spec")
        renewed, holder = read_time(spec.get("renewTime")), str(spec.get("holderIdentity") or "")
        age = (seen.now - renewed).total_seconds() if renewed else None
        words = f"{holder or 'no pod'}, renewed {f'{max(age, 0):.0f} s ago' if age is not None else 'never'}"
        alone = "; the operator has no pod any more" if holder and seen.operator.has_no_pod(lease) else ""
        text = f"{words}{alone or _begins(lease, seen.now)}"
        yield ClusterCheck("leader", seen.operator.is_led(lease, seen.now), text, installation.SEE_PODS)


def _begins(lease: Object, now: datetime) -> str:
    """Return when the leader begins: it waits for the duration of a Lease that it has just created."""
    created = read_time(reading.part(lease, "metadata").get("creationTimestamp"))
    seconds = reading.part(lease, "spec").get("leaseDurationSeconds")
    if created is None or not isinstance(seconds, int):
        return ""
    left = seconds - (now - created).total_seconds()
    return f"; it begins in {left:.0f} s, since no operator has led before" if left >= 1 else ""


def _nodes(seen: Seen) -> ClusterCheck:
    if seen.nodes is None:
        return ClusterCheck("nodes", None, "you may not read nodes")
    unready = [reading.name_of(node) for node in seen.nodes if not reading.condition(node, "Ready")]
    total = len(seen.nodes)
    words = f"{total - len(unready)} of {total} are ready"
    named = f"; not ready: {', '.join(unready[:8])}" if unready else ""
    step = Remedy("Read their conditions.", f"kubectl describe nodes {' '.join(unready[:8])}".rstrip())
    return ClusterCheck("nodes", total > 0 and not unready, f"{words}{named}", step)
