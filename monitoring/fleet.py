"""The dashboard of all jobs and of the operator."""

from monitoring.panels import Dashboard, Kind, Panel, Query, Variable

_CHOSEN = 'job_namespace=~"$namespace"'
_OP = "pytorchjob_operator"
_DAY = 86400


def _increase(metric: str, by: str = "") -> str:
    return f"sum{f' by ({by})' if by else ''} (increase({metric}{{{_CHOSEN}}}[$__rate_interval]))"


def _quantile(share: float, metric: str, by: str = "", window: str = "$__rate_interval") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket[{window}])))"


_PHASES = f"sum by (phase) (max by (namespace, phase) ({_OP}_jobs))"
"""Leader and standby both count the jobs of a namespace: the query takes the larger number, not the sum."""

_JOBS = (
    Panel("Jobs by phase, now", "Existing jobs.", (Query(_PHASES, "{{phase}}"),), Kind.STAT, width=24),
    Panel(
        "Jobs by phase", "Pending that only grows: see the queue, and the jobs below.", (Query(_PHASES, "{{phase}}"),)
    ),
    Panel(
        "Jobs that began and ended",
        "Counted by the leader.",
        tuple(
            Query(_increase(f"training_operator_jobs_{what}_total"), what)
            for what in ("created", "successful", "failed", "deleted")
        ),
    ),
    Panel(
        "Time to Running",
        "From creation or resumption to Running, over the last hour.",
        (
            Query(_quantile(0.5, f"{_OP}_time_to_running_seconds", window="1h"), "median"),
            Query(_quantile(0.9, f"{_OP}_time_to_running_seconds", window="1h"), "90 %"),
        ),
        unit="s",
    ),
    Panel(
        "Pods created again",
        "By the cause of their loss. OOMKilled: raise the memory limit. NodeLost: check the nodes.",
        (Query(_increase(f"{_OP}_pod_restarts_total", "cause"), "{{cause}}"),),
    ),
    Panel(
        "Events of rounds",
        "WorkersHang and WorkerFailed are faults of jobs. Regrouping is a change of members.",
        (Query(_increase(f"{_OP}_rounds_news_total", "reason"), "{{reason}}"),),
    ),
    Panel(
        "Decisions to restart",
        "One for each group of pods that fail together.",
        (Query(_increase("training_operator_jobs_restarted_total", "job_namespace"), "{{job_namespace}}"),),
    ),
    Panel(
        "Jobs",
        "State of each job, from kube-state-metrics.",
        (Query('max by (namespace, pytorchjob, state) (pytorchjob_state{namespace=~"$namespace"} == 1)'),),
        Kind.TABLE,
        width=12,
    ),
    Panel(
        "Longest without progress",
        "Seconds since the operator last recorded progress, for running jobs that report some.",
        (
            Query(
                "topk(10, time() - max by (namespace, pytorchjob)"
                ' (pytorchjob_progress_timestamp_seconds{namespace=~"$namespace"})'
                " and on (namespace, pytorchjob)"
                ' max by (namespace, pytorchjob) (pytorchjob_condition{type="Running"}) == 1)',
                "{{namespace}}/{{pytorchjob}}",
            ),
        ),
        unit="s",
        width=12,
    ),
)
_OPERATOR = (
    Panel("Leaders", "1 in each namespace of an operator.", (Query(f"sum by (namespace) ({_OP}_leader)"),), Kind.STAT),
    Panel(
        "Oldest contact of a watch",
        "Above 30 s the operator does not know the present state.",
        (Query(f"max by (namespace, pod) ({_OP}_watch_last_contact_age_seconds)", "{{pod}}"),),
        unit="s",
    ),
    Panel(
        "Jobs in the queue",
        "More than 0 for minutes: the operator does not keep up.",
        (Query(f"max by (namespace, pod) ({_OP}_workqueue_depth)", "{{pod}}"),),
    ),
    Panel(
        "Passes",
        "Per second. Errors are tried again with growing pauses.",
        (Query(f"sum by (result) (rate({_OP}_reconcile_total[$__rate_interval]))", "{{result}}"),),
        unit="ops",
    ),
    Panel(
        "Duration of a pass",
        "Its writes included.",
        (
            Query(_quantile(0.5, f"{_OP}_reconcile_duration_seconds"), "median"),
            Query(_quantile(0.99, f"{_OP}_reconcile_duration_seconds"), "99 %"),
        ),
        unit="s",
    ),
    Panel(
        "Requests to the API server",
        "By code; 0 means no answer. 409: another client wrote first. 429: the server limits the operator.",
        (Query(f"sum by (code) (rate({_OP}_api_requests_total[$__rate_interval]))", "{{code}}"),),
        unit="reqps",
    ),
    Panel(
        "Duration of a request",
        "The slowest hundredth, watches left out.",
        (Query(_quantile(0.99, f"{_OP}_api_request_duration_seconds", "verb"), "{{verb}}"),),
        unit="s",
    ),
    Panel(
        "Agents connected",
        "To the leader's coordinator.",
        (Query(f"max by (namespace) ({_OP}_coordinator_connections)"),),
    ),
    Panel(
        "Connections refused or displaced",
        "Of agents and other clients. Displaced connections are a sign of a flood.",
        (
            Query(f"sum(increase({_OP}_coordinator_refusals[$__rate_interval]))", "refused"),
            Query(f"sum(increase({_OP}_coordinator_displaced[$__rate_interval]))", "displaced"),
        ),
    ),
    Panel(
        "Certificate valid for",
        "The operator renews its own a year after it came into use, long before it expires.",
        (
            Query(
                f"(max by (namespace) ({_OP}_coordinator_certificate_expiry_timestamp_seconds > 0) - time()) / {_DAY}",
            ),
        ),
        Kind.STAT,
        unit="d",
    ),
    Panel(
        "Violated invariants, dropped events",
        "A violated invariant is a defect of the operator: report it.",
        (
            Query(f"sum({_OP}_coordinator_invariant_violations)", "violations"),
            Query(f"sum({_OP}_events_dropped)", "dropped events"),
        ),
    ),
    Panel("Pods in the cache", "Of all jobs.", (Query(f"max by (namespace) ({_OP}_pods)"),)),
    Panel(
        "Memory of the operator",
        "By version. The limit in the chart decides how many agents may connect.",
        (
            Query(
                f"process_resident_memory_bytes * on (job, instance) group_left (version) {_OP}_build_info",
                "{{instance}} {{version}}",
            ),
        ),
        unit="bytes",
        width=12,
    ),
    Panel(
        "CPU of the operator",
        "Cores.",
        (
            Query(
                "rate(process_cpu_seconds_total[$__rate_interval])"
                f" * on (job, instance) group_left (version) {_OP}_build_info",
                "{{instance}} {{version}}",
            ),
        ),
        width=12,
    ),
)
FLEET = Dashboard(
    "pytorchjob-fleet",
    "PyTorchJob / Fleet",
    (Variable("namespace", "label_values(training_operator_jobs_created_total, job_namespace)", many=True),),
    {"Jobs": _JOBS, "Operator": _OPERATOR},
)
