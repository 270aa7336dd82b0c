"""spec.agent: how the elastic agent in the job's pods starts workers, watches them, and looks at its machine first.

All of it is optional and ours alone: training-operator v1 knows no such field. It may not decide anything: what it
means in a pod is in `plan/environment/agent`, rules over several fields are in `rules/agent`.
"""

import re
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from pytorchjob_agent.rules import Comparison
from pytorchjob_operator.model.base import INT32_MAX, Model, Number

_DAY = 86_400
Limit = Annotated[int, Field(ge=0, le=30 * _DAY, json_schema_extra={"format": "int32"})]
Window = Annotated[int, Field(ge=1, le=INT32_MAX, json_schema_extra={"format": "int32"})]


def _compiles(text: str) -> str:
    """No API server knows Python's expressions: one that is none is told when the job is read."""
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"must be a regular expression of Python's: {error}") from None
    return text


Pattern = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_compiles)]
Module = Annotated[
    str,
    Field(
        max_length=128,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*$",
        description="A module by the name that import takes.",
    ),
]


class StartMode(StrEnum):
    """Where the processes of a round come from."""

    COLD = "Cold"
    WARM = "Warm"
    AUTO = "Auto"


class PreflightMode(StrEnum):
    """What a problem means that the agent finds before its first round."""

    WARN = "Warn"
    FAIL = "Fail"
    OFF = "Off"


class LogRule(Model):
    """One thing that the workers' log says of their health; HyperPod's rules under shorter names."""

    name: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        description="What the rule is called where it is told of. Example: loss."
    )
    pattern: Pattern = Field(
        description="Regular expression (Python's) that is searched in each line. Its first group is the number"
        " that value is compared with. Example: 'loss=([0-9.]+|nan)'."
    )
    start_seconds: Limit | None = Field(
        default=None, description="The first match must come within so many seconds of the start. Unset: any time."
    )
    every_seconds: Limit | None = Field(
        default=None, description="Each further match must come within so many seconds of the last. Unset: any time."
    )
    stop_pattern: Pattern | None = Field(
        default=None, description="The rule is over once a line has this. Unset: it never is."
    )
    operator: Comparison | None = Field(
        default=None, description="A match counts as bad if its number is lt, gt, lteq, gteq or eq to value."
    )
    value: Number | None = Field(default=None, description="What the number is compared with. Example: 0.5.")
    points: Annotated[int, Field(ge=1, le=1000, json_schema_extra={"format": "int32"})] | None = Field(
        default=None, description="So many bad matches in a row are a hang. Unset: 1."
    )
    fault_on_match: bool | None = Field(default=None, description="Any match is a hang. Unset: false.")

    @model_validator(mode="after")
    def _has_a_number(self) -> Self:
        if self.operator is not None and not re.compile(self.pattern).groups:
            raise ValueError("pattern must have a group around the number that is compared, like 'loss=([0-9.]+)'")
        return self


class Hang(Model):
    """When workers that are alive are taken for stuck, and started again in place."""

    progress_seconds: Limit | None = Field(
        default=None,
        description="Longest time without a new step, by the script's own progress(). 0: no limit. Unset: 5 times"
        " what the slowest 1 % of its steps took, 10 at least.",
    )
    first_progress_seconds: Limit | None = Field(
        default=None, description="Longest time until the first step. 0: no limit. Unset: 1200."
    )
    idle_seconds: Limit | None = Field(
        default=None,
        description="Longest time with neither CPU time used nor bytes sent, for a script that says nothing."
        " Unset or 0: no limit.",
    )
    log_rules: Annotated[tuple[LogRule, ...], Field(max_length=16)] | None = Field(
        default=None, description="What the log must say, and what it must not. Unset: nothing."
    )


class AgentPolicy(Model):
    """What the agent in the job's pods does beyond running torchrun's workers."""

    inject: bool | None = Field(
        default=None,
        description="Puts the agent's rendezvous into pods whose image has torchrun and nothing of ours, by an init"
        " container. Unset: false, the image brings the agent or does without.",
    )
    start_mode: StartMode | None = Field(
        default=None,
        description="Warm forks workers from a process that has torch loaded, Auto does where that is safe, Cold"
        " starts each anew. Unset: Cold.",
    )
    preload: Annotated[tuple[Module, ...], Field(max_length=32)] | None = Field(
        default=None, description="Further modules that a warm start has loaded. Unset: none. Example: [transformers]."
    )
    restart_window_seconds: Window | None = Field(
        default=None,
        description="elasticPolicy.maxRestarts counts restarts within so many seconds. Unset: all. Example: 3600.",
    )
    hang: Hang | None = Field(default=None, description="When living workers are taken for stuck. Unset: see there.")
    preflight: PreflightMode | None = Field(
        default=None,
        description="What it means if a pod is not fit for the job: Warn says it, Fail ends the pod, Off does not"
        " look. Unset: Warn, and Fail for what cannot work.",
    )
