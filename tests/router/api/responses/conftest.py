"""Servers that keep responses, and make those of the background."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from penstock.router import leased_work
from penstock.router.api.responses import stored
from penstock.router.background import response_run
from penstock.router.background.runner import add_response_runner
from penstock.router.chat.template import ChatTemplate
from penstock.router.store import patience
from penstock.router.store.store import Store
from tests.router.api.conftest import Start
from tests.router.api.responses.keepers import Keeping, StartKeeping
from tests.router.api.sdk import openai_client
from tests.router.batches.conftest import make_database
from tests.router.batches.servers import MakeDatabase

__all__ = ["make_database"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has runners look and store without long waits."""
    monkeypatch.setattr(response_run, "SAVE_SECONDS", 0.01)
    monkeypatch.setattr(response_run, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(response_run, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(leased_work, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(patience, "LONGEST", 0.2)
    monkeypatch.setattr(stored, "FOLLOW_SECONDS", 0.01)


@pytest.fixture
async def start_keeping(
    start: Start, make_database: MakeDatabase, hermes: ChatTemplate, impatient: None
) -> AsyncIterator[StartKeeping]:
    """Starts servers over one database, as routers do."""
    async def start_keeping(owner: str = "one", has_runner: bool = True, **settings: Any) -> Keeping:
        def prepare(app: web.Application) -> None:
            if has_runner:
                add_response_runner(app, owner)

        database = make_database()
        await database.prepare()
        store = Store(database)
        server = await start(store=store, prepare=prepare, **{"template": hermes, **settings})
        client = openai_client(server)
        clients.append(client)
        return Keeping(server, store, client)

    clients: list[Any] = []
    yield start_keeping
    for client in clients:
        await client.close()


@pytest.fixture
async def keeping(start_keeping: StartKeeping) -> Keeping:
    return await start_keeping()
