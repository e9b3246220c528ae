"""The engines of this router, one for each group of shards."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from penstock.router.adapters.source import AdapterSource
from penstock.router.engine.limits import Limits
from penstock.router.engine.receiver import Receiver
from penstock.router.fleet.facts import Facts


class AnyEngine(Protocol):
    """What handlers and the router's process need of an engine, be it in this process or in another one; `Engine` has
    the sentences."""

    facts: Facts
    limits: Limits
    is_healthy: bool
    has_group: bool
    changed: asyncio.Event

    def permit(self, number: int = 1) -> AbstractAsyncContextManager[None]: ...

    def submit(self, receiver: Receiver, output_so_far: Sequence[int] = ()) -> None: ...

    async def add_adapter(self, source: AdapterSource) -> None: ...

    async def remove_adapter(self, name: str) -> None: ...

    async def stalled_seconds(self) -> float: ...

    async def run(self) -> None: ...

    def keep_waiting(self) -> None: ...

    def stop_waiting(self) -> None: ...

    def give_up(self) -> None: ...


class Engines:
    """Knows which engine serves a request. For now there is one group, and so one engine."""

    def __init__(self, engine: AnyEngine) -> None:
        self._engine = engine

    def choose(self) -> AnyEngine:
        """Returns the engine for a request."""
        return self._engine
