"""The series of a model whose requests servers elsewhere answer, by the names that other models' have."""

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric

_DURATIONS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class SourceMetrics:
    """Holds the series in a registry of their own. Durations are in seconds."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter("tgi_request_count", "Requests to generate", registry=self._registry)
        self._successes = Counter("tgi_request_success", "Requests answered to the end", registry=self._registry)
        self._failures = Counter("tgi_request_failure", "Requests refused, failed or left", ["err"],
                                 registry=self._registry)
        self._answers = Counter("penstock_requests", "Requests answered, by HTTP status; 499 if left",
                                ["route", "status"], registry=self._registry)
        self._asked = Counter("penstock_source_requests", "Requests sent to servers elsewhere, and what became of them",
                              ["source", "outcome"], registry=self._registry)
        self._duration = Histogram("penstock_source_duration_seconds", "From a request to a server elsewhere to the "
                                   "end of its answer", ["source"], buckets=_DURATIONS, registry=self._registry)

    def requested(self) -> None:
        """Counts a request."""
        self._requests.inc()

    def succeeded(self) -> None:
        """Counts a request that was answered to the end."""
        self._successes.inc()

    def failed(self, kind: str) -> None:
        """Counts a request that was not."""
        self._failures.labels(kind).inc()

    def answered(self, route: str, status: int) -> None:
        """Counts a request that was answered, or left by its client."""
        self._answers.labels(route, status).inc()

    def asked(self, source: str, outcome: str, took: float) -> None:
        """Counts the outcome of a request to one server."""
        self._asked.labels(source, outcome).inc()
        self._duration.labels(source).observe(took)

    def told(self) -> list[Metric]:
        """Returns the series."""
        return [*self._registry.collect()]
