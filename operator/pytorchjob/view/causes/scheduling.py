"""Pods that no node takes: what kube-scheduler reports in the pod's condition PodScheduled."""

from collections.abc import Iterator
from dataclasses import replace

from pytorchjob.view import reading
from pytorchjob.view.causes import fit
from pytorchjob.view.causes.cause import Cause, Finding, Remedy, Symptom, delete_and_apply, from_pod, merge
from pytorchjob.view.causes.fit import UnfitKind, UnfitReason
from pytorchjob.view.reading import Object
from pytorchjob.view.seen import Seen

_SIGN = "`status` shows the scheduler's message, with"
_NODES = Remedy("See what the nodes have, and what is in use.", "kubectl describe nodes")


def _insufficient(name: str, what: str, sign: str) -> Cause:
    return Cause(
        name,
        Symptom.PENDING,
        f"{_SIGN} `Insufficient {sign}`.",
        f"No node has enough free {what} for {{pod}}, which asks for {{asked}}.",
        (
            _NODES,
            *delete_and_apply(
                "Wait for other pods to end, add nodes, or lower `resources.requests` in the job's file."
            ),
        ),
    )


CPU = _insufficient("InsufficientCpu", "CPU", "cpu")
MEMORY = _insufficient("InsufficientMemory", "memory", "memory")
DEVICES = _insufficient("InsufficientGpu", "{resource}", "nvidia.com/gpu")
DISK = _insufficient("InsufficientDisk", "local disk (ephemeral-storage)", "ephemeral-storage")
NO_DEVICES = Cause(
    "NoSuchDevice",
    Symptom.PENDING,
    f"{_SIGN} `Insufficient nvidia.com/gpu`, and no node offers that resource at all.",
    "No node offers {resource}: there are no such devices, or their device plugin does not run.",
    (
        Remedy(
            "See what the nodes offer.",
            "kubectl get nodes -o custom-columns='NAME:.metadata.name,OFFERS:.status.allocatable'",
        ),
        Remedy("Install the vendor's device plugin or GPU operator, or ask for the resource that the nodes do offer."),
    ),
)
TAINT = Cause(
    "UntoleratedTaint",
    Symptom.PENDING,
    f"{_SIGN} `had untolerated taint`.",
    "The nodes that could run {pod} have the taint {taint}, which the pod does not tolerate.",
    (
        Remedy("See the taints.", "kubectl get nodes -o custom-columns='NAME:.metadata.name,TAINTS:.spec.taints'"),
        *delete_and_apply("Add the toleration to `template.spec.tolerations` of each role in the job's file."),
    ),
)
NODES_NOT_READY = Cause(
    "NodesNotReady",
    Symptom.PENDING,
    f"{_SIGN} a taint of Kubernetes' own, such as `node.kubernetes.io/not-ready`.",
    "The nodes that could run {pod} are not well: they have the taint {taint}.",
    (
        Remedy("See which nodes, and read their conditions.", "kubectl get nodes && kubectl describe node NODE"),
        Remedy("Repair or replace the node: its kubelet, its network or its disk."),
    ),
)
AFFINITY = Cause(
    "NoMatchingNode",
    Symptom.PENDING,
    f"{_SIGN} `didn't match Pod's node affinity/selector`, an anti-affinity or a topology spread.",
    "No node matches the nodeSelector, affinity or topology spread of {pod}: {words}.",
    (
        Remedy("See the labels.", "kubectl get nodes --show-labels"),
        *delete_and_apply("Correct `nodeSelector`, `affinity` or `topologySpreadConstraints` in the job's file."),
    ),
)
CORDONED = Cause(
    "NodesCordoned",
    Symptom.PENDING,
    f"{_SIGN} `node(s) were unschedulable`.",
    "The nodes that could run {pod} are cordoned: they take no new pods.",
    (
        Remedy("See which.", "kubectl get nodes"),
        Remedy("Open a node again.", "kubectl uncordon NODE"),
    ),
)
NO_NODES = Cause(
    "NoNodes",
    Symptom.PENDING,
    "`status` shows `no nodes available to schedule pods`.",
    "The cluster has no nodes.",
    (Remedy("Add a node, or wait for the autoscaler of nodes.", "kubectl get nodes"),),
)
PORTS = Cause(
    "HostPortInUse",
    Symptom.PENDING,
    f"{_SIGN} `didn't have free ports for the requested pod ports`.",
    "On every node another pod already uses a host port that {pod} asks for.",
    delete_and_apply("Remove `hostPort` or `hostNetwork` from the templates, or choose another port."),
)
TOO_MANY_PODS = Cause(
    "NodesFull",
    Symptom.PENDING,
    f"{_SIGN} `Too many pods`.",
    "Every node that could run {pod} already has as many pods as it may have.",
    (_NODES, Remedy("Wait for other pods to end, or add nodes.")),
)
CLAIM_MISSING = Cause(
    "ClaimMissing",
    Symptom.PENDING,
    'The message has `persistentvolumeclaim "NAME" not found`.',
    "The PersistentVolumeClaim {claim} of {pod} does not exist in the namespace {namespace}.",
    (
        Remedy("See which claims exist.", "kubectl get pvc -n {namespace}"),
        *delete_and_apply("Create the claim, or correct `claimName` in the job's file."),
    ),
)
CLAIM_PENDING = Cause(
    "ClaimPending",
    Symptom.PENDING,
    "The message has `unbound immediate PersistentVolumeClaims`, or the claim is Pending.",
    "The PersistentVolumeClaim {claim} of {pod} has no volume.",
    (
        Remedy("Read why.", "kubectl describe pvc {claim} -n {namespace}"),
        Remedy("See the storage classes: one must exist, with a provisioner that runs.", "kubectl get storageclass"),
    ),
)
VOLUME_ELSEWHERE = Cause(
    "VolumeOnOtherNode",
    Symptom.PENDING,
    f"{_SIGN} `node(s) had volume node affinity conflict`.",
    "The volume of {pod} can only be used on other nodes than those that could run the pod.",
    (
        Remedy("See where the volumes are.", "kubectl describe pv"),
        Remedy("Use a storage class with `volumeBindingMode: WaitForFirstConsumer`, or a volume that all nodes share."),
    ),
)
MIXED = Cause(
    "Unschedulable",
    Symptom.PENDING,
    "`status` shows a message of the scheduler with several reasons.",
    "No node takes {pod}: {words}.",
    (
        Remedy("Read the scheduler's message.", "kubectl describe pod {pod} -n {namespace}"),
        _NODES,
    ),
)
CAUSES = (
    CPU,
    MEMORY,
    DEVICES,
    DISK,
    NO_DEVICES,
    TAINT,
    NODES_NOT_READY,
    AFFINITY,
    CORDONED,
    NO_NODES,
    PORTS,
    TOO_MANY_PODS,
    CLAIM_MISSING,
    CLAIM_PENDING,
    VOLUME_ELSEWHERE,
    MIXED,
)
_RESOURCES = {"cpu": CPU, "memory": MEMORY, "ephemeral-storage": DISK}
_OF_KUBERNETES = "node.kubernetes.io/"
_KINDS = {
    UnfitKind.TAINT: TAINT,
    UnfitKind.AFFINITY: AFFINITY,
    UnfitKind.CORDONED: CORDONED,
    UnfitKind.PORTS: PORTS,
    UnfitKind.TOO_MANY: TOO_MANY_PODS,
    UnfitKind.VOLUME: VOLUME_ELSEWHERE,
}


