"""The spec of a PyTorchJob: every field of training-operator v1, with the bounds and the words of `kubectl explain`.

It may not decide anything: defaults are in `defaults`, rules over several fields in `rules`.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from pytorchjob_operator.model.agent import AgentPolicy
from pytorchjob_operator.model.base import (
    CRD_DEFAULT,
    POD_TEMPLATE,
    CleanPodPolicy,
    Count,
    ManagedBy,
    Model,
    Quantity,
    RestartPolicy,
    Seconds32,
    Seconds64,
    Short,
)
from pytorchjob_operator.names import ReplicaType

MAX_REPLICAS = 10_000
"""Most replicas of one type. A guard against a slip of the finger: it is far beyond any real job."""

_MAX_ROLES = 4
"""Room for a misspelt role, so that a rule can say what is wrong with it."""

Replicas = Annotated[int, Field(ge=1, le=MAX_REPLICAS, json_schema_extra={"format": "int32"})]
Port = Annotated[int, Field(ge=1, le=65535, json_schema_extra={"format": "int32"})]


def _part(description: str) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": True, "maxProperties": 16, "description": description}


_METRIC = {
    "maxProperties": 16,
    "required": ["type"],
    "properties": {
        "type": {
            "type": "string",
            "enum": ["Resource", "ContainerResource", "Pods", "Object", "External"],
            "description": "Where the metric comes from; the field of that name says which it is.",
        },
        "resource": _part("cpu or memory of all containers of the pods, and the value to keep it at."),
        "containerResource": _part("cpu or memory of one container of the pods, and the value to keep it at."),
        "pods": _part("A metric of each pod, and the average to keep it at."),
        "object": _part("A metric of one other object, and the value to keep it at."),
        "external": _part("A metric from outside the cluster, and the value to keep it at."),
    },
}
Metric = Annotated[dict[str, Any], Field(json_schema_extra=_METRIC)]
"""An autoscaling/v2 MetricSpec, handed on as it is: refused is only what no HorizontalPodAutoscaler takes."""


class RdzvConf(Model):
    """One setting of the rendezvous."""

    key: Short = Field(default="", description="Name of the setting, for example `timeout`.")
    value: Annotated[str, Field(max_length=1024)] = Field(
        default="", description="Value of the setting, as torchrun takes it, for example `900`."
    )


class ElasticPolicy(Model):
    """How many workers an elastic job may have, and how they find each other."""

    min_replicas: Replicas | None = Field(
        default=None,
        description="Fewest workers that may train together (torchrun's nnodes, HPA). Unset: maxReplicas, or"
        " Worker.replicas if that is unset too. Example: 2.",
    )
    max_replicas: Replicas | None = Field(
        default=None,
        description="Most workers that may train together (torchrun's nnodes, HPA). Unset: minReplicas, or"
        " Worker.replicas if that is unset too. Example: 4.",
    )
    rdzv_backend: Short | None = Field(
        default=None,
        description="Rendezvous backend given to torchrun: c10d, etcd, etcd-v2 or one that the image brings."
        " Unset: c10d.",
    )
    rdzv_port: Port | None = Field(
        default=None,
        description="Port of the rendezvous. Unset: the Worker's container port named pytorchjob-port, which is"
        " 23456 by default.",
    )
    rdzv_host: Short | None = Field(
        default=None,
        description="Host of the rendezvous, for example an etcd Service. Unset: the job's first worker,"
        " <job>-worker-0.",
    )
    rdzv_id: Short | None = Field(
        default=None, description="Name of the run that members of a rendezvous must agree on. Unset: torchrun's own."
    )
    rdzv_conf: Annotated[tuple[RdzvConf, ...], Field(max_length=64)] | None = Field(
        default=None,
        description="Further settings of the rendezvous, passed on as key=value pairs. Unset or empty: none. Example:"
        " [{key: timeout, value: '900'}].",
    )
    standalone: bool | None = Field(
        default=None,
        description="Runs torchrun's standalone rendezvous, for a job of one pod. Unset: false.",
    )
    n_proc_per_node: Annotated[int, Field(ge=1, le=1024, json_schema_extra={"format": "int32"})] | None = Field(
        default=None,
        description="Deprecated: use spec.nprocPerNode; only one of the two may be set. Processes in each pod. Unset:"
        " spec.nprocPerNode decides.",
    )
    max_restarts: Count | None = Field(
        default=None,
        description="How often torchrun restarts the workers' processes before it gives up. Unset: torchrun's"
        " default, 0.",
    )
    metrics: Annotated[tuple[Metric, ...], Field(max_length=64)] | None = Field(
        default=None,
        description="Metrics (autoscaling/v2 MetricSpec) by which a HorizontalPodAutoscaler scales the workers"
        " between minReplicas and maxReplicas. Unset: no autoscaler is made.",
    )


class SchedulingPolicy(Model):
    """What a gang scheduler is told of the job."""

    gang_scheduler: Short | None = Field(
        default=None,
        description="Who places the job's pods all together or not at all: volcano, the name of another scheduler that"
        " has scheduler-plugins' coscheduling, or none. Unset: what the operator's settings say.",
    )
    min_available: Annotated[int, Field(ge=1, le=MAX_REPLICAS, json_schema_extra={"format": "int32"})] | None = Field(
        default=None,
        description="Fewest pods that must be schedulable together before any starts. Unset: all replicas of the job,"
        " or minReplicas and the Master where it is elastic.",
    )
    queue: Short | None = Field(
        default=None, description="Queue of the gang scheduler, immutable. Unset: the scheduler's default queue."
    )
    min_resources: Annotated[dict[str, Quantity], Field(max_length=64)] | None = Field(
        default=None,
        description="Resources that must be free before any pod starts. Unset: the sum of the pods' requests."
        " Example: {cpu: '8', nvidia.com/gpu: 4}.",
    )
    priority_class: Short | None = Field(
        default=None, description="PriorityClass of the gang (also read by Kueue). Unset: none."
    )
    schedule_timeout_seconds: Seconds32 | None = Field(
        default=None,
        description="Seconds that the gang scheduler waits for the gang to fit. Unset: the scheduler's default.",
    )


class RunPolicy(Model):
    """How long a job runs, how often it is tried, and what is left of it."""

    clean_pod_policy: CleanPodPolicy | None = Field(
        default=None,
        description="Which pods are deleted when the job has ended: None, Running (those still running) or All,"
        " which takes the Service too. A job past its deadline always stops its running pods. Unset: None, so that logs"
        " stay.",
    )
    ttl_seconds_after_finished: Seconds32 | None = Field(
        default=None,
        description="Seconds after its end when the job itself is deleted, with all its pods. Unset: it is kept."
        " Example: 86400.",
    )
    active_deadline_seconds: Seconds64 | None = Field(
        default=None,
        description="Seconds, counted from status.startTime, after which the job fails and its running pods are"
        " deleted. They begin anew when the job is resumed. Unset: no deadline. Example: 3600.",
    )
    backoff_limit: Count | None = Field(
        default=None,
        description="The job fails with its restart of this number; 0 is the same as 1. Counted are restarts of"
        " containers and pods that failed and are made again (status.restarts). Unset: unlimited. Example: 6.",
    )
    scheduling_policy: SchedulingPolicy | None = Field(
        default=None,
        description="What a gang scheduler (Volcano, scheduler-plugins) or Kueue is told of the job. Unset: nothing.",
    )
    suspend: bool = Field(
        default=False,
        json_schema_extra={CRD_DEFAULT: False},
        description="true deletes the job's pods and Service and makes none until it is false again, by the template as"
        " it is then; Kueue sets it. Default: false.",
    )
    managed_by: ManagedBy | None = Field(
        default=None,
        description="Who reconciles the job, immutable: kubeflow.org/training-operator or kueue.x-k8s.io/multikueue."
        " Unset: this operator.",
    )


class ReplicaSpec(Model):
    """One role of a job: how many pods, and what each of them is."""

    replicas: Replicas | None = Field(
        default=None,
        json_schema_extra={CRD_DEFAULT: 1},  # kubectl scale and autoscalers need the stored value
        description="Number of pods of this role. A Master has exactly 1; `kubectl scale` changes the Worker's."
        " Default: 1.",
    )
    template: dict[str, Any] = Field(
        json_schema_extra={POD_TEMPLATE: True},
        description="The pod of each replica. It needs a container named pytorch; its restartPolicy is replaced"
        " by the replica's. Environment, host name and labels are added.",
    )
    restart_policy: RestartPolicy | None = Field(
        default=None,
        description="What happens when a container ends: Always, OnFailure, Never, or ExitCode (128 and above"
        " are tried again, 1 to 127 fail the job). Unset: OnFailure.",
    )


class ReplicaSpecs(Model):
    """The roles of a job. In the API it is a map, as in v1: one template schema then serves both keys."""

    model_config = ConfigDict(alias_generator=str.capitalize)

    master: ReplicaSpec | None = None
    worker: ReplicaSpec | None = None

    @model_validator(mode="after")
    def _has_a_role(self) -> Self:
        """A job that was stored before this definition may have none, and there is nothing to plan for it."""
        if self.master is None and self.worker is None:
            raise ValueError("must have a Master, a Worker, or both")
        return self

    def get(self, replica_type: ReplicaType) -> ReplicaSpec | None:
        """The spec of one role, if the job has it."""
        return self.master if replica_type is ReplicaType.MASTER else self.worker

    def items(self) -> Iterator[tuple[ReplicaType, ReplicaSpec]]:
        """The roles that the job has, the Master first."""
        for replica_type in ReplicaType:
            spec = self.get(replica_type)
            if spec is not None:
                yield replica_type, spec

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """A map of role to ReplicaSpec."""
        schema = handler.resolve_ref_schema(handler(core))
        one = schema.pop("properties")[ReplicaType.WORKER.value]
        return {**schema, "additionalProperties": one, "maxProperties": _MAX_ROLES}


class JobSpec(Model):
    """What the user wants."""

    pytorch_replica_specs: ReplicaSpecs = Field(
        description="The job's pods by role: Master (at most one pod, rank 0), Worker, or both. Example:"
        " {Master: {...}, Worker: {replicas: 3, ...}}.",
    )
    nproc_per_node: Short | None = Field(
        default=None,
        description="Processes in each pod: a number as a string, or auto, cpu, gpu, xpu (torchrun counts them)."
        " Unset: auto. Example: '8'.",
    )
    elastic_policy: ElasticPolicy | None = Field(
        default=None,
        description="Makes the job elastic: it trains with any number of workers between minReplicas and"
        " maxReplicas, and goes on when one is lost or added. Unset: the number of workers is fixed.",
    )
    agent: AgentPolicy | None = Field(
        default=None,
        description="How the elastic agent in the pods starts and watches the workers; not of training-operator v1."
        " Unset: see its fields.",
    )
    run_policy: RunPolicy = Field(
        default_factory=RunPolicy,
        description="Limits, suspension, scheduling and clean-up of the job. Unset: it runs until it ends and"
        " its pods stay.",
    )
