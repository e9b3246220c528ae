"""Series under Triton's names, for boards and alerts that ask for these, and the numbers that its statistics have."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import Metric
from prometheus_client.samples import Sample

from penstock.router.versions import split_version

_MICRO, _MILLI = 1_000_000, 1_000
_REASONS = {"overloaded": "REJECTED", "dropped": "CANCELED", "generation": "BACKEND", "incomplete": "BACKEND"}
"""Triton's words for why requests fail; it has OTHER for any other."""
_TO_FIRST_TOKEN = "penstock_time_to_first_token_seconds"


@dataclass(frozen=True, slots=True)
class Statistics:
    """The numbers of a model since its server started. Answers to several prompts of a request count as inferences of
    their own, and steps as executions. Seconds are sums over inferences."""

    successes: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    inferences: int = 0
    executions: int = 0
    pending: int = 0
    total_seconds: float = 0.0
    queue_seconds: float = 0.0
    input_seconds: float = 0.0
    compute_seconds: float = 0.0


def statistics(metrics: Iterable[Metric]) -> Statistics:
    """Returns the numbers that series of ours tell."""
    failures = dict.fromkeys(("REJECTED", "CANCELED", "BACKEND", "OTHER"), 0)
    sums: dict[str, float] = {}
    for metric in metrics:
        for sample in metric.samples:
            if sample.name == "tgi_request_failure_total":
                failures[_REASONS.get(sample.labels["err"], "OTHER")] += int(sample.value)
            elif metric.name.startswith("tgi_") and "le" not in sample.labels:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return Statistics(
        int(sums.get("tgi_request_success_total", 0)), failures, int(sums.get("tgi_request_duration_count", 0)),
        int(sums.get("tgi_batch_inference_success_total", 0)), int(sums.get("tgi_queue_size", 0)),
        sums.get("tgi_request_duration_sum", 0.0), sums.get("tgi_request_queue_duration_sum", 0.0),
        sums.get("tgi_request_validation_duration_sum", 0.0), sums.get("tgi_request_inference_duration_sum", 0.0))


@dataclass(frozen=True, slots=True)
class TritonNames:
    """Tells series once more as those of Triton's `model`."""

    model: str

    def of(self, metrics: Iterable[Metric]) -> Iterator[Metric]:
        """Yields those of these metrics that Triton has, in its units."""
        metrics = [*metrics]
        found = statistics(metrics)
        for name, text, kind, value in (
            ("request_success", "Requests answered to the end", "counter", found.successes),
            ("count", "Answers to prompts, and texts of which vectors or scores were made", "counter",
             found.inferences),
            ("exec_count", "Steps that came back", "counter", found.executions),
            ("pending_request_count", "Requests that wait for their first step", "gauge", found.pending),
            ("request_duration_us", "From requests to the ends of their answers", "counter",
             int(found.total_seconds * _MICRO)),
            ("queue_duration_us", "Waiting for first steps", "counter", int(found.queue_seconds * _MICRO)),
            ("compute_input_duration_us", "Checking and tokenising", "counter", int(found.input_seconds * _MICRO)),
            ("compute_infer_duration_us", "From first steps to last tokens", "counter",
             int(found.compute_seconds * _MICRO)),
        ):
            metric = Metric(f"nv_inference_{name}", text, kind)
            metric.add_sample(metric.name, self._labels, value)
            yield metric
        failures = Metric("nv_inference_request_failure", "Requests refused, failed or left", "counter")
        for reason, number in found.failures.items():
            failures.add_sample(failures.name, {**self._labels, "reason": reason}, number)
        yield failures
        yield from (self._to_first_response(metric) for metric in metrics if metric.name == _TO_FIRST_TOKEN)

    @property
    def _labels(self) -> dict[str, str]:
        name, version = split_version(self.model)
        return {"model": name, "version": version}

    def _to_first_response(self, metric: Metric) -> Metric:
        """Returns the histogram of the time to the first token in milliseconds."""
        alias = Metric("nv_inference_first_response_histogram_ms", metric.documentation, metric.type)
        alias.samples = [self._in_milliseconds(sample, alias.name) for sample in metric.samples]
        return alias

    def _in_milliseconds(self, sample: Sample, name: str) -> Sample:
        labels, value = dict(sample.labels), sample.value
        if labels.get("le", "+Inf") != "+Inf":
            labels["le"] = f"{float(labels['le']) * _MILLI:g}"
        if sample.name.endswith("_sum"):
            value *= _MILLI
        return sample._replace(
            name=sample.name.replace(_TO_FIRST_TOKEN, name), labels=self._labels | labels, value=value)
