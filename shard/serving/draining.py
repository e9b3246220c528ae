"""Whether the group of this shard drains, and who wants to know."""

import asyncio
import logging
from collections.abc import AsyncIterator

log = logging.getLogger(__name__)


class Draining:
    """Holds whether the group drains, and tells all who follow it of each change. It belongs to one event loop."""

    def __init__(self, is_on: bool) -> None:
        self.is_on = is_on
        self._is_over = False
        self._change = asyncio.Event()

    def set(self, is_on: bool) -> None:
        """Sets whether the group drains, which changes nothing if it is so already."""
        if is_on != self.is_on:
            log.info("%s", "draining: routers move the group's sequences to others" if is_on
                     else "draining no more: the group takes sequences")
            self.is_on = is_on
            self._tell()

    def end(self) -> None:
        """Ends the messages to all followers."""
        self._is_over = True
        self._tell()

    async def follow(self) -> AsyncIterator[bool]:
        """Yields whether the group drains, at once and after each change; the last of several that came meanwhile."""
        told = None
        while not self._is_over:
            change = self._change
            if told != self.is_on:
                told = self.is_on
                yield told
            else:
                await change.wait()

    def _tell(self) -> None:
        self._change.set()
        self._change = asyncio.Event()
