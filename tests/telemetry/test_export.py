"""Spans on their way to a collector that is there, is not there, or comes late."""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from penstock.telemetry import export as exporting
from penstock.telemetry.export import Export, Reporting
from tests.telemetry.collector import collecting


@pytest.fixture(autouse=True)
def _loggers() -> Iterator[None]:
    """As they were: an export silences some."""
    names = ("opentelemetry.exporter.otlp", "opentelemetry.sdk._shared_internal")
    levels = [logging.getLogger(name).level for name in names]
    yield
    for name, level in zip(names, levels, strict=True):
        logging.getLogger(name).setLevel(level)


@pytest.fixture
def _short_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """For spans that nobody takes."""
    monkeypatch.setattr(exporting, "FLUSH_SECONDS", 0.2)


def test_what_is_left_is_sent_at_the_end() -> None:
    with collecting() as collector:
        export = Export(collector.endpoint, "a service", "router")
        span = export.provider.get_tracer("test").start_span("work", attributes={"size": 3})
        span.end()
        export.close()
        [received] = collector.trace(span.get_span_context().trace_id.to_bytes(16, "big"))
    assert (received.name, received.attributes) == ("work", {"size": 3})
    assert (received.resource["service.name"], received.process) == ("a service", "router")


def test_what_a_process_says_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.version=9")
    export = Export("http://127.0.0.1:1", "a service", "router")
    told = export.provider.resource.attributes
    export.close()
    assert (told["service.version"], told["deployment.environment.name"]) == (version("penstock"), "test")


def test_headers_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s3cret")
    with collecting() as collector:
        export = Export(collector.endpoint, "a service", "router")
        export.provider.get_tracer("test").start_span("work").end()
        export.close()
    assert ("authorization", "Bearer s3cret") in collector.metadata


@pytest.mark.parametrize(("variables", "is_secure"), [
    ({}, False), ({"OTEL_EXPORTER_OTLP_INSECURE": "false"}, True), ({"OTEL_EXPORTER_OTLP_INSECURE": "true"}, False),
    ({"OTEL_EXPORTER_OTLP_INSECURE": "false", "OTEL_EXPORTER_OTLP_TRACES_INSECURE": "true"}, False)])
def test_whether_an_endpoint_without_a_scheme_is_encrypted(
    variables: dict[str, str], is_secure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with collecting() as collector:
        export = Export(collector.endpoint.removeprefix("http://"), "a service", "router")
        span = export.provider.get_tracer("test").start_span("work")
        span.end()
        export.close()
        received = collector.trace(span.get_span_context().trace_id.to_bytes(16, "big"))
    assert bool(received) != is_secure, "the collector takes no TLS"


def test_an_endpoint_without_a_scheme() -> None:
    with collecting() as collector:
        export = Export(collector.endpoint.removeprefix("http://"), "a service", "router")
        span = export.provider.get_tracer("test").start_span("work")
        span.end()
        export.close()
        assert collector.trace(span.get_span_context().trace_id.to_bytes(16, "big"))


@contextmanager
def deaf() -> Iterator[str]:
    """An address that takes connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.usefixtures("_short_end")
@pytest.mark.timeout(8)                 # the exporter alone would try for ten seconds a batch
@pytest.mark.parametrize("is_deaf", [True, False])
def test_the_end_does_not_wait_for_a_collector_that_is_not_there(is_deaf: bool) -> None:
    with deaf() as endpoint:
        export = Export(endpoint if is_deaf else "http://127.0.0.1:1", "a service", "router")
        tracer = export.provider.get_tracer("test")
        for _ in range(3000):
            tracer.start_span("work").end()
        export.close()
    until_ended("OtelBatchSpanRecordProcessor")


def until_ended(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(20)
            assert not thread.is_alive()


class Fickle(SpanExporter):
    """Gives what it is told to give."""

    def __init__(self, *results: SpanExportResult | Exception) -> None:
        self._results = iter(results)

    def export(self, spans: object) -> SpanExportResult:
        result = next(self._results)
        if isinstance(result, Exception):
            raise result
        return result


def test_a_lost_collector_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    good, bad = SpanExportResult.SUCCESS, SpanExportResult.FAILURE
    results = [good, bad, bad, ValueError("closed"), bad, good, good, bad]
    reporting = Reporting(Fickle(*results), "http://here:4317")
    spans: list[ReadableSpan] = []
    for _ in results:
        reporting.export(spans)
    assert [record.message for record in caplog.records] == [
        "the collector at http://here:4317 takes no spans, they are dropped until it does",
        "the collector at http://here:4317 takes spans again",
        "the collector at http://here:4317 takes no spans, they are dropped until it does"]


@pytest.mark.usefixtures("_short_end")
def test_nobody_else_reports_it(caplog: pytest.LogCaptureFixture) -> None:
    export = Export("http://127.0.0.1:1", "a service", "router")
    tracer = export.provider.get_tracer("test")
    for _ in range(3000):                # more than the queue holds
        tracer.start_span("work").end()
    export.close()
    until_ended("OtelBatchSpanRecordProcessor")
    assert [record.name for record in caplog.records] == ["penstock.telemetry.export"]
