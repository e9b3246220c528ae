"""Many random JSON schemas, answered by a model that knows nothing of them."""

import asyncio
import json
import random
from typing import Any

import aiohttp
import pytest
from jsonschema import Draft202012Validator

from tests.e2e.client import Answer, generate, many_clients
from tests.e2e.prompts import source
from tests.e2e.server import Server
from tests.router.grammar.schema_maker import SchemaMaker

NUM_CLIENTS = 32
MAX_TOKENS = 1600


async def answer_all(session: aiohttp.ClientSession, url: str, schemas: list[dict[str, Any]]) -> list[Answer]:
    """In their order, each sampled with a seed of its own."""
    rng, turn = random.Random(4), asyncio.Semaphore(NUM_CLIENTS)
    prompts = [source(rng, 3) for _ in schemas]

    async def ask(index: int) -> Answer:
        async with turn:
            return await generate(session, url, prompts[index], max_new_tokens=MAX_TOKENS, do_sample=True, seed=index,
                                  grammar={"type": "json", "value": schemas[index]})

    return await asyncio.gather(*(ask(index) for index in range(len(schemas))))


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_random_schemas(server: Server, every_case: bool) -> None:
    maker = SchemaMaker(seed=11)
    schemas = [maker.make() for _ in range(1000 if every_case else 60)]
    async with many_clients() as session:
        answers = await answer_all(session, server.url, schemas)
    finished = [(schema, answer) for schema, answer in zip(schemas, answers, strict=True)
                if answer.finish_reason == "eos_token"]
    print(f"{len(finished)} of {len(schemas)} finished")
    for schema, answer in finished:
        checker = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
        checker.validate(json.loads(answer.text))
    assert len(finished) >= 0.95 * len(schemas)
