"""The stories of requests, which the engine's process keeps for all fronts."""

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.router.explaining.story import Story
from penstock.router.front import messages


class RemoteStories:
    """Tells the engine's process of requests that have ended by `send`, and asks it for them by `ask`: a client may ask
    another front than the one that has answered it."""

    def __init__(
        self, send: Callable[[object], None], ask: Callable[[messages.Ask], "asyncio.Future[Any]"]
    ) -> None:
        self._send = send
        self._ask = ask

    def tell(self, story: Story) -> None:
        """Takes a story in, which is lost while the engine's process is away."""
        self._send(messages.Ended(story))

    async def find(self, id: str, owner: bytes | None) -> Story | None:
        story: Story | None = await self._ask(messages.FindStory(id, owner))
        return story
