"""Servers with a store, over a scripted fleet, and OpenAI's client of them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import openai
import orjson
import pytest
from openai.types import Batch, FileObject
from sqlalchemy import update

from penstock.router import leased_work
from penstock.router.batches import answers, batch_run
from penstock.router.batches.runner import add_runner
from penstock.router.store import patience
from penstock.router.store.database import Database
from penstock.router.store.store import Store
from penstock.router.store.tables import BATCHES
from tests.postgresql import only_with_postgresql
from tests.router.api.conftest import Server, Start
from tests.router.api.sdk import openai_client

MakeDatabase = Callable[[], Database]
URL = "/v1/completions"
SQLITE, POSTGRESQL = "sqlite", "postgresql"
with_both = pytest.mark.parametrize(
    "make_database", [SQLITE, pytest.param(POSTGRESQL, marks=only_with_postgresql)], indirect=True)
"""Has a test run with each kind of database."""


class BatchServer:
    """A server that answers batches, its store, and a client of it."""

    def __init__(self, server: Server, store: Store, client: openai.AsyncOpenAI) -> None:
        self.server = server
        self.store = store
        self.client = client

    async def upload(self, content: bytes, name: str = "lines.jsonl") -> FileObject:
        return await self.client.files.create(file=(name, content), purpose="batch")

    async def create(self, content: bytes, window: Any = "24h", endpoint: Any = URL, **more: Any) -> Batch:
        file = await self.upload(content)
        return await self.client.batches.create(
            input_file_id=file.id, endpoint=endpoint, completion_window=window, **more)

    async def until(self, batch: Batch, is_so: Callable[[Batch], object]) -> Batch:
        """Returns the batch once it is so."""
        async with asyncio.timeout(60):
            while not is_so(batch):
                await asyncio.sleep(0.01)
                batch = await self.client.batches.retrieve(batch.id)
        return batch

    async def ended(self, batch: Batch) -> Batch:
        return await self.until(
            batch, lambda batch: batch.status in ("completed", "failed", "expired", "cancelled"))

    async def expire(self, batch: Batch) -> None:
        """Has the time of a batch be over."""
        async with self.store.database.writing() as connection:
            await connection.execute(update(BATCHES).where(BATCHES.c.id == batch.id).values(expires_at=1))

    async def lines(self, id: str | None) -> list[dict[str, Any]]:
        """Returns the lines of a file of answers; those of no file are none."""
        if id is None:
            return []
        content = (await self.client.files.content(id)).content
        return [orjson.loads(line) for line in content.splitlines()]


StartBatches = Callable[..., Awaitable[BatchServer]]


@asynccontextmanager
async def starting(start: Start, make_database: MakeDatabase) -> AsyncIterator[StartBatches]:
    """Starts servers over a database that `make_database` opens anew for each, as routers do."""
    async def start_batches(owner: str = "one", has_runner: bool = True, **settings: Any) -> BatchServer:
        database = make_database()
        await database.prepare()
        store = Store(database)
        server = await start(
            store=store, prepare=lambda app: add_runner(app, owner) if has_runner else None, **settings)
        return BatchServer(server, store, await stack.enter_async_context(openai_client(server)))

    async with AsyncExitStack() as stack:
        yield start_batches


def line(custom_id: str, url: str = URL, **body: Any) -> bytes:
    prompt = {"prompt": f"Say {custom_id}"} if url == URL else {}
    return orjson.dumps({
        "custom_id": custom_id, "method": "POST", "url": url, "body": {**prompt, "max_tokens": 4, **body}})


def lines(custom_ids: Sequence[object]) -> bytes:
    return b"\n".join(line(str(custom_id)) for custom_id in custom_ids)


@contextmanager
def impatient() -> Iterator[None]:
    """Has runners look and store without long waits while the block runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_run, "SAVE_SECONDS", 0.01)
        patch.setattr(batch_run, "RENEW_SECONDS", 0.05)
        patch.setattr(answers, "RETRY_SECONDS", 0.05)
        patch.setattr(leased_work, "POLL_SECONDS", 0.05)
        patch.setattr(patience, "LONGEST", 0.2)
        patch.setattr(leased_work, "FAREWELL_SECONDS", 0.2)
        yield
