"""The series of adapters (LoRA)."""

from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from penstock.router.scheduling.residency import AdapterState


class AdapterMetrics:
    """Holds the series in `registry`; loads have the buckets `durations`, in seconds."""

    def __init__(self, registry: CollectorRegistry, durations: Sequence[float]) -> None:
        adapters = Gauge(
            "penstock_adapters", "Adapters: known by name to requests; loading, loaded and unloading on the shards",
            ["state"], registry=registry, multiprocess_mode="mostrecent")
        self._adapters = {state: adapters.labels(state.value) for state in AdapterState}
        self._loads = Counter("penstock_adapter_loads", "Times that an adapter was loaded", registry=registry)
        self._load_seconds = Histogram(
            "penstock_adapter_load_seconds", "Loading an adapter on all shards", buckets=durations, registry=registry)
        self._evictions = Counter(
            "penstock_adapter_evictions", "Times that an adapter was unloaded, for others or since it was removed",
            registry=registry)
        self._states: dict[str, Mapping[AdapterState, int]] = {}
        self.count("", 0, {})

    def count(self, group: str, num_known: int, states: Mapping[AdapterState, int]) -> None:
        """Sets how many adapters requests may name, and how many are in each state on the shards of a group; the series
        tell the sum over the groups."""
        self._states[group] = states
        self.know(num_known)
        self._sum_up()

    def _sum_up(self) -> None:
        for state, series in self._adapters.items():
            if state is not AdapterState.KNOWN:
                series.set(sum(each.get(state, 0) for each in self._states.values()))

    def know(self, number: int) -> None:
        """Sets how many adapters requests may name."""
        self._adapters[AdapterState.KNOWN].set(number)

    def forget(self, group: str) -> None:
        """Leaves a group out from now on."""
        self._states.pop(group, None)
        self._sum_up()

    def loaded(self, took: float) -> None:
        """Counts a load that took so many seconds."""
        self._loads.inc()
        self._load_seconds.observe(took)

    def evicted(self) -> None:
        self._evictions.inc()
