"""What all parts of the resource share: frozen models with camelCase names, times, bounded types, the enumerations.

Stored objects may have fields that this version does not know, so the models ignore unknown fields. The API server
and `model.load` refuse them.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

INT32_MAX = 2**31 - 1
_NUMBER_MAX = 1e15
_INT64_MAX = 2**53 - 1
"""The largest number that JSON readers agree on."""


class Model(BaseModel):
    """Base of every part of a PyTorchJob: immutable, named as the API names it."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)

    def to_api(self) -> dict[str, Any]:
        """Return the object as the API server takes it: camelCase, absent where unset, times in RFC 3339."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def _utc_seconds(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Time = Annotated[
    datetime,
    Field(json_schema_extra={"format": "date-time", "maxLength": 64}),
    PlainSerializer(_utc_seconds, return_type=str, when_used="json"),
]
"""An instant; written as the API server writes it, in whole seconds and UTC."""


def _utc_milliseconds(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


ExactTime = Annotated[
    datetime,
    Field(json_schema_extra={"format": "date-time", "maxLength": 64}),
    PlainSerializer(_utc_milliseconds, return_type=str, when_used="json"),
]
"""An instant to which seconds are added: written in milliseconds and UTC."""

Seconds32 = Annotated[int, Field(ge=0, le=INT32_MAX, json_schema_extra={"format": "int32"})]
Seconds64 = Annotated[int, Field(ge=0, le=_INT64_MAX, json_schema_extra={"format": "int64"})]
Count = Annotated[int, Field(ge=0, le=INT32_MAX, json_schema_extra={"format": "int32"})]
Generation = Annotated[int, Field(ge=0, le=_INT64_MAX, json_schema_extra={"format": "int64"})]
Number = Annotated[float, Field(ge=-_NUMBER_MAX, le=_NUMBER_MAX, allow_inf_nan=False)]
CRD_DEFAULT = "x-crd-default"
"""Marks, in a field's JSON schema, the few defaults that the API server stores."""
POD_TEMPLATE = "x-crd-pod-template"
"""Marks the field whose schema is the API server's own PodTemplateSpec."""

QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
Quantity = Annotated[
    int | str,
    Field(json_schema_extra={"pattern": QUANTITY_PATTERN, "maxLength": 64, "minimum": 0, "maximum": _INT64_MAX}),
]

Short = Annotated[str, Field(max_length=253)]
Long = Annotated[str, Field(max_length=1024)]


class RestartPolicy(StrEnum):
    """What happens to a replica whose container ended; the empty string is v1's way to write the default."""

    UNSET = ""
    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"


class CleanPodPolicy(StrEnum):
    """Which pods are deleted when the job has ended; the empty string is v1's way to write the default."""

    UNSET = ""
    NONE = "None"
    RUNNING = "Running"
    ALL = "All"


class ManagedBy(StrEnum):
    """The controller that reconciles a job."""

    OPERATOR = "kubeflow.org/training-operator"
    MULTIKUEUE = "kueue.x-k8s.io/multikueue"


class ConditionType(StrEnum):
    """v1's condition types, ReplicaFailure with the meaning that it has for a ReplicaSet, and three of our own."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUCCEEDED = "Succeeded"
    SUSPENDED = "Suspended"
    FAILED = "Failed"
    REPLICA_FAILURE = "ReplicaFailure"
    WAITING = "Waiting"
    CONFIG_VALID = "ConfigValid"
    DEGRADED = "Degraded"


class ConditionStatus(StrEnum):
    """Whether a condition is true now."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"
