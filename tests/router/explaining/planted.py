"""A server in virtual time, whose steps take as long as a test says, and whose requests tell where their time went."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.contract.facts import Facts
from penstock.contract.plan import Plan
from penstock.contract.step_result import StepResult
from penstock.router import request_id
from penstock.router.adapters.registry import Registry
from penstock.router.engine.engine import Engine
from penstock.router.explaining.explainer import Explainer
from penstock.router.explaining.recent import Recent
from penstock.router.generation import request_log
from penstock.router.generation.answers import answering
from penstock.router.generation.around import Around
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import Wish, identify
from penstock.router.generation.parameters import Parameters
from penstock.router.generation.poison_memory import PoisonMemory
from penstock.router.generation.request_record import recording
from penstock.router.generation.service import ServerInfo, Service
from penstock.router.generation.spec import GenerationSpec
from penstock.router.generation.validation import Grammars
from penstock.router.groups.groups import Groups
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics
from penstock.router.response_cache.backend import Bounds
from penstock.router.response_cache.cache import ResponseCache
from penstock.router.response_cache.memory import Memory
from tests.fakes import FACTS, ScriptedFleet
from tests.router.groups.simulation.asking import PlainTokenizer
from tests.router.groups.simulation.clock import virtual_time

STEP = 0.01
"""The seconds of a step, unless a test says otherwise."""
INFO = ServerInfo("demo", "1", "cpu")
Explanation = dict[str, Any]


class TimedFleet(ScriptedFleet):
    """Runs steps one after the other, each for `seconds`."""

    def __init__(self, seconds: Callable[[Plan], float] = lambda plan: STEP) -> None:
        super().__init__(lambda row: 7)
        self.seconds = seconds
        self.load_seconds = 0.0
        self._is_free_at = 0.0
        self._due: deque[tuple[float, float]] = deque()

    async def submit(self, plan: Plan) -> None:
        await super().submit(plan)
        took = self.seconds(plan)
        self._is_free_at = max(asyncio.get_running_loop().time(), self._is_free_at) + took
        self._due.append((self._is_free_at, took))

    async def next_result(self) -> StepResult:
        if self._due:
            due_at, took = self._due[0]
            await asyncio.sleep(due_at - asyncio.get_running_loop().time())
            self._due.popleft()
            return replace(await super().next_result(), forward_ns=int(took * 1e9), sample_ns=0)
        return await super().next_result()

    async def open(self, limits: Any) -> Facts:
        self._due.clear()
        self._is_free_at = 0.0
        return await super().open(limits)

    async def load_adapter(self, number: int, path: str, digest: str) -> int:
        await asyncio.sleep(self.load_seconds)
        return await super().load_adapter(number, path, digest)


def limits_of(facts: Facts, **changed: Any) -> Limits:
    """Limits of requests as long as the memory."""
    total = min(facts.context_length, facts.capacity)
    return Limits(**{"max_input_tokens": total - 1, "max_total_tokens": total, "max_batch_prefill_tokens": 256,
                     "max_slots": 64, "min_step_tokens": 256, **changed})


@dataclass
class Planted:
    """The server, which has a group for each fleet."""

    facts: Facts = FACTS
    limits: Mapping[str, Any] = field(default_factory=dict)
    fleets: list[TimedFleet] = field(default_factory=lambda: [TimedFleet()])
    adapters: Registry | None = None
    grammars: Grammars | None = None
    keeps_answers: bool = False

    def __post_init__(self) -> None:
        limits = limits_of(self.facts, **self.limits)
        metrics = Metrics(limits)
        self.groups = Groups(limits, metrics, self.adapters)
        for number, fleet in enumerate(self.fleets):
            fleet.facts = replace(self.facts, group="ab"[number] if len(self.fleets) > 1 else "")
            self.groups.add(Engine(fleet, fleet.facts, limits, metrics, 1, 60.0, self.adapters, name=fleet.facts.group,
                                   is_one_of_many=len(self.fleets) > 1))
        bounds = Bounds(1 << 20, 3600)
        cache = ResponseCache(Memory(bounds, metrics.cache), bounds, metrics.cache, is_shared=True)
        self.explainer = Explainer(Recent(100), 100)
        self.around = Around(cache if self.keeps_answers else None, self.explainer)
        self.service = Service(self.groups, PlainTokenizer(), metrics, INFO, PoisonMemory(0.0), self.grammars,
                               adapters=Registry() if self.adapters is None else self.adapters, around=self.around)
        self._number = 0

    @property
    def fleet(self) -> TimedFleet:
        """The only one."""
        [fleet] = self.fleets
        return fleet

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Planted"]:
        """Drives the groups while the block runs."""
        running = asyncio.create_task(self.groups.run())
        await asyncio.sleep(0.001)
        try:
            yield self
        finally:
            running.cancel()
            await asyncio.wait([running])

    def ask(self, after: float, prompt: int, new: int, **more: Any) -> "asyncio.Task[Explanation]":
        """Asks for an answer to a prompt of so many tokens after some seconds."""
        return asyncio.create_task(self._asked(after, prompt, new, **more))

    async def _asked(
        self, after: float, prompt: int, new: int, *, first: int | None = None, adapter: str | None = None,
        pause: float = 0.0, is_background: bool = False, before: Coroutine[Any, Any, Any] | None = None,
        **parameters: Any,
    ) -> Explanation:
        self._number += 1
        number = self._number
        await asyncio.sleep(after)
        inputs = tuple((first or 1000 * number) + place for place in range(prompt))
        spec = GenerationSpec(tuple(each % FACTS.vocab_size for each in inputs), Parameters(
            max_new_tokens=new, ignore_eos=True, **parameters), adapter=adapter)
        with request_id.naming(f"r{number}"), recording("POST /generate") as record:
            if before is not None:
                await before
            with Asking(self.service, is_background) as asking:
                identity = await identify(self.service, [spec], Wish(), ["generate"], is_stream=False)
                async with answering(asking, [spec], identity, is_stream=False) as answers:
                    async for _ in answers:
                        await asyncio.sleep(pause)
            request_log.write(record, 200, journal=self.explainer)
            return await self.explainer.explain(f"r{number}", None)


def live(work: Callable[[], Coroutine[Any, Any, Explanation]]) -> Explanation:
    """Runs what a test plants in virtual time, and returns the explanation of the request that it was planted for."""
    with virtual_time(1) as loop:
        return loop.run_until_complete(asyncio.wait_for(work(), 1000.0))
