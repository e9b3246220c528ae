"""A front and the engine's process in one event loop, with a real socket between them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.contract.sampling import Sampling
from penstock.router.adapters.registry import Registry
from penstock.router.engine.request import Request
from penstock.router.front.front_server import FrontServer
from penstock.router.front.remote_engine import RemoteEngine
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.spec import GrammarSpec, ThinkingSpec
from penstock.router.grammar.thinking import ThinkingGrammar, Words
from penstock.router.groups.groups import Groups
from tests.eventually import until
from tests.fakes import FACTS, ScriptedFleet
from tests.scripted_engine import TOKENIZER, ListGrammar, first_allowed, running_groups, shifting, submit

ASKED = Request(input_ids=(10, 11, 12), sampling=Sampling(), max_new_tokens=30, bits=FACTS.bits)
LISTED = GrammarSpec("regex", "80 then 90 then 81")


class ListGrammars:
    """Knows one grammar."""

    def __init__(self) -> None:
        self.compiled: list[GrammarSpec] = []

    async def compile(self, spec: GrammarSpec) -> ListGrammar:
        await asyncio.sleep(0)
        self.compiled.append(spec)
        if spec != LISTED:
            raise GrammarError("it is not the one")
        return ListGrammar({80}, {90}, {81})


class ThinkingGrammars(ListGrammars):
    """Knows its grammar behind a thinking."""

    async def compile(self, spec: GrammarSpec) -> Any:
        assert isinstance(spec, ThinkingSpec)
        words = Words([bytes([token_id]) for token_id in range(128)], FACTS.vocab_size // 8, FACTS.eos_token_ids)
        behind = await super().compile(GrammarSpec(spec.kind, spec.source))
        return ThinkingGrammar(spec.thinking, behind, words)


@asynccontextmanager
async def serving(
    path: Path, fleet: ScriptedFleet | None = None, adapters: Registry | None = None, grammars: Any = None,
    **settings: Any,
) -> AsyncIterator[tuple[Groups, FrontServer]]:
    """What the engine's process has."""
    adapters = Registry() if adapters is None else adapters
    async with running_groups(fleet or make_fleet(), depth=2, adapters=adapters, **settings) as groups:
        server = FrontServer(groups, adapters, grammars, TOKENIZER)
        await server.start(path)
        try:
            yield groups, server
        finally:
            await server.stop()
            await asyncio.wait_for(server.until_left(), 5)


@asynccontextmanager
async def front(path: Path, max_downtime: float = 60.0) -> AsyncIterator[RemoteEngine]:
    remote = RemoteEngine(path, max_downtime, poison_seconds=60.0)
    await asyncio.wait_for(remote.connect(), 5)
    task = asyncio.create_task(remote.run())
    try:
        yield remote
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def make_fleet() -> ScriptedFleet:
    return ScriptedFleet(shifting, first_allowed)


@asynccontextmanager
async def front_that_lost_its_engine(path: Path, max_downtime: float) -> AsyncIterator[tuple[RemoteEngine, Any]]:
    async with AsyncExitStack() as first, AsyncExitStack() as stack:
        await first.enter_async_context(serving(path))
        remote = await stack.enter_async_context(front(path, max_downtime))
        stream = submit(remote, replace(ASKED, max_new_tokens=1000))
        await anext(stream)
        await first.aclose()
        await until(lambda: not remote.has_group)
        yield remote, stream
