"""Spans to an OTLP collector over gRPC, in batches and from a thread of their own: nobody waits for it.

Importing this brings OpenTelemetry, so it is imported only where an endpoint is set. The SDK reads the OTEL_ variables
of its specification itself: the sampler, the batches, and of the exporter the time limit, headers and certificates.
"""

import logging
import os
import threading
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from penstock.system.release import VERSION

log = logging.getLogger(__name__)

FLUSH_SECONDS = 0.8
"""How long the end of the process may wait for the last spans to be taken."""
_TALKATIVE = ("opentelemetry.exporter.otlp", "opentelemetry.sdk._shared_internal")
"""Loggers that tell of every batch that no collector took."""


class Export:
    """The spans of a process go to the collector at `endpoint`, such as http://host:4317, until `close`.

    Without a scheme the connection is not encrypted, unless OTEL_EXPORTER_OTLP_INSECURE is false. `service` names the
    program, `instance` this process.
    """

    def __init__(self, endpoint: str, service: str, instance: str) -> None:
        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        url = endpoint if "://" in endpoint else f"{'http' if _is_insecure() else 'https'}://{endpoint}"
        self._exporter = OTLPSpanExporter(endpoint=url)
        resource = Resource.create({
            "service.name": service, "service.version": VERSION,
            "service.instance.id": f"{instance}-{os.getpid()}", "process.pid": os.getpid()})
        self.provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.provider.add_span_processor(BatchSpanProcessor(Reporting(self._exporter, endpoint)))

    def close(self) -> None:
        """Sends the remaining spans, for FLUSH_SECONDS; those that the collector has not taken by then are lost."""
        flush = threading.Thread(target=self.provider.shutdown, name="last-spans", daemon=True)
        flush.start()
        flush.join(FLUSH_SECONDS)
        if flush.is_alive():
            self._exporter.shutdown()  # which ends the call or the pause between two that the flush waits for
            flush.join(FLUSH_SECONDS)


def _is_insecure() -> bool:
    """Tells whether a connection is not encrypted whose address does not say so."""
    said = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_INSECURE") or os.environ.get("OTEL_EXPORTER_OTLP_INSECURE")
    return said is None or said.lower() != "false"


class Reporting(SpanExporter):
    """Exports by another exporter, and logs once when the collector fails, and once when it is back."""

    def __init__(self, exporter: SpanExporter, endpoint: str) -> None:
        self._exporter = exporter
        self._endpoint = endpoint
        self._is_lost = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception as error:
            log.debug("exporting spans failed", exc_info=error)
            result = SpanExportResult.FAILURE
        is_lost = result is not SpanExportResult.SUCCESS
        if is_lost and not self._is_lost:
            log.warning("the collector at %s takes no spans, they are dropped until it does", self._endpoint)
        elif self._is_lost and not is_lost:
            log.info("the collector at %s takes spans again", self._endpoint)
        self._is_lost = is_lost
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()
