"""Jobs that wait to be admitted: suspended by a person or by Kueue, held by a gate, or by a gang scheduler."""

from collections.abc import Iterator

from pytorchjob.view import reading
from pytorchjob.view.causes.cause import Cause, CauseEvidence, Finding, Remedy, Symptom, from_pod
from pytorchjob.view.reading import Object
from pytorchjob.view.seen import Seen
from pytorchjob_operator.names import LABEL_KUEUE_QUEUE, Reason
from pytorchjob_operator.workload import Workload

SUSPENDED = Cause(
    "SuspendedByUser",
    Symptom.NO_PODS,
    "`status` shows Suspended, and the job has no queue.",
    "The job is suspended: `spec.runPolicy.suspend` is true.",
    (Remedy("Resume it.", "pytorchjob resume {job} -n {namespace}"),),
)
_SEE_WORKLOAD = Remedy("See what Kueue reports about this job.", "kubectl describe workload {workload} -n {namespace}")
_SEE_QUEUE = Remedy("See the queue.", "kubectl describe localqueue {queue} -n {namespace}")
KUEUE_QUOTA = Cause(
    "KueueWaitsForQuota",
    Symptom.NO_PODS,
    "`status` shows Queued. The Workload's condition `QuotaReserved` has the reason `Pending`, `WaitingForQuota` or"
    " `WaitingForPreemptedWorkloads`.",
    "Kueue holds the job back until its queue {queue} has quota for it.",
    (
        Remedy("See the queue, and what is before the job.", "kubectl describe localqueue {queue} -n {namespace}"),
        _SEE_WORKLOAD,
    ),
)
KUEUE_TOO_LARGE = Cause(
    "KueueQuotaTooSmall",
    Symptom.NO_PODS,
    "`status` shows Queued. `QuotaReserved` has the reason `ExceedsMaxQuota`.",
    "The job asks for more than its queue {queue} ever has, so it does not start.",
    (
        _SEE_WORKLOAD,
        Remedy("Use fewer or smaller pods, or set `elasticPolicy.minReplicas`: the job then starts with so many."),
        Remedy("Or have an administrator raise the quota of the ClusterQueue."),
    ),
)
KUEUE_NO_FLAVOR = Cause(
    "KueueFlavorMissing",
    Symptom.NO_PODS,
    "`status` shows Queued. `QuotaReserved` has the reason `NoMatchingFlavor`.",
    "No flavor of the queue {queue} suits the job's pods: their node selectors, affinities or tolerations exclude it.",
    (
        _SEE_WORKLOAD,
        Remedy(
            "Compare the flavors' node labels and taints with the job's templates.",
            "kubectl get resourceflavors -o yaml",
        ),
    ),
)
KUEUE_NO_TOPOLOGY = Cause(
    "KueueTopologyDoesNotFit",
    Symptom.NO_PODS,
    "`status` shows Queued. `QuotaReserved` has the reason `TopologyPlacementFailed`.",
    "There is quota in the queue {queue}, but not in one place of the topology that the job asks for.",
    (_SEE_WORKLOAD, Remedy("Wait, or ask for a larger place, or for a preferred one instead of a required one.")),
)
KUEUE_NO_QUEUE = Cause(
    "KueueQueueMissing",
    Symptom.NO_PODS,
    "`status` shows Queued. `QuotaReserved` has the reason `Inadmissible` or `Misconfigured`.",
    "Kueue cannot admit the job: its queue {queue} does not exist, or is not active.",
    (
        Remedy("See the queues of the namespace.", "kubectl get localqueues -n {namespace}"),
        Remedy(
            "Name another queue, or have an administrator create this one.",
            "kubectl label pytorchjobs/{job} -n {namespace} --overwrite kueue.x-k8s.io/queue-name=QUEUE",
        ),
    ),
)
KUEUE_STOPPED = Cause(
    "KueueQueueStopped",
    Symptom.NO_PODS,
    "`status` shows Queued. `QuotaReserved` has the reason `Suspended`.",
    "An administrator has stopped the queue {queue} (`stopPolicy`), so it admits no job.",
    (_SEE_QUEUE, Remedy("Wait, or ask the administrator.")),
)
KUEUE_CHECKS = Cause(
    "KueueChecksNotReady",
    Symptom.NO_PODS,
    "`status` shows Queued. `QuotaReserved` is True, and `Admitted` is not.",
    "The job has quota in the queue {queue}, and waits for an admission check.",
    (_SEE_WORKLOAD,),
)
KUEUE_EVICTED = Cause(
    "KueueEvicted",
    Symptom.NO_PODS,
    "`status` shows Queued. The Workload's condition `Evicted` is True.",
    "Kueue has taken back the job's quota in the queue {queue}; the job queues again once its pods are gone.",
    (_SEE_WORKLOAD,),
)
KUEUE_HELD = Cause(
    "KueueWorkloadHeld",
    Symptom.NO_PODS,
    "`status` shows Queued, and the Workload has `active: false`.",
    "Somebody has set `active: false` in the job's Workload, so it is not admitted.",
    (
        Remedy(
            "Let it be admitted.",
            """kubectl patch workload {workload} -n {namespace} --type merge -p '{{"spec": {{"active": true}}}}'""",
        ),
    ),
)
KUEUE_AWAY = Cause(
    "KueueUnavailable",
    Symptom.NO_PODS,
    "The condition `Waiting` has the reason `QueueUnavailable`.",
    "The job waits for the queue {queue}, but the operator cannot use Kueue's Workloads.",
    (
        Remedy("See whether Kueue is installed.", "kubectl get crd workloads.kueue.x-k8s.io"),
        Remedy("Install it, or set `kueue.externalFramework=false` in the operator's chart."),
    ),
)
KUEUE_NOT_SEEN = Cause(
    "KueueIgnoresJob",
    Symptom.NO_PODS,
    "`status` shows Queued, and Kueue has no Workload for the job.",
    "The job waits for the queue {queue}, but Kueue has no Workload for it.",
    (
        Remedy("See whether Kueue runs, and serves PyTorchJobs.", "kubectl get pods,configmaps -n kueue-system"),
        Remedy(
            "Add `kubeflow.org/pytorchjob` to `integrations.frameworks` in Kueue's configuration, or let the operator"
            " make the Workloads (chart: `kueue.externalFramework`)."
        ),
    ),
)
KUEUE_WAITS = Cause(
    "KueueWaits",
    Symptom.NO_PODS,
    "`status` shows Queued.",
    "Kueue has not admitted the job yet; it waits in the queue {queue}.",
    (Remedy("See what Kueue reports about this job.", "kubectl get workloads -n {namespace}"),),
)
GATED = Cause(
    "SchedulingGated",
    Symptom.PENDING,
    "A pod is Pending with `SchedulingGated`.",
    "The scheduling gate {gate} holds {pod} back until its controller removes it.",
    (Remedy("Find out which controller sets the gate.", "kubectl get pod {pod} -n {namespace} -o yaml"),),
)
GANG_PENDING = Cause(
    "GangWaits",
    Symptom.NO_PODS,
    "The condition `Waiting` has the reason `PodGroupPending` or `PodGroupUnschedulable`.",
    "The gang scheduler does not admit the job's pods yet: all of them must fit at once.",
    (
        Remedy("See the gang, and its queue.", "kubectl describe podgroup {job} -n {namespace}"),
        Remedy("Wait, use fewer or smaller pods, or set `schedulingPolicy.minAvailable`."),
    ),
)
GANG_MISSING = Cause(
    "GangSchedulerMissing",
    Symptom.NO_PODS,
    "The condition `Waiting` has the reason `GangSchedulerUnavailable`.",
    "The job needs a gang scheduler that is not installed, or that the operator may not use.",
    (
        Remedy("See which PodGroups the cluster knows.", "kubectl api-resources | grep -i podgroup"),
        Remedy("Install the scheduler, set `gangScheduling.enabled=true` in the chart, or set `gangScheduler: none`."),
    ),
)
CAUSES = (
    SUSPENDED,
    KUEUE_QUOTA,
    KUEUE_TOO_LARGE,
    KUEUE_NO_FLAVOR,
    KUEUE_NO_TOPOLOGY,
    KUEUE_NO_QUEUE,
    KUEUE_STOPPED,
    KUEUE_CHECKS,
    KUEUE_EVICTED,
    KUEUE_HELD,
    KUEUE_AWAY,
    KUEUE_NOT_SEEN,
    KUEUE_WAITS,
    GATED,
    GANG_PENDING,
    GANG_MISSING,
)
_OF_KUEUE = {
    Reason.QUEUE_NO_QUOTA: KUEUE_QUOTA,
    Reason.QUEUE_TOO_SMALL: KUEUE_TOO_LARGE,
    Reason.QUEUE_NO_FLAVOR: KUEUE_NO_FLAVOR,
    Reason.QUEUE_NO_TOPOLOGY: KUEUE_NO_TOPOLOGY,
    Reason.QUEUE_MISSING: KUEUE_NO_QUEUE,
    Reason.QUEUE_STOPPED: KUEUE_STOPPED,
    Reason.QUEUE_CHECKS: KUEUE_CHECKS,
    Reason.QUEUE_EVICTED: KUEUE_EVICTED,
    Reason.QUEUE_HELD: KUEUE_HELD,
    Reason.QUEUE_WAITS: KUEUE_WAITS,
}
_KUEUE_SECONDS = 9
"""Kueue makes a Workload within this time."""


