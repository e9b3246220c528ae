"""The series of the router, with their buckets and a method for each event; TGI's dashboards read the `tgi_` series.

Series that measure TGI's own way of batching have the nearest meaning here:

- A *concat* is a step with which sequences join others that run: there is no batch to be built anew, and so no reason
  but `chunking`; its duration is that of planning the step.
- A *filter* is a step with which sequences end: its duration is that of taking the step's tokens in, which frees the
  slots of those sequences.
- *Decode*, of a batch, is what comes after the model: sampling on the shards, and turning tokens into text.
- *Skipped* tokens are those had by speculation: guessed, and right.

`tgi_batch_total_tokens` is not there: TGI describes it and never sets it.
"""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, values
from prometheus_client.multiprocess import MultiProcessCollector

from penstock.contract.plan import Plan
from penstock.contract.step_result import StepResult
from penstock.router.errors import RouterError
from penstock.router.limits import Limits
from penstock.router.metrics import exposition
from penstock.router.metrics.accounts import AccountMetrics
from penstock.router.metrics.adapters import AdapterMetrics
from penstock.router.metrics.batches import BatchMetrics
from penstock.router.metrics.caches import CacheMetrics
from penstock.router.metrics.checks import CheckMetrics
from penstock.router.metrics.deadlines import DeadlineMetrics
from penstock.router.metrics.groups import GroupMetrics
from penstock.router.metrics.journal import JournalMetrics
from penstock.router.metrics.processes import Processes
from penstock.router.metrics.triton import TritonNames
from penstock.router.metrics.vllm import VllmNames
from penstock.router.scheduling.confirmed import Candidates, Confirmed, Sampled, Verified
from penstock.router.scheduling.occupancy import Occupancy
from penstock.system.release import VERSION

CONTENT_TYPE = "text/plain; charset=utf-8"
_DURATIONS = tuple(0.0001 * 1.5**power for power in range(1, 36))
"""Upper bounds in seconds, 0.15 ms to 146 s."""
_TO_FIRST_TOKEN = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 20,
                   30, 60, 120)
_BETWEEN_TOKENS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
                   0.5, 0.75, 1, 2, 5, 10)
_NUM_LENGTHS = 100
_LARGEST_BATCH = 1024
_FAILURES = ("overloaded", "validation", "generation", "incomplete", "dropped", "template")


@dataclass(frozen=True, slots=True)
class _Steps:
    """The series of one kind of steps, which TGI calls a method."""

    count: Counter
    success: Counter
    failure: Counter
    inference: Histogram
    forward: Histogram
    decode: Histogram
    filter: Histogram


