"""A group of shards: what it is, whether it listens, the stream whose orders it runs, and how it dies."""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.contract.facts import Facts
from penstock.contract.plan import Plan
from penstock.contract.step_result import StepResult
from tests.router.groups.simulation.executor import Executor, Kills, Memory
from tests.router.groups.simulation.oracle import EOS, VOCAB, begin

if TYPE_CHECKING:
    from tests.router.groups.simulation.network import Link

BLOCK_SIZE = 4


class Session:
    """A stream of orders to all shards, from its opening to that of the next one."""

    def __init__(self, epoch: int, executor: Executor, world_size: int) -> None:
        self.epoch = epoch
        self.executor = executor
        self.links: dict[int, Link] = {}
        self.plans: deque[Plan] = deque()
        self.masks: dict[int, Any] = {}
        self.num_orders = [0] * world_size
        """How many plans each shard has got."""
        self.num_run = 0


class Group:
    """Runs steps one after the other, each once all shards have its order. `life` counts how often it was started.

    A death leaves the KV memory as it is or takes it too. `tell` notes what happens; `fault` is called with the error
    of what no group should ever be ordered.
    """

    def __init__(
        self, seed: int, name: str, address: str, facts: Facts, world_size: int, kills: Kills,
        tell: Callable[[str], None], fault: Callable[[BaseException], None],
    ) -> None:
        self.random = random.Random(seed)
        self.address = address
        self.world_size = world_size
        self.facts = replace(facts, group=name, world_size=world_size)
        self.links: list[Link] = []
        self.is_up = False
        self.is_cut = False
        """Whether nobody reaches it, though it may run."""
        self.is_draining = False
        self.token_seconds = 0.0005
        """What a token of a step takes; all steps take eight times as long besides."""
        self.hangs_for: float | None = None
        """The seconds after which the next step is the group's death, for it hangs."""
        self.is_slow_for: float | None = None
        """The seconds that the next step takes."""
        self.life = 0
        self.num_deaths = 0
        self.restart: Callable[[], None] = lambda: None
        """Called at a death: sees to it that the group is started again."""
        self._kills = kills
        self._tell = tell
        self._fault = fault
        self._memory = self._new_memory()
        self._session: Session | None = None
        self._is_busy = False
        self._adapters: dict[tuple[int, int], list[str]] = {}
        """By the epoch and the adapter's number, its digest, for each shard that has it."""
        self._changes: list[asyncio.Future[None]] = []

    @property
    def name(self) -> str:
        return self.facts.group

    @property
    def is_reachable(self) -> bool:
        return self.is_up and not self.is_cut

    def start(self, facts: Facts | None = None, *, keeps_memory: bool = False) -> None:
        """Lets the shards listen: with other facts, or with all that the memory held."""
        self.facts = facts or self.facts
        if not keeps_memory or facts is not None:
            self._memory = self._new_memory()
        self.is_up, self._is_busy = True, False
        self.hangs_for = self.is_slow_for = None
        self.life += 1
        self._tell(f"group {self.name} listens: {self.facts.weights_digest} {self.facts.numerics}, "
                   f"{self.facts.num_blocks} blocks, memory {self.facts.memory_id}")
        self.note()

    def die(self, why: str) -> None:
        if not self.is_up:
            return
        self._tell(f"group {self.name} dies: {why}")
        self.is_up = False
        self.life += 1
        self.num_deaths += 1
        self._session = None
        self._adapters.clear()
        self._cut_all(f"group {self.name} died: {why}", is_outside=False)
        self.note()
        self.restart()

    def cut(self, message: str = "the wire is cut") -> None:
        """Cuts all connections. The shards hear of it when somebody else comes."""
        self._tell(f"group {self.name} is cut off")
        self._cut_all(f"group {self.name}: {message}", is_outside=True)

    def note(self) -> None:
        """Tells those who wait for a change."""
        changes, self._changes = self._changes, []
        for change in changes:
            if not change.done():
                change.set_result(None)

    async def change(self) -> None:
        change = asyncio.get_running_loop().create_future()
        self._changes.append(change)
        await change

    def receive(self, link: "Link", place: int, order: Any, life: int) -> None:
        """Takes an order that was sent by a link."""
        if life != self.life or self.is_cut:
            return
        epoch = getattr(order, "epoch", None)
        if epoch is not None:
            self._open(link, place, epoch)
            return
        session = self._session
        if session is None or session.links.get(place) is not link:
            return  # of a stream that is over
        if isinstance(order, Plan):
            session.num_orders[place] += 1
            if place == 0:
                session.plans.append(order)
        else:
            session.masks[order.step_id] = order.masks
        self._advance()

    def hang_up(self, link: "Link") -> None:
        """Notes that nobody reads what a link's stream yields."""
        link.is_ended = True
        if link in self.links:
            self.links.remove(link)
        if self._session is not None and self._session.links.get(link.place) is link:
            self._session = None

    def load_adapter(self, epoch: int, number: int, digest: str) -> None:
        self._adapters.setdefault((epoch, number), []).append(digest)

    def unload_adapter(self, epoch: int, number: int) -> None:
        self._adapters.pop((epoch, number), None)

    def _cut_all(self, message: str, is_outside: bool) -> None:
        links, self.links = self.links, []
        for link in links:
            link.cut(message, is_outside)

    def _open(self, link: "Link", place: int, epoch: int) -> None:
        session = self._session
        if session is None or session.epoch < epoch:
            for old in session.links.values() if session else ():
                old.cut("a newer stream took the place of this one")
            memory, facts = self._memory, self.facts
            session = self._session = Session(
                epoch, Executor(memory, lambda number: self._first(facts, epoch, number)), self.world_size)
        if session.epoch == epoch:
            session.links[place] = link
        else:
            link.cut("there is a newer stream")

    def _first(self, facts: Facts, epoch: int, adapter: int) -> int:
        loaded = self._adapters.get((epoch, adapter), [])
        assert not adapter or len(loaded) == self.world_size, f"adapter {adapter} is to be used, and is not loaded"
        return begin(facts.weights_digest, facts.numerics, loaded[0] if adapter else "a0")

    def _advance(self) -> None:
        """Begins the next step, if it can."""
        session = self._session
        if self._is_busy or session is None or min(session.num_orders) <= session.num_run:
            return
        plan = session.plans[0]
        if plan.masked and plan.step_id not in session.masks:
            return
        session.plans.popleft()
        session.num_run += 1
        self._is_busy = True
        loop = asyncio.get_running_loop()
        if self.hangs_for is not None:
            self._tell(f"group {self.name} hangs")
            loop.call_later(self.hangs_for, self._end_hanging, self.life)
            return
        seconds = self.is_slow_for or self.token_seconds * (8 + plan.num_tokens + 12 * self.random.random())
        self.is_slow_for = None
        loop.call_later(seconds, self._finish, self.life, session, plan)

    def _end_hanging(self, life: int) -> None:
        if life == self.life:
            self.die("a step hung")

    def _finish(self, life: int, session: Session, plan: Plan) -> None:
        if life != self.life:
            return
        self._is_busy = False
        try:
            result = session.executor.run(plan, session.masks.pop(plan.step_id, {}))
            is_deadly = session.executor.kills(plan, self._kills)
        except (AssertionError, LookupError) as error:
            self._fault(error)
            return
        if is_deadly:
            self.die("a request killed it")
            return
        for place, link in session.links.items():
            if not link.is_ended:
                link.answer(result if place == 0 else StepResult(plan.step_id, ()))
        self._advance()

    def _new_memory(self) -> Memory:
        number = int(self.facts.memory_id[1:]) + 1
        self.facts = replace(self.facts, memory_id=f"m{number}")
        return Memory(self.facts.memory_id, self.facts.num_blocks, self.facts.block_size)


def make_facts(weights: str, numerics: str, num_blocks: int, takes_adapters: bool) -> Facts:
    return Facts(
        model_id="model", dtype="float32", kv_dtype="float32", block_size=BLOCK_SIZE, num_blocks=num_blocks,
        vocab_size=VOCAB, eos_token_ids=frozenset({EOS}), context_length=256, world_size=1, numerics=numerics,
        weights_digest=weights, settings_digest="", step_tokens=16, memory_id="m0", first_blocks=num_blocks,
        takes_adapters=takes_adapters)
