"""The resource: PyTorchJob as frozen values, its defaults and its rules. Makes no requests."""

from pytorchjob_operator.model.agent import AgentPolicy, CheckpointMemory, DurableDirectory, StartMode, SurviveMode
from pytorchjob_operator.model.base import (
    CleanPodPolicy,
    ConditionStatus,
    ConditionType,
    ManagedBy,
    Model,
    RestartPolicy,
)
from pytorchjob_operator.model.defaults import main_container, master_port, with_defaults
from pytorchjob_operator.model.job import Metadata, PyTorchJob
from pytorchjob_operator.model.slow_nodes import NodeFailures, StragglerStatus
from pytorchjob_operator.model.spec import (
    ElasticPolicy,
    JobSpec,
    RdzvConf,
    ReplicaSpec,
    ReplicaSpecs,
    RunPolicy,
    SchedulingPolicy,
)
from pytorchjob_operator.model.status import (
    CollectiveStatus,
    Condition,
    ElasticStatus,
    FailureStatus,
    FirstFailureStatus,
    GoodputSeconds,
    GoodputStatus,
    JobStatus,
    ProgressStatus,
    ReplicaStatus,
    ReplicaStatuses,
    RestartStatus,
    UnfitPod,
)

__all__ = [
    "AgentPolicy",
    "CheckpointMemory",
    "CleanPodPolicy",
    "CollectiveStatus",
    "Condition",
    "ConditionStatus",
    "ConditionType",
    "DurableDirectory",
    "ElasticPolicy",
    "ElasticStatus",
    "FailureStatus",
    "FirstFailureStatus",
    "GoodputSeconds",
    "GoodputStatus",
    "JobSpec",
    "JobStatus",
    "ManagedBy",
    "Metadata",
    "Model",
    "NodeFailures",
    "ProgressStatus",
    "PyTorchJob",
    "RdzvConf",
    "ReplicaSpec",
    "ReplicaSpecs",
    "ReplicaStatus",
    "ReplicaStatuses",
    "RestartPolicy",
    "RestartStatus",
    "RunPolicy",
    "SchedulingPolicy",
    "StartMode",
    "StragglerStatus",
    "SurviveMode",
    "UnfitPod",
    "main_container",
    "master_port",
    "with_defaults",
]
