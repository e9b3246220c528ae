"""Traces of a real server: the router and two shards send their spans to a collector, and they are one trace."""

import asyncio
import os
import secrets
import signal
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import aiohttp
import orjson
import pytest

from tests.e2e.client import Answer, generate, many_clients, stream, whole
from tests.e2e.server import Server, serve
from tests.telemetry.collector import Collector, Received, collecting

pytestmark = pytest.mark.slow
SOURCE = "import os\n\n\ndef walk(path):\n"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="module")
def server(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        with serve(tmp_path_factory.mktemp("traces"), "--num-shard", "2", "--dtype", "float32",
                   "--otlp-endpoint", collector.endpoint, "--otlp-service-name", "demo") as server:
            yield server


class Caller:
    """One who traces, and asks within a trace of its own."""

    def __init__(self, collector: Collector) -> None:
        self.trace_id, self.span_id = secrets.token_bytes(16), secrets.token_bytes(8)
        self._collector = collector

    @property
    def headers(self) -> dict[str, str]:
        return {"traceparent": f"00-{self.trace_id.hex()}-{self.span_id.hex()}-01"}

    def spans(self, name: str) -> list[Received]:
        return [received for received in self._collector.trace(self.trace_id) if received.name == name]

    def request(self) -> Received:
        """The router's span of the one request, once those of its first step have come too."""
        self._collector.until(lambda: bool(self.spans("POST /generate_stream")))
        [request] = self.spans("POST /generate_stream")
        self._collector.until(lambda: all(self.steps(rank) for rank in (0, 1)))
        return request

    def steps(self, rank: int) -> list[Received]:
        return [step for step in self.spans("step") if step.process == f"shard-{rank}"]


async def ask(server: Server, caller: Caller, max_new_tokens: int) -> Answer:
    async with aiohttp.ClientSession(headers=caller.headers) as session:
        return await stream(session, server.url, SOURCE, max_new_tokens=max_new_tokens, ignore_eos=True)


def links(received: Received) -> set[tuple[bytes, bytes]]:
    return {(link.trace_id, link.span_id) for link in received.span.links}


async def test_one_trace_over_router_and_shards(server: Server, collector: Collector) -> None:
    caller = Caller(collector)
    answer = await ask(server, caller, 12)
    request = await asyncio.to_thread(caller.request)
    assert request.span.parent_span_id == caller.span_id
    assert (request.resource["service.name"], request.resource["service.version"]) == ("demo", version("penstock"))
    assert request.attributes["gen_ai.usage.output_tokens"] == len(answer.ids)
    assert request.attributes["gen_ai.response.finish_reasons"] == [answer.finish_reason]
    spans = collector.trace(caller.trace_id)
    assert {received.process for received in spans} == {"router", "shard-0", "shard-1"}
    children = [received for received in spans if received is not request]
    assert {received.span.parent_span_id for received in children} == {request.span.span_id}
    names = [received.name for received in children if received.process == "router"]
    assert sorted(names) == ["decode", "prefill", "queue", "validation"]
    for rank in (0, 1):
        steps = caller.steps(rank)
        assert len(steps) == 1, "the first has a span, and of the others one of a hundred"
        for step in steps:
            assert links(step) == {(caller.trace_id, request.span.span_id)}
            assert request.span.start_time_unix_nano < step.span.start_time_unix_nano
            assert step.span.end_time_unix_nano < request.span.end_time_unix_nano + 50_000_000


async def test_steps_are_linked_to_all_that_they_work_for(server: Server, collector: Collector) -> None:
    """Three that run together for more steps than one span stands for."""
    callers = [Caller(collector) for _ in range(3)]
    await asyncio.gather(*(ask(server, caller, 250) for caller in callers))
    for caller in callers:
        await asyncio.to_thread(collector.until, lambda caller=caller: bool(caller.spans("POST /generate_stream")))
    requests = {(caller.trace_id, caller.spans("POST /generate_stream")[0].span.span_id) for caller in callers}

    def linked(rank: int) -> list[set[tuple[bytes, bytes]]]:
        return [links(step) for caller in callers for step in caller.steps(rank)]

    for rank in (0, 1):
        await asyncio.to_thread(collector.until, lambda rank=rank: requests in linked(rank))
        assert set().union(*linked(rank)) == requests


async def test_a_replay_shows(server: Server, collector: Collector) -> None:
    undisturbed = await ask(server, Caller(collector), 600)
    caller, victim = Caller(collector), server.children("shard")[1]
    events = []
    body = {"inputs": SOURCE, "parameters": {"max_new_tokens": 600, "ignore_eos": True, "details": True}}
    async with (many_clients() as session,
                session.post(f"{server.url}/generate_stream", json=body, headers=caller.headers) as response):
        async for line in response.content:
            if line.startswith(b"data:"):
                events.append(line)
                if len(events) == 20:
                    os.kill(victim.pid, signal.SIGKILL)
    answer = whole([_load(line) for line in events])
    assert answer == undisturbed
    await asyncio.to_thread(collector.until, lambda: bool(caller.spans("POST /generate_stream")))
    [request] = caller.spans("POST /generate_stream")
    [replay] = request.span.events
    assert replay.name == "replay"
    generated = {pair.key: pair.value.int_value for pair in replay.attributes}["penstock.generated_tokens"]
    assert 20 <= generated < len(answer.ids)
    after = [step for rank in (0, 1) for step in caller.steps(rank)
             if step.span.start_time_unix_nano > replay.time_unix_nano]
    assert {step.process for step in after} == {"shard-0", "shard-1"}
    assert all(links(step) == {(caller.trace_id, request.span.span_id)} for step in after)


def _load(line: bytes) -> dict[str, object]:
    event: dict[str, object] = orjson.loads(line[5:])
    return event


async def test_a_caller_who_does_not_trace(server: Server, collector: Collector) -> None:
    caller = Caller(collector)
    headers = {"traceparent": caller.headers["traceparent"][:-2] + "00"}
    async with aiohttp.ClientSession(headers=headers) as session:
        await generate(session, server.url, SOURCE, max_new_tokens=4)
    last = Caller(collector)
    await ask(server, last, 4)
    await asyncio.to_thread(last.request)
    assert collector.trace(caller.trace_id) == []


@pytest.mark.timeout(120)
async def test_without_the_collector_all_goes_on(tmp_path: Path) -> None:
    with serve(tmp_path, "--num-shard", "2", "--otlp-endpoint", "http://127.0.0.1:1") as server:
        async with many_clients() as session:
            answers = await asyncio.gather(*(stream(session, server.url, SOURCE, max_new_tokens=100) for _ in range(8)))
        assert len(set(answers)) == 1
        assert server.terminate() == 0
        log = server.log.read_text()
    assert 1 <= log.count("takes no spans") <= 3, "once a process"
    assert "Transient error" not in log
