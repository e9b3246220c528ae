"""OpenAI's own client, and the loop of vLLM's load generator, against `/v1`."""

import asyncio
import json
from collections.abc import AsyncIterator

import openai
import pytest

from penstock.router.api.http import sse
from tests.router.api.conftest import Server
from tests.router.api.sdk import openai_client

TEXT = "Hello wörld, 😀 is all."


@pytest.fixture
async def client(server: Server) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai_client(server) as client:
        yield client


async def test_models(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["demo"]


async def test_a_whole_answer(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model="tgi", prompt="Say: ", temperature=0, stop="all")
    assert (answer.object, answer.model, answer.choices[0].text) == ("text_completion", "demo", "Hello wörld, 😀 is ")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_a_stream(client: openai.AsyncOpenAI) -> None:
    stream = await client.completions.create(
        model="demo", prompt="Say: ", stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == TEXT
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


async def test_ids_and_comments_are_no_events(
    server: Server, client: openai.AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To OpenAI's client a blank line is an event once an id has come."""
    monkeypatch.setattr(sse, "KEEP_ALIVE", 0.02)
    stream = await client.completions.create(
        model="demo", prompt="a", stream=True, extra_headers={"accept": "text/event-stream"})
    chunks = [await anext(aiter(stream))]
    server.fleet.may_answer.clear()
    await asyncio.sleep(0.1)
    server.fleet.may_answer.set()
    chunks += [chunk async for chunk in stream]
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == TEXT


async def test_as_a_load_generator_reads_it(server: Server) -> None:
    """Chunks with choices are tokens, a chunk without them has the usage."""
    response = await server.post("/v1/completions", {
        "model": "demo", "prompt": "Say: ", "repetition_penalty": 1.0, "max_tokens": 40, "logprobs": None,
        "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True, "temperature": 0.0})
    assert response.status == 200
    num_tokens, usage, is_done = 0, None, False
    async for line in response.content:
        message = line.decode().strip().removeprefix("data: ")
        if message == "[DONE]":
            is_done = True
        elif message:
            chunk = json.loads(message)
            if chunk["choices"]:
                assert isinstance(chunk["choices"][0]["text"], str)
                num_tokens += 1
            else:
                usage = chunk["usage"]
    assert is_done
    assert num_tokens == 40
    assert usage is not None
    assert (usage["completion_tokens"], usage["prompt_tokens"]) == (40, len(await server.tokenizer.encode("Say: ")))
