"""Grammars compiled off the event loop, by llguidance."""

from typing import Protocol

from router.grammar.matcher import Grammar
from router.grammar.spec import GrammarSpec


class GrammarCompiler(Protocol):
    async def compile(self, spec: GrammarSpec) -> Grammar:
        """GrammarError if it is no grammar, or more than a limit allows."""
