"""The adapters that requests may name, as a front knows them."""

from collections.abc import Awaitable, Callable
from typing import Any

from penstock.router.adapters.registry import Adapter, Registry
from penstock.router.front import messages


class RemoteAdapters(Registry):
    """Follows the registry of the engine's process, which reads the files; `ask` asks that process."""

    def __init__(self, ask: Callable[[messages.Ask], Awaitable[Any]]) -> None:
        super().__init__()
        self._ask = ask

    def know(self, known: messages.KnownAdapters) -> None:
        """Takes the adapters that the engine's process has told of."""
        self._sources = {source.name: source for source in known.sources}
        self._removed = dict.fromkeys(known.removed)

    async def get(self, name: str) -> Adapter:
        self.check(name)
        found: Adapter = await self._ask(messages.FindAdapter(name))
        return found
