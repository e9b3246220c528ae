"""Series under TEI's names, of a server whose model makes vectors or scores."""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import Metric

NAMES: Mapping[str, str] = {
    "tgi_request_count": "te_request_count",
    "tgi_request_success": "te_request_success",
    "tgi_request_failure": "te_request_failure",
    "tgi_request_duration": "te_request_duration",
    "penstock_tokenization_seconds": "te_request_tokenization_duration",
    "tgi_request_queue_duration": "te_request_queue_duration",
    "tgi_request_inference_duration": "te_request_inference_duration",
    "tgi_request_input_length": "te_request_input_length",
    "tgi_batch_next_size": "te_batch_next_size",
    "penstock_batch_next_tokens": "te_batch_next_tokens",
    "tgi_queue_size": "te_queue_size",
}
"""TEI's names of series that mean the same as ours."""


def named(metrics: Iterable[Metric]) -> Iterator[Metric]:
    """Yields those of these metrics that TEI has, under its names."""
    for metric in metrics:
        if (name := NAMES.get(metric.name)) is not None:
            alias = Metric(name, metric.documentation, metric.type)
            alias.samples = [sample._replace(name=sample.name.replace(metric.name, name, 1))
                             for sample in metric.samples]
            yield alias