def find(seen: Seen) -> Iterator[Finding]:
    """Yield a finding for each reason for which pods have no node."""
    yield from merge(_unscheduled(seen), apart="claim")


def _unscheduled(seen: Seen) -> Iterator[Finding]:
    for pod in seen.living_pods():
        unscheduled = reading.condition(pod, "PodScheduled", "False")
        if unscheduled.get("reason") == "Unschedulable":
            message = str(unscheduled.get("message") or "")
            evidence = (from_pod(pod, "the scheduler reports", message),)
            yield replace(_finding(seen, pod, message), evidence=evidence, pods=(reading.name_of(pod),))


def _finding(seen: Seen, pod: Object, message: str) -> Finding:
    """Return the cause for a single pod."""
    values = {"pod": reading.name_of(pod)}
    if "no nodes available" in message:
        return Finding(NO_NODES, values)
    claim = _claim(seen, pod, message)
    if claim is not None:
        return claim
    reasons = fit.narrow(fit.read_message(message), pod, seen.nodes)
    kinds = {reason.kind for reason in reasons}
    if len(kinds) != 1 or kinds == {UnfitKind.OTHER}:
        return Finding(MIXED, {**values, "words": _words(reasons) or reading.line_of(message)})
    return _certain(seen, pod, reasons, values)


