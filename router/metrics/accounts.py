"""The series of accounts."""

from prometheus_client import CollectorRegistry, Counter

from penstock.router.accounts.use import NANOS, TOKENS, Account, Use

MAX_KEYS = 100
"""How many keys have series of their own."""
OTHER = "other"
"""Stands for all others."""


class AccountMetrics:
    """Holds the series in `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._keys: set[str] = set()
        self._requests = Counter("penstock_usage_requests", "Requests that were answered, by key", ["key", "model"],
                                 registry=registry)
        self._tokens = Counter("penstock_usage_tokens", "Tokens of requests, by key and kind", ["key", "model", "kind"],
                               registry=registry)
        self._seconds = Counter("penstock_usage_step_seconds", "Time of the model's steps for requests, by key",
                                ["key", "model"], registry=registry)
        self._cost = Counter("penstock_usage_cost", "What requests cost, by key", ["key", "model", "currency"],
                             registry=registry)
        self._refused = Counter("penstock_budget_refusals", "Requests that were refused, since the budget of their key "
                                "is spent", ["key"], registry=registry)
        self._failures = Counter("penstock_usage_failures", "Writes of use that have failed, which are tried again",
                                 registry=registry)

    def used(self, account: Account, use: Use) -> None:
        """Counts the use of a request."""
        key, model = self._label(account.key), account.model
        self._requests.labels(key, model).inc(use.requests)
        for kind in TOKENS:
            if number := use.tokens(kind):
                self._tokens.labels(key, model, kind).inc(number)
        self._seconds.labels(key, model).inc(use.step_us / 1e6)
        if use.nanos:
            self._cost.labels(key, model, account.currency).inc(use.nanos / NANOS)

    def refused(self, key: str) -> None:
        """Counts a request of a key that has spent its budget."""
        self._refused.labels(self._label(key)).inc()

    def failed(self) -> None:
        """Counts a write that has failed."""
        self._failures.inc()

    def _label(self, key: str) -> str:
        if key not in self._keys and len(self._keys) < MAX_KEYS:
            self._keys.add(key)
        return key if key in self._keys else OTHER
