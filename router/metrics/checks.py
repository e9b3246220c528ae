"""The series of checks of answers."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter


class CheckMetrics:
    """Holds the series in `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        checked = Counter("penstock_checked_answers", "Answers that were checked: passed, failed, or broken, since a "
                          "check could not be run", ["outcome"], registry=registry)
        self._passed, self._failed, self._broken = (checked.labels(name) for name in ("passed", "failed", "broken"))
        self._findings = Counter("penstock_output_findings", "Answers that have failed a check, by its name", ["check"],
                                 registry=registry)
        self._retries = Counter("penstock_output_retries", "Answers that were made anew, since those before them had "
                                "failed a check", registry=registry)

    def knows(self, checks: Iterable[str]) -> None:
        """Has the series of these checks begin at 0."""
        for check in checks:
            self._findings.labels(check)

    def passed(self) -> None:
        """Counts an answer that has passed all checks."""
        self._passed.inc()

    def found(self, check: str, is_broken: bool) -> None:
        """Counts an answer that has failed a check, or one that could not be checked."""
        (self._broken if is_broken else self._failed).inc()
        if check:
            self._findings.labels(check).inc()

    def retried(self) -> None:
        """Counts an answer that is made anew."""
        self._retries.inc()
