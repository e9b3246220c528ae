"""The log, the spans and the series of requests that servers elsewhere answer, and the key that they are sent."""

import logging
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock.router import logs
from penstock.router.tracing.middleware import Tracing
from tests.router.api.conftest import Server
from tests.router.api.foreign.conftest import Front, Stranger, url_of

PROMPT: dict[str, Any] = {"model": "far", "prompt": "Who?", "max_tokens": 9}
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


async def test_a_line_of_the_log_tells_which_servers_were_asked(
    front: Front, stranger: Stranger, other: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logs.REQUESTS)
    server = await front(far={"url": [stranger.url, url_of(other)], "model": "demo"})
    await (await server.post("/v1/completions", {**PROMPT, "stream": True})).read()
    [fields] = [found for record in caplog.records if record.name == logs.REQUESTS
                and "source" in (found := record.__dict__["fields"])]
    assert fields.pop("total_time") > 0
    assert fields.pop("request_id").startswith("req_")
    assert fields == {"route": "POST /v1/completions", "status": 200, "model": "far", "source": url_of(other),
                      "outcome": "answered", "failed_sources": f"{stranger.url} failed"}


async def test_a_failure_is_counted_and_told(
    front: Front, stranger: Stranger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logs.REQUESTS)
    server = await front(far={"url": stranger.url})
    assert (await server.post("/v1/completions", PROMPT)).status == 502
    fields = caplog.records[-1].__dict__["fields"]
    assert (fields["status"], fields["error"], fields["outcome"]) == (502, "source", "failed")
    text = await (await server.client.get("/metrics")).text()
    for line in ('penstock_requests_total{model="far",route="/v1/completions",status="502"} 1.0',
                 'tgi_request_failure{model="far",err="generation"} 1.0', 'tgi_request_count{model="far"} 1.0',
                 f'penstock_source_requests_total{{model="far",source="{stranger.url}",outcome="failed"}} 1.0'):
        assert line in text.splitlines()


async def test_the_spans_of_the_other_server_belong_to_this_ones(
    front: Front, stranger: Stranger, other: Server
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    server = await front(outer=[Tracing(provider, "demo").middleware],
                         far={"url": [stranger.url, url_of(other)], "model": "demo"})
    response = await server.client.post("/v1/completions", json=PROMPT,
                                        headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
    assert response.status == 200
    *children, request = exporter.get_finished_spans()
    assert [(child.name, dict(child.attributes or {})) for child in children] == [
        ("source", {"server.address": stranger.url, "penstock.source.outcome": "failed"}),
        ("source", {"server.address": url_of(other), "penstock.source.outcome": "answered"})]
    assert request.context is not None
    assert stranger.headers[0]["traceparent"] == f"00-{TRACE}-{request.context.span_id:016x}-01"


async def test_the_servers_key_is_sent_and_told_nowhere(
    front: Front, stranger: Stranger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = await front(far={"url": stranger.url}, keys={"far": "sk-secret"})
    response = await server.post("/v1/completions", PROMPT)
    assert stranger.headers[0]["authorization"] == "Bearer sk-secret"
    shown = [await (await server.client.get(path)).text() for path in ("/metrics", "/v1/models", "/info")]
    assert "sk-secret" not in "".join([await response.text(), str(response.headers), caplog.text, *shown])
