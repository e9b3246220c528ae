"""The series of a model, for programs, in vLLM's form."""

from collections.abc import Iterator
from typing import Any

import prometheus_client

from penstock.offline.outputs import Counter, Gauge, Histogram, Metric
from penstock.router.generation.service import Service
from penstock.router.metrics.vllm import VllmNames


def metrics(service: Service) -> list[Metric]:
    """Returns all series of a model, and those that vLLM has, too, once more under its names."""
    families = service.metrics.collect()
    return [metric for family in [*families, *VllmNames(service.info.model_id).of(families)]
            for metric in _told(family)]


def _told(family: prometheus_client.Metric) -> Iterator[Metric]:
    if family.type == "histogram":
        yield from _histograms(family)
        return
    for sample in family.samples:
        if family.type == "gauge":
            yield Gauge(family.name, sample.labels, sample.value)
        elif sample.name == f"{family.name}_total":  # and not the time when a counter was made
            yield Counter(family.name, sample.labels, int(sample.value))


def _histograms(family: prometheus_client.Metric) -> Iterator[Histogram]:
    """Yields a histogram for each combination of labels that it has."""
    parts: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for sample in family.samples:
        labels = {**sample.labels}
        bound = labels.pop("le", "")
        part = parts.setdefault(tuple(labels.items()), {"buckets": {}})
        match sample.name.removeprefix(family.name):
            case "_bucket":
                part["buckets"][bound] = int(sample.value)
            case "_count":
                part["count"] = int(sample.value)
            case "_sum":
                part["sum"] = sample.value
    for key, part in parts.items():
        yield Histogram(family.name, dict(key), **part)
