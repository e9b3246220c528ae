"""The series of the cache of answers."""

from prometheus_client import CollectorRegistry, Counter, Gauge

HIT, MISS, SHARED, SKIPPED = "hit", "miss", "shared", "skipped"


class CacheMetrics:
    """Holds the series in `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        asked = Counter("penstock_response_cache_requests", "Answers by whether they were kept: hit, miss, shared with "
                        "an equal request in flight, or skipped, since they are not repeatable or were not to be",
                        ["outcome"], registry=registry)
        self._asked = {outcome: asked.labels(outcome) for outcome in (HIT, MISS, SHARED, SKIPPED)}
        self._failures = Counter("penstock_response_cache_failures",
                                 "Reads and writes of kept answers that failed or came too late", registry=registry)
        self._dropped = Counter("penstock_response_cache_dropped", "Answers that were not kept: too large, or too many "
                                "at once", registry=registry)
        self._kept_bytes = Counter("penstock_response_cache_kept_bytes", "Bytes of answers that were kept",
                                   registry=registry)
        self._bytes = Gauge("penstock_response_cache_bytes", "Bytes of the answers that are kept in memory, or in the "
                            "database when it was last looked at", registry=registry, multiprocess_mode="sum")

    def asked(self, outcome: str) -> None:
        """Counts an answer that was looked for, or not."""
        self._asked[outcome].inc()

    def failed(self) -> None:
        """Counts a read or a write that failed or came too late."""
        self._failures.inc()

    def dropped(self) -> None:
        """Counts an answer that is not kept."""
        self._dropped.inc()

    def kept(self, size: int) -> None:
        """Counts the bytes of an answer that is kept."""
        self._kept_bytes.inc(size)

    def holds(self, size: int) -> None:
        """Sets how many bytes there are."""
        self._bytes.set(size)
