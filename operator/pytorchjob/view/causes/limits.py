"""Limits that end or slow down a job. Mostly they follow from another cause; without one they are the answer."""

from collections.abc import Iterator, Mapping

from pytorchjob.view import reading
from pytorchjob.view.causes.cause import (
    FIRST_ERROR,
    Cause,
    CauseEvidence,
    CauseLevel,
    Finding,
    Remedy,
    Symptom,
    delete_and_apply,
)
from pytorchjob.view.causes.endings import find_endings
from pytorchjob.view.reading import Object
from pytorchjob.view.seen import Seen
from pytorchjob_agent.contract.reasons import EndReason

_LOGS = (FIRST_ERROR, Remedy("Read the last lines of all ranks.", "pytorchjob logs {job} -n {namespace} --tail 20"))

BACKOFF_LIMIT = Cause(
    "BackoffLimit",
    Symptom.ENDED,
    "`status.failure.reason` is `BackoffLimitExceeded`.",
    "The job has used all restarts that `runPolicy.backoffLimit` ({limit}) allows.",
    (*_LOGS, *delete_and_apply("Correct the cause of the failures, or raise `backoffLimit`.")),
    CauseLevel.CONSEQUENCE,
)
RESTARTS_USED = Cause(
    "RestartsUsedUp",
    Symptom.ENDED,
    "`status.failure.reason` is `RestartsUsedUp`.",
    "The workers failed more often than `elasticPolicy.maxRestarts` allows.",
    (*_LOGS, *delete_and_apply("Correct the cause of the failures, or raise `maxRestarts`.")),
    CauseLevel.CONSEQUENCE,
)
NO_PROGRESS = Cause(
    "NoProgress",
    Symptom.ENDED,
    "`status.failure.reason` is `NoProgress`, `SameErrorAgain` or `SameHangAgain`.",
    "The job was ended because its restarts made no progress.",
    (*_LOGS, *delete_and_apply("Correct the script; save checkpoints more often, so that restarts get further.")),
    CauseLevel.CONSEQUENCE,
)
DEADLINE = Cause(
    "DeadlineExceeded",
    Symptom.ENDED,
    "`status.failure.reason` is `DeadlineExceeded`.",
    "The job ran longer than `runPolicy.activeDeadlineSeconds` ({limit}) allows.",
    delete_and_apply("Raise or remove `activeDeadlineSeconds`, if the job was well; its checkpoints are still there."),
    CauseLevel.LIKELY_CONSEQUENCE,
)
POD_DEADLINE = Cause(
    "PodDeadlineExceeded",
    Symptom.ENDED,
    "A pod has failed with `DeadlineExceeded`.",
    "{pod} ran longer than `activeDeadlineSeconds` of its template allows.",
    delete_and_apply("Remove `activeDeadlineSeconds` from the templates; `runPolicy` has one for the whole job."),
)
CRASH_LOOP = Cause(
    "CrashLoop",
    Symptom.CRASHING,
    "The condition `Degraded` has the reason `CrashLoop`, or a container waits with `CrashLoopBackOff`.",
    "A container ends again and again soon after its start.",
    (*_LOGS, *delete_and_apply("Correct the image, the command or the script.")),
    CauseLevel.CONSEQUENCE,
)
POD_FAILED = Cause(
    "PodFailed",
    Symptom.ENDED,
    "`status.failure.reason` is `ReplicaFailed`.",
    "A pod failed, and `restartPolicy` does not let it start again.",
    (*_LOGS, *delete_and_apply("Correct the cause, or use `restartPolicy: OnFailure`.")),
    CauseLevel.CONSEQUENCE,
)
CAUSES = (BACKOFF_LIMIT, RESTARTS_USED, NO_PROGRESS, DEADLINE, POD_DEADLINE, CRASH_LOOP, POD_FAILED)

_BY_REASON: Mapping[str, Cause] = {
    EndReason.BACKOFF_LIMIT: BACKOFF_LIMIT,
    EndReason.DEADLINE: DEADLINE,
    EndReason.BUDGET: RESTARTS_USED,
    EndReason.SAME_ERROR: NO_PROGRESS,
    EndReason.SAME_HANG: NO_PROGRESS,
    EndReason.NO_PROGRESS: NO_PROGRESS,
    EndReason.REPLICA_FAILED: POD_FAILED,
}
"""What `status.failure.reason` means."""
_FIELDS = {BACKOFF_LIMIT: "backoffLimit", DEADLINE: "activeDeadlineSeconds"}
"""The fields of `runPolicy` that have the limits."""


def find(seen: Seen) -> Iterator[Finding]:
    """Yield the limits that were reached, and crash loops."""
    message = str(reading.condition(seen.job, "Failed").get("message") or "")
    cause = _BY_REASON.get(str(reading.part(seen.status, "failure").get("reason")))
    if cause is not None:
        limit = reading.part(seen.job, "spec", "runPolicy").get(_FIELDS.get(cause, ""))
        evidence = CauseEvidence("condition Failed", reading.line_of(message, 600))
        yield Finding(cause, {"limit": str(limit)} if limit is not None else {}, (evidence,))
    yield from _pod_deadlines(seen)
    yield from _crash_loops(seen)


def _pod_deadlines(seen: Seen) -> Iterator[Finding]:
    for pod in seen.pods:
        status = reading.part(pod, "status")
        if reading.phase_of(pod) == "Failed" and status.get("reason") == "DeadlineExceeded":
            name = reading.name_of(pod)
            message = reading.line_of(status.get("message"))
            yield Finding(
                POD_DEADLINE, {"pod": name}, (CauseEvidence(f"pod {name}, DeadlineExceeded", message),), (name,)
            )


def _crash_loops(seen: Seen) -> Iterator[Finding]:
    looping = [pod for pod in seen.living_pods() if any(map(_backs_off, reading.containers(pod)))]
    degraded = reading.condition(seen.job, "Degraded")
    shown = degraded.get("reason") == "CrashLoop"
    if not looping and not shown:
        return
    endings = find_endings(seen)
    words = reading.line_of(degraded.get("message"), 600) if shown else "a container waits: CrashLoopBackOff"
    evidence = (
        CauseEvidence("condition Degraded, CrashLoop" if shown else "the pods", words),
        *(e.evidence for e in endings[:1]),
    )
    yield Finding(CRASH_LOOP, {}, evidence, tuple(map(reading.name_of, looping)))


def _backs_off(container: Object) -> bool:
    return reading.part(container, "state", "waiting").get("reason") == "CrashLoopBackOff"
