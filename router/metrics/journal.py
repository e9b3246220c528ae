"""The series of the log of requests."""

from prometheus_client import CollectorRegistry, Counter


class JournalMetrics:
    """Holds the series in `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        records = Counter("penstock_request_log_records", "Records of requests: written, or dropped, since more came "
                          "than could be written", ["outcome"], registry=registry)
        self._written, self._dropped = records.labels("written"), records.labels("dropped")
        self._failures = Counter("penstock_request_log_failures", "Writes of records that have failed, which are tried "
                                 "again", registry=registry)

    def written(self, number: int) -> None:
        """Counts records that are stored."""
        self._written.inc(number)

    def dropped(self, number: int = 1) -> None:
        """Counts records that nobody will read."""
        self._dropped.inc(number)

    def failed(self) -> None:
        """Counts a write that has failed."""
        self._failures.inc()
