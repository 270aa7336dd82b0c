"""The series of single jobs, as kube-state-metrics makes them from the jobs themselves (CustomResourceState).

The operator publishes no series of a job or pod: their number would grow without a bound in its own process. Series
from kube-state-metrics go with their job.
"""

from dataclasses import dataclass, field
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.model import ConditionType

PREFIX = "pytorchjob"
JOB_LABEL = "pytorchjob"
"""The label with the job's name: `job` is Prometheus's own, and kube-state-metrics names the label after the kind."""
_STATES = tuple(kind for kind in ConditionType if kind not in (ConditionType.CONFIG_VALID, ConditionType.DEGRADED))
"""The conditions that can be last in the list, and so the job's State."""
_QUIET = 10
"""Verbosity from which missing fields are logged: at first a status lacks most of its fields."""
_STATUS, _PROGRESS, _ELASTIC = ("status",), ("status", "progress"), ("status", "elastic")
_GOODPUT = ("status", "goodput")


@dataclass(frozen=True, slots=True)
class Series:
    """One metric of a job: where its value is, and its labels beside `namespace` and `pytorchjob`."""

    name: str
    text: str
    path: tuple[str, ...]
    value: tuple[str, ...] = ()
    """Path of the value below each element of a list or map at `path`."""
    zero: bool = False
    """An unset field is 0; otherwise it has no series."""
    key: str = ""
    """The label that gets the key of a map at `path`."""
    element_labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Labels from paths below each element."""
    job_labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Labels from paths below the job."""

    @property
    def full_name(self) -> str:
        """The metric's name in Prometheus."""
        return f"{PREFIX}_{self.name}"

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the configuration."""
        gauge: dict[str, Any] = {"path": [*self.path]}
        if self.key:
            gauge["labelFromKey"] = self.key
        if self.element_labels:
            gauge["labelsFromPath"] = _lists(self.element_labels)
        if self.value:
            gauge["valueFrom"] = [*self.value]
        if self.zero:
            gauge["nilIsZero"] = True
        entry: dict[str, Any] = {"name": self.name, "help": self.text}
        if self.job_labels:
            entry["labelsFromPath"] = _lists(self.job_labels)
        return {**entry, "each": {"type": "Gauge", "gauge": gauge}}


SERIES = (
    Series("created_timestamp_seconds", "When the job was created.", ("metadata", "creationTimestamp")),
    Series("start_timestamp_seconds", "When the operator started or resumed the job.", (*_STATUS, "startTime")),
    Series("completion_timestamp_seconds", "When the job succeeded or failed.", (*_STATUS, "completionTime")),
    Series("suspended", "1 if runPolicy.suspend is true.", ("spec", "runPolicy", "suspend"), zero=True),
    Series(
        "condition",
        "1 for each condition that is true, 0 for each that is not.",
        (*_STATUS, "conditions"),
        value=("status",),
        element_labels={"type": ("type",), "reason": ("reason",)},
    ),
    Series(
        "replicas_desired",
        "Requested pods.",
        ("spec", "pytorchReplicaSpecs"),
        value=("replicas",),
        key="replica_type",
    ),
    Series(
        "replicas_ready",
        "Pods that run.",
        (*_STATUS, "replicaStatuses"),
        value=("active",),
        zero=True,
        key="replica_type",
    ),
    Series("pod_restarts", "Pods that failed and were replaced.", (*_STATUS, "restarts"), zero=True),
    Series("worker_restarts", "Restarts of workers inside their pods.", (*_ELASTIC, "restarts"), zero=True),
    Series(
        "last_restart_timestamp_seconds",
        "When workers were last restarted inside their pods.",
        (*_ELASTIC, "lastRestart", "time"),
        job_labels={"reason": (*_ELASTIC, "lastRestart", "reason")},
    ),
    Series("elastic_members", "Pods that train together.", (*_ELASTIC, "members")),
    Series("elastic_world_size", "Worker processes that train together.", (*_ELASTIC, "worldSize")),
    Series("progress_step", "Steps done.", (*_PROGRESS, "step")),
    Series("progress_steps_total", "Steps to do.", (*_PROGRESS, "total")),
    Series("progress_percent", "Percent complete.", (*_PROGRESS, "percent")),
    Series("progress_remaining_seconds", "Remaining time at the current speed.", (*_PROGRESS, "remainingSeconds")),
    Series("progress_timestamp_seconds", "When the operator last recorded progress.", (*_PROGRESS, "time")),
    Series(
        "time_spent_seconds",
        "Seconds of the job's wall clock by class, up to time_spent_timestamp_seconds.",
        (*_GOODPUT, "seconds"),
        key="class",
    ),
    Series(
        "time_spent_timestamp_seconds",
        "Up to when the job's time is booked. The time since then belongs to the class in the label.",
        (*_GOODPUT, "time"),
        job_labels={"class": (*_GOODPUT, "current")},
    ),
    Series(
        "goodput_percent",
        "The percentage of the job's time in which workers ran and no loss is known.",
        (*_GOODPUT, "percent"),
    ),
    Series(
        "interruptions",
        "Failures and losses that ended a round, or without whose pod it went on.",
        (*_GOODPUT, "interruptions"),
        zero=True,
    ),
    Series("progress_metric", "A number that the script reports.", (*_PROGRESS, "metrics"), key="metric"),
)
STATE = f"{PREFIX}_state"
"""The state set beside the series above: 1 for the type of the job's latest condition."""
NAMES = (STATE, *(series.full_name for series in SERIES))


def custom_resource_state() -> dict[str, Any]:
    """Return the configuration for kube-state-metrics."""
    resource = {
        "groupVersionKind": {"group": names.GROUP, "version": names.VERSION, "kind": names.KIND},
        "metricNamePrefix": PREFIX,
        "errorLogV": _QUIET,
        "labelsFromPath": _lists({"namespace": ("metadata", "namespace"), JOB_LABEL: ("metadata", "name")}),
        "metrics": [_state(), *(series.to_dict() for series in SERIES)],
    }
    return {"kind": "CustomResourceStateMetrics", "spec": {"resources": [resource]}}


def _state() -> dict[str, Any]:
    latest = [*_STATUS, "conditions", "-1", "type"]
    states = {"labelName": "state", "path": latest, "list": [kind.value for kind in _STATES]}
    text = "1 for the type of the job's latest condition."
    return {
        "name": STATE.removeprefix(f"{PREFIX}_"),
        "help": text,
        "each": {"type": "StateSet", "stateSet": states},
    }


def _lists(paths: dict[str, tuple[str, ...]]) -> dict[str, list[str]]:
    return {label: [*path] for label, path in paths.items()}
