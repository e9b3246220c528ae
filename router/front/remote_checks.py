"""The adapters and grammars that requests may name, and how much keys may use, as a front finds it out."""

from collections.abc import Awaitable, Callable
from typing import Any

from penstock.router.adapters.registry import Adapter, Registry
from penstock.router.adapters.source import AdapterSource
from penstock.router.front import messages
from penstock.router.grammar.spec import GrammarSpec
from penstock.router.rates import Use


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

    async def add(self, source: AdapterSource) -> None:
        await self._ask(messages.AddAdapter(source))

    async def remove(self, name: str) -> None:
        await self._ask(messages.RemoveAdapter(name))


class RemoteGrammars:
    """Has grammars compiled where they are followed; `ask` asks the engine's process."""

    def __init__(self, ask: Callable[[messages.Ask], Awaitable[Any]]) -> None:
        self._ask = ask

    async def compile(self, spec: GrammarSpec) -> GrammarSpec:
        """Returns the same spec, which can be compiled. Raises GrammarError if it can't."""
        await self._ask(messages.CompileGrammar(spec))
        return spec


class RemoteRates:
    """Counts the use of keys in the engine's process, for all fronts together; `ask` asks that process, and `tell`
    tells it."""

    def __init__(self, ask: Callable[[messages.Ask], Awaitable[Any]], tell: Callable[[object], None]) -> None:
        self._ask = ask
        self._tell = tell

    async def take(self, use: Use) -> None:
        """Takes a use that is to be made. Raises TooFast, and takes nothing, where the rates do not allow it yet."""
        await self._ask(messages.TakeRates(use))

    def note(self, use: Use) -> None:
        """Takes a use that was made, also one beyond the rates."""
        self._tell(messages.Used(use))
