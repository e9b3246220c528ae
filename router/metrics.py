"""Names, buckets, and one method per event that matters; TGI's dashboards read the `tgi_` series."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.samples import Sample

from router.errors import RouterError
from router.limits import Limits

CONTENT_TYPE = "text/plain; charset=utf-8"
_DURATIONS = tuple(0.0001 * 1.5**power for power in range(1, 36))
"""Upper bounds in seconds, 0.15 ms to 146 s."""
_TO_FIRST_TOKEN = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 20,
                   30, 60, 120)
_BETWEEN_TOKENS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
                   0.5, 0.75, 1, 2, 5, 10)
_NUM_LENGTHS = 100
_FAILURES = ("overloaded", "validation", "generation", "incomplete")


class Metrics:
    """The router's series, in a registry of their own. Durations in seconds, lengths in tokens.

    The limits give the bounds of the lengths' buckets.
    """

    def __init__(self, limits: Limits) -> None:
        self._registry = CollectorRegistry()
        self._define_requests(limits)
        self._define_tokens()
        self._define_steps()
        self._define_memory()

    def _define_requests(self, limits: Limits) -> None:
        self._requests = self._counter("tgi_request_count", "Requests to generate")
        self._successes = self._counter("tgi_request_success", "Requests answered to the end")
        self._failures = Counter("tgi_request_failure", "Requests refused or failed", ["err"], registry=self._registry)
        for kind in _FAILURES:
            self._failures.labels(kind)  # so that each series starts at 0
        self._duration = self._durations("tgi_request_duration", "From the request to the end of its answer")
        self._validation = self._durations("tgi_request_validation_duration", "Checking and tokenising")
        self._queue = self._durations("tgi_request_queue_duration", "Waiting for the first step")
        self._inference = self._durations("tgi_request_inference_duration", "From the first step to the last token")
        self._per_token = self._durations("tgi_request_mean_time_per_token_duration", "Inference per generated token")
        self._input_length = self._lengths(
            "tgi_request_input_length", "Tokens of the prompt", limits.max_input_tokens)
        self._generated = self._lengths(
            "tgi_request_generated_tokens", "Tokens of the answer", limits.max_total_tokens)
        self._max_new = self._lengths(
            "tgi_request_max_new_tokens", "Most tokens that the answer may have", limits.max_total_tokens)

    def _define_tokens(self) -> None:
        self._to_first_token = Histogram(
            "penstock_time_to_first_token_seconds", "From the request to the first token of its answer",
            buckets=_TO_FIRST_TOKEN, registry=self._registry)
        self._between_tokens = Histogram(
            "penstock_inter_token_latency_seconds", "From a token of an answer to the next one",
            buckets=_BETWEEN_TOKENS, registry=self._registry)
        self._hit_tokens = self._counter("penstock_prefix_hit_tokens", "Tokens found in the prefix cache")

    def _define_steps(self) -> None:
        counts = Counter("tgi_batch_inference_count", "Steps run", ["method"], registry=self._registry)
        successes = Counter("tgi_batch_inference_success", "Steps that came back", ["method"], registry=self._registry)
        inferences = Histogram("tgi_batch_inference_duration", "The shards' work on a step", ["method"],
                               buckets=_DURATIONS, registry=self._registry)
        forwards = Histogram("tgi_batch_forward_duration", "The model's part of a step", ["method"],
                             buckets=_DURATIONS, registry=self._registry)
        self._steps = {method: (counts.labels(method), successes.labels(method), inferences.labels(method),
                                forwards.labels(method)) for method in ("prefill", "decode")}
        self._queue_size = Gauge("tgi_queue_size", "Requests that wait", registry=self._registry)
        self._batch_size = Gauge("tgi_batch_current_size", "Requests that run", registry=self._registry)
        self._preemptions = self._counter("penstock_preemptions", "Times that a request let go of its KV memory")
        self._replays = self._counter("penstock_replays", "Times that a request went on after its group was lost")
        self._group_restarts = self._counter("penstock_group_restarts", "Times that the group was lost")

    def _define_memory(self) -> None:
        blocks = Gauge("penstock_kv_blocks", "Blocks of KV memory", ["state"], registry=self._registry)
        self._used_blocks, self._free_blocks = blocks.labels("used"), blocks.labels("free")
        self._wasted_slots = Gauge("penstock_kv_wasted_slots", "Places for tokens that are allocated and hold none",
                                   registry=self._registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, registry=self._registry)

    def _durations(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, buckets=_DURATIONS, registry=self._registry)

    def _lengths(self, name: str, text: str, longest: int) -> Histogram:
        bounds = [longest * part / _NUM_LENGTHS for part in range(1, _NUM_LENGTHS + 1)]
        return Histogram(name, text, buckets=bounds, registry=self._registry)

    def requested(self) -> None:
        """A request to generate has come."""
        self._requests.inc()

    def accepted(self, input_length: int, max_new_tokens: int) -> None:
        """It is valid."""
        self._input_length.observe(input_length)
        self._max_new.observe(max_new_tokens)

    def failed(self, error: RouterError) -> None:
        """It was refused, or has failed while it ran."""
        if error.metric is not None:
            self._failures.labels(error.metric).inc()

    def first_token(self, waited: float) -> None:
        """The first token of an answer came `waited` after its request."""
        self._to_first_token.observe(waited)

    def next_token(self, waited: float) -> None:
        """Another token of an answer came, `waited` after the one before it."""
        self._between_tokens.observe(waited)

    def succeeded(self, total: float, validation: float, queue: float, inference: float, num_tokens: int) -> None:
        """It was answered to the end, with `num_tokens`."""
        self._successes.inc()
        self._duration.observe(total)
        self._validation.observe(validation)
        self._queue.observe(queue)
        self._inference.observe(inference)
        self._per_token.observe(inference / num_tokens)
        self._generated.observe(num_tokens)

    def planned(self, hit_tokens: int, preempted: int) -> None:
        """A step was planned; what began to run found `hit_tokens` computed, and `preempted` had to make room."""
        self._hit_tokens.inc(hit_tokens)
        self._preemptions.inc(preempted)

    def replayed(self, count: int) -> None:
        """So many requests are to go on from where they were."""
        self._replays.inc(count)

    def group_restarted(self) -> None:
        """The group was lost and is to come back."""
        self._group_restarts.inc()

    def step(self, has_prefill: bool, forward_time: float, sample_time: float) -> None:
        """A step came back. As in TGI, one that ran any prompt tokens is a prefill."""
        count, success, inference, forward = self._steps["prefill" if has_prefill else "decode"]
        count.inc()
        success.inc()
        inference.observe(forward_time + sample_time)
        forward.observe(forward_time)

    def occupancy(
        self, queue_size: int, running: int, used_blocks: int, free_blocks: int, wasted_slots: int = 0
    ) -> None:
        """What waits, what runs, and what the KV memory holds."""
        self._queue_size.set(queue_size)
        self._batch_size.set(running)
        self._used_blocks.set(used_blocks)
        self._free_blocks.set(free_blocks)
        self._wasted_slots.set(wasted_slots)

    def exposition(self) -> bytes:
        """All series in Prometheus' text format, version 0.0.4.

        Written here because the client library's writer renames counters to end in `_total`; TGI's do not.
        """
        return "".join(self._lines()).encode()

    def _lines(self) -> Iterator[str]:
        for metric in self._registry.collect():
            yield f"# HELP {metric.name} {metric.documentation}\n# TYPE {metric.name} {metric.type}\n"
            yield from (_line(sample) for sample in metric.samples if not sample.name.endswith("_created"))


def _line(sample: Sample) -> str:
    labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
    braced = f"{{{labels}}}" if labels else ""
    return f"{sample.name.removesuffix('_total')}{braced} {sample.value}\n"
