"""Batches and responses of the background belong to the accounts of the keys that have asked for them."""

from typing import Any

import pytest
from aiohttp import web

from penstock.router.api.http.access import Access
from penstock.router.background.runner import add_response_runner
from penstock.router.batches.runner import add_runner
from penstock.router.keys import Keys
from tests.router.api.accounts import PRICES, Accounts, accounts
from tests.router.api.conftest import Server, Start
from tests.router.api.sdk import openai_client
from tests.router.batches.servers import BatchServer, impatient, lines

__all__ = ["accounts"]


@pytest.fixture
async def server(start: Start, accounts: Accounts, demo: object) -> Server:
    def prepare(app: web.Application) -> None:
        add_runner(app, "one")
        add_response_runner(app, "one")

    return await start(template=demo, access=Access(Keys(["one", "two"])), store=accounts.store, prepare=prepare,
                       make_around=accounts.around())


async def usage(server: Server, key: str) -> list[Any]:
    response = await server.client.get("/v1/usage", headers={"x-api-key": key})
    return [(row["requests"], row["tokens"]["output"]) for row in (await response.json())["data"]]


async def test_each_is_counted_by_the_key_of_its_maker(server: Server, accounts: Accounts) -> None:
    with impatient():
        async with openai_client(server, "two") as client:
            batches = BatchServer(server, accounts.store, client)
            assert (await batches.ended(await batches.create(lines(range(5))))).status == "completed"
            assert await usage(server, "two") == [(5, 20)]
            made = await client.responses.create(input="Hello", background=True, max_output_tokens=16, model="demo")
            await until_ended(client, made.id)
            [(requests, _)] = await usage(server, "two")
    assert requests == 6
    assert await usage(server, "one") == []


async def test_what_a_spent_budget_refuses_is_answered_with_the_error(server: Server, accounts: Accounts) -> None:
    accounts.set(**PRICES, budgets=[{"key": "key-2", "tokens": 0}])
    accounts.opened[0].reload()
    with impatient():
        async with openai_client(server, "two") as client:
            batches = BatchServer(server, accounts.store, client)
            batch = await batches.ended(await batches.create(lines(range(3))))
            refused = await batches.lines(batch.error_file_id)
            assert (batch.status, len(refused)) == ("completed", 3)
            line = refused[0]
            assert line["response"]["status_code"] == 429
            assert line["response"]["body"]["error"]["code"] == "insufficient_quota"
    assert await usage(server, "two") == []


async def until_ended(client: Any, id: str) -> None:
    """Waits until a response of the background has come to its end."""
    stream = await client.responses.retrieve(id, stream=True)
    assert [event.type async for event in stream][-1] in ("response.completed", "response.incomplete")
