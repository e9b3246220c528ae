"""A client: it asks, reads, loses its patience or its router, and goes on at the next one."""

import asyncio
import random
from typing import TYPE_CHECKING

from penstock.router.engine.stream import Event
from penstock.router.errors import RouterError
from tests.router.groups.simulation.asking import Ask

if TYPE_CHECKING:
    from tests.router.groups.simulation.world import World

RETRY_SECONDS = 0.1


class Client:
    """Asks at `asks_at`. Goes on at another router by what it has, if `brings_output`, or by having all computed again.
    Leaves after `patience` tokens, if that is not None."""

    def __init__(self, world: "World", ask: Ask, asks_after: float, patience: int | None, brings_output: bool,
                 seed: int) -> None:
        self.ask = ask
        self.seed = ask.seed
        self.outputs: list[list[int]] = [[] for _ in range(ask.num_answers)]
        self.brings_output = brings_output
        self.fate = ""
        """How it ended: answered, left, or the name of an error."""
        self._world = world
        self._random = random.Random(seed)
        self._asks_after = asks_after
        self._patience = patience
        self._endings = 0
        self._over: asyncio.Future[str] | None = None

    async def run(self) -> None:
        await asyncio.sleep(self._asks_after)
        loop = asyncio.get_running_loop()
        while not self.fate:
            while (router := self._world.router) is None or not router.is_up:
                await asyncio.sleep(RETRY_SECONDS)
            self._over = loop.create_future()
            if not any(self.outputs):
                self.seed = self.ask.seed  # nothing is known of what another router has drawn
            handler = router.serve(self)
            fate = await self._over
            if fate == "cut off":
                self._world.judge.counts["cut off"] += 1
                await asyncio.sleep(RETRY_SECONDS * (1 + self._random.random()))
                continue
            self.fate = fate
            if fate == "left":
                handler.cancel()
        self._world.tell(f"client {self.ask.number}: {self.fate}")

    def know(self, seed: int) -> None:
        """Takes the seed, which comes with the first token."""
        self._world.judge.check(not any(self.outputs) or seed == self.seed, lambda: (
            f"client {self.ask.number} is answered with another seed"))
        self.seed = seed

    def know_again(self, branch: int, place: int, event: Event) -> None:
        """Sees a token that it has, and that no router would send again."""
        self._world.judge.check(event.token.id == self.outputs[branch][place], lambda: (
            f"client {self.ask.number} would get another token at {place} than before"))

    def take(self, branch: int, event: Event) -> None:
        output, total = self.outputs[branch], sum(map(len, self.outputs))
        output.append(event.token.id)
        self._endings += event.ending is not None
        if self._patience is not None and total >= self._patience:
            self._end("left")

    def answered(self) -> None:
        check = self._world.judge.check
        check(self._endings == self.ask.num_answers, lambda: f"client {self.ask.number} got {self._endings} endings")
        for output in self.outputs:
            endings = [self.ask.ending(output[:end]) for end in range(1, len(output) + 1)]
            check(bool(endings) and endings[-1] is not None and not any(endings[:-1]), lambda: (
                f"client {self.ask.number} got the tokens {output}"))
        self._end("answered")

    def failed(self, error: RouterError) -> None:
        self._end(type(error).__name__)

    def cut_off(self) -> None:
        """Loses the connection, and perhaps the last that was on its way."""
        if self._over is None or self._over.done():
            return
        for output in self.outputs:
            if output and self.ask.ending(output) is None:
                del output[len(output) - self._random.randint(0, min(2, len(output))):]
        self._end("cut off")

    def _end(self, fate: str) -> None:
        assert self._over is not None
        if not self._over.done():
            self._over.set_result(fate)
