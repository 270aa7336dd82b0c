"""The alerts, each with its meaning and its page in docs/runbooks/."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_operator.model import ConditionType as Kind

RUNBOOKS = "docs/runbooks"
"""The folder of the pages. The chart can put an address of your own before their names."""
_OP = "pytorchjob_operator"
_JOB = "namespace, pytorchjob"


class Severity(StrEnum):
    """How urgent an alert is."""

    CRITICAL = "critical"
    """Now: jobs are not served."""
    WARNING = "warning"
    """Today: a job or a part of the operator needs attention."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert; `after` is the time for which its expression must hold."""

    name: str
    expr: str
    summary: str
    description: str
    after: str = "0m"
    severity: Severity = Severity.WARNING

    @property
    def page(self) -> str:
        """Path of its runbook page in this repository."""
        return f"{RUNBOOKS}/{self.name}.md"

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.after,
            "labels": {"severity": self.severity.value},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": self.page,
            },
        }


def _job(metric: str, labels: str = "") -> str:
    """Return a series of each job: the largest value, if several kube-state-metrics show it."""
    return f"max by ({_JOB}) (pytorchjob_{metric}{f'{{{labels}}}' if labels else ''})"


def _true(*kinds: Kind) -> str:
    """The jobs for which one of these conditions is true."""
    return _job("condition", "type=~" + _quoted("|".join(kinds))) + " == 1"


def _quoted(text: str) -> str:
    return f'"{text}"'


OPERATOR = (
    Alert(
        "PyTorchJobOperatorDown",
        f"absent({_OP}_leader)",
        "No operator of PyTorchJobs reports metrics.",
        "Prometheus has no metrics of any operator. Running jobs train on; no job starts, restarts a pod, or ends.",
        "5m",
        Severity.CRITICAL,
    ),
    Alert(
        "PyTorchJobOperatorWithoutLeader",
        f"sum by (namespace) ({_OP}_leader) == 0",
        "No operator in {{ $labels.namespace }} leads.",
        "Operators run and none holds the Lease. Running jobs train on; no job starts, restarts a pod, or ends.",
        "2m",
        Severity.CRITICAL,
    ),
    Alert(
        "PyTorchJobOperatorWatchStale",
        f"max by (namespace, pod, instance) ({_OP}_watch_last_contact_age_seconds) > 60",
        "An operator in {{ $labels.namespace }} does not see the cluster.",
        "For {{ $value | humanizeDuration }} a watch of {{ $labels.pod }} has received nothing from the API server.",
        "1m",
        Severity.CRITICAL,
    ),
    Alert(
        "PyTorchJobOperatorQueueGrows",
        f"max by (namespace, pod, instance) (min_over_time({_OP}_workqueue_depth[10m])) > 10",
        "The operator in {{ $labels.namespace }} does not keep up.",
        "At least {{ $value }} jobs waited in the queue of {{ $labels.pod }} at each moment of the last ten minutes.",
        "5m",
    ),
    Alert(
        "PyTorchJobOperatorFailsToReconcile",
        f'sum by (namespace) (rate({_OP}_reconcile_total{{result="error"}}[10m])) > 0.1',
        "Passes of the operator in {{ $labels.namespace }} fail.",
        "{{ $value | humanize }} passes a second end with an error. Their jobs wait for the next attempt.",
        "10m",
    ),
)
COORDINATOR = (
    Alert(
        "PyTorchJobCoordinatorRefuses",
        f"sum by (namespace) (increase({_OP}_coordinator_refusals[15m])) > 10",
        "The coordinator in {{ $labels.namespace }} refuses connections.",
        "It refused {{ $value | humanize }} connections in 15 minutes, of agents or of other clients.",
    ),
    Alert(
        "PyTorchJobCoordinatorCertificateExpires",
        f"max by (namespace) ({_OP}_coordinator_certificate_expiry_timestamp_seconds > 0) - time() < 14 * 86400",
        "The coordinator's certificate in {{ $labels.namespace }} expires.",
        "It expires in {{ $value | humanizeDuration }}. Agents then no longer reach the coordinator.",
        "1h",
    ),
    Alert(
        "PyTorchJobCoordinatorDefect",
        f"sum by (namespace) (increase({_OP}_coordinator_invariant_violations[1h])) > 0",
        "The coordinator in {{ $labels.namespace }} found a defect of its own.",
        "A decision about a round violated an invariant and was not carried out. The job is stalled.",
    ),
)
_HUNG = _job("last_restart_timestamp_seconds", "reason=" + _quoted(TrainingReason.WORKERS_HANG))
JOBS = (
    Alert(
        "PyTorchJobPending",
        f"{_true(Kind.CREATED)} unless on ({_JOB}) {_true(Kind.RUNNING, Kind.SUCCEEDED, Kind.FAILED, Kind.SUSPENDED)}",
        "{{ $labels.namespace }}/{{ $labels.pytorchjob }} does not run.",
        "The job has waited for its pods for 30 minutes: at its start or after a restart.",
        "30m",
    ),
    Alert(
        "PyTorchJobRestartLoop",
        f"max by ({_JOB}) (increase(pytorchjob_pod_restarts[30m]))"
        f" + max by ({_JOB}) (increase(pytorchjob_worker_restarts[30m])) > 5",
        "{{ $labels.namespace }}/{{ $labels.pytorchjob }} restarts again and again.",
        "Pods or workers of the job were restarted {{ $value | humanize }} times in 30 minutes.",
    ),
    Alert(
        "PyTorchJobProgressStalled",
        f"time() - {_job('progress_timestamp_seconds')} > 1800 and on ({_JOB}) {_true(Kind.RUNNING)}",
        "{{ $labels.namespace }}/{{ $labels.pytorchjob }} does no steps.",
        "The job runs, and the operator has recorded no new step for {{ $value | humanizeDuration }}.",
        "5m",
    ),
    Alert(
        "PyTorchJobHangs",
        f"time() - {_HUNG} < 900",
        "Workers of {{ $labels.namespace }}/{{ $labels.pytorchjob }} hung.",
        "The agents stopped hung workers {{ $value | humanizeDuration }} ago, and started them again.",
    ),
)
GROUPS = {"pytorchjob-operator": OPERATOR, "pytorchjob-coordinator": COORDINATOR, "pytorchjob-jobs": JOBS}
ALERTS = tuple(alert for group in GROUPS.values() for alert in group)


def rules() -> dict[str, Any]:
    """Return all groups of rules, in the format of a PrometheusRule and of a Prometheus file."""
    groups = [{"name": name, "rules": [alert.to_dict() for alert in group]} for name, group in GROUPS.items()]
    return {"groups": groups}
