"""Writes series in Prometheus' text format, version 0.0.4.

The client library's writer would rename all counters to end in `_total`; TGI's do not. Ours do, and are told once more
under the names that they had before.
"""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import Metric
from prometheus_client.samples import Sample

from penstock.router.metrics.vllm import VllmNames

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
TGI = "tgi_"
OLD_NAMES = ("penstock_",)
"""How counters begin that are told under their old names, too, without `_total`: dashboards of version 0.1 ask for
them."""


def text(metrics: Sequence[Metric], vllm: VllmNames | None = None) -> bytes:
    """Returns all series as text, and if asked once more under vLLM's names."""
    return "".join(_lines([*metrics, *(vllm.of(metrics) if vllm else ())])).encode()


def _lines(metrics: Iterable[Metric]) -> Iterator[str]:
    for metric in metrics:
        if metric.type != "counter":
            yield from _written(metric, metric.name)
            continue
        if not metric.name.startswith(TGI):
            yield from _written(metric, f"{metric.name}_total")
        if metric.name.startswith((TGI, *OLD_NAMES)):
            yield from _written(metric, metric.name)


def _written(metric: Metric, name: str) -> Iterator[str]:
    """Writes a metric; of a counter, under a name that may have lost its `_total`."""
    yield f"# HELP {name} {metric.documentation}\n# TYPE {name} {metric.type}\n"
    for sample in metric.samples:
        if not sample.name.endswith("_created"):
            yield _line(name if metric.type == "counter" else sample.name, sample)


def _line(name: str, sample: Sample) -> str:
    labels = ",".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in sample.labels.items())
    return f"{name}{{{labels}}} {sample.value}\n" if labels else f"{name} {sample.value}\n"
