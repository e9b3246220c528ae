"""A client: it asks, reads, loses its patience or its router, and goes on at the next one."""

import asyncio
import random
from typing import TYPE_CHECKING, NamedTuple

from penstock.router.engine.stream import Event
from penstock.router.errors import RouterError
from penstock.router.generation.identity import Identity, Wish
from tests.router.groups.simulation.asking import Ask

if TYPE_CHECKING:
    from tests.router.groups.simulation.world import World

RETRY_SECONDS = 0.1
TWICE = 0.1
"""How often a request comes twice, as where a proxy asks again for one that had arrived."""


class Taken(NamedTuple):
    """An event that has come: the answer that it is of, its token, and its id."""

    branch: int
    token_id: int
    id: str
    is_last: bool


class Client:
    """Asks at `asks_at`. Goes on at another router by what it has, if `brings_output`, or by having all computed again.
    Leaves after `patience` tokens, if that is not None."""

    def __init__(self, world: "World", ask: Ask, asks_after: float, patience: int | None, brings_output: bool,
                 seed: int) -> None:
        self.ask = ask
        self.events: list[Taken] = []
        self.brings_output = brings_output
        self.fate = ""
        """How it ended: answered, left, or the name of an error."""
        self._world = world
        self._random = random.Random(seed)
        self._asks_after = asks_after
        self._patience = patience
        self._over: asyncio.Future[str] | None = None

    async def run(self) -> None:
        await asyncio.sleep(self._asks_after)
        loop = asyncio.get_running_loop()
        while not self.fate:
            while (router := self._world.router) is None or not router.is_up:
                await asyncio.sleep(RETRY_SECONDS)
            self._over = loop.create_future()
            self._known = [0] * self.ask.num_answers
            handler = router.serve(self)
            if self.ask.kills_at is None and self._random.random() < TWICE:
                router.serve(self._duplicate())
            fate = await self._over
            if fate == "cut off":
                self._world.judge.counts["cut off"] += 1
                await asyncio.sleep(RETRY_SECONDS * (1 + self._random.random()))
                continue
            self.fate = fate
            if fate == "left":
                handler.cancel()
        self._world.tell(f"client {self.ask.number}: {self.fate}")

    def _duplicate(self) -> "Client":
        """Returns who gets the answer to the same request when it comes once more."""
        self._world.judge.counts["twice"] += 1
        other = Client(self._world, self.ask, 0.0, None, self.brings_output, self._random.getrandbits(32))
        other.events, other._known = [*self.events], [0] * self.ask.num_answers
        other._over = asyncio.get_running_loop().create_future()
        return other

    def wish(self) -> Wish:
        """Returns what it asks for beside its request: to go on, if it has anything of an answer."""
        if not self.events:
            return Wish()
        can_bring = self.brings_output and self.ask.num_answers == 1 and not self.ask.wants_prompt_logprobs
        output = ",".join(str(event.token_id) for event in self.events) if can_bring else None
        return Wish(resume_after=self.events[-1].id, output_ids=output)

    def know(self, identity: Identity) -> None:
        """Takes the answer's name, which comes with the headers."""
        name = str(identity.name)
        self._world.judge.check(not self.events or self.events[0].id.startswith(f"{name}."), lambda: (
            f"client {self.ask.number} goes on with the answer {name}, it had {self.events[0].id}"))

    def know_again(self, branch: int, event: Event) -> None:
        """Sees a token that it has, and that no router sends again. Where numerics differ the answer may."""
        place = self._known[branch]
        self._known[branch] += 1
        has = self.output(branch)[place]
        self._world.judge.check(event.token.id == has or self._world.has_other_numerics, lambda: (
            f"client {self.ask.number} would get {event.token.id} at {place} of {branch}, and has {has}"))

    def take(self, branch: int, event: Event, id: str) -> None:
        self.events.append(Taken(branch, event.token.id, id, event.ending is not None))
        if self._patience is not None and len(self.events) > self._patience:
            self._end("left")

    def answered(self) -> None:
        check, ask = self._world.judge.check, self.ask
        number = sum(event.is_last for event in self.events)
        may_differ = self._world.has_other_numerics  # and another router's answer end elsewhere
        check(number == ask.num_answers or may_differ, lambda: f"client {ask.number} got {number} endings")
        for branch in range(ask.num_answers):
            output = self.output(branch)
            endings = [ask.ending(output[:end]) for end in range(1, len(output) + 1)]
            is_whole = bool(endings) and endings[-1] is not None and not any(endings[:-1])
            check(is_whole or may_differ, lambda output=output: (
                f"client {ask.number} got the tokens {output}"))
        self._end("answered")

    def failed(self, error: RouterError) -> None:
        kind = type(error).__name__
        self._world.judge.check(kind != "ValidationError", lambda: f"client {self.ask.number} is refused: {error}")
        is_mixed = self._world.has_other_weights or self._world.has_other_numerics
        self._world.judge.check(kind != "AnotherAnswer" or is_mixed, lambda: (
            f"client {self.ask.number} is refused: {error}"))
        self._end(kind)

    def output(self, branch: int) -> list[int]:
        return [event.token_id for event in self.events if event.branch == branch]

    def cut_off(self) -> None:
        """Loses the connection, and perhaps the last that was on its way."""
        if self._over is not None and not self._over.done():
            for _ in range(self._random.randint(0, min(2, len(self.events)))):
                self.events.pop()
            self._end("cut off")

    def _end(self, fate: str) -> None:
        assert self._over is not None
        if not self._over.done():
            self._over.set_result(fate)
