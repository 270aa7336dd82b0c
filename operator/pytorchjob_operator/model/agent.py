"""spec.agent: how the elastic agent in the job's pods starts workers, watches them, and checks its machine first.

Every field is optional, and training-operator v1 has none of them. This file decides nothing: the fields become a pod's
environment in `plan/environment/agent_variables`, and `rules/agent_rules` has the rules over several fields.
"""

import re
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from pytorchjob_agent.contract.checkpoint_rules import LONGEST_INTERVAL, MOST_COPIES
from pytorchjob_agent.contract.hang_rules import Comparison
from pytorchjob_operator.model.base import INT32_MAX, Model, Number

_DAY = 86_400
_SIZE = r"^[1-9][0-9]{0,14}([kMGT]|[KMGT]i)?$"
_RATE = r"^[1-9][0-9]{0,4}[MG]i?$"
Limit = Annotated[int, Field(ge=0, le=30 * _DAY, json_schema_extra={"format": "int32"})]
Window = Annotated[int, Field(ge=1, le=INT32_MAX, json_schema_extra={"format": "int32"})]


def _compiles(text: str) -> str:
    """Refuse what Python cannot compile when the job is read: an API server cannot check Python's expressions."""
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"must be a Python regular expression: {error}") from None
    return text


Pattern = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_compiles)]
Module = Annotated[
    str,
    Field(
        max_length=128,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*$",
        description="Name of a Python module, as in an import statement.",
    ),
]


class StartMode(StrEnum):
    """How the worker processes of a round are started."""

    COLD = "Cold"
    WARM = "Warm"
    AUTO = "Auto"
    READY = "Ready"


class SurviveMode(StrEnum):
    """Whether the workers of a round go on without a lost member."""

    AUTO = "Auto"
    OFF = "Off"


class PreflightMode(StrEnum):
    """What the agent does about a problem that it finds before its first round."""

    WARN = "Warn"
    FAIL = "Fail"
    OFF = "Off"


class LogRuleSpec(Model):
    """A rule that judges the workers' health by their log; HyperPod's rules under shorter names."""

    name: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        description="Name of the rule in messages and events. Example: loss."
    )
    pattern: Pattern = Field(
        description="Python regular expression, searched in each line. Its first group is the number that is"
        " compared with value. Example: 'loss=([0-9.]+|nan)'."
    )
    start_seconds: Limit | None = Field(
        default=None, description="The first match must come within this many seconds of the start. Unset: no limit."
    )
    every_seconds: Limit | None = Field(
        default=None, description="Each further match must come within this many seconds of the last. Unset: no limit."
    )
    stop_pattern: Pattern | None = Field(
        default=None, description="A line that matches this ends the rule. Unset: the rule does not end."
    )
    operator: Comparison | None = Field(
        default=None,
        description="A match is bad if its number is lt, gt, lteq, gteq or eq to value. Unset: no comparison.",
    )
    value: Number | None = Field(default=None, description="The number to compare with. Example: 0.5.")
    points: Annotated[int, Field(ge=1, le=1000, json_schema_extra={"format": "int32"})] | None = Field(
        default=None, description="Number of bad matches in a row that count as a hang. Unset: 1."
    )
    fault_on_match: bool | None = Field(default=None, description="true: any match counts as a hang. Unset: false.")

    @model_validator(mode="after")
    def _has_a_number(self) -> Self:
        if self.operator is not None and not re.compile(self.pattern).groups:
            raise ValueError("pattern must have a group around the number to compare, like 'loss=([0-9.]+)'")
        return self


class Hang(Model):
    """When running workers count as hung; the agent then restarts them in their pod."""

    progress_seconds: Limit | None = Field(
        default=None,
        description="Longest time without a new step, in seconds; the script reports steps with progress()."
        " 0: no limit. Unset: 5 times the duration of the slowest 1 % of its steps, at least 3.",
    )
    first_progress_seconds: Limit | None = Field(
        default=None, description="Longest time until the first step, in seconds. 0: no limit. Unset: 1200."
    )
    idle_seconds: Limit | None = Field(
        default=None,
        description="Longest time without CPU use, reading, writing and TCP traffic, in seconds; for a script that"
        " reports no steps. 0: no limit. Unset: 120, if no rank of the job makes progress of any kind.",
    )
    log_rules: Annotated[tuple[LogRuleSpec, ...], Field(max_length=16)] | None = Field(
        default=None, description="Rules for what the workers' log must and must not contain. Unset: none."
    )


Directory = Annotated[str, Field(max_length=256, pattern=r"^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$")]


class DurableDirectory(Model):
    """Where the newest checkpoint goes now and then, for the case that all pods are lost."""

    directory: Directory = Field(
        description="A directory of this job on a volume that the template mounts in all pods, such as a claim with"
        " ReadWriteMany. A later job with the same directory continues from the last checkpoint there."
        " Example: /mnt/shared/run-1."
    )
    interval_seconds: Annotated[int, Field(ge=1, le=LONGEST_INTERVAL, json_schema_extra={"format": "int32"})] | None = (
        Field(
            default=None,
            description="Seconds from the start of one copy to the start of the next. Workers do not wait for it."
            " Unset: 600. Example: 1800.",
        )
    )


