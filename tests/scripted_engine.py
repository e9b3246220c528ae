"""An engine over a scripted fleet, and what its requests and grammars are made of."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from copy import copy

import numpy as np

from penstock.contract.facts import Facts
from penstock.contract.row import Row
from penstock.router.adapters.registry import Registry
from penstock.router.engine.any_engine import AnyEngine
from penstock.router.engine.engine import Engine
from penstock.router.engine.request import Request
from penstock.router.engine.stream import Event, Stream
from penstock.router.engine.text_path import TextPath
from penstock.router.engine.transfer import Transfer
from penstock.router.grammar.matcher import GrammarError
from penstock.router.groups.groups import Groups
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics
from penstock.router.text.tokenizer import Tokenizer
from tests.fakes import FACTS, LIMITS, ScriptedFleet
from tests.paths import DEMO_MODEL

TOKENIZER = Tokenizer.load(DEMO_MODEL / "tokenizer.json")
AGES = itertools.count()
ANY = b"\xff" * (FACTS.vocab_size // 8)
"""The mask that allows all tokens."""


@asynccontextmanager
async def running_engine(
    fleet: ScriptedFleet, depth: int | None = 1,
    max_downtime: float = 60.0, facts: Facts = FACTS, limits: Limits = LIMITS, adapters: Registry | None = None,
) -> AsyncIterator[Engine]:
    async with running_groups(fleet, depth=depth, max_downtime=max_downtime, facts=facts, limits=limits,
                              adapters=adapters) as groups:
        yield groups.members[0].engine


@asynccontextmanager
async def running_groups(
    *fleets: ScriptedFleet, depth: int | None = 1, max_downtime: float = 60.0, facts: Facts = FACTS,
    limits: Limits = LIMITS, adapters: Registry | None = None,
) -> AsyncIterator[Groups]:
    """Runs an engine for each fleet; with several the groups have the names 0, 1, …."""
    metrics = Metrics(limits)
    groups = Groups(limits, metrics, adapters)
    for number, fleet in enumerate(fleets):
        groups.add(Engine(fleet, facts, limits, metrics, depth, max_downtime, adapters,
                          name=str(number) if len(fleets) > 1 else "", is_one_of_many=len(fleets) > 1))
    task = asyncio.create_task(groups.run())
    try:
        yield groups
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def submit(
    engine: AnyEngine | Engine, request: Request, output_so_far: Sequence[int] = (),
    start_text: Callable[[Tokenizer, Request], TextPath] = TextPath,
) -> Stream:
    """Submits a request, of whose answer the client may have had some, as handlers do."""
    text = start_text(TOKENIZER, request)
    for token_id in output_so_far:
        text.push(token_id)
    stream = Stream(request, text, is_guessed=engine.limits.speculate > 0)
    stream.num_tokens = len(output_so_far)
    if isinstance(engine, Engine):
        engine.take(Transfer(stream, output_so_far, age=next(AGES)))
    else:
        engine.submit(stream, output_so_far)
    return stream


async def collect(stream: Stream) -> list[Event]:
    async with stream:
        return [event async for event in stream]


def shifting(row: Row) -> int:
    """A token that depends on the position alone, so that a replay must give the same."""
    return 70 + (row.start + row.num_inputs) * 7 % 23


class ListGrammar:
    """Allows as many tokens as there are sets, each from its set; `look` is called by each mask with its number."""

    def __init__(self, *allowed: Collection[int], look: Callable[[int], None] = lambda number: None) -> None:
        self.allowed = allowed
        self.look = look

    @property
    def num_free(self) -> int:
        return 0

    def start(self) -> "ListMatcher":
        return ListMatcher(self)


class ListMatcher:
    def __init__(self, grammar: ListGrammar) -> None:
        self._grammar = grammar
        self._num_tokens = 0

    def push(self, token_id: int) -> None:
        if self.is_complete or token_id not in self._grammar.allowed[self._num_tokens]:
            raise GrammarError(f"{token_id} is not allowed at {self._num_tokens}")
        self._num_tokens += 1

    def mask(self) -> bytes:
        return self.masks()

    def masks(self, drafts: Sequence[int] = ()) -> bytes:
        self._grammar.look(self._num_tokens)
        ahead = self._grammar.allowed[self._num_tokens:][:1 + len(drafts)]
        return b"".join(map(bits, ahead)) + ANY * (1 + len(drafts) - len(ahead))

    def forced(self, most: int, takes_longest: bool = True) -> list[int]:
        ahead = self._grammar.allowed[self._num_tokens:][:most]
        return [*itertools.chain(*itertools.takewhile(lambda allowed: len(allowed) == 1, ahead))]

    def copy(self) -> "ListMatcher":
        return copy(self)

    @property
    def is_complete(self) -> bool:
        return self._num_tokens == len(self._grammar.allowed)


def bits(token_ids: Collection[int]) -> bytes:
    """The mask that allows these."""
    mask = bytearray(FACTS.vocab_size // 8)
    for token_id in token_ids:
        mask[token_id >> 3] |= 1 << (token_id & 7)
    return bytes(mask)


def ids_of(mask: bytes) -> list[int]:
    """The tokens that a mask allows."""
    ids: list[int] = np.flatnonzero(np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")).tolist()
    return ids


class Dice:
    """A model without any preference, which follows grammars."""

    def __init__(self) -> None:
        self._random = random.Random(0)

    def __call__(self, row: Row, mask: bytes) -> int:
        return self._random.choice(ids_of(mask))


def first_allowed(row: Row, mask: bytes) -> int:
    """The first token from that of `shifting` on that the mask allows, or the first of all."""
    allowed = ids_of(mask)
    return min((token_id for token_id in allowed if token_id >= shifting(row)), default=allowed[0])


def token_ids(events: Sequence[Event]) -> list[int]:
    return [event.token.id for event in events]