class Metrics:
    """Holds the router's series in a registry of their own. Durations are in seconds, lengths in tokens.

    The limits determine the buckets of lengths and batches. Where several processes count together, in `folder`, any of
    them tells the series of all; of gauges, what was set last. `member` names this one there: it goes on where the one
    of this name before it has ended. With `processes` their series are told, too, and with `vllm` and `triton` series
    under their names; with `has_tei` under those of TEI.
    """

    def __init__(
        self, limits: Limits, folder: Path | None = None, member: str = "", *, processes: Processes | None = None,
        vllm: VllmNames | None = None, triton: TritonNames | None = None, has_tei: bool = False,
    ) -> None:
        self._has_tei = has_tei
        self._folder = folder
        self._processes = processes
        self._vllm = vllm
        self._triton = triton
        if folder is not None:
            folder.mkdir(0o700, exist_ok=True)
            values.ValueClass = values.MultiProcessValue(lambda: member)  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._gauge("penstock_build_info", "What the server is, as labels", "version", "python_version").labels(
            VERSION, platform.python_version()).set(1)
        self._define_requests(limits)
        self._define_tokens()
        self._define_steps()
        self._define_batches(limits)
        self._define_memory()
        self.accounts = AccountMetrics(self._registry)
        self.adapters = AdapterMetrics(self._registry, _DURATIONS)
        self.batches = BatchMetrics(self._registry)
        self.cache = CacheMetrics(self._registry)
        self.journal = JournalMetrics(self._registry)
        self.checks = CheckMetrics(self._registry)
        self.deadlines = DeadlineMetrics(self._registry)
        self.groups = GroupMetrics(self._registry, _DURATIONS)

    def _define_requests(self, limits: Limits) -> None:
        self._requests = self._counter("tgi_request_count", "Requests to generate")
        self._successes = self._counter("tgi_request_success", "Requests answered to the end")
        self._failures = self._counter("tgi_request_failure", "Requests refused, failed or left", "err")
        for kind in _FAILURES:
            self._failures.labels(kind)  # so that each series starts at 0
        self._answers = self._counter(
            "penstock_requests", "Requests answered, by HTTP status; 499 if left", "route", "status")
        self._resumed = self._counter(
            "penstock_resumed_answers", "Answers gone on with behind what their client had of them")
        self._duration = self._durations("tgi_request_duration", "From the request to the end of its answer")
        self._validation = self._durations("tgi_request_validation_duration", "Checking and tokenising")
        self._tokenization = self._durations(
            "penstock_tokenization_seconds", "Finding the tokens of a text that a vector or scores are made of")
        self._template = self._durations("penstock_chat_template_seconds", "Writing a chat's prompt by its template")
        self._queue = self._durations("tgi_request_queue_duration", "Waiting for the first step")
        self._inference = self._durations("tgi_request_inference_duration", "From the first step to the last token")
        self._per_token = self._durations("tgi_request_mean_time_per_token_duration", "Inference per generated token")
        self._input_length = self._lengths(
            "tgi_request_input_length", "Tokens of the prompt", limits.max_input_tokens)
        self._generated = self._lengths(
            "tgi_request_generated_tokens", "Tokens of the answer", limits.max_total_tokens)
        self._max_new = self._lengths(
            "tgi_request_max_new_tokens", "Most tokens that the answer may have", limits.max_total_tokens)
        self._skipped = self._histogram("tgi_request_skipped_tokens", "Tokens had by speculation", (0, 1, 10, 100))

    def _define_tokens(self) -> None:
        self._to_first_token = self._histogram(
            "penstock_time_to_first_token_seconds", "From the request to the first token of its answer",
            _TO_FIRST_TOKEN)
        self._between_tokens = self._histogram(
            "penstock_inter_token_latency_seconds", "From a token of an answer to the next one", _BETWEEN_TOKENS)
        self._prompt_tokens = self._counter("penstock_prompt_tokens", "Tokens computed of prompts and of replays")
        self._new_tokens = self._counter("penstock_generated_tokens", "Tokens generated")
        self._drafted_tokens = self._counter("penstock_drafted_tokens", "Tokens guessed and verified by speculation")
        self._accepted_tokens = self._counter("penstock_accepted_tokens", "Tokens guessed that were right")
        self._hit_tokens = self._counter("penstock_prefix_hit_tokens", "Tokens found in the prefix cache")

    def _define_steps(self) -> None:
        count = self._counter("tgi_batch_inference_count", "Steps that ended", "method")
        success = self._counter("tgi_batch_inference_success", "Steps that came back", "method")
        failure = self._counter("tgi_batch_inference_failure", "Steps that were lost with their group", "method")
        inference = self._durations("tgi_batch_inference_duration", "The shards' work on a step", "method")
        forward = self._durations("tgi_batch_forward_duration", "The model's part of a step", "method")
        decode = self._durations("tgi_batch_decode_duration", "Sampling a step's tokens and making text", "method")
        filter = self._durations(
            "tgi_batch_filter_duration", "Taking in the tokens of a step that ended sequences", "method")
        self._energy = self._counter("penstock_energy_joules", "Energy of the machine while steps ran, if measured")
        self._steps = {
            method: _Steps(count.labels(method), success.labels(method), failure.labels(method),
                           inference.labels(method), forward.labels(method), decode.labels(method),
                           filter.labels(method))
            for method in ("prefill", "decode")}

    def _define_batches(self, limits: Limits) -> None:
        self._queue_size = self._gauge("tgi_queue_size", "Requests that wait, and each beam of a search")
        self._batch_size = self._gauge("tgi_batch_current_size", "Requests that run, and each beam of a search")
        lines = self._gauge("penstock_background_sequences", "Lines of batches, and each of their answers", "state")
        self._background_waiting, self._background_running = lines.labels("waiting"), lines.labels("running")
        self._step_tokens = self._gauge("penstock_step_tokens", "Tokens that a step may have, to take 250 ms")
        self._next_size = self._histogram(
            "tgi_batch_next_size", "Requests and beams that began to run with one step",
            range(1, min(limits.max_slots, _LARGEST_BATCH) + 1))
        self._next_tokens = self._histogram(
            "penstock_batch_next_tokens", "Tokens of prompts and texts in a step that has any",
            [2 ** power for power in range(1, 18)])
        self._concats = self._counter(
            "tgi_batch_concat", "Steps with which requests joined others that ran", "reason").labels("chunking")
        self._concat_duration = self._durations(
            "tgi_batch_concat_duration", "Planning such a step", "method").labels("decode")
        self._preemptions = self._counter(
            "penstock_preemptions", "Times that a request, or a beam, let go of its KV memory")
        self._replays = self._counter("penstock_replays", "Times that a request went on after its group was lost")
        self._group_restarts = self._counter("penstock_group_restarts", "Times that the group was lost")

    def _define_memory(self) -> None:
        self._max_tokens = self._gauge("tgi_batch_current_max_tokens", "Tokens that fit in what running requests hold")
        self._most_tokens = self._gauge("tgi_batch_max_total_tokens", "Tokens that fit in the KV memory")
        blocks = self._gauge("penstock_kv_blocks", "Blocks of KV memory", "state")
        self._used_blocks, self._free_blocks = blocks.labels("used"), blocks.labels("free")
        self._wasted_positions = self._gauge(
            "penstock_kv_wasted_slots", "Places for tokens that are held and have none")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self._registry, multiprocess_mode="mostrecent")

    def _histogram(self, name: str, text: str, bounds: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, text, labels, buckets=bounds, registry=self._registry)

    def _durations(self, name: str, text: str, *labels: str) -> Histogram:
        return self._histogram(name, text, _DURATIONS, *labels)

    def _lengths(self, name: str, text: str, longest: int) -> Histogram:
        return self._histogram(name, text, [longest * part / _NUM_LENGTHS for part in range(1, _NUM_LENGTHS + 1)])

    def requested(self) -> None:
        """Counts a request to generate that has come in."""
        self._requests.inc()

    def rendered(self, took: float) -> None:
        """Notes that a chat's template has written its prompt, or has failed, within `took` seconds."""
        self._template.observe(took)

    def accepted(self, input_length: int, max_new_tokens: int) -> None:
        """Notes the lengths of a request that is valid."""
        self._input_length.observe(input_length)
        self._max_new.observe(max_new_tokens)

    def accepted_text(self, length: int, tokenization: float) -> None:
        """Notes the length of a text that a vector or scores are made of, and how long it took to find its tokens."""
        self._input_length.observe(length)
        self._tokenization.observe(tokenization)

    def pooled(self, total: float, validation: float, queue: float, inference: float) -> None:
        """Notes the durations of a text whose vector or scores are there."""
        self._duration.observe(total)
        self._validation.observe(validation)
        self._queue.observe(queue)
        self._inference.observe(inference)

    def failed(self, error: RouterError) -> None:
        """Counts a request that was refused, has failed while it ran, or was left by its client."""
        self._failures.labels(error.metric).inc()

    def answered(self, route: str, status: int) -> None:
        """Counts a request that was answered, or left by its client; for gRPC, the route is the call's name."""
        self._answers.labels(route, status).inc()

    def resumed(self, count: int) -> None:
        """Counts answers that go on behind what their client had of them."""
        self._resumed.inc(count)

    def first_token(self, waited: float) -> None:
        """Notes that the first token of an answer came `waited` seconds after its request."""
        self._to_first_token.observe(waited)

    def next_token(self, waited: float) -> None:
        """Notes that a token of an answer came `waited` seconds after the one before it."""
        self._between_tokens.observe(waited)

    def succeeded(self) -> None:
        """Counts a request whose answers all came to their end."""
        self._successes.inc()

    def ended(
        self, total: float, validation: float, queue: float, inference: float, num_tokens: int, num_accepted: int
    ) -> None:
        """Notes the durations of an answer that is whole, with `num_tokens` tokens, of which `num_accepted` were
        guessed."""
        self._duration.observe(total)
        self._validation.observe(validation)
        self._queue.observe(queue)
        self._inference.observe(inference)
        self._per_token.observe(inference / num_tokens)
        self._generated.observe(num_tokens)
        self._skipped.observe(num_accepted)

    def planned(self, plan: Plan, took: float) -> None:
        """Notes a step that was planned within `took` seconds."""
        self._preemptions.inc(len(plan.preempted))
        if number := plan.num_prompt_tokens:
            self._next_tokens.observe(number)
        if not plan.admitted:
            return
        self._hit_tokens.inc(sum(admission.hit_tokens for admission in plan.admitted))
        self._next_size.observe(len(plan.admitted))
        if plan.num_decode_rows:
            self._concats.inc()
            self._concat_duration.observe(took)

    def step(
        self, plan: Plan, result: StepResult, confirmed: Sequence[Confirmed], commit_time: float,
        text_time: float,
    ) -> None:
        """Notes a step that came back, how long it took to commit it and how long to turn its tokens into text."""
        steps = self._steps[_method(plan)]
        steps.count.inc()
        steps.success.inc()
        steps.inference.observe(result.draft_time + result.forward_time + result.sample_time)
        steps.forward.observe(result.forward_time)
        steps.decode.observe(result.sample_time + text_time)
        if result.energy_uj is not None:
            self._energy.inc(result.energy_uj / 1e6)
        tokens = [each for each in confirmed if isinstance(each, Sampled)]
        if any(token.finish_reason for token in tokens):
            steps.filter.observe(commit_time)
        self._prompt_tokens.inc(plan.num_prompt_tokens)
        for each in confirmed:
            if isinstance(each, Verified):
                self._drafted_tokens.inc(each.num_drafts)
                self._accepted_tokens.inc(each.num_accepted)
        self._new_tokens.inc(len(tokens) + sum(isinstance(each, Candidates) for each in confirmed))

    def lost(self, plan: Plan) -> None:
        """Counts a step that was in flight when its group was lost."""
        steps = self._steps[_method(plan)]
        steps.count.inc()
        steps.failure.inc()

    def replayed(self, count: int) -> None:
        """Counts requests that will go on from where they were."""
        self._replays.inc(count)

    def group_restarted(self) -> None:
        """Counts a group that was lost and will come back."""
        self._group_restarts.inc()

    def occupancy(self, group: str, occupancy: Occupancy) -> None:
        """Sets how busy a group is: how many sequences wait and run, what its KV memory holds, and how many tokens its
        steps may have. Series without a group's name have the sum over all."""
        self.groups.note(group, occupancy)
        self._sum_up()

    def _sum_up(self) -> None:
        now = self.groups.total
        self._queue_size.set(now.num_waiting - now.background_waiting)
        self._background_waiting.set(now.background_waiting)
        self._background_running.set(now.background_running)
        self._batch_size.set(now.num_running)
        self._used_blocks.set(now.used_blocks)
        self._free_blocks.set(now.free_blocks)
        self._wasted_positions.set(now.wasted_positions)
        self._step_tokens.set(now.step_tokens)
        self._max_tokens.set(now.used_blocks * now.block_size)
        self._most_tokens.set((now.used_blocks + now.free_blocks) * now.block_size)

    def forget(self, group: str) -> None:
        """Leaves a group out that is no more."""
        self.groups.forget(group)
        self.adapters.forget(group)
        self._sum_up()

    def collect(self) -> list[Metric]:
        """Returns all series of this process."""
        return [*self._registry.collect()]

    def gathered(self) -> list[Metric]:
        """Returns the series of all processes that count together."""
        registry = self._registry
        if self._folder is not None:
            registry = CollectorRegistry()
            MultiProcessCollector(registry, str(self._folder))  # type: ignore[no-untyped-call]
        return [*registry.collect()]

    def told(self) -> list[Metric]:
        """Returns those and the series of processes, under all names that they are to be told by."""
        processes = self._processes.collect() if self._processes else ()
        return exposition.with_other_names(
            [*self.gathered(), *processes], self._vllm, self._triton, has_tei=self._has_tei)

    def exposition(self) -> bytes:
        """Returns all series, in the format CONTENT_TYPE."""
        return exposition.written(self.told())


def _method(plan: Plan) -> str:
    """Returns the kind of a step: as in TGI, one that runs any prompt tokens is a prefill."""
    return "prefill" if plan.num_prompt_tokens else "decode"
