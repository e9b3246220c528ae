"""Waiting for what nothing announces."""

import asyncio
from collections.abc import Callable


async def until(is_so: Callable[[], object], seconds: float = 20.0) -> None:
    """Waits until it is so. Raises TimeoutError if it never is."""
    async with asyncio.timeout(seconds):
        while not is_so():
            await asyncio.sleep(0.001)
