"""Jobs that wait to be admitted: suspended by a person or by Kueue, held by a gate, or by a gang scheduler."""

from collections.abc import Iterator

from pytorchjob.view import reading
from pytorchjob.view.causes.cause import Cause, CauseEvidence, Finding, Remedy, Symptom, from_pod
from pytorchjob.view.reading import Object
from pytorchjob.view.seen import Seen
from pytorchjob_operator.names import LABEL_KUEUE_QUEUE

SUSPENDED = Cause(
    "SuspendedByUser",
    Symptom.NO_PODS,
    "`status` shows Suspended, and the job has no queue.",
    "The job is suspended: `spec.runPolicy.suspend` is true.",
    (Remedy("Resume it.", "pytorchjob resume {job} -n {namespace}"),),
)
KUEUE_QUOTA = Cause(
    "KueueWaitsForQuota",
    Symptom.NO_PODS,
    "`status` shows Queued, and Kueue's message has `insufficient quota` or `insufficient unused quota`.",
    "Kueue holds the job back until its queue {queue} has quota for it.",
    (
        Remedy("See the queue, and what is before the job.", "kubectl describe localqueue {queue} -n {namespace}"),
        Remedy("See what Kueue reports about this job.", "kubectl describe workload {workload} -n {namespace}"),
    ),
)
KUEUE_NO_QUEUE = Cause(
    "KueueQueueMissing",
    Symptom.NO_PODS,
    "`status` shows Queued, and Kueue's message has `LocalQueue ... doesn't exist` or `is inactive`.",
    "Kueue cannot admit the job: its queue {queue} does not exist, or is not active.",
    (
        Remedy("See the queues of the namespace.", "kubectl get localqueues -n {namespace}"),
        Remedy(
            "Name another queue, or have an administrator create this one.",
            "kubectl label pytorchjobs/{job} -n {namespace} --overwrite kueue.x-k8s.io/queue-name=QUEUE",
        ),
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
    KUEUE_NO_QUEUE,
    KUEUE_NOT_SEEN,
    KUEUE_WAITS,
    GATED,
    GANG_PENDING,
    GANG_MISSING,
)
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
    values = {"queue": seen.queue}
    if not seen.workloads:
        unknown = seen.workloads is None or seen.age() < _KUEUE_SECONDS
        label = CauseEvidence("the job", f"the label {LABEL_KUEUE_QUEUE} is {seen.queue}, and it may not have pods")
        yield Finding(KUEUE_WAITS if unknown else KUEUE_NOT_SEEN, values, (label,))
        return
    yield _waits(seen.workloads[0], values)


def _waits(workload: Object, values: dict[str, str], pods: tuple[str, ...] = ()) -> Finding:
    """Return why Kueue has not admitted a Workload."""
    reserved = reading.condition(workload, "QuotaReserved", "False")
    message = str(reserved.get("message") or "")
    source = f"Kueue's Workload {reading.name_of(workload)}, {reserved.get('reason') or 'no condition yet'}"
    evidence = (CauseEvidence(source, reading.line_of(message, 600)),)
    cause = _of_kueue(message)
    if pods and cause is KUEUE_NO_QUEUE:  # its remedy is for a queue of the job
        cause = KUEUE_WAITS
    return Finding(cause, {**values, "workload": reading.name_of(workload)}, evidence, pods)


def _of_kueue(message: str) -> Cause:
    if "insufficient" in message and "quota" in message:
        return KUEUE_QUOTA
    if "doesn't exist" in message or "does not exist" in message or "inactive" in message:
        return KUEUE_NO_QUEUE
    return KUEUE_WAITS


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
