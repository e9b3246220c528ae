"""A made-up tier plugs in: what is evicted moves to the host's memory, is found there, and comes back."""

import random
from collections.abc import Callable

import pytest

from penstock.router.scheduling.cached_block import Node, Place
from penstock.router.scheduling.scheduler import Scheduler
from tests.router.scheduling.invariants import check_blocks
from tests.router.scheduling.shard_mirror import Resident, ShardMirror, chain_of, sample
from tests.router.scheduling.small_schedulers import make_sequence

NUM_BLOCKS, SIZE = 12, 4
PROMPTS = [[base] * 3 + [*range(base, base + 14)] for base in (10, 30, 50, 70, 90)]


class Host:
    """Keeps up to `room` blocks, and gives up the oldest. Its orders are calls that the shard makes before a step."""

    def __init__(self, room: int, forget: Callable[[Node], None], shard: ShardMirror) -> None:
        self.room, self.give_up, self.shard = room, forget, shard
        self.nodes: dict[Node, list[int | None]] = {}
        self.orders: list[Callable[[], None]] = []
        self.num_kept = self.num_fetched = 0

    def keep(self, node: Node) -> Place:
        content = self.nodes[node] = list[int | None]()
        block, self.num_kept = node.block, self.num_kept + 1
        self.orders.append(lambda: content.extend(self.shard.memory[block]))
        if len(self.nodes) > self.room:
            self.give_up(next(iter(self.nodes)))
        return Place.HOST

    def fetch(self, node: Node, block: int) -> None:
        content, self.num_fetched = self.nodes.pop(node), self.num_fetched + 1
        self.orders.append(lambda: self.shard.memory.__setitem__(block, list(content)))

    def forget(self, node: Node) -> None:
        del self.nodes[node]

    def clear(self) -> None:
        self.nodes.clear()
        self.orders.clear()


class World:
    """A scheduler with a shard, one step in flight at a time."""

    def __init__(self, room: int) -> None:
        self.shard = ShardMirror(SIZE, NUM_BLOCKS)
        self.host = Host(room, lambda node: self.scheduler.memory.cache.forget(node), self.shard)
        self.scheduler = Scheduler(
            block_size=SIZE, num_blocks=NUM_BLOCKS, max_slots=2, max_step_tokens=32, tier=self.host if room else None)
        self.num_asked = 0

    def ask(self, prompt: list[int], max_new: int = 6) -> int:
        """Runs one request to its end; returns how many of its tokens were not computed."""
        sequence, hits = make_sequence(self.num_asked, tokens=prompt, max_new=max_new, ignore_eos=True), 0
        self.num_asked += 1
        self.scheduler.add(sequence)
        while plan := self.scheduler.plan():
            check_blocks(self.scheduler, [sequence])
            hits += sum(admission.hit_tokens for admission in plan.admitted)
            while self.host.orders:
                self.host.orders.pop(0)()
            firsts = {row.slot: Resident(chain_of(0, sequence.tokens)[:row.start + 1], 0, 0)
                      for row in plan.rows if row.initial_state is not None}
            self.scheduler.commit(self.shard.run(plan, firsts, {}))
        for end in range(len(prompt), len(prompt) + max_new):
            assert sequence.tokens[end] == sample(chain_of(0, sequence.tokens[:end])[-1], 0, None)
        assert self.scheduler.memory.num_held == 0
        return hits


@pytest.mark.parametrize(("room", "hits"), [(0, 0), (100, 16)])
def test_what_was_evicted_is_found_again(room: int, hits: int) -> None:
    world = World(room)
    assert [world.ask(prompt) for prompt in PROMPTS] == [0] * len(PROMPTS)
    assert [world.ask(prompt) for prompt in PROMPTS] == [hits] * len(PROMPTS)
    assert (world.host.num_kept > 0, world.host.num_fetched > 0) == (bool(room), bool(room))


@pytest.mark.parametrize("room", [1, 3, 7, 20])
def test_a_tier_may_give_up_what_it_kept(room: int) -> None:
    with_tier, without, draw = World(room), World(0), random.Random(1)
    prompts = [draw.choice(PROMPTS)[:draw.randint(5, 17)] + [draw.randint(2, 4)] * draw.randint(0, 9)
               for _ in range(150)]
    assert sum(map(with_tier.ask, prompts)) > sum(map(without.ask, prompts))
    assert len(with_tier.host.nodes) <= room


def test_the_loss_of_a_group_takes_what_was_moved() -> None:
    world = World(100)
    for prompt in PROMPTS:
        world.ask(prompt)
    world.scheduler.forget_all()
    world.shard = world.host.shard = world.shard.successor()
    assert not world.host.nodes
    assert world.ask(PROMPTS[0]) == 0