def find(seen: Seen) -> Iterator[Finding]:
    """Yield why the job, or a pod of it, is held back."""
    if seen.suspended and not seen.ended:
        yield from _held_by_kueue(seen) if seen.queue else _suspended(seen)
        return
    waiting = reading.condition(seen.job, "Waiting")
    causes = {
        "PodGroupPending": GANG_PENDING,
        "PodGroupUnschedulable": GANG_PENDING,
        "GangSchedulerUnavailable": GANG_MISSING,
    }
    cause = causes.get(str(waiting.get("reason")))
    if cause is not None:
        message = reading.line_of(waiting.get("message"), 600)
        yield Finding(cause, {}, (CauseEvidence(f"condition Waiting, {waiting.get('reason')}", message),))
    yield from _gated(seen)


def _suspended(seen: Seen) -> Iterator[Finding]:
    suspended = reading.condition(seen.job, "Suspended")
    message = reading.line_of(suspended.get("message")) or "spec.runPolicy.suspend is true"
    yield Finding(SUSPENDED, {}, (CauseEvidence("the job", message),))


def _held_by_kueue(seen: Seen) -> Iterator[Finding]:
    values, waiting = {"queue": seen.queue}, reading.condition(seen.job, "Waiting")
    if waiting.get("reason") == Reason.QUEUE_UNAVAILABLE:
        evidence = CauseEvidence("condition Waiting, QueueUnavailable", reading.line_of(waiting.get("message"), 600))
        yield Finding(KUEUE_AWAY, values, (evidence,))
        return
    if not seen.workloads:
        unknown = seen.workloads is None or seen.age() < _KUEUE_SECONDS
        label = CauseEvidence("the job", f"the label {LABEL_KUEUE_QUEUE} is {seen.queue}, and it may not have pods")
        yield Finding(KUEUE_WAITS if unknown else KUEUE_NOT_SEEN, values, (label,))
        return
    yield _waits(seen.workloads[0], values)


