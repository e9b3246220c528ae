"""Sends prompts at a pace: by so many clients, or as they arrive at random."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from tqdm import tqdm

from penstock.bench.load.apis import Prompt
from penstock.bench.load.client import Client, Target
from penstock.bench.load.measurement import Run

Send = Callable[[Prompt], Coroutine[Any, Any, None]]


class Pace(Protocol):
    """When requests are sent."""

    name: ClassVar[str]

    @property
    def level(self) -> float:
        """How fast that is, in what the name says."""

    async def drive(self, send: Send, prompts: Sequence[Prompt]) -> None:
        """Sends every prompt once."""


@dataclass(frozen=True)
class Concurrency:
    """So many clients, each of which sends a request when its last one is answered."""

    number: int
    name: ClassVar[str] = "concurrency"

    @property
    def level(self) -> float:
        return self.number

    async def drive(self, send: Send, prompts: Sequence[Prompt]) -> None:
        waiting = iter(prompts)

        async def ask() -> None:
            for prompt in waiting:
                await send(prompt)

        await asyncio.gather(*(ask() for _ in range(min(self.number, len(prompts)))))


@dataclass(frozen=True)
class Rate:
    """So many requests a second, that arrive at random (a Poisson process), however many are still unanswered."""

    per_second: float
    seed: int = 0
    name: ClassVar[str] = "rate"

    @property
    def level(self) -> float:
        return self.per_second

    async def drive(self, send: Send, prompts: Sequence[Prompt]) -> None:
        chance, due = random.Random(self.seed), time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for prompt in prompts:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                group.create_task(send(prompt))
                due += chance.expovariate(self.per_second)


async def generate_load(target: Target, pace: Pace, prompts: Sequence[Prompt], run: Run | None = None) -> Run:
    """Sends the prompts at this pace; `run` takes the measurements as they come, so that one who cancels has them.

    Raises ServerError if the server's model must be asked for and is not told.
    """
    run = run or Run(pace.name, pace.level)
    with tqdm(total=len(prompts), desc=f"{pace.name} {pace.level:g}", unit="request", leave=False) as bar:
        async with target.session() as session:
            client = await Client.connect(target, session)

            async def send(prompt: Prompt) -> None:
                run.measurements.append(await client.send(prompt))
                bar.update()

            start = time.perf_counter()
            try:
                await pace.drive(send, prompts)
            finally:
                run.duration = time.perf_counter() - start
    return run
