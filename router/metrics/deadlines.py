"""The series of deadlines."""

from prometheus_client import CollectorRegistry, Counter, Histogram

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
PROMISED, REFUSED, KEPT, MISSED = "promised", "refused", "kept", "missed"


class DeadlineMetrics:
    """Holds the series in `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        answers = Counter("penstock_deadlines", "Answers with a deadline, by whether it was promised or refused, and "
                          "those that came then by whether it was kept or missed", ["outcome"], registry=registry)
        self._answers = {outcome: answers.labels(outcome) for outcome in (PROMISED, REFUSED, KEPT, MISSED)}
        self._early = Histogram("penstock_deadline_early_seconds", "From the end of an answer to its deadline, if it "
                                "was kept", buckets=_SECONDS, registry=registry)
        self._late = Histogram("penstock_deadline_late_seconds", "From a deadline that was missed to the end of the "
                               "answer", buckets=_SECONDS, registry=registry)

    def judged(self, is_promised: bool) -> None:
        """Counts an answer whose deadline was promised, or refused."""
        self._answers[PROMISED if is_promised else REFUSED].inc()

    def answered(self, left: float) -> None:
        """Counts an answer that is whole with so many seconds left before its deadline; below 0 it is late."""
        if left >= 0:
            self._answers[KEPT].inc()
            self._early.observe(left)
        else:
            self._answers[MISSED].inc()
            self._late.observe(-left)
