"""The spans of requests, by an exporter that keeps them: the real app, engine and tokenizer over a scripted fleet."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from penstock.contract import side_inputs
from penstock.router.adapters.registry import Registry
from penstock.router.adapters.source import AdapterSource
from penstock.router.chat.template import ChatTemplate
from penstock.router.fleet.errors import FleetError
from penstock.router.journal.redaction import Redaction
from penstock.router.tracing.middleware import Tracing
from tests.eventually import until
from tests.pooling_fleet import EMBEDDER, PoolingFleet
from tests.router.adapters.folders import write_adapter
from tests.router.api.conftest import Server, Start

TRACE, PARENT = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
TRACEPARENT = f"00-{TRACE:032x}-{PARENT:016x}-01"


class Traced:
    """A server, and the spans that it has made."""

    def __init__(self, server: Server, spans: InMemorySpanExporter) -> None:
        self.server = server
        self._spans = spans

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._spans.get_finished_spans()

    def one(self, name: str) -> ReadableSpan:
        [span] = [span for span in self.spans if span.name == name]
        return span

    def request(self) -> ReadableSpan:
        """The span of the only request."""
        [span] = [span for span in self.spans if span.kind is SpanKind.SERVER]
        return span

    async def until_told(self) -> None:
        await until(lambda: any(span.kind is SpanKind.SERVER for span in self.spans))


StartTraced = Callable[..., Awaitable[Traced]]


@pytest.fixture
def start_traced(start: Start) -> StartTraced:
    async def start_traced(redaction: Redaction | None = None, **more: Any) -> Traced:
        exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        return Traced(await start(outer=[Tracing(provider, "demo", redaction).middleware], **more), exporter)

    return start_traced


@pytest.fixture
async def traced(start_traced: StartTraced) -> Traced:
    return await start_traced()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_a_request_and_its_parts(start_traced: StartTraced) -> None:
    traced = await start_traced(answer=" b")
    response = await traced.server.post("/generate", {"inputs": " a" * 300, "parameters": {
        "max_new_tokens": 3, "temperature": 0.5, "top_p": 0.75, "top_k": 4, "seed": 7, "frequency_penalty": 0.25,
        "stop": ["never"]}})
    request = traced.request()
    assert request.name == "POST /generate"
    assert request.parent is None
    assert request.status.status_code is StatusCode.UNSET
    told = attributes(request)
    assert 0 < told.pop("gen_ai.response.time_to_first_chunk") < 5
    assert told.pop("server.port") > 0
    assert told.pop("penstock.request.id") == response.headers["x-request-id"]
    assert f"{told.pop('gen_ai.response.id')}.0" == response.headers["penstock-answer"]
    assert "aiohttp" in told.pop("user_agent.original")
    assert told == {
        "http.request.method": "POST", "http.route": "/generate", "http.response.status_code": 200,
        "url.path": "/generate", "url.scheme": "http", "server.address": "127.0.0.1", "client.address": "127.0.0.1",
        "network.protocol.version": "1.1",
        "gen_ai.operation.name": "text_completion", "gen_ai.provider.name": "penstock",
        "gen_ai.request.model": "demo", "gen_ai.response.model": "demo", "gen_ai.request.stream": False,
        "gen_ai.request.max_tokens": 3, "gen_ai.request.temperature": 0.5, "gen_ai.request.top_p": 0.75,
        "gen_ai.request.top_k": 4, "gen_ai.request.seed": 7, "gen_ai.request.frequency_penalty": 0.25,
        "gen_ai.request.stop_sequences": ("never",),
        "gen_ai.usage.input_tokens": 300, "gen_ai.usage.output_tokens": 3, "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.response.finish_reasons": ("length",)}
    parts = [traced.one(name) for name in ("validation", "queue", "prefill", "decode")]
    for part in parts:
        assert part.parent is not None
        assert part.parent.span_id == request.context.span_id
        assert part.context.trace_id == request.context.trace_id
        assert request.start_time <= part.start_time <= part.end_time <= request.end_time
    assert all(before.end_time <= after.start_time + 1_000_000
               for before, after in pairwise(parts))
    assert len(traced.spans) == 5


async def test_chunks_of_a_prefill(start_traced: StartTraced) -> None:
    traced = await start_traced(answer=" b")
    await traced.server.generate(" a" * 300, max_new_tokens=1)
    prefill = traced.one("prefill")
    assert [(event.name, dict(event.attributes or {})) for event in prefill.events] == [
        ("prefill_chunk", {"penstock.start": 0, "penstock.tokens": 256}),
        ("prefill_chunk", {"penstock.start": 256, "penstock.tokens": 44})]
    assert all(prefill.start_time <= event.timestamp <= prefill.end_time for event in prefill.events)


async def test_the_trace_of_the_caller_goes_on(traced: Traced) -> None:
    async with traced.server.client.post(
            "/generate_stream", json={"inputs": "a"}, headers={"traceparent": TRACEPARENT}) as response:
        await response.read()
    request = traced.request()
    assert request.parent is not None
    assert (request.context.trace_id, request.parent.span_id) == (TRACE, PARENT)
    assert {span.context.trace_id for span in traced.spans} == {TRACE}
    assert attributes(request)["gen_ai.request.stream"] is True


async def test_shards_are_told_of_the_span(traced: Traced) -> None:
    await traced.server.generate("a", max_new_tokens=3)
    context = traced.request().context
    firsts = traced.server.fleet.initial_states
    assert [first.side_inputs[side_inputs.TRACE] for first in firsts] == [
        context.trace_id.to_bytes(16, "big") + context.span_id.to_bytes(8, "big")]


async def test_a_trace_that_is_not_sampled(traced: Traced) -> None:
    async with traced.server.client.post("/generate", json={"inputs": "a"},
                                         headers={"traceparent": TRACEPARENT[:-2] + "00"}) as response:
        assert response.status == 200
    assert traced.spans == ()
    rows = [row for plan in traced.server.fleet.plans for row in plan.rows]
    assert [row.initial_state.side_inputs for row in rows if row.initial_state is not None] == [{}]
    assert not any(plan.chunks for plan in traced.server.fleet.plans)


async def test_samplers_of_the_environment(start_traced: StartTraced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    traced = await start_traced()
    await traced.server.generate("a", max_new_tokens=1)
    assert traced.spans == ()


async def test_a_lost_group_shows(traced: Traced) -> None:
    traced.server.fleet.may_answer.clear()
    waiting = asyncio.create_task(traced.server.generate("a", max_new_tokens=3))
    await until(lambda: bool(traced.server.fleet.plans))
    traced.server.fleet.failure = FleetError("gone")
    traced.server.fleet.may_answer.set()
    await waiting
    request = traced.request()
    [replay] = request.events
    assert (replay.name, dict(replay.attributes or {})) == (
        "replay", {"penstock.answer.index": 0, "penstock.generated_tokens": 0})
    assert request.start_time < replay.timestamp < request.end_time
    assert len(traced.one("prefill").events) == 2
    firsts = [state.side_inputs[side_inputs.TRACE] for state in traced.server.fleet.initial_states]
    assert len(firsts) == 2
    assert len(set(firsts)) == 1


async def test_a_lost_group_shows_once_for_all_answers_of_a_search(traced: Traced) -> None:
    traced.server.fleet.fail_at("next_result", 3)
    await traced.server.generate("a", max_new_tokens=4, num_beams=2, num_return_sequences=2, details=True)
    [replay] = traced.request().events
    assert (replay.name, dict(replay.attributes or {})) == (
        "replay", {"penstock.answer.index": 0, "penstock.generated_tokens": 2})


@pytest.mark.parametrize("path", ["/generate", "/generate_stream"])
async def test_a_refused_request(traced: Traced, path: str) -> None:
    await traced.server.post(path, {"inputs": "a", "parameters": {"temperature": -1.0}})
    await traced.until_told()
    request = traced.request()
    assert attributes(request)["error.type"] == "validation"
    assert attributes(request)["http.response.status_code"] == (422 if path == "/generate" else 200)
    assert request.status.status_code is StatusCode.UNSET
    assert {span.name for span in traced.spans} == {request.name, "validation"}


async def test_a_failed_request(traced: Traced) -> None:
    traced.server.fleet.failure = ZeroDivisionError("gone")
    await traced.server.post("/generate", {"inputs": "a"})
    request = traced.request()
    assert attributes(request)["error.type"] == "generation"
    assert request.status.status_code is StatusCode.ERROR
    await traced.server.is_to_end.wait()


async def test_a_client_that_leaves(traced: Traced) -> None:
    traced.server.fleet.may_answer.clear()
    client = asyncio.create_task(traced.server.post("/generate_stream", {"inputs": "a"}))
    await until(lambda: bool(traced.server.engine._requests))
    (await client).close()
    await traced.until_told()
    request = traced.request()
    assert attributes(request)["error.type"] == "dropped"
    assert request.status.status_code is StatusCode.UNSET
    assert "decode" not in {span.name for span in traced.spans}
    traced.server.fleet.may_answer.set()
    await traced.server.until_idle()


async def test_several_answers(start_traced: StartTraced) -> None:
    traced = await start_traced(answer=" b")
    response = await traced.server.post("/v1/completions", {
        "model": "any", "prompt": [" a" * 20, " c" * 30], "n": 2, "max_tokens": 3, "temperature": 0.0,
        "seed": 2**64 - 1})
    assert response.status == 200, await response.text()
    told = attributes(traced.request())
    assert (told["gen_ai.operation.name"], told["gen_ai.request.model"], told["gen_ai.response.model"]) == (
        "text_completion", "any", "demo")
    assert (told["gen_ai.request.choice.count"], told["gen_ai.request.temperature"]) == (2, 0.0)
    assert told["gen_ai.request.seed"] == "18446744073709551615"
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (50, 12)
    assert told["gen_ai.response.finish_reasons"] == ("length",) * 4
    assert sorted(attributes(span)["penstock.answer.index"] for span in traced.spans if span.name == "decode") == [
        0, 1, 2, 3]
    assert traced.one("validation")


async def test_several_generations_in_one_request(start_traced: StartTraced) -> None:
    traced = await start_traced(answer=" b")
    response = await traced.server.post("/vertex", {"instances": [
        {"inputs": " a" * size, "parameters": {"max_new_tokens": size}} for size in (2, 3)]})
    assert response.status == 200, await response.text()
    told = attributes(traced.request())
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (5, 5)
    assert {span.context.trace_id for span in traced.spans} == {traced.request().context.trace_id}
    assert sorted(span.name for span in traced.spans) == sorted([
        "POST /vertex", *2 * ["validation", "queue", "prefill", "decode"]])


async def test_a_chat(start_traced: StartTraced, demo: ChatTemplate) -> None:
    traced = await start_traced(template=demo, answer="b<|im_end|>")
    response = await traced.server.post("/v1/chat/completions", {
        "model": "mine", "messages": [{"role": "user", "content": "a"}]})
    assert response.status == 200, await response.text()
    told = attributes(traced.request())
    assert (told["gen_ai.operation.name"], told["gen_ai.request.model"]) == ("chat", "mine")
    assert told["gen_ai.response.finish_reasons"] == ("stop",)


async def test_a_chat_without_a_template(traced: Traced) -> None:
    response = await traced.server.post("/v1/chat/completions", {
        "model": "mine", "messages": [{"role": "user", "content": "a"}]})
    assert response.status == 400
    assert attributes(traced.request())["error.type"] == "template_error"
    assert traced.server.series()['tgi_request_failure{err="template"}'] == 1


async def test_what_is_no_generation(traced: Traced) -> None:
    for path in ("/health", "/metrics", "/info"):
        await traced.server.client.get(path)
    assert traced.spans == ()
    await traced.server.post("/nothing", {})
    request = traced.request()
    assert (request.name, attributes(request)["http.response.status_code"]) == ("POST", 404)
    assert not [name for name in attributes(request) if name.startswith("gen_ai.") or name == "http.route"]


async def test_nothing_is_kept_of_a_request_that_is_not_traced(server: Server) -> None:
    await server.generate("a", max_new_tokens=2)
    rows = [row for plan in server.fleet.plans for row in plan.rows]
    assert [row.initial_state.side_inputs for row in rows if row.initial_state is not None] == [{}]
    assert not any(plan.chunks for plan in server.fleet.plans)


async def test_the_adapter_is_named(start_traced: StartTraced, tmp_path: Path) -> None:
    source = AdapterSource("mine", write_adapter(tmp_path), "mine")
    traced = await start_traced(adapters=Registry([source], max_bytes=10_000))
    await traced.server.generate(adapter_id="mine", max_new_tokens=2)
    await traced.until_told()
    assert attributes(traced.request())["penstock.adapter"] == "mine"


async def test_the_id_of_an_answer_is_that_which_its_client_knows(start_traced: StartTraced) -> None:
    def servers() -> list[ReadableSpan]:
        return [span for span in traced.spans if span.kind is SpanKind.SERVER]

    traced = await start_traced()
    texts = [await (await traced.server.post(
        "/v1/completions", {"prompt": "a", "seed": 5, "stream": is_stream})).text() for is_stream in (False, True)]
    await until(lambda: len(servers()) == 2)
    [name] = {attributes(span)["gen_ai.response.id"] for span in servers()}
    assert all(f'"id":"{name}"' in text for text in texts)


async def test_vectors(start_traced: StartTraced) -> None:
    traced = await start_traced(facts=EMBEDDER, make_fleet=lambda _: PoolingFleet())
    answer = await (await traced.server.post("/v1/embeddings", {"input": ["a b", "c"], "dimensions": 4})).json()
    told = attributes(traced.request())
    assert {name: told[name] for name in told if name.startswith("gen_ai.") and not name.endswith("reasons")} == {
        "gen_ai.operation.name": "embeddings", "gen_ai.provider.name": "penstock", "gen_ai.request.model": "demo",
        "gen_ai.response.model": "demo", "gen_ai.embeddings.dimension.count": 4,
        "gen_ai.usage.input_tokens": answer["usage"]["prompt_tokens"], "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.output_tokens": 0}
    assert {span.name for span in traced.spans} >= {"validation", "queue"}


async def test_texts_are_in_an_event_where_records_have_them(start_traced: StartTraced) -> None:
    traced = await start_traced(redaction=Redaction(["Say"]))
    answer = await traced.server.generate("Say it", max_new_tokens=3)
    [event] = [event for event in traced.request().events if event.name.startswith("gen_ai.")]
    told = {name: value if name == "gen_ai.operation.name" else json.loads(value)
            for name, value in (event.attributes or {}).items() if isinstance(value, str)}
    assert (event.name, told) == ("gen_ai.client.inference.operation.details", {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "[redacted] it"}]}],
        "gen_ai.output.messages": [{
            "role": "assistant", "parts": [{"type": "text", "content": answer["generated_text"]}],
            "finish_reason": "length"}]})