class CheckpointMemory(Model):
    """Checkpoints in the pods' memory, with copies at other pods of the job."""

    directory: Directory = Field(
        description="Where the script saves its checkpoints, and loads the newest one when it starts. The operator"
        " mounts memory there, unless the template mounts a volume of its own. Example: /checkpoints."
    )
    memory: Annotated[str, Field(max_length=20, pattern=_SIZE)] = Field(
        description="Largest size of the directory in each pod, with the copies of other pods' checkpoints. It counts"
        " against the container's memory limit. Example: 8Gi."
    )
    copies: Annotated[int, Field(ge=0, le=MOST_COPIES, json_schema_extra={"format": "int32"})] | None = Field(
        default=None, description="How many other pods keep a copy of each checkpoint. Unset: 1."
    )
    copy_rate: Annotated[str, Field(max_length=8, pattern=_RATE)] | None = Field(
        default=None,
        description="How many bytes per second a pod sends to other pods while its workers train, and to durable"
        " storage. The agent uses one core more for each 500M. A restore is not slowed down: no worker trains"
        " meanwhile. 1M at least. Unset: 200M. Example: 2G.",
    )
    durable: DurableDirectory | None = Field(
        default=None,
        description="Where the newest checkpoint goes now and then, in the background: after the loss of all pods,"
        " training continues from there. Unset: memory alone keeps checkpoints.",
    )


class AgentPolicy(Model):
    """What the agent in the job's pods does besides running torchrun's workers."""

    inject: bool | None = Field(
        default=None,
        description="true: an init container installs the agent in the pods, and the command trains with it as it is:"
        " torchrun, accelerate launch, python. Unset: false, the image contains the agent or works without it.",
    )
    start_mode: StartMode | None = Field(
        default=None,
        description="Warm forks workers from a process that has loaded torch. Auto does so where that is safe. Ready"
        " does so too, and lets a process for each worker make the context of its GPU before it is needed. Cold starts"
        " every worker as a new process. Unset: Cold.",
    )
    preload: Annotated[tuple[Module, ...], Field(max_length=32)] | None = Field(
        default=None, description="Modules that a warm start loads besides torch. Unset: none. Example: [transformers]."
    )
    restart_window_seconds: Window | None = Field(
        default=None,
        description="Only restarts of the last restartWindowSeconds count against elasticPolicy.maxRestarts. Unset:"
        " all restarts count. Example: 3600.",
    )
    fence_seconds: Limit | None = Field(
        default=None,
        description="Workers end if no pod of their round has heard from the coordinator or the API server for this"
        " time, in seconds: the pods may have been replaced. They start again once the coordinator answers. 0: never."
        " Unset: 240, less than the 300 s after which Kubernetes replaces the pods of a silent node. Example: 60.",
    )
    survive: SurviveMode | None = Field(
        default=None,
        description="Auto: the workers of an elastic job go on without a lost pod, in the same processes and without"
        " a repeated step, where that is known to be right: DistributedDataParallel with gloo, torch 2.15. Off: each"
        " loss restarts all workers. Unset: Off.",
    )
    rejoin_within_seconds: Window | None = Field(
        default=None,
        description="After the workers have gone on without a pod, the pod that replaces it joins at the script's next"
        " save, or after this time at the latest: then the steps since the last save are repeated. Unset: 600.",
    )
    checkpoint: CheckpointMemory | None = Field(
        default=None,
        description="Checkpoints in the pods' memory: after the loss of a pod, training continues from the newest one"
        " without shared storage. The script only saves to a path. Unset: none.",
    )
    caches: bool | None = Field(
        default=None,
        description="false: the caches of torch.compile, Triton, CUDA and Hugging Face stay where the image has them."
        " Unset: true, pods that run the agent keep them in a volume at /var/cache/pytorchjob, and a new pod fetches"
        " them from another pod of the job. Variables that the template sets win.",
    )
    network_policy: bool | None = Field(
        default=None,
        description="true: a NetworkPolicy lets only pods of this job reach its pods. It needs the chart value"
        " jobNetworkPolicies.enabled, and a network that applies such policies. Unset: false.",
    )
    hang: Hang | None = Field(
        default=None, description="When running workers count as hung. Unset: each field's default."
    )
    observe_progress: bool | None = Field(
        default=None,
        description="false: only calls of progress() are progress. Unset: true, the agent also takes what the libraries"
        " of the script post to KUBEFLOW_TRAINER_SERVER_URL, which it serves in the pod. It reads progress bars, and"
        " has the workers measure their saves.",
    )
    find_stragglers: bool | None = Field(
        default=None,
        description="false: no rank is measured, and none is named in status.stragglers. Unset: true, each worker"
        " measures how long it waits in collectives.",
    )
    avoid_nodes: bool | None = Field(
        default=None,
        description="true: new pods prefer other nodes than those on which pods of this job fail repeatedly. Unset:"
        " false. status.nodeFailures counts the failures in any case.",
    )
    reserve_pods: Annotated[int, Field(ge=0, le=1000, json_schema_extra={"format": "int32"})] | None = Field(
        default=None,
        description="How many pods that may be lost soon have a reserve pod at the same time. It requests what they do"
        " on another node and pulls the image, until the lost pod starts again there. Unset: 0. Example: 1.",
    )
    preflight: PreflightMode | None = Field(
        default=None,
        description="What the agent does if its checks find the pod unfit for the job: Warn logs it, Fail ends the pod,"
        " Off skips the checks. Unset: Warn, but Fail for problems with which the job cannot run.",
    )
