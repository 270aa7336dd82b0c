"""Values for tests: a call names only what its case is about."""

from datetime import UTC, datetime, timedelta
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.model import Condition, ConditionStatus, ConditionType, JobStatus, PyTorchJob, with_defaults
from pytorchjob_operator.names import ChildKind, ReplicaType
from pytorchjob_operator.observed import Child, Observed, Pod, PodPhase, Refusal
from pytorchjob_operator.plan.replicas import Replica
from pytorchjob_operator.plan.writes import (
    CreateChild,
    CreatePod,
    CreateReserve,
    DeleteChild,
    DeleteJob,
    DeletePod,
    Plan,
    UpdateChild,
    Write,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
JOB_UID = "uid-x"


def at(seconds: float) -> datetime:
    """So many seconds into the test."""
    return NOW + timedelta(seconds=seconds)


def make_template(**spec: Any) -> dict[str, Any]:
    """A pod template with one container; keywords go into its spec."""
    return {"spec": {"containers": [{"name": "pytorch", "image": "train:1"}], **spec}}


def make_job(
    *,
    name: str = "x",
    master: int | None = 1,
    workers: int | None = 1,
    restart: str | None = None,
    template: dict[str, Any] | None = None,
    status: JobStatus | None = None,
    meta: dict[str, Any] | None = None,
    **spec: Any,
) -> PyTorchJob:
    """A job of one Master and one Worker; keywords in camelCase go into its spec."""
    roles = {
        role: {"replicas": count, "template": template or make_template()}
        | ({"restartPolicy": restart} if restart else {})
        for role, count in (("Master", master), ("Worker", workers))
        if count
    }
    metadata = {"name": name, "namespace": "ns", "uid": JOB_UID, "generation": 1} | (meta or {})
    job = PyTorchJob.model_validate({"metadata": metadata, "spec": {"pytorchReplicaSpecs": roles, **spec}})
    return job.model_copy(update={"status": status}) if status else job


def full_job(**case: Any) -> PyTorchJob:
    """The same with its defaults, as the policies get it."""
    return with_defaults(make_job(**case))


def replica(who: str) -> Replica:
    """`worker-0` -> the replica."""
    role, _, index = who.partition("-")
    return Replica(ReplicaType(role.capitalize()), int(index))


def make_pod(who: str, phase: PodPhase = PodPhase.RUNNING, *, job: str = "x", **fields: Any) -> Pod:
    """The pod of `master-0`, `worker-3` ..."""
    place = replica(who)
    return Pod(
        **{
            "name": names.pod_name(job, place.type, place.index),
            "namespace": "ns",
            "uid": f"uid-{who}",
            "resource_version": 1,
            "owner_uid": JOB_UID,
            "replica_type": place.type,
            "index": place.index,
            "phase": phase,
            **fields,
        }
    )


def pods(*phases: PodPhase | str) -> tuple[Pod, ...]:
    """The pods of master-0, worker-0, worker-1 ... in these phases."""
    places = ["master-0", *(f"worker-{index}" for index in range(len(phases) - 1))]
    return tuple(make_pod(who, PodPhase(phase)) for who, phase in zip(places, phases, strict=True))


def workers(*phases: PodPhase | str) -> tuple[Pod, ...]:
    """The pods of worker-0, worker-1 ... in these phases."""
    return tuple(make_pod(f"worker-{index}", PodPhase(phase)) for index, phase in enumerate(phases))


def make_child(kind: ChildKind, name: str = "x", **fields: Any) -> Child:
    """A child of the job that is no pod, as it is seen."""
    given = {"namespace": "ns", "uid": f"uid-{kind.lower()}", "resource_version": 1, "owner_uid": JOB_UID, **fields}
    return Child(kind=kind, name=name, **given)


def make_service(name: str = "x") -> Child:
    """The job's Service, as it is seen."""
    return make_child(ChildKind.SERVICE, name)


def observed(
    job: PyTorchJob, *seen: Pod, seconds: float = 0, service: bool = True, refusal: Refusal | None = None
) -> Observed:
    """The job with these pods, its Service exists unless `service` is false."""
    services = (make_service(job.metadata.name),) if service else ()
    return Observed(job=job, now=at(seconds), pods=seen, children=services, refusal=refusal)


def condition(kind: ConditionType, *, true: bool = True, reason: str | None = None, seconds: float = 0) -> Condition:
    """A condition with v1's reason, set at this time."""
    return Condition(
        type=kind,
        status=ConditionStatus.TRUE if true else ConditionStatus.FALSE,
        reason=reason or f"PyTorchJob{kind.value}",
        message=f"it is {kind.value}",
        last_update_time=at(seconds),
        last_transition_time=at(seconds),
    )


def written(plan: Plan) -> list[str]:
    """The writes of a plan: `+Service`, `+x-worker-0`, `-x-worker-3`, `-Service`, `~PodGroup`, `-PyTorchJob`."""
    return [_told(write) for write in plan.writes]


def _told(write: Write) -> str:
    match write:
        case CreateChild():
            return f"+{write.kind}"
        case UpdateChild():
            return f"~{write.kind}"
        case CreatePod() | CreateReserve():
            return f"+{write.body['metadata']['name']}"
        case DeletePod():
            return f"-{write.name}"
        case DeleteChild():
            return f"-{write.kind}"
        case DeleteJob():
            return f"-{names.KIND}"
