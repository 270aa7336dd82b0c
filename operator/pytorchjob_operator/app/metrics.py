"""Prometheus metrics: v1's counters of jobs, and the operator's own metrics (docs/monitoring.md).

Label values are namespaces and closed sets, never jobs or pods: the number of series stays bounded.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_operator import __version__
from pytorchjob_operator.names import LossCause

_PREFIX = "pytorchjob_operator"
_V1 = "training_operator_jobs"
_FRAMEWORK = "pytorch"
_STARTS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 3 * 3600, 12 * 3600, 48 * 3600)
"""Buckets, in seconds until a job runs: with a cached image, a pulled image, a new node, a wait in a queue."""

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # one more series per counter, unused


class JobCount(StrEnum):
    """The transitions of jobs that v1's counters count."""

    CREATED = "created"
    DELETED = "deleted"
    SUCCESSFUL = "successful"
    FAILED = "failed"
    RESTARTED = "restarted"


_WHAT = {
    JobCount.CREATED: "Accepted jobs: the operator wrote their first status.",
    JobCount.DELETED: "Accepted jobs that were deleted, by their TTL or by a user.",
    JobCount.SUCCESSFUL: "Jobs that have succeeded.",
    JobCount.FAILED: "Jobs that have failed, for any cause.",
    JobCount.RESTARTED: "Decisions to recreate lost pods of a job; one decision may concern several pods.",
}


class Metrics:
    """One registry per process; nothing is registered globally."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        Info(_PREFIX + "_build", "Version of the operator.", registry=self.registry).info({"version": __version__})
        self._jobs = {
            count: Counter(f"{_V1}_{count}_total", text, ("job_namespace", "framework"), registry=self.registry)
            for count, text in _WHAT.items()
        }
        self._pod_restarts = Counter(
            _PREFIX + "_pod_restarts_total",
            "Pods that were recreated because they failed or were lost, by cause.",
            ("job_namespace", "cause"),
            registry=self.registry,
        )
        self._rounds = Counter(
            _PREFIX + "_rounds_news_total",
            "Events of the coordinator about the rounds of jobs, by reason.",
            ("job_namespace", "reason"),
            registry=self.registry,
        )
        self._starts = Histogram(
            _PREFIX + "_time_to_running_seconds",
            "Seconds from a job's creation or resumption until it ran.",
            buckets=_STARTS,
            registry=self.registry,
        )
        self._requests = Counter(
            _PREFIX + "_api_requests_total",
            "Requests to the API server; code 0 means no response.",
            ("verb", "resource", "code"),
            registry=self.registry,
        )
        self._request_seconds = Histogram(
            _PREFIX + "_api_request_duration_seconds",
            "Seconds from a request to its response, without watches.",
            ("verb", "resource"),
            registry=self.registry,
        )
        self._reconciles = Counter(
            _PREFIX + "_reconcile_total", "Reconcile passes over a job, by result.", ("result",), registry=self.registry
        )
        self._reconcile_seconds = Histogram(
            _PREFIX + "_reconcile_duration_seconds", "Seconds of one reconcile pass.", registry=self.registry
        )

    def on_namespace(self, namespace: str) -> None:
        """Create the namespace's counters at 0: Prometheus sees no increase in a series that starts at 1."""
        for counter in self._jobs.values():
            counter.labels(namespace, _FRAMEWORK)
        for cause in LossCause:
            self._pod_restarts.labels(namespace, cause.value)
        for reason in TrainingReason:
            self._rounds.labels(namespace, reason.value)

    def on_job(self, namespace: str, what: JobCount) -> None:
        """Count one transition of a job."""
        self._jobs[what].labels(namespace, _FRAMEWORK).inc()

    def on_start(self, seconds: float) -> None:
        """Record the seconds from a job's creation or resumption until it ran."""
        self._starts.observe(seconds)

    def on_pod_restart(self, namespace: str, cause: LossCause) -> None:
        """Count one recreated pod."""
        self._pod_restarts.labels(namespace, cause.value).inc()

    def on_round_event(self, namespace: str, reason: TrainingReason) -> None:
        """Count one event of the coordinator."""
        self._rounds.labels(namespace, reason.value).inc()

    def on_request(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """Count one request to the API server."""
        self._requests.labels(verb, resource, str(code)).inc()
        if verb != "watch":
            self._request_seconds.labels(verb, resource).observe(seconds)

    def on_reconcile(self, result: str, seconds: float) -> None:
        """Count one reconcile pass."""
        self._reconciles.labels(result).inc()
        self._reconcile_seconds.observe(seconds)

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Publish a value that is computed at each scrape."""
        Gauge(f"{_PREFIX}_{name}", text, registry=self.registry).set_function(read)

    def gauges(self, name: str, text: str, label: str, read: Callable[[], Mapping[str, int]]) -> None:
        """Publish one value for each value of a label, all computed together at each scrape."""
        self.registry.register(_Gauges(lambda: _family(f"{_PREFIX}_{name}", text, label, read())))


class _Gauges(Collector):
    def __init__(self, read: Callable[[], GaugeMetricFamily]) -> None:
        self._read = read

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield self._read()


def _family(name: str, text: str, label: str, values: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for value, number in values.items():
        family.add_metric((value,), number)
    return family
