"""Requests that tests stream while something befalls a server."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.e2e.client import Answer, events, stream, whole
from tests.e2e.prompts import source

STOPS = ["\n\n", "return", "self.", ":\n"]


@dataclass(frozen=True, slots=True)
class Ask:
    inputs: str
    parameters: dict[str, Any]


def make_asks(rng: random.Random, count: int, longest: int) -> list[Ask]:
    """Half are greedy, half sampled; some of both have penalties, a quarter has a stop string."""
    asks = []
    for index in range(count):
        parameters: dict[str, Any] = {"max_new_tokens": rng.randint(longest // 3, longest)}
        if index % 2:
            parameters |= {"do_sample": True, "seed": rng.getrandbits(64), "temperature": rng.uniform(0.6, 1.2)}
            if index % 3:
                parameters["top_p"] = rng.uniform(0.7, 0.99)
        if index % 5 < 2:
            parameters["repetition_penalty"] = rng.uniform(1.05, 1.3)
        if index % 8 < 2:
            parameters["stop"] = [rng.choice(STOPS)]
        asks.append(Ask(source(rng, rng.randint(1, 12)), parameters))
    return asks


async def undisturbed(session: aiohttp.ClientSession, url: str, asks: Sequence[Ask]) -> list[Answer]:
    return await asyncio.gather(*(stream(session, url, ask.inputs, **ask.parameters) for ask in asks))


async def struck(
    session: aiohttp.ClientSession, url: str, asks: Sequence[Ask], num_tokens: int, blow: Callable[[], Awaitable[None]]
) -> tuple[list[Answer], int]:
    """The answers, when the blow falls as soon as so many of all tokens have come; and how many of the streams had
    not ended when it had fallen. The first error of any stream ends it all.

    The stream that got the last of these tokens strikes before it reads on: were that left to another task, streams
    whose events lie in their sockets would be read to their ends before it.
    """
    num_received, num_hit = 0, 0

    async def run(ask: Ask) -> Answer:
        nonlocal num_received, num_hit
        received = []
        async for event in events(session, url, ask.inputs, **ask.parameters):
            received.append(event)
            num_received += 1
            if num_received == num_tokens:
                await blow()
                num_hit = sum(not task.done() for task in running)
        return whole(received)

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(run(ask)) for ask in asks]
    return [task.result() for task in running], num_hit
