"""Requests of many kinds by clients that outlive their servers, and their answers, to be compared bit by bit."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from penstock.client import AsyncClient

PROMPTS = ("import os\n\ndef walk(path):\n", "class Queue:\n    ", "def open(path):", "Return the list of ",
           "async def read(self, n):\n")
GRAMMAR = {"type": "json", "value": {
    "type": "object", "properties": {"mark": {"type": "integer", "minimum": 0, "maximum": 1000},
                                     "word": {"type": "string", "pattern": "^[a-z]{1,12}$"}},
    "required": ["mark", "word"]}}

PAUSE_SECONDS, SILENT_SECONDS = 0.05, 120.0
"""Of the client of raw events: before it asks again, and how long it does so without another token."""


@dataclass(frozen=True, slots=True)
class Got:
    """An answer: its name, and what came of it, with token ids and logprobs where the route tells them."""

    name: str
    content: Any


@dataclass(frozen=True, slots=True)
class Target:
    """Who asks: the client, and for raw events a session and the server's URL."""

    client: AsyncClient
    session: aiohttp.ClientSession
    url: str


Ask = Callable[[Target, int, str | None], Awaitable[Got]]
"""Sends the request of a number, or the same once more for the answer of a name."""


def _prompt(number: int) -> str:
    return f"{PROMPTS[number % len(PROMPTS)]}  # {number}\n"


def _generated(is_streamed: bool, is_seeded: bool = False, **more: Any) -> Ask:
    async def ask(target: Target, number: int, answer: str | None) -> Got:
        parameters: dict[str, Any] = {"max_new_tokens": 16 + number % 32, "details": True, "answer": answer, **more,
                                      **({"seed": number} if is_seeded else {})}
        if not is_streamed:
            reply = await target.client.generate(_prompt(number), **parameters)
            assert reply.details is not None
            return Got(reply.answer or "", ([_told(token) for token in reply.details.tokens], reply.generated_text))
        stream = target.client.generate_stream(_prompt(number), **parameters)
        events = [event async for event in stream]
        assert [event.index for event in events] == list(range(1, len(events) + 1)), "a token is missing or twice"
        return Got(stream.answer or "", ([_told(event.token) for event in events], events[-1].generated_text))
    return ask


def _told(token: Any) -> tuple[int, float, str]:
    return token.id, token.logprob, token.text


async def _chat_stream(target: Target, number: int, answer: str | None) -> Got:
    choices: dict[int, list[Any]] = {}
    stream = target.client.chat_stream(
        [{"role": "user", "content": _prompt(number)}], answer=answer, n=2, max_tokens=20, logprobs=True,
        stream_options={"include_usage": True})
    usage = None
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            choices.setdefault(choice.index, []).append(
                (choice.delta.content, choice.delta.role, choice.logprobs, choice.finish_reason))
    assert usage is not None
    return Got(stream.answer or "", (choices, usage.completion_tokens))


async def _chat(target: Target, number: int, answer: str | None) -> Got:
    reply = await target.client.chat(
        [{"role": "user", "content": _prompt(number)}], answer=answer, n=2, max_tokens=20, logprobs=True)
    return Got(reply.answer or "", [(choice.message.content, choice.logprobs) for choice in reply.choices])


async def _completion(target: Target, number: int, answer: str | None) -> Got:
    stream = target.client.complete_stream(
        _prompt(number), answer=answer, max_tokens=24, logprobs=1, return_token_ids=True)
    chunks = [(choice.text, choice.logprobs) async for chunk in stream for choice in chunk.choices]
    return Got(stream.answer or "", chunks)


async def read_events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Yields the id of each event, and its content; an event that is not whole is left out."""
    name, data = "", b""
    async for line in response.content:
        if line.startswith(b"data:"):
            data = line[5:]
        elif line.startswith(b"id:"):
            name = line[3:].strip().decode()
        elif line == b"\n" and data:
            yield name, json.loads(data)
            data = b""


async def _raw(target: Target, number: int, answer: str | None) -> Got:
    """Goes on by nothing but the event stream's own header, which before the first event is the answer's name. Raises
    TimeoutError if nothing comes any more."""
    headers = {"accept": "text/event-stream", **({"penstock-answer": answer} if answer else {})}
    body = {"inputs": _prompt(number), "parameters": {
        "max_new_tokens": 16 + number % 32, "details": True, "do_sample": True}}
    tokens: list[Any] = []
    name, text, fault = "", None, "none"
    last = time.monotonic()
    while text is None:
        try:
            async with target.session.post(f"{target.url}/generate_stream", json=body, headers=headers) as response:
                response.raise_for_status()
                if not name:
                    name = headers["last-event-id"] = response.headers["penstock-answer"]
                async for place, event in read_events(response):
                    headers["last-event-id"] = place or headers["last-event-id"]
                    if "error" in event:
                        fault = event["error"]
                        break
                    last = time.monotonic()
                    tokens.append((event["token"]["id"], event["token"]["logprob"], event["token"]["text"]))
                    text = event["generated_text"]
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            fault = str(error)
        if text is None:
            if time.monotonic() - last > SILENT_SECONDS:
                raise TimeoutError(f"no token of request {number} for {SILENT_SECONDS:g} s; the last error: {fault}")
            await asyncio.sleep(PAUSE_SECONDS)
    return Got(name, (tokens, text))


KINDS: dict[str, Ask] = {
    "sampled stream": _generated(True, do_sample=True), "sampled": _generated(False, do_sample=True),
    "seeded stream": _generated(True, is_seeded=True, do_sample=True, temperature=0.8),
    "seeded": _generated(False, is_seeded=True, do_sample=True, temperature=0.8),
    "greedy stream": _generated(True), "greedy": _generated(False),
    "chat of two, streamed": _chat_stream, "chat of two": _chat,
    "grammar": _generated(True, grammar=GRAMMAR, do_sample=True, max_new_tokens=60),
    "completion": _completion, "raw events": _raw}


async def ask_all(
    urls: Sequence[str], number: int, at_once: int, names: Sequence[str | None] | None = None,
    note: Callable[[int], None] = lambda number: None,
) -> list[Got]:
    """Sends `number` requests of all kinds in turns, so many at once, and returns their answers: new ones, or those of
    these names. Tells `note` how many have come after each."""
    kinds, answers, num_done = list(KINDS.values()), {}, 0
    numbers = iter(range(number))

    async def work(target: Target) -> None:
        nonlocal num_done
        for each in numbers:
            answers[each] = await kinds[each % len(kinds)](target, each, names[each] if names else None)
            num_done += 1
            note(num_done)

    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with (AsyncClient(urls) as client, aiohttp.ClientSession(connector=connector) as session,
                asyncio.TaskGroup() as tasks):
        for _ in range(at_once):
            tasks.create_task(work(Target(client, session, urls[0])))
    return [answers[each] for each in range(number)]
