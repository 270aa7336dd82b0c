"""The status of a PyTorchJob: v1's fields, the generation that it is about, and the state of training.

Only the operator writes it. Readers may rely on v1's order of conditions: the latest change is the last element.
"""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from pytorchjob_operator.model.base import (
    ConditionStatus,
    ConditionType,
    Count,
    ExactTime,
    Generation,
    Model,
    Number,
    Seconds64,
    Short,
    Time,
)
from pytorchjob_operator.model.slow_nodes import NodeFailures, StragglerStatus
from pytorchjob_operator.names import ReplicaType

LONGEST_MESSAGE = 32768
"""Most characters of a condition's message."""
MAX_UNFIT = 64
"""Most unfit pods that a status lists."""
MAX_FAILING_NODES = 64
"""Most nodes for which a status counts failed pods."""
MAX_STRAGGLERS = 64
"""Most slow ranks that a status lists."""
MAX_REPLACING = 1000
"""Most failed pods that are replaced at a time: each is listed by its uid, and an object's size is bounded."""

Elapsed = Annotated[Number, Field(ge=0)]
Text = Annotated[str, Field(max_length=32)]
Uid = Annotated[str, Field(max_length=128)]
ReasonWord = Annotated[str, Field(max_length=64)]
Position = Generation
MetricValue = Annotated[Number, Field(description="The last number that the script reported.")]


class Condition(Model):
    """One fact of a job's life."""

    type: ConditionType = Field(
        description="Created, Running, Restarting, Succeeded, Suspended, Failed, ReplicaFailure, Waiting, ConfigValid"
        " or Degraded; at most one element of each."
    )
    status: ConditionStatus = Field(description="True, False or Unknown: whether the condition is true now.")
    reason: Annotated[str, Field(max_length=1024)] = Field(
        default="",
        description="Why the condition has this status: one CamelCase word for programs. Example: PyTorchJobRunning.",
    )
    message: Annotated[str, Field(max_length=LONGEST_MESSAGE)] = Field(
        default="", description="A sentence for people: what happened."
    )
    last_update_time: Time | None = Field(default=None, description="When status or reason were last set.")
    last_transition_time: Time | None = Field(
        default=None, description="When status last changed from one value to another."
    )
    observed_generation: Generation | None = Field(
        default=None,
        description="metadata.generation of the job when the condition was set. Unset: unknown.",
    )


class ReplicaStatus(Model):
    """The number of pods of one role, by state."""

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

    master: ReplicaStatus | None = Field(
        default=None, description="Counts of the Master. Unset: the job has no Master."
    )
    worker: ReplicaStatus | None = Field(
        default=None, description="Counts of the workers. Unset: the job has no workers."
    )

    def get(self, replica_type: ReplicaType) -> ReplicaStatus | None:
        """The counts of one role."""
        return self.master if replica_type is ReplicaType.MASTER else self.worker


class CollectiveStatus(Model):
    """A collective that cannot end, because a rank did not do what the others did."""

    kind: ReasonWord = Field(
        description="CollectiveNotBegun, CollectiveDiffers: the rank has begun another one, or"
        " CollectivesInOtherOrder: it has begun one of another group first."
    )
    group: Annotated[str, Field(max_length=64)] = Field(description="The process group, by its name.")
    number: Position = Field(description="Which collective of the group it is, from 1 on.")
    call: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="What other ranks have begun. Unset: unknown. Example: all_reduce float32[3]."
    )
    own: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="What the rank has begun in its place. Unset: nothing, or unknown."
    )
    place: Annotated[str, Field(max_length=256)] | None = Field(
        default=None, description="Where another rank waits in it. Unset: unknown. Example: train.py:38 step()."
    )


