"""Prometheus metrics: v1's counters of jobs, and what the operator itself does and sees (docs/monitoring.md).

Labels are namespaces and closed sets, never jobs or pods: the number of series stays bounded.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pytorchjob_operator import __version__
from pytorchjob_operator.names import Cause
from pytorchjob_operator.rounds.state import Word

_PREFIX = "pytorchjob_operator"
_V1 = "training_operator_jobs"
_FRAMEWORK = "pytorch"
_STARTS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 3 * 3600, 12 * 3600, 48 * 3600)
"""Seconds until a job runs: an image that is there, an image to pull, a node to start, a queue to wait in."""

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # a series per counter that nobody reads


class JobCount(StrEnum):
    """What v1's counters count of jobs."""

    CREATED = "created"
    DELETED = "deleted"
    SUCCESSFUL = "successful"
    FAILED = "failed"
    RESTARTED = "restarted"


_WHAT = {
    JobCount.CREATED: "Jobs that were taken up: their first status was written.",
    JobCount.DELETED: "Jobs that were deleted after they had been taken up, by their TTL or by somebody.",
    JobCount.SUCCESSFUL: "Jobs that have succeeded.",
    JobCount.FAILED: "Jobs that have failed, whatever the cause.",
    JobCount.RESTARTED: "Decisions to make lost pods of a job again, however many pods each is about.",
}


class Metrics:
    """One registry per process; nothing is registered globally."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        Info(_PREFIX + "_build", "Version of the operator.", registry=self.registry).info({"version": __version__})
        self._jobs = {
            one: Counter(f"{_V1}_{one}_total", text, ("job_namespace", "framework"), registry=self.registry)
            for one, text in _WHAT.items()
        }
        self._pod_restarts = Counter(
            _PREFIX + "_pod_restarts_total",
            "Pods that are made again because they failed or were taken away, by cause.",
            ("job_namespace", "cause"),
            registry=self.registry,
        )
        self._rounds = Counter(
            _PREFIX + "_rounds_news_total",
            "What the coordinator tells of the rounds of jobs, by reason.",
            ("job_namespace", "reason"),
            registry=self.registry,
        )
        self._starts = Histogram(
            _PREFIX + "_time_to_running_seconds",
            "Seconds from a job's creation, or its resume, until it ran.",
            buckets=_STARTS,
            registry=self.registry,
        )
        self._requests = Counter(
            _PREFIX + "_api_requests_total",
            "Requests to the API server; code 0 means no answer.",
            ("verb", "resource", "code"),
            registry=self.registry,
        )
        self._request_seconds = Histogram(
            _PREFIX + "_api_request_duration_seconds",
            "Seconds from a request to its answer, watches left out.",
            ("verb", "resource"),
            registry=self.registry,
        )
        self._reconciles = Counter(
            _PREFIX + "_reconcile_total", "Looks at a job, by result.", ("result",), registry=self.registry
        )
        self._reconcile_seconds = Histogram(
            _PREFIX + "_reconcile_duration_seconds", "Seconds of one look at a job.", registry=self.registry
        )

    def on_namespace(self, namespace: str) -> None:
        """Begin to count at 0: Prometheus sees no increase in a series that begins with its first count."""
        for counter in self._jobs.values():
            counter.labels(namespace, _FRAMEWORK)

    def on_job(self, namespace: str, what: JobCount) -> None:
        """Count one edge in the life of a job."""
        self._jobs[what].labels(namespace, _FRAMEWORK).inc()

    def on_start(self, seconds: float) -> None:
        """A job runs, so long after it was made or resumed."""
        self._starts.observe(seconds)

    def on_pod_restart(self, namespace: str, cause: Cause) -> None:
        """Count one pod that is made again."""
        self._pod_restarts.labels(namespace, cause.value).inc()

    def on_round_news(self, namespace: str, reason: Word) -> None:
        """Count one thing that the coordinator tells."""
        self._rounds.labels(namespace, reason.value).inc()

    def on_request(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """Count one request to the API server."""
        self._requests.labels(verb, resource, str(code)).inc()
        if verb != "watch":
            self._request_seconds.labels(verb, resource).observe(seconds)

    def on_reconcile(self, result: str, seconds: float) -> None:
        """Count one look at a job."""
        self._reconciles.labels(result).inc()
        self._reconcile_seconds.observe(seconds)

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Publish a value that is read when it is asked for."""
        Gauge(f"{_PREFIX}_{name}", text, registry=self.registry).set_function(read)

    def gauges(self, name: str, text: str, label: str, read: Callable[[], Mapping[str, int]]) -> None:
        """Publish one value for each value of a label, all read at once when they are asked for."""
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
