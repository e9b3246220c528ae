"""Writes series in Prometheus' text format, version 0.0.4.

The client library's writer would rename counters to end in `_total`; TGI's do not.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.samples import Sample

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def text(registry: CollectorRegistry) -> bytes:
    """Returns all series of the registry as text."""
    return "".join(_lines(registry)).encode()


def _lines(registry: CollectorRegistry) -> Iterator[str]:
    for metric in registry.collect():
        yield f"# HELP {metric.name} {metric.documentation}\n# TYPE {metric.name} {metric.type}\n"
        yield from (_line(sample) for sample in metric.samples if not sample.name.endswith("_created"))


def _line(sample: Sample) -> str:
    labels = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in sample.labels.items())
    braced = f"{{{labels}}}" if labels else ""
    return f"{sample.name.removesuffix('_total')}{braced} {sample.value}\n"