class FirstFailureStatus(Model):
    """The failure that caused the others."""

    kind: ReasonWord = Field(
        description="WorkerFailed, WorkersHang, or RankEndedEarly: it ended with success while others needed it."
    )
    rank: Count | None = Field(default=None, description="The rank that failed. Unset: unknown.")
    pod: Short = Field(description="The pod that failed, or whose rank failed.")
    exit_code: Count | None = Field(
        default=None, description="Its exit code as a shell reports it: 128 plus the signal's number. Unset: none."
    )
    error: Annotated[str, Field(max_length=128)] | None = Field(
        default=None, description="The type of its uncaught error. Unset: unknown. Example: KeyError."
    )
    step: Position | None = Field(default=None, description="The last step that the round reached. Unset: unknown.")
    message: Annotated[str, Field(max_length=1024)] | None = Field(
        default=None,
        description="What the worker, its agent or the container wrote last. Unset: nothing. Example: KeyError: 'x'.",
    )
    collective: CollectiveStatus | None = Field(
        default=None, description="The collective in which other ranks wait for this one. Unset: none, or unknown."
    )
    place: Annotated[str, Field(max_length=256)] | None = Field(
        default=None,
        description="Of a hang: where the rank is. Unset: unknown, as of a stopped one. Example: train.py:8 load().",
    )


class FailureStatus(Model):
    """Why the job failed, for programs; the message of the condition Failed says it for people."""

    reason: ReasonWord = Field(
        description="RestartsUsedUp, SameErrorAgain, NoProgress, SameHangAgain, PermanentError, UnequalVersions,"
        " BackoffLimitExceeded, DeadlineExceeded, RestartsWouldNotHelp or ReplicaFailed."
    )
    first: FirstFailureStatus | None = Field(
        default=None,
        description="The failure after which the job ended. Unset: none, or it is not known which came first.",
    )


class RestartStatus(Model):
    """A restart of the workers: when, and why."""

    time: Time = Field(description="When the workers stopped.")
    reason: ReasonWord = Field(description="One CamelCase word for programs. Example: WorkerFailed.")
    message: Annotated[str, Field(max_length=4096)] = Field(
        default="", description="A sentence for people: which pod and rank failed first, and how."
    )
    first: FirstFailureStatus | None = Field(default=None, description="The same for programs. Unset: unknown.")


class ElasticStatus(Model):
    """The pods that train together now, by the coordinator's report."""

    round: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="Id of the current round, as in the agents' logs. Unset: no round yet. Example: 3.7."
    )
    members: Count | None = Field(default=None, description="Pods that take part in the round. Unset: no round yet.")
    world_size: Count | None = Field(default=None, description="Worker processes of all members. Unset: no round yet.")
    restarts: Count | None = Field(
        default=None,
        description="Restarts of workers inside their pods after failures, over the job's life. A change of the members"
        " does not count. Counts against elasticPolicy.maxRestarts. Unset: no restarts.",
    )
    without: Annotated[tuple[Text, ...], Field(max_length=1000)] | None = Field(
        default=None,
        description="Pods without which the round goes on. Their successors join at the script's next save."
        " Unset: none.",
    )
    survive: Annotated[str, Field(max_length=32)] | None = Field(
        default=None,
        description="Ready if the workers would go on without a lost pod, or in one word why a new round would begin."
        " Unset: spec.agent.survive is Off. Example: SeveralGroups.",
    )
    last_restart: RestartStatus | None = Field(default=None, description="The latest restart. Unset: no restarts.")


class ProgressStatus(Model):
    """Training progress of the most advanced member: as the script reports it, or as its agent observes it."""

    step: Position | None = Field(default=None, description="Steps done. Unset: unknown.")
    total: Position | None = Field(default=None, description="Steps to do. Unset: unknown.")
    percent: Annotated[int, Field(ge=0, le=100, json_schema_extra={"format": "int32"})] | None = Field(
        default=None, description="Percent complete. Unset: unknown."
    )
    remaining_seconds: Seconds64 | None = Field(
        default=None,
        description="Remaining time when this was recorded, in seconds: as the script estimates it, or by the speed"
        " since the round began. Unset: unknown.",
    )
    steps_per_second: Number | None = Field(
        default=None, description="Steps per second since the round began. Unset: unknown."
    )
    metrics: Annotated[dict[str, MetricValue], Field(max_length=16)] | None = Field(
        default=None, description="Metrics of the script, by name. Unset: none. Example: {loss: 0.25}."
    )
    time: Time | None = Field(default=None, description="When the operator recorded this.")


