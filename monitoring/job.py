"""The dashboard of a single job, from the series of kube-state-metrics."""

from monitoring.panels import Dashboard, Kind, Panel, Query, Variable

_CHOSEN = 'namespace="$namespace", pytorchjob="$pytorchjob"'


def _of(metric: str, by: str = "", more: str = "") -> str:
    """Return a series of the chosen job: the largest value, if several kube-state-metrics show it."""
    labels = f", {by}" if by else ""
    return f"max by (pytorchjob{labels}) (pytorchjob_{metric}{{{_CHOSEN}{more}}})"


_STATE = (
    Panel(
        "State",
        "As in `kubectl get ptj`.",
        (Query(_of("state", "state") + " == 1", "{{state}}"),),
        Kind.STAT,
        width=6,
        name_only=True,
    ),
    Panel(
        "Suspended",
        "Whether runPolicy.suspend is true.",
        (Query(_of("suspended")),),
        Kind.STAT,
        width=6,
        words=((0, "no"), (1, "yes")),
    ),
    Panel(
        "Running for",
        "Since the start or the last resumption.",
        (Query("time() - " + _of("start_timestamp_seconds")),),
        Kind.STAT,
        "s",
        6,
    ),
    Panel(
        "Since the last restart of workers",
        "By its reason: WorkersHang or WorkerFailed. No value: no restart.",
        (Query("time() - " + _of("last_restart_timestamp_seconds", "reason"), "{{reason}}"),),
        Kind.STAT,
        "s",
        6,
    ),
    Panel(
        "Conditions",
        "Waiting and Degraded have a reason: docs/monitoring.md explains each one.",
        (Query(_of("condition", "type, reason"), "{{type}} {{reason}}"),),
        Kind.TIMELINE,
        width=24,
    ),
)
_PROGRESS = (
    Panel("Complete", "Percent, as the script reports.", (Query(_of("progress_percent")),), Kind.STAT, "percent", 6),
    Panel("Remaining", "At the current speed.", (Query(_of("progress_remaining_seconds")),), Kind.STAT, "s", 6),
    Panel(
        "Since the last progress",
        "The status is at most a minute old. Much more: no step is done.",
        (Query("time() - " + _of("progress_timestamp_seconds")),),
        Kind.STAT,
        "s",
        6,
    ),
    Panel("Steps to do", "As the script reports.", (Query(_of("progress_steps_total")),), Kind.STAT, width=6),
    Panel(
        "Steps done",
        "A step back is a restart from a checkpoint.",
        (Query(_of("progress_step"), "step"),),
    ),
    Panel(
        "Steps per second",
        "Over five minutes; 0 while the steps before a restart are repeated.",
        (
            Query(
                f"clamp_min(max by (pytorchjob) (deriv(pytorchjob_progress_step{{{_CHOSEN}}}[5m])), 0)",
                "steps per second",
            ),
        ),
    ),
    Panel("Metrics", "Numbers that the script reports.", (Query(_of("progress_metric", "metric"), "{{metric}}"),)),
)
_PODS = (
    Panel(
        "Pods",
        "Those that run beside those that are wanted.",
        (
            Query(_of("replicas_ready", "replica_type", ', replica_type!=""'), "{{replica_type}} ready"),
            Query(_of("replicas_desired", "replica_type"), "{{replica_type}} desired"),
        ),
    ),
    Panel(
        "Members of the round",
        "Fewer members than pods: a pod has not joined, or was lost.",
        (Query(_of("elastic_members"), "members"), Query(_of("elastic_world_size"), "worker processes")),
    ),
    Panel(
        "Restarts",
        "Pods that were created again, and restarts of workers inside their pods.",
        (Query(_of("pod_restarts"), "pods"), Query(_of("worker_restarts"), "workers")),
    ),
)
JOB = Dashboard(
    "pytorchjob-job",
    "PyTorchJob / Job",
    (
        Variable("namespace", "label_values(pytorchjob_created_timestamp_seconds, namespace)"),
        Variable(
            "pytorchjob", 'label_values(pytorchjob_created_timestamp_seconds{namespace="$namespace"}, pytorchjob)'
        ),
    ),
    {"State": _STATE, "Progress": _PROGRESS, "Pods": _PODS},
)