def _waits(workload: Object, values: dict[str, str], pods: tuple[str, ...] = ()) -> Finding:
    """Return why Kueue has not admitted a Workload."""
    found = Workload.from_api(workload)
    source = f"Kueue's Workload {reading.name_of(workload)}, {found.reason or 'no condition yet'}"
    evidence = (CauseEvidence(source, reading.line_of(found.message or found.waits_for, 600)),)
    cause = _OF_KUEUE.get(found.waits_for, KUEUE_WAITS)
    if pods and cause is KUEUE_NO_QUEUE:  # its remedy is for a queue of the job
        cause = KUEUE_WAITS
    return Finding(cause, {**values, "workload": reading.name_of(workload)}, evidence, pods)


def _gated(seen: Seen) -> Iterator[Finding]:
    pods = [pod for pod in seen.living_pods() if reading.gates_of(pod)]
    if not pods:
        return
    pod, held = pods[0], tuple(map(reading.name_of, pods))
    gates, queue = ", ".join(reading.gates_of(pod)), reading.queue_of(pod) if reading.held_group(pod) else ""
    if queue and seen.workloads:
        yield _waits(seen.workloads[0], {"queue": queue}, held)
        return
    scheduled = reading.condition(pod, "PodScheduled", "False")
    evidence = from_pod(pod, "SchedulingGated", scheduled.get("message") or f"held by {gates}")
    if queue:
        yield Finding(KUEUE_WAITS, {"queue": queue}, (evidence,), held)
    else:
        yield Finding(GATED, {"gate": gates, "pod": reading.name_of(pod)}, (evidence,), held)
