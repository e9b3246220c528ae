"""The series of a model to which a share of an alias's requests is sent, and whose answers nobody gets."""

from prometheus_client import CollectorRegistry, Counter, Metric


class ShadowMetrics:
    """Holds the series in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter("penstock_shadow_requests", "Requests sent to the model as a shadow, by what became "
                                 "of them", ["outcome"], registry=self._registry)
        self._tokens = Counter("penstock_shadow_tokens", "Tokens that the model has made as a shadow",
                               registry=self._registry)
        self._compared = Counter("penstock_shadow_compared_answers", "Answers of the model as a shadow beside the "
                                 "client's, where both depend on the request alone", ["outcome"],
                                 registry=self._registry)

    def ended(self, outcome: str, num_tokens: int = 0) -> None:
        """Counts the end of a request, and the tokens that were made for it."""
        self._requests.labels(outcome).inc()
        self._tokens.inc(num_tokens)

    def compared(self, is_equal: bool) -> None:
        """Counts an answer that was compared with the client's."""
        self._compared.labels("equal" if is_equal else "different").inc()

    def told(self) -> list[Metric]:
        """Returns the series."""
        return [*self._registry.collect()]
