"""Answers of a server that keeps them: equal requests get the same bytes, and only the first is computed."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.router.api.http import connection
from penstock.router.api.http.access import Access
from penstock.router.chat.template import ChatTemplate
from penstock.router.fleet.errors import FleetError
from penstock.router.generation.around import Around
from penstock.router.grammar.compiler import GrammarCompiler
from penstock.router.keys import Keys
from penstock.router.metrics.metrics import Metrics
from penstock.router.response_cache.backend import Bounds
from penstock.router.response_cache.cache import ResponseCache
from penstock.router.response_cache.memory import Memory
from tests.eventually import until
from tests.fakes import LIMITS
from tests.pooling_fleet import EMBEDDER, RERANKER, WHOLE_LIMITS, PoolingFleet
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.chats import HELLO
from tests.router.api.resuming import SeededFleet

BOUNDS = Bounds(1 << 20, 60.0)
StartCached = Callable[..., Awaitable[Server]]
GREEDY: dict[str, Any] = {"inputs": "Say it", "parameters": {"max_new_tokens": 6, "details": True}}
SAMPLED = {"inputs": "Say it", "parameters": {"max_new_tokens": 6, "do_sample": True}}
CHAT = {"messages": HELLO, "max_tokens": 6, "temperature": 0}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "greedy": ("/generate", GREEDY),
    "a seed": ("/generate", {"inputs": "a", "parameters": {"do_sample": True, "seed": 5, "max_new_tokens": 6}}),
    "top tokens": ("/generate", {"inputs": "a", "parameters": {
        "details": True, "top_n_tokens": 3, "decoder_input_details": True, "max_new_tokens": 6}}),
    "a stop string": ("/generate", {"inputs": "a", "parameters": {"stop": ["rld"], "details": True}}),
    "beams": ("/generate", {"inputs": "a", "parameters": {
        "num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 4, "details": True}}),
    "a stream": ("/generate_stream", GREEDY),
    "a list": ("/", GREEDY),
    "completions": ("/v1/completions", {
        "prompt": ["a", "b", "a"], "n": 2, "seed": 3, "max_tokens": 6, "logprobs": 2, "echo": True}),
    "streamed completions": ("/v1/completions", {"prompt": "a", "temperature": 0, "max_tokens": 6, "stream": True}),
    "chats": ("/v1/chat/completions", {**CHAT, "logprobs": True, "top_logprobs": 2}),
    "streamed chats": ("/v1/chat/completions", {**CHAT, "stream": True, "stream_options": {"include_usage": True}}),
    "messages": ("/v1/messages", {"model": "demo", "messages": HELLO, "max_tokens": 6, "temperature": 0}),
    "responses": ("/v1/responses", {"input": "Hello", "max_output_tokens": 16, "temperature": 0, "store": False}),
}
_CHANGING = re.compile(
    rb'"(?:created|created_at|completed_at)": ?[\d.]+|(?:chatcmpl|cmpl|msg|resp|rs|fc|call|toolu)[-_][0-9a-zA-Z_-]{8,}')


def cached(metrics: Metrics, *, is_shared: bool = True, bounds: Bounds = BOUNDS) -> Around:
    return Around(ResponseCache(Memory(bounds, metrics.cache), bounds, metrics.cache, is_shared))


@pytest.fixture
def start_cached(start: Start, demo: ChatTemplate) -> StartCached:
    async def start_cached(**settings: Any) -> Server:
        return await start(**{"template": demo, "make_fleet": SeededFleet, "make_around": cached,
                              "limits": replace(LIMITS, enable_prefill_logprobs=True), **settings})

    return start_cached


@pytest.fixture
async def server(start_cached: StartCached) -> Server:
    return await start_cached()


async def ask(server: Server, path: str, body: object, **headers: str) -> tuple[bytes, str | None]:
    """The bytes of an answer, without the times and names that each answer has of its own, and what the header says."""
    response = await server.client.post(path, json=body, headers={
        name.replace("_", "-"): value for name, value in headers.items()})
    assert response.status == 200, await response.text()
    return _CHANGING.sub(b"-", await response.read()), response.headers.get("penstock-cache")


def num_computed(server: Server) -> int:
    """How many sequences have begun to run since the last look."""
    number = len(server.fleet.initial_states)
    server.fleet.plans.clear()
    return number


def asked(server: Server, outcome: str) -> float:
    return server.counted("penstock_response_cache_requests_total", outcome=outcome)


@pytest.mark.parametrize("name", BODIES)
async def test_a_kept_answer_has_the_same_bytes(server: Server, name: str) -> None:
    path, body = BODIES[name]
    first = await ask(server, path, body)
    assert num_computed(server)
    again = await ask(server, path, body)
    assert (first[1], again[1]) == ("miss", "hit; age=0")
    assert again[0] == first[0]
    assert not num_computed(server)
    await server.until_idle()


async def test_streams_and_whole_answers_are_the_same(server: Server) -> None:
    for path in ("/generate", "/generate_stream", "/"):
        await ask(server, path, GREEDY)
    assert num_computed(server) == 1
    for stream in (True, False):
        await ask(server, "/v1/chat/completions", {**CHAT, "stream": stream})
    await ask(server, "/v1/messages", BODIES["messages"][1])
    assert num_computed(server) == 1


@pytest.mark.parametrize("change", [
    {"max_new_tokens": 5}, {"stop": ["x"]}, {"repetition_penalty": 1.5}, {"top_n_tokens": 1}, {"seed": 7, "top_k": 3},
    {"cache_salt": "other"}, {"decoder_input_details": True}])
async def test_another_request_is_computed(server: Server, change: dict[str, Any]) -> None:
    await ask(server, "/generate", GREEDY)
    other = {"inputs": "Say it", "parameters": {**GREEDY["parameters"], **change}}
    assert (await ask(server, "/generate", other))[1] == "miss"


async def test_another_grammar_is_another_request(start_cached: StartCached, grammars: GrammarCompiler) -> None:
    server = await start_cached(grammars=grammars, answer="Hello")
    found = []
    for pattern in ("Hel+o", "Hello?", "Hel+o"):
        found.append((await ask(server, "/generate", {"inputs": "a", "parameters": {
            "grammar": {"type": "regex", "value": pattern}, "max_new_tokens": 4}}))[1])
    assert found == ["miss", "miss", "hit; age=0"]


async def test_a_drawn_seed_is_never_kept(server: Server) -> None:
    assert [(await ask(server, "/generate", SAMPLED))[1] for _ in range(2)] == ["skipped"] * 2
    assert num_computed(server) == 2
    assert asked(server, "skipped") == 2


async def test_an_idempotency_key_says_the_seed(server: Server) -> None:
    found = [(await ask(server, "/generate", SAMPLED, idempotency_key="mine"))[1] for _ in range(2)]
    assert found == ["miss", "hit; age=0"]


@pytest.mark.parametrize(("header", "outcomes"), [
    ("no-cache", ["miss", "miss", "hit; age=0"]), ("no-store", ["skipped", "skipped", "miss"]),
    ("max-age=0, No-Store", ["skipped", "skipped", "miss"])])
async def test_a_client_opts_out(server: Server, header: str, outcomes: list[str]) -> None:
    found = [(await ask(server, "/generate", GREEDY, cache_control=header))[1] for _ in range(2)]
    assert [*found, (await ask(server, "/generate", GREEDY))[1]] == outcomes


@pytest.mark.parametrize("is_shared", [False, True])
async def test_keys_have_answers_of_their_own(start_cached: StartCached, is_shared: bool) -> None:
    server = await start_cached(access=Access(Keys(("one", "two"))),
                                make_around=lambda metrics: cached(metrics, is_shared=is_shared))
    found = [(await ask(server, "/generate", GREEDY, authorization=f"Bearer {key}"))[1]
             for key in ("one", "two", "one")]
    assert found == ["miss", "hit; age=0" if is_shared else "miss", "hit; age=0"]


async def test_equal_requests_in_flight_share_one_computation(server: Server) -> None:
    server.fleet.may_answer.clear()
    first = asyncio.create_task(ask(server, "/generate", GREEDY))
    await until(lambda: server.fleet.plans)
    others = [asyncio.create_task(ask(server, "/generate", GREEDY)) for _ in range(4)]
    await until(lambda: asked(server, "shared") == 4)
    first.cancel()
    others[0].cancel()
    await asyncio.wait([first, others[0]])
    server.fleet.may_answer.set()
    answers = await asyncio.gather(*others[1:])
    assert len({body for body, _ in answers}) == 1
    assert {cache for _, cache in answers} == {"shared"}
    assert num_computed(server) == 1
    assert (await ask(server, "/generate", GREEDY))[1] == "hit; age=0"
    await server.until_idle()


async def test_who_joins_late_gets_the_tokens_before(server: Server) -> None:
    whole, _ = await ask(server, "/generate_stream", GREEDY, cache_control="no-store")
    async with server.client.post("/generate_stream", json=GREEDY) as response:
        await response.content.readuntil(b"\n\n")
        server.fleet.may_answer.clear()
        late = asyncio.create_task(ask(server, "/generate_stream", GREEDY))
        await until(lambda: asked(server, "shared") == 1)
        server.fleet.may_answer.set()
        assert await late == (whole, "shared")


async def test_a_computation_ends_when_all_have_left(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PROBE_SECONDS", tuple(each / 5 for each in connection.PROBE_SECONDS))
    server.fleet.may_answer.clear()
    tasks = [asyncio.create_task(ask(server, "/generate", GREEDY)) for _ in range(3)]
    await until(lambda: asked(server, "shared") + asked(server, "miss") == 3 and server.fleet.plans)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await until(lambda: not server.engine._requests)
    server.fleet.may_answer.set()
    await server.until_idle()
    assert (await ask(server, "/generate", GREEDY))[1] == "miss"


async def test_an_answer_that_was_computed_again_is_not_kept(server: Server) -> None:
    server.fleet.may_answer.clear()
    first = asyncio.create_task(ask(server, "/generate", GREEDY))
    await until(lambda: server.fleet.plans)
    server.fleet.failure = FleetError("lost")
    server.fleet.may_answer.set()
    assert (await first)[1] == "miss"
    assert (await ask(server, "/generate", GREEDY))[1] == "miss"


async def test_a_failure_is_not_kept(server: Server) -> None:
    server.fleet.is_nan = lambda row: True
    assert (await server.post("/generate", GREEDY)).status == 424
    server.fleet.is_nan = lambda row: False
    assert (await ask(server, "/generate", GREEDY))[1] == "miss"


async def test_a_refusal_of_a_stream_is_an_event(server: Server) -> None:
    response = await server.post("/generate_stream", {"inputs": "a", "parameters": {"max_new_tokens": 0}})
    assert response.status == 200
    assert b"strictly positive" in await response.read()
    assert "penstock-cache" not in response.headers


async def test_a_large_answer_is_not_kept(start_cached: StartCached) -> None:
    server = await start_cached(make_around=lambda metrics: cached(metrics, bounds=Bounds(1000, 60.0)))
    assert [(await ask(server, "/generate", GREEDY))[1] for _ in range(2)] == ["miss", "miss"]
    assert server.series()["penstock_response_cache_dropped_total"] == 2


async def test_a_server_without_a_cache_says_nothing_of_one(start_cached: StartCached) -> None:
    server = await start_cached(make_around=lambda metrics: Around())
    assert (await ask(server, "/generate", GREEDY))[1] is None


@pytest.mark.parametrize(("facts", "path", "body"), [
    (EMBEDDER, "/embed", {"inputs": ["a", "b", "a"]}), (EMBEDDER, "/embed_all", {"inputs": "a b c"}),
    (EMBEDDER, "/v1/embeddings", {"input": "a", "model": "demo"}),
    (RERANKER, "/rerank", {"query": "a", "texts": ["b", "c"]})])
async def test_vectors_and_scores_are_kept(start_cached: StartCached, facts: Any, path: str, body: Any) -> None:
    server = await start_cached(facts=facts, make_fleet=lambda script: PoolingFleet(facts), limits=WHOLE_LIMITS)
    first, again = [await ask(server, path, body) for _ in range(2)]
    assert (first[1], again[1]) == ("miss", "hit; age=0")
    assert again[0] == first[0]
    assert len({*map(tuple, server.fleet.texts)}) == len(server.fleet.texts)  # type: ignore[attr-defined]


async def test_metrics_tell_what_is_kept(server: Server) -> None:
    for _ in range(3):
        await ask(server, "/generate", GREEDY)
    series = server.series()
    assert (asked(server, "miss"), asked(server, "hit")) == (1, 2)
    assert series["penstock_response_cache_bytes"] > series["penstock_response_cache_kept_bytes_total"] > 0
    assert series["tgi_request_success"] == 3
    assert LIMITS.max_concurrent_requests == server.groups._permits
