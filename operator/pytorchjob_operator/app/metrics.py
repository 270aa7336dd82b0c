"""Prometheus metrics of the operator itself: is it the leader, does it see, is it keeping up, what does it ask for."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector

from pytorchjob_operator import __version__

_PREFIX = "pytorchjob_operator"


class Metrics:
    """One registry per process; nothing is registered globally."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        Info(_PREFIX + "_build", "Version of the operator.", registry=self.registry).info({"version": __version__})
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

    def gauge_by_resource(self, name: str, text: str, reads: Mapping[str, Callable[[], float]]) -> None:
        """Publish one value per kind of object, read when asked for."""
        gauge = Gauge(f"{_PREFIX}_{name}", text, ("resource",), registry=self.registry)
        for resource, read in reads.items():
            gauge.labels(resource).set_function(read)
