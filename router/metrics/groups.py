"""The series of groups, for a router that has more than one."""

import warnings
from collections import Counter as Numbers
from collections.abc import Collection, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from penstock.router.scheduling.occupancy import Occupancy
from penstock.router.scheduling.wait_reasons import WaitCounts, WaitReason

STATES = ("serving", "stuck", "draining", "away", "refused")
"""The states of a group: it takes requests; its step has not come back for long; it lets its requests go; it is lost,
or starts; it does not fit the others."""
REASONS = ("prefix", "load", "only")
"""Why a group was chosen: it has the prompt's beginning; it has the least to do; no other could be."""
CAUSES = ("lost", "stuck", "drained")
"""Why a request moved to another group."""


class GroupMetrics:
    """Holds the series in `registry`; pauses have the buckets `durations`, in seconds."""

    def __init__(self, registry: CollectorRegistry, durations: Sequence[float]) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry, multiprocess_mode="mostrecent")

        self._states = gauge("penstock_groups", "Groups of shards, by what they do", "state")
        self._queue_size = gauge("penstock_group_queue_size", "Requests that wait in a group", "group")
        self._batch_size = gauge("penstock_group_batch_size", "Requests that run in a group", "group")
        self._blocks = gauge("penstock_group_kv_blocks", "Blocks of a group's KV memory", "group", "state")
        self._usage = gauge(
            "penstock_kv_usage", "Share of the KV memory that requests hold, but for lines of batches, 0 to 1")
        self._block_size = gauge("penstock_kv_block_size", "Tokens of a block")
        self._num_blocks = gauge("penstock_kv_num_blocks", "Blocks of the KV memory of all groups")
        waiting = gauge("penstock_waiting_requests", "Requests that wait, by what they wait for", "reason")
        self._waiting = {reason: waiting.labels(reason.value) for reason in WaitReason}
        self._waits: WaitCounts | None = None  # where processes count together, those of one before this are still told
        self._moved = Counter(
            "penstock_moved_requests", "Times that a request went on in another group", ["cause"], registry=registry)
        self._pauses = Histogram(
            "penstock_move_pause_seconds", "From the loss of an answer's group to its next token, from another",
            buckets=durations, registry=registry)
        self._other_numerics = Counter(
            "penstock_moves_to_other_numerics", "Times that a request went where other bits are computed than named",
            registry=registry)
        self._choices = Counter(
            "penstock_choice", "Requests for which a group was chosen", ["reason"], registry=registry)
        for cause in CAUSES:
            self._moved.labels(cause)
        for reason in REASONS:
            self._choices.labels(reason)
        self._own: dict[str, tuple[Gauge, ...]] = {}
        self._occupancies: dict[str, Occupancy] = {}
        self.total = Occupancy()
        """The sum over the groups; of step tokens and block sizes, the largest."""

    def note(self, group: str, occupancy: Occupancy) -> None:
        """Takes in how busy a group is, after each of its steps. The only group of a server has no name, and no series
        of its own."""
        self._occupancies[group] = occupancy
        if group:
            num_waiting = occupancy.num_waiting - occupancy.background_waiting
            now = num_waiting, occupancy.num_running, occupancy.used_blocks, occupancy.free_blocks
            for gauge, number in zip(self._own_series(group), now, strict=True):
                gauge.set(number)
        self._sum_up()

    def _own_series(self, group: str) -> Sequence[Gauge]:
        """Returns a group's own series: what waits and runs, and blocks that are used and free."""
        if group not in self._own:
            self._own[group] = (
                self._queue_size.labels(group), self._batch_size.labels(group),
                self._blocks.labels(group, "used"), self._blocks.labels(group, "free"))
        return self._own[group]

    def _sum_up(self) -> None:
        each = [*self._occupancies.values()]
        self.total = now = each[0] if len(each) == 1 else _total(each)
        num_blocks = now.used_blocks + now.free_blocks
        self._num_blocks.set(num_blocks)
        self._usage.set((now.used_blocks - now.background_blocks) / max(1, num_blocks))
        self._block_size.set(now.block_size)
        if now.waits != self._waits:
            self._waits = now.waits
            for reason, series in self._waiting.items():
                series.set(now.waits.get(reason, 0))

    def forget(self, group: str) -> None:
        """Leaves a group out that is no more."""
        if self._occupancies.pop(group, None) is None:
            return
        if group in self._own:
            for gauge in self._own.pop(group):
                gauge.set(0)
            with warnings.catch_warnings(action="ignore"):  # where processes count together they can't be removed
                for series, *labels in ((self._queue_size, group), (self._batch_size, group),
                                        (self._blocks, group, "used"), (self._blocks, group, "free")):
                    series.remove(*labels)
        self._sum_up()

    def states(self, numbers: Mapping[str, int]) -> None:
        """Sets how many groups are in each state."""
        for state in STATES:
            self._states.labels(state).set(numbers.get(state, 0))

    def chosen(self, reason: str) -> None:
        """Counts a new request for which a group was chosen."""
        self._choices.labels(reason).inc()

    def moved(self, cause: str, to_other_numerics: bool) -> None:
        """Counts a request that goes on in another group."""
        self._moved.labels(cause).inc()
        if to_other_numerics:
            self.other_numerics()

    def other_numerics(self, number: int = 1) -> None:
        """Counts answers, or parts of one, that have other bits than their names say."""
        self._other_numerics.inc(number)

    def resumed(self, paused: float) -> None:
        """Notes the pause of an answer that has moved."""
        self._pauses.observe(paused)


def _total(each: Collection[Occupancy]) -> Occupancy:
    """Returns the sum; of none it is 0."""
    return Occupancy(
        num_waiting=sum(one.num_waiting for one in each), num_running=sum(one.num_running for one in each),
        used_blocks=sum(one.used_blocks for one in each), free_blocks=sum(one.free_blocks for one in each),
        wasted_positions=sum(one.wasted_positions for one in each),
        step_tokens=max((one.step_tokens for one in each), default=0),
        block_size=max((one.block_size for one in each), default=0),
        waits=sum((Numbers(one.waits) for one in each), Numbers()),
        background_waiting=sum(one.background_waiting for one in each),
        background_running=sum(one.background_running for one in each),
        background_blocks=sum(one.background_blocks for one in each))
