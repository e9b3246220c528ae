"""Clients that ask without end and compare each answer with the one that an undisturbed server gave."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from tests.faults.ledger import Ledger, Loss
from tests.faults.load import Ask, read_answer
from tests.faults.scene import Broken

HANG_SECONDS = 120.0
"""When an answer counts as lost: several times what the longest of all faults takes."""
PAUSE_SECONDS = 0.1
"""How long a client waits before it tries again."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What an attempt got: a status, a body, and the times of its parts."""

    status: int
    text: str
    times: list[float]


@asynccontextmanager
async def one_shot_clients() -> AsyncIterator[aiohttp.ClientSession]:
    """Yields a session in which each request has a connection of its own: none of a dead router is used again."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        yield session


class Clients:
    """Some clients, each with requests of its own order; `answers` are the right ones. Raises Broken for any other."""

    def __init__(self, session: aiohttp.ClientSession, url: str, ledger: Ledger, asks: Sequence[Ask]) -> None:
        self._session = session
        self._url = url
        self._ledger = ledger
        self.asks = asks
        self.answers: Mapping[int, object] = {}
        """By the place in `asks`."""
        self.may_ask = True

    async def learn(self) -> None:
        """Asks everything once, of a server that nothing disturbs."""
        replies = await asyncio.gather(*(self._attempt(ask) for ask in self.asks))
        for ask, reply in zip(self.asks, replies, strict=True):
            if isinstance(reply, Loss) or reply.status != 200:
                raise Broken(f"undisturbed, {ask} was not answered: {reply}")
        self.answers = {place: read_answer(ask.is_stream, reply.text)
                        for place, (ask, reply) in enumerate(zip(self.asks, replies, strict=True))}

    async def run(self, seed: str) -> None:
        """Asks for one thing after another, until the clients are to stop."""
        rng = random.Random(seed)
        while self.may_ask:
            await self.ask(rng.randrange(len(self.asks)))

    async def ask(self, place: int) -> None:
        """Asks until there is an answer. A connection is tried again where a fault takes those by design."""
        ask, first_at = self.asks[place], time.monotonic()
        times = [first_at]
        while isinstance(result := await self._attempt(ask), Loss):
            self.judge(ask, result)
            self._note_silences(ask, [*times, *result.times, result.ended_at])
            times = [result.ended_at]
            await asyncio.sleep(PAUSE_SECONDS)
        self.compare(place, result)
        self._note_silences(ask, [*times, *result.times])
        self._ledger.answers.append((first_at, time.monotonic(), ask.kind))

    def _note_silences(self, ask: Ask, times: Sequence[float]) -> None:
        if ask.is_stream:
            self._ledger.silent(times)

    def judge(self, ask: Ask, loss: Loss) -> None:
        """Notes a lost answer. Raises Broken unless a fault may cost one."""
        if not self._ledger.permits(loss):
            raise Broken(f"an answer was lost ({loss.what}, {loss.ended_at - loss.began_at:.1f} s after it was asked "
                         f"for) to {ask}")
        self._ledger.losses.append(loss)

    def compare(self, place: int, reply: Reply) -> None:
        """Raises Broken unless the reply is the right answer."""
        ask = self.asks[place]
        if reply.status != 200:
            raise Broken(f"status {reply.status}, {reply.text[:500]}, came for {ask}")
        try:
            answer = read_answer(ask.is_stream, reply.text)
        except ValueError as error:
            raise Broken(f"{error}, for {ask}") from error
        if answer != self.answers[place]:
            raise Broken(f"another answer than without faults came for {ask}:\n{answer}\nnot\n{self.answers[place]}")

    async def _attempt(self, ask: Ask) -> Reply | Loss:
        began_at, pieces, times = time.monotonic(), [], []
        try:
            async with (asyncio.timeout(HANG_SECONDS),
                        self._session.post(self._url + ask.path, json=ask.body) as response):
                async for piece in response.content.iter_any():
                    pieces.append(piece)
                    times.append(time.monotonic())
                return Reply(response.status, b"".join(pieces).decode(), times)
        except aiohttp.ClientError as error:
            return Loss(began_at, time.monotonic(), f"{type(error).__name__}: {error}", bool(pieces), True,
                        tuple(times))
        except TimeoutError:
            return Loss(began_at, time.monotonic(), f"nothing within {HANG_SECONDS:g} s", bool(pieces), False)