class ColumnsStatus(Model):
    """What `kubectl get` shows of a job, as texts for people; each follows from other fields of the status."""

    ready: Text | None = Field(
        default=None, description="Pods that run, of the pods that the job has. Unset: unknown. Example: 3/4."
    )
    restarts: Count | None = Field(
        default=None, description="Restarts of pods, and restarts of workers inside their pods. Unset: unknown."
    )
    progress: Text | None = Field(
        default=None, description="How much of the training is done. Unset: unknown. Example: 42%."
    )
    eta: Text | None = Field(
        default=None, description="Remaining time of the training. Unset: unknown, or it does not run. Example: 3h10m."
    )
    loss: Text | None = Field(
        default=None, description="The newest loss that the script reports. Unset: unknown. Example: 0.2518."
    )
    running: Text | None = Field(
        default=None,
        description="status.goodput.percent, for people. Unset: unknown, or it grows unseen because the script shows"
        " no steps. Example: 92.1%.",
    )
    lost: Text | None = Field(
        default=None, description="Time that is known to be lost. Unset: the job has not trained yet. Example: 6m."
    )


class GoodputSeconds(Model):
    """Seconds of a job's wall clock by class. Each second belongs to one class. Unset: none."""

    running: Elapsed | None = Field(
        default=None,
        description="Workers ran, beyond the furthest step of earlier rounds, and no loss is known: steps, and what the"
        " script does besides, such as waiting for data and evaluation. Without known steps: all workers ran.",
    )
    program_startup: Elapsed | None = Field(
        default=None,
        description="From the time when all pods have a node until the first step: image, import, rendezvous,"
        " compile. Of later rounds: from the start of the workers to a step.",
    )
    unproductive_checkpoint_save_time: Elapsed | None = Field(
        default=None,
        description="The script's saves, as far as the training waits for them, and from a request to save until the"
        " workers have answered.",
    )
    unproductive_checkpoint_restore_time: Elapsed | None = Field(
        default=None, description="The script's loads before the first step of a round."
    )
    wasted_progress_from_disruption: Elapsed | None = Field(
        default=None, description="Steps that an earlier round had done already."
    )
    infrastructure_recovery_from_disruption: Elapsed | None = Field(
        default=None, description="From the end of a round until workers run again."
    )
    detection: Elapsed | None = Field(
        default=None, description="From the last sign of life of the workers that failed until their round ended."
    )
    hung: Elapsed | None = Field(
        default=None, description="From the last step until the workers were recognised as hung."
    )
    waiting_for_pods: Elapsed | None = Field(
        default=None, description="Pods that the job needs did not exist, or had no node."
    )
    suspended: Elapsed | None = Field(default=None, description="The job was suspended.")
    queued: Elapsed | None = Field(default=None, description="It waited in its queue.")
    other: Elapsed | None = Field(default=None, description="The training was over, and its pods ended.")


class GoodputStatus(Model):
    """What the job's time was spent on, since its creation. The sum of the seconds is the wall clock."""

    time: ExactTime = Field(description="Up to when the seconds are booked.")
    current: ReasonWord = Field(
        description="The class of the time since then: the name of a field of seconds. Example: running."
    )
    seconds: GoodputSeconds = Field(description="Seconds of each class.")
    percent: Annotated[float, Field(ge=0, le=100)] | None = Field(
        default=None,
        description="The part of the time in which workers ran and no loss is known: running, of all seconds. Data"
        " waits and evaluation are in it, so useful step time is at most this. Unset: no time has passed.",
    )
    furthest_step: Position | None = Field(
        default=None,
        description="The furthest step of all rounds. Unset: steps are unknown, so running time counts as running,"
        " and replayed steps are unknown.",
    )
    interruptions: Count | None = Field(
        default=None,
        description="Failures and losses that ended a round, or without whose pod it went on. Unset: none.",
    )
    pod_losses: Count | None = Field(default=None, description="Interruptions by lost pods. Unset: none.")
    crashes: Count | None = Field(default=None, description="Interruptions by failed workers. Unset: none.")
    hangs: Count | None = Field(default=None, description="Interruptions by hung workers. Unset: none.")
    new_steps: Position | None = Field(
        default=None, description="Steps that the seconds of running hold. Unset: steps are unknown."
    )
    saves: Count | None = Field(
        default=None,
        description="Saves that the script made after the first step of a round. 0: it made none. Unset: unknown.",
    )
    save_seconds: Elapsed | None = Field(default=None, description="Seconds in these saves. Unset: none.")
    saved_steps: Position | None = Field(
        default=None, description="Steps before these saves: divide by saves for the steps between two. Unset: none."
    )


