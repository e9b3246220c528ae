"""The series of batches."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from penstock.router.store.records import BatchStatus


class BatchMetrics:
    """Holds the series in `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._batches = Gauge("penstock_batches", "Batches in the store, by their state", ["status"],
                              registry=registry, multiprocess_mode="mostrecent")
        lines = Counter("penstock_batch_lines", "Lines of batches that were answered", ["outcome"], registry=registry)
        self._completed, self._failed = lines.labels("completed"), lines.labels("failed")
        self._store_failures = Counter(
            "penstock_store_failures", "Reads and writes of the store that have failed", registry=registry)
        self.count(dict.fromkeys(BatchStatus, 0))

    def count(self, batches: Mapping[BatchStatus, int]) -> None:
        """Sets how many batches there are in each state."""
        for status, number in batches.items():
            self._batches.labels(status.value).set(number)

    def answered(self, has_failed: bool) -> None:
        """Counts a line whose answer is stored."""
        (self._failed if has_failed else self._completed).inc()

    def store_failed(self) -> None:
        """Counts a read or a write of the store that has failed."""
        self._store_failures.inc()