def _certain(seen: Seen, pod: Object, reasons: list[UnfitReason], values: dict[str, str]) -> Finding:
    """Return the cause if all reasons are of one kind."""
    first = reasons[0]
    if first.kind is UnfitKind.TAINT and first.what.startswith(_OF_KUBERNETES):
        return Finding(NODES_NOT_READY, {**values, "taint": first.what})
    if first.kind is not UnfitKind.RESOURCE:
        return Finding(_KINDS[first.kind], {**values, "taint": first.what or "shown below", "words": first.what})
    devices = [reason.what for reason in reasons if reason.what not in _RESOURCES]
    resource = devices[0] if devices else first.what
    asked = f"{_number(fit.requests(reading.part(pod, 'spec')).get(resource, 0), resource)} of {resource}"
    values = {**values, "resource": resource, "asked": asked}
    if devices and seen.nodes is not None and not any(_offers(node, resource) for node in seen.nodes):
        return Finding(NO_DEVICES, values)
    return Finding(_RESOURCES.get(resource, DEVICES), values)


def _offers(node: Object, resource: str) -> bool:
    return reading.amount(reading.part(node, "status", "allocatable").get(resource, "0")) > 0


def _number(amount: float, resource: str) -> str:
    if resource in ("memory", "ephemeral-storage") and amount >= 2**20:
        return f"{amount / 2**30:.3g}Gi" if amount >= 2**30 else f"{amount / 2**20:.3g}Mi"
    return f"{amount:g}"


def _claim(seen: Seen, pod: Object, message: str) -> Finding | None:
    """Return what is wrong with a claim of the pod, if the message is about claims."""
    claims = [
        str(reading.part(volume, "persistentVolumeClaim").get("claimName"))
        for volume in reading.items(pod, "spec", "volumes")
        if "persistentVolumeClaim" in volume
    ]
    values = {"pod": reading.name_of(pod)}
    if "persistentvolumeclaim" in message and "not found" in message:
        named = next((claim for claim in claims if f'"{claim}"' in message), claims[0] if claims else "CLAIM")
        return Finding(CLAIM_MISSING, {**values, "claim": named})
    if "unbound immediate PersistentVolumeClaims" in message:
        return Finding(CLAIM_PENDING, {**values, "claim": _unbound(seen, claims)})
    return None


def _unbound(seen: Seen, claims: list[str]) -> str:
    """Return the claim without a volume; the first if that is unknown."""
    phases = {claim: reading.part(seen.claims.get(claim) or {}, "status").get("phase") for claim in claims}
    return next((claim for claim, phase in phases.items() if phase == "Pending"), claims[0] if claims else "CLAIM")


def _words(reasons: list[UnfitReason]) -> str:
    """Return the reasons as a list."""
    shown = {
        UnfitKind.RESOURCE: "too little {}",
        UnfitKind.TAINT: "a taint that the pod does not tolerate ({})",
    }
    words = [
        f"{reason.nodes} of the nodes: {shown.get(reason.kind, '{}').format(reason.what or 'see its nodes')}"
        for reason in reasons
    ]
    return "; ".join(words)