class UnfitPod(Model):
    """A pod whose agent found its node unfit for the job."""

    name: Short = Field(description="Name of the pod; its replacements have the same name.")
    uid: Uid = Field(description="uid of the pod.")
    node: Short = Field(default="", description="The node on which it ran. Unset: unknown.")


class JobStatus(Model):
    """What the operator observed and did."""

    conditions: Annotated[tuple[Condition, ...], Field(max_length=32)] = Field(
        default=(), description="The job's conditions in the order of their last change: the last element is its state."
    )
    replica_statuses: ReplicaStatuses | None = Field(
        default=None, description="Counts of pods by role. Unset: not counted yet."
    )
    start_time: Time | None = Field(
        default=None,
        description="When the operator started or resumed the job. activeDeadlineSeconds counts from here.",
    )
    completion_time: Time | None = Field(
        default=None, description="When the job succeeded or failed. ttlSecondsAfterFinished counts from here."
    )
    last_reconcile_time: Time | None = Field(
        default=None, description="When a gang scheduler last held the job's pods back. Unset: never."
    )
    observed_generation: Generation | None = Field(
        default=None,
        description="metadata.generation that this status is about. If it is older, the operator has not processed the"
        " newest spec yet.",
    )

    failure: FailureStatus | None = Field(default=None, description="Why the job failed. Unset: it has not.")

    restarts: Count | None = Field(
        default=None,
        description="Restarts by pods that failed and were replaced: one for each pod, plus the restarts of its"
        " containers. Counts against runPolicy.backoffLimit. Unset: none.",
    )
    replacing: Annotated[tuple[Uid, ...], Field(max_length=MAX_REPLACING)] | None = Field(
        default=None,
        description="uids of failed pods that restarts includes and that still exist. Written before the pods are"
        " deleted, so that no pod counts twice. Unset: none.",
    )

    unfit_pods: Annotated[tuple[UnfitPod, ...], Field(max_length=MAX_UNFIT)] | None = Field(
        default=None,
        description="Pods that the agent found unfit for the job since all replicas last trained together. The"
        " third of one replica ends the job. Unset: none.",
    )

    node_failures: Annotated[tuple[NodeFailures, ...], Field(max_length=MAX_FAILING_NODES)] | None = Field(
        default=None,
        description="Failed pods by node; the node that failed last is the last element. spec.agent.avoidNodes uses it."
        " Unset: none.",
    )

    stragglers: Annotated[tuple[StragglerStatus, ...], Field(max_length=MAX_STRAGGLERS)] | None = Field(
        default=None, description="Ranks that are slower than the others. Unset: none, or not measured."
    )

    elastic: ElasticStatus | None = Field(
        default=None, description="The pods that train together now. Unset: no agent has reported to the coordinator."
    )
    progress: ProgressStatus | None = Field(
        default=None,
        description="Training progress: by calls of progress(), or as the agent observes it. Unset: unknown.",
    )
    goodput: GoodputStatus | None = Field(
        default=None, description="What the job's time was spent on. Unset: not observed yet."
    )
    columns: ColumnsStatus | None = Field(
        default=None,
        description="Columns of kubectl get. Programs read the other fields. Unset: not observed yet.",
    )

    def condition(self, kind: ConditionType) -> Condition | None:
        """Return the condition of a type, if the job has it."""
        return next((condition for condition in self.conditions if condition.type is kind), None)

    def holds(self, kind: ConditionType) -> bool:
        """Whether the condition exists and is True."""
        found = self.condition(kind)
        return found is not None and found.status is ConditionStatus.TRUE
