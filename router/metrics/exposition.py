"""Writes series in Prometheus' text format, version 0.0.4.

The client library's writer would rename all counters to end in `_total`; TGI's do not. Ours do, and are told once more
under the names that they had before.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from prometheus_client import Metric
from prometheus_client.samples import Sample

from penstock.router.metrics import tei
from penstock.router.metrics.triton import TritonNames
from penstock.router.metrics.vllm import VllmNames

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
TGI, TEI, TRITON = "tgi_", "te_", "nv_"
OLD_NAMES = ("penstock_",)
"""How counters begin that are told under their old names, too, without `_total`: dashboards of version 0.1 ask for
them."""


def with_other_names(
    metrics: Sequence[Metric], vllm: VllmNames | None, triton: TritonNames | None, *, has_tei: bool
) -> list[Metric]:
    """Returns the series, and those that other servers have names of their own for once more under these."""
    more = [*(names.of(metrics) for names in (vllm, triton) if names), tei.named(metrics) if has_tei else ()]
    return [*chain(metrics, *more)]


def written(metrics: Iterable[Metric]) -> bytes:
    """Returns series as text."""
    return "".join(_lines(metrics)).encode()


def labelled(metrics: Iterable[Metric], model: str) -> Iterator[Metric]:
    """Yields series with the name of the model that they are of as a label."""
    for metric in metrics:
        told = Metric(metric.name, metric.documentation, metric.type)
        told.samples = [sample._replace(labels={"model": model, **sample.labels}) for sample in metric.samples]
        yield told


def joined(metrics: Iterable[Metric]) -> list[Metric]:
    """Returns the series of one name together, as the format wants them."""
    by_name: dict[str, Metric] = {}
    for metric in metrics:
        if metric.name in by_name:
            by_name[metric.name].samples.extend(metric.samples)
        else:
            by_name[metric.name] = metric
    return [*by_name.values()]


def _lines(metrics: Iterable[Metric]) -> Iterator[str]:
    for metric in metrics:
        if metric.type != "counter":
            yield from _written(metric, metric.name)
            continue
        if not metric.name.startswith((TGI, TEI, TRITON)):
            yield from _written(metric, f"{metric.name}_total")
        if metric.name.startswith((TGI, TEI, TRITON, *OLD_NAMES)):
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
