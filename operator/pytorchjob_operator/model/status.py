"""The status of a PyTorchJob: v1's fields, and the generation that the operator has seen.

Written by the operator only; a reader may rely on v1's order of conditions (the latest change is the last element).
"""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from pytorchjob_operator.model.base import (
    ConditionStatus,
    ConditionType,
    Count,
    Generation,
    Model,
    Number,
    Seconds64,
    Time,
)
from pytorchjob_operator.names import ReplicaType

_MAX_MESSAGE = 32768
MAX_REPLACING = 1000
"""Failed pods that are replaced at a time: each is listed by its uid, and an object's size is bounded."""

Uid = Annotated[str, Field(max_length=128)]
Word = Annotated[str, Field(max_length=64)]
Position = Generation
MetricValue = Annotated[Number, Field(description="The number as it was told last.")]


class Condition(Model):
    """One fact of a job's life."""

    type: ConditionType = Field(
        description="Created, Running, Restarting, Succeeded, Suspended or Failed; one element of each at most."
    )
    status: ConditionStatus = Field(description="True, False or Unknown: whether the condition holds now.")
    reason: Annotated[str, Field(max_length=1024)] = Field(
        default="",
        description="One CamelCase word for programs: why the condition is as it is. Example: PyTorchJobRunning.",
    )
    message: Annotated[str, Field(max_length=_MAX_MESSAGE)] = Field(
        default="", description="A sentence for people: what happened."
    )
    last_update_time: Time | None = Field(default=None, description="When status or reason were last set.")
    last_transition_time: Time | None = Field(
        default=None, description="When status last changed from one value to another."
    )
    observed_generation: Generation | None = Field(
        default=None,
        description="metadata.generation of the job that this condition was decided for. Unset: not known.",
    )


class ReplicaStatus(Model):
    """How many pods of one role are in which state."""

    active: Count = Field(
        default=0, description="Pods that run and are not being deleted. Read by the scale subresource."
    )
    succeeded: Count = Field(default=0, description="Pods that ended with success.")
    failed: Count = Field(default=0, description="Pods that failed, or that are being deleted while they run.")
    selector: Annotated[str, Field(max_length=1024)] | None = Field(
        default=None, description="Label selector of the role's pods. Read by the scale subresource and by autoscalers."
    )
    label_selector: Annotated[dict[str, Any], Field(max_length=8)] | None = Field(
        default=None, description="Deprecated: never set, kept because v1's schema has it. Use selector."
    )


class ReplicaStatuses(Model):
    """The counts by role."""

    model_config = ConfigDict(alias_generator=str.capitalize)

    master: ReplicaStatus | None = Field(default=None, description="Counts of the Master. Unset: the job has none.")
    worker: ReplicaStatus | None = Field(default=None, description="Counts of the workers. Unset: the job has none.")

    def get(self, replica_type: ReplicaType) -> ReplicaStatus | None:
        """The counts of one role."""
        return self.master if replica_type is ReplicaType.MASTER else self.worker


class Restart(Model):
    """Why the workers of a group were started again."""

    time: Time = Field(description="When they were stopped.")
    reason: Word = Field(description="One CamelCase word for programs. Example: WorkerFailed.")
    message: Annotated[str, Field(max_length=4096)] = Field(
        default="", description="A sentence for people: which pod and rank was the first, and how it ended."
    )


class ElasticStatus(Model):
    """The group of pods that train together now, as the coordinator has put it together."""

    round: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="The present round, as the agents' logs name it. Unset: none yet. Example: 3.7."
    )
    members: Count | None = Field(default=None, description="Pods that take part in it. Unset: none yet.")
    world_size: Count | None = Field(default=None, description="Processes of all members. Unset: none yet.")
    restarts: Count | None = Field(
        default=None,
        description="Restarts of workers inside their pods after failures, over the job's life; a change of the members"
        " is none. Counts against elasticPolicy.maxRestarts. Unset: none.",
    )
    last_restart: Restart | None = Field(default=None, description="The newest of them. Unset: none.")


class ProgressStatus(Model):
    """How far the training is, by the word of the script that is furthest."""

    step: Position | None = Field(default=None, description="Steps done. Unset: not told.")
    total: Position | None = Field(default=None, description="Steps to do. Unset: not told.")
    percent: Annotated[int, Field(ge=0, le=100, json_schema_extra={"format": "int32"})] | None = Field(
        default=None, description="Steps done of those to do. Unset: total is not told."
    )
    remaining_seconds: Seconds64 | None = Field(
        default=None, description="How long it will go on at the present speed. Unset: not known."
    )
    metrics: Annotated[dict[str, MetricValue], Field(max_length=16)] | None = Field(
        default=None, description="Numbers that the script tells, by their names. Unset: none."
    )
    time: Time | None = Field(default=None, description="When this was seen.")


class JobStatus(Model):
    """What the operator has seen and done."""

    conditions: Annotated[tuple[Condition, ...], Field(max_length=32)] = Field(
        default=(), description="The job's conditions in the order of their last change: the last element is its state."
    )
    replica_statuses: ReplicaStatuses | None = Field(
        default=None, description="Counts of pods by role. Unset: not yet seen."
    )
    start_time: Time | None = Field(
        default=None,
        description="When the operator took up the job, or resumed it. activeDeadlineSeconds counts from here.",
    )
    completion_time: Time | None = Field(
        default=None, description="When the job succeeded or failed. ttlSecondsAfterFinished counts from here."
    )
    last_reconcile_time: Time | None = Field(
        default=None, description="When the job was last held back by a gang scheduler. Unset: it was not."
    )
    observed_generation: Generation | None = Field(
        default=None,
        description="metadata.generation that this status answers to; older than it means the operator has yet"
        " to look.",
    )

    restarts: Count | None = Field(
        default=None,
        description="Restarts used up by pods that the operator has replaced after they failed: one for each, and those"
        " of its containers. Counts against runPolicy.backoffLimit. Unset: none.",
    )
    replacing: Annotated[tuple[Uid, ...], Field(max_length=MAX_REPLACING)] | None = Field(
        default=None,
        description="uids of the failed pods that are counted in restarts and not gone yet. Written before they are"
        " deleted, so that none is counted twice. Unset: none.",
    )

    elastic: ElasticStatus | None = Field(
        default=None, description="The group that trains now. Unset: no agent has come to the coordinator."
    )
    progress: ProgressStatus | None = Field(
        default=None, description="How far the training is. Unset: the script tells nothing (progress())."
    )

    def condition(self, kind: ConditionType) -> Condition | None:
        """The condition of a type, if the job has it."""
        return next((one for one in self.conditions if one.type is kind), None)

    def holds(self, kind: ConditionType) -> bool:
        """Whether the condition is there and True."""
        found = self.condition(kind)
        return found is not None and found.status is ConditionStatus.TRUE
