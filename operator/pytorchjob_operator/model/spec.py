"""The spec of a PyTorchJob: every field of training-operator v1, with its bounds and its text for `kubectl explain`.

This file decides nothing: defaults are in `defaults`, rules over several fields in `rules`. CONTRIBUTING has the
recipe for a new field.
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
"""Most replicas of one type: far more than any real job has, so that a typing error is refused."""

_MAX_ROLES = 4
"""Room for a misspelt role, so that a rule can report it."""

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
            "description": "Source of the metric; the field of that name describes it.",
        },
        "resource": _part("cpu or memory of all containers of the pods, and its target value."),
        "containerResource": _part("cpu or memory of one container of the pods, and its target value."),
        "pods": _part("A metric of each pod, and its target average."),
        "object": _part("A metric of one other object, and its target value."),
        "external": _part("A metric from outside the cluster, and its target value."),
    },
}
Metric = Annotated[dict[str, Any], Field(json_schema_extra=_METRIC)]
"""An autoscaling/v2 MetricSpec, passed on unchanged; refused only if no HorizontalPodAutoscaler would take it."""


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
        description="Rendezvous backend given to torchrun: c10d, etcd, etcd-v2 or a backend that the image"
        " contains. Unset: the coordinator for pods with the agent, otherwise c10d.",
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
        default=None,
        description="Id of the run; all members of a rendezvous must use the same. Unset: torchrun's default.",
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
        description="How often failed workers are restarted before the job fails. Unset: limited by restartPolicy Never"
        " and backoffLimit, otherwise unlimited while training makes progress; without the coordinator torchrun's"
        " default, 0.",
    )
    metrics: Annotated[tuple[Metric, ...], Field(max_length=64)] | None = Field(
        default=None,
        description="Metrics (autoscaling/v2 MetricSpec) by which a HorizontalPodAutoscaler scales the workers"
        " between minReplicas and maxReplicas. Unset: no autoscaler.",
    )


class SchedulingPolicy(Model):
    """Settings for a gang scheduler."""

    gang_scheduler: Short | None = Field(
        default=None,
        description="Scheduler that places all of the job's pods or none of them: volcano, native, the name of"
        " another one with scheduler-plugins' coscheduling, or none. Unset: the operator's settings.",
    )
    min_available: Annotated[int, Field(ge=1, le=MAX_REPLICAS, json_schema_extra={"format": "int32"})] | None = Field(
        default=None,
        description="Fewest pods that must be schedulable together before any starts. Unset: all replicas of the job;"
        " for an elastic job, minReplicas and the Master.",
    )
    queue: Short | None = Field(
        default=None, description="Queue of the gang scheduler, immutable. Unset: the scheduler's default queue."
    )
    # Kubernetes 1.31 estimates that the rule about the quantities costs too much for 32 of them.
    min_resources: Annotated[dict[str, Quantity], Field(max_length=24)] | None = Field(
        default=None,
        description="Resources that must be free before any pod starts. Unset: the sum of the pods' requests."
        " Example: {cpu: '8', nvidia.com/gpu: 4}.",
    )
    priority_class: Short | None = Field(
        default=None, description="PriorityClass of the gang (also read by Kueue). Unset: none."
    )
    schedule_timeout_seconds: Seconds32 | None = Field(
        default=None,
        description="Seconds that the gang scheduler waits until all pods of the gang fit. Unset: the scheduler's"
        " default.",
    )


class RunPolicy(Model):
    """How long a job runs, how often its pods are restarted, and what remains after its end."""

    clean_pod_policy: CleanPodPolicy | None = Field(
        default=None,
        description="Which pods are deleted when the job has ended: None, Running (pods that still run) or All, which"
        " deletes the Service too. A job past its deadline always stops its running pods. Unset: None, which keeps the"
        " logs.",
    )
    ttl_seconds_after_finished: Seconds32 | None = Field(
        default=None,
        description="Seconds from the job's end until the job is deleted, with all its pods. Unset: the job is kept."
        " Example: 86400.",
    )
    active_deadline_seconds: Seconds64 | None = Field(
        default=None,
        description="Seconds, counted from status.startTime, after which the job fails and its running pods are"
        " deleted. The count starts again when the job is resumed. Unset: no deadline. Example: 3600.",
    )
    backoff_limit: Count | None = Field(
        default=None,
        description="The job fails at this number of restarts; 0 means the same as 1. Restarts of containers count, and"
        " so do failed pods that are replaced (status.restarts). Unset: unlimited. Example: 6.",
    )
    scheduling_policy: SchedulingPolicy | None = Field(
        default=None,
        description="Settings for a gang scheduler (Volcano, scheduler-plugins) and for Kueue. Unset: none.",
    )
    suspend: bool = Field(
        default=False,
        json_schema_extra={CRD_DEFAULT: False},
        description="true deletes the job's pods and Service. false creates them again, from the template as it is"
        " then. Kueue sets this field. Default: false.",
    )
    managed_by: ManagedBy | None = Field(
        default=None,
        description="Controller that reconciles the job: kubeflow.org/training-operator or kueue.x-k8s.io/multikueue."
        " Immutable. Unset: this operator.",
    )


class ReplicaSpec(Model):
    """One role of a job: the number of pods, and their template."""

    replicas: Replicas | None = Field(
        default=None,
        json_schema_extra={CRD_DEFAULT: 1},  # kubectl scale and autoscalers need the stored value
        description="Number of pods of this role. A Master has exactly 1; `kubectl scale` changes the Worker's."
        " Default: 1.",
    )
    template: dict[str, Any] = Field(
        json_schema_extra={POD_TEMPLATE: True},
        description="The pod of each replica. It needs a container named pytorch. The operator replaces its"
        " restartPolicy by the replica's, and adds environment, host name and labels.",
    )
    restart_policy: RestartPolicy | None = Field(
        default=None,
        description="What happens when a container ends: Always, OnFailure, Never, or ExitCode (codes of 128 and above"
        " restart the pod, 1 to 127 fail the job). Unset: OnFailure.",
    )


class ReplicaSpecs(Model):
    """The roles of a job. In the API it is a map, as in v1, so that one template schema serves both keys."""

    model_config = ConfigDict(alias_generator=str.capitalize)

    master: ReplicaSpec | None = None
    worker: ReplicaSpec | None = None

    @model_validator(mode="after")
    def _has_a_role(self) -> Self:
        """Refuse a job without roles, which may have been stored before this definition: no plan is possible."""
        if self.master is None and self.worker is None:
            raise ValueError("must have a Master, a Worker, or both")
        return self

    def get(self, replica_type: ReplicaType) -> ReplicaSpec | None:
        """Return the spec of one role, if the job has it."""
        return self.master if replica_type is ReplicaType.MASTER else self.worker

    def items(self) -> Iterator[tuple[ReplicaType, ReplicaSpec]]:
        """Yield the roles that the job has, the Master first."""
        for replica_type in ReplicaType:
            spec = self.get(replica_type)
            if spec is not None:
                yield replica_type, spec

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the schema of a map from role to ReplicaSpec."""
        schema = handler.resolve_ref_schema(handler(core))
        role = schema.pop("properties")[ReplicaType.WORKER.value]
        return {**schema, "additionalProperties": role, "maxProperties": _MAX_ROLES}


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
        " maxReplicas, and continues when a worker is lost or added. Unset: the number of workers is fixed.",
    )
    managed_by: ManagedBy | None = Field(
        default=None,
        description="As runPolicy.managedBy, where MultiKueue's adapter reads it.",
    )
    agent: AgentPolicy | None = Field(
        default=None,
        description="How the elastic agent in the pods starts and watches the workers. training-operator v1 has no such"
        " field. Unset: each field's default.",
    )
    run_policy: RunPolicy = Field(
        default_factory=RunPolicy,
        description="Limits, suspension, scheduling and clean-up of the job. Unset: no limits, and its pods"
        " stay after its end.",
    )
