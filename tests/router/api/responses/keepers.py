"""A server that keeps responses, as tests use it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import openai
from openai.types.responses import Response

from penstock.router.store.store import Store
from tests.router.api.conftest import Server
from tests.router.api.responses.asking import URL, read


@dataclass
class Keeping:
    """A server, its store, and a client of it."""

    server: Server
    store: Store
    client: openai.AsyncOpenAI

    async def create(self, text: Any = "Hello", **fields: Any) -> Response:
        made: Response = await self.client.responses.create(model="any", input=text, **fields)
        return made

    async def ended(self, id: str) -> Response:
        """Returns the response once it has ended."""
        async with asyncio.timeout(60):
            while (response := await self.client.responses.retrieve(id)).status in ("queued", "in_progress"):
                await asyncio.sleep(0.01)
        return response

    async def events(self, id: str, after: int | None = None) -> list[dict[str, Any]]:
        """Follows a response of the background."""
        behind = "" if after is None else f"&starting_after={after}"
        response = await self.server.client.get(f"{URL}/{id}?stream=true{behind}")
        assert response.status == 200, await response.text()
        return read(await response.text())


StartKeeping = Callable[..., Awaitable[Keeping]]
