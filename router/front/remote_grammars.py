"""The compiler of grammars as a front sees it, which is in the engine's process."""

from collections.abc import Awaitable, Callable
from typing import Any

from penstock.router.front import messages
from penstock.router.grammar.spec import GrammarSpec


class RemoteGrammars:
    """Has grammars compiled where they are followed; `ask` asks the engine's process."""

    def __init__(self, ask: Callable[[messages.Ask], Awaitable[Any]]) -> None:
        self._ask = ask

    async def compile(self, spec: GrammarSpec) -> GrammarSpec:
        """Returns the same spec, which can be compiled. Raises GrammarError if it can't."""
        await self._ask(messages.CompileGrammar(spec))
        return spec
