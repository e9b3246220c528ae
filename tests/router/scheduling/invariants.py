"""What holds between any two verbs of the scheduler; each check reads, none changes anything."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.router.scheduling.cached_block import Node
from penstock.router.scheduling.priorities import MIN_PRIORITY, REQUESTS_PER_LEVEL
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence, Status
from tests.router.scheduling.shard_mirror import ShardMirror, chain_of
from tests.router.scheduling.simulated_adapters import ADAPTERS
from tests.router.scheduling.simulated_client import Client, Flight


def check_scheduler(
    scheduler: Scheduler, flights: Collection[Flight], live: Collection[Client], present: Collection[Client]
) -> None:
    """All that holds between any two verbs, of clients that wait for an answer and of those that have a slot."""
    sequences = [client.sequence for client in present]
    check_blocks(scheduler, sequences)
    check_flights(scheduler, flights)
    check_places(scheduler, [client.sequence for client in live], sequences)
    check_adapters(scheduler, present)


def check_blocks(scheduler: Scheduler, present: Collection[Sequence]) -> None:
    """Free + cached only + held = all; a block's count = the sequences that hold it, or are to have a copy of it, + 1
    if it is cached."""
    memory = scheduler.memory
    pool, cache = memory.pool, memory.cache
    holders = Counter(block for sequence in present for block in sequence.blocks)
    holders.update(block for sequence in present for fork in sequence.forks for block in fork.blocks)
    copies = scheduler._batch._copies.values()
    holders.update(copy.source for copy in copies)
    assert all(number <= len(present) + len(copies) for number in holders.values())
    expected = [holders[block] + (block in cache) for block in range(pool.num_blocks)]
    actual = [pool.count(block) for block in range(pool.num_blocks)]
    assert actual == expected, f"blocks' counts are {actual}, their holders {expected}"
    free = [block for block, count in enumerate(actual) if not count]
    assert sorted(pool._free) == free, f"the free list is {sorted(pool._free)}, nobody holds {free}"
    cached_only = [block for block, count in enumerate(actual) if count and not holders[block]]
    assert sorted(cache._idle) == cached_only, f"{sorted(cache._idle)} can be evicted, {cached_only} are only cached"
    assert (pool.num_free, cache.num_evictable, memory.num_held) == (len(free), len(cached_only), len(holders))
    assert len(free) + len(cached_only) + len(holders) == pool.num_blocks


def check_flights(scheduler: Scheduler, flights: Collection[Flight]) -> None:
    """What a step in flight names is there; what it writes is in no other table and not cached."""
    memory = scheduler.memory
    named: Counter[int] = Counter()
    for flight in flights:
        for client, row, blocks in flight.rows:
            sequence = client.sequence
            named[sequence.id] += 1
            assert sequence.slot == row.slot, f"slot {row.slot} is taken from a sequence that a step in flight names"
            assert tuple(sequence.blocks[:len(blocks)]) == blocks, "blocks are taken that a step in flight names"
            first, last = row.start // memory.block_size, (row.start + row.num_inputs - 1) // memory.block_size
            for block in blocks[first:last + 1]:
                assert memory.pool.count(block) == 1, f"block {block} is shared while a step in flight writes to it"
                assert block not in memory.cache, f"block {block} is cached while a step in flight writes to it"
        for client, row in flight.forks:
            assert any(fork.row is row for fork in client.sequence.forks), "a fork ends while its step is in flight"
            for block in row.new_blocks[row.start // memory.block_size:]:
                assert memory.pool.count(block) == 1, f"block {block} is shared while a fork writes to it"
                assert block not in memory.cache, f"block {block} is cached while a fork writes to it"
    assert sum(len(flight.forks) for flight in flights) == sum(
        len(sequence.forks) for sequence in {client.sequence for flight in flights for client, _, _ in flight.rows})
    for flight in flights:
        for client, _, _ in flight.rows:
            sequence = client.sequence
            assert sequence.in_flight == named[sequence.id], (
                f"{named[sequence.id]} steps in flight name sequence {sequence.id}, it counts {sequence.in_flight}")


def check_places(scheduler: Scheduler, live: Collection[Sequence], present: Collection[Sequence]) -> None:
    """Every slot is free or one sequence's; every sequence is in the one list that its status says."""
    slots = [sequence.slot for sequence in present if sequence.slot is not None]
    slots += [fork.slot for sequence in present for fork in sequence.forks]
    num_slots = len(scheduler._batch.free_slots) + len(slots)
    assert sorted([*scheduler._batch.free_slots, *slots]) == list(range(num_slots)), "a slot is lost or given out twice"
    lists = {Status.WAITING: scheduler._waiting, Status.RUNNING: scheduler._batch.running}
    for status, sequences in lists.items():
        expected = sorted(s.id for s in live if s.status is status)
        assert sorted(s.id for s in sequences) == expected, f"{status.value} sequences are {expected}"
        places = [(s.age + REQUESTS_PER_LEVEL * s.priority, s.age) for s in sequences]
        assert places == sorted(places), f"{status.value} sequences are not in their order, {places}"
    leaving = {s.id for s in present if s.status in (Status.DRAINING, Status.FINISHED)}
    assert {s.id for s in scheduler._batch.leaving} == leaving, "what leaves has to come back"
    assert all(s.in_flight for s in scheduler._batch.leaving), "a sequence that no step names keeps its blocks"
    assert all(s.slot is None and not s.blocks and not s.in_flight for s in scheduler._waiting)
    for is_background in (False, True):
        left = sum(len(s.tokens) - (s.matched.depth * scheduler.memory.block_size if s.matched else 0)
                   for s in scheduler._waiting if is_background or not s.is_background)
        assert scheduler._waiting.num_left(is_background) == left, "who waits has other tokens left than are counted"
    members = [s.id for cohort in scheduler.suspects._cohorts for s in cohort.members]
    assert sorted(members) == sorted(s.id for s in live if s.is_suspect), "a suspect is in one cohort"
    assert all(s.status is Status.WAITING for s in live if scheduler.suspects.holds(s)), "a suspect that is held runs"


def note_passed(scheduler: Scheduler, newcomer: Sequence, live: Mapping[int, Client]) -> int:
    """Counts whom a sequence that comes passes: fewer pass one than its priority lets them."""
    behind = scheduler._waiting[scheduler._waiting.index(newcomer) + 1:]
    passed = [live[each.id] for each in behind if not each.is_background]
    for client in passed:
        client.num_passed += 1
        most = REQUESTS_PER_LEVEL * (client.sequence.priority - MIN_PRIORITY)
        assert client.num_passed <= most, f"{client.num_passed} pass sequence {client.sequence.id}"
        assert newcomer.id - client.sequence.id < REQUESTS_PER_LEVEL * (client.sequence.priority - newcomer.priority), (
            f"sequence {newcomer.id} passes sequence {client.sequence.id}, which has waited long enough")
    return len(passed)


def check_background_waits(scheduler: Scheduler) -> None:
    """While others wait for slots or blocks, the background runs on no more of them than are left."""
    batch, memory = scheduler._batch, scheduler.memory
    others = [s for s in scheduler._waiting if not (s.is_background or s.is_undecided or scheduler.suspects.holds(s))
              and batch.kv_use.has_room(s) and scheduler.adapters.is_loaded(s.adapter)]
    if not others or not batch.running or not batch.running[-1].is_background:
        return
    assert batch.num_slots_coming >= len(others), "others wait for slots that the background has"
    needed = sum(memory.blocks_for(len(s.tokens)) for s in others)
    assert batch.num_blocks_coming >= needed, "others wait for blocks that the background has"


def check_adapters(scheduler: Scheduler, clients: Collection[Client]) -> None:
    """Every slot's adapter is loaded, and counted once for it."""
    expected = Counter(client.adapter for client in clients if client.adapter)
    adapters, residents = scheduler.adapters, scheduler.adapters._residents
    actual = {number: each.num_holders for number, each in residents.items() if each.num_holders}
    assert actual == expected, f"sequences with a slot use the adapters {expected}, {actual} are counted"
    assert all(adapters.is_loaded(number) for number in expected), "an adapter in use is not loaded"
    assert sum(each.num_bytes for each in residents.values()) == adapters.num_used <= adapters.budget


def check_row(client: Client, row: Row) -> None:
    """A row waits for a mask if it samples by a grammar, and asks for the logprobs of its part of the prompt."""
    assert row.late_mask == (client.sequence.has_grammar and row.output is Output.SAMPLE), "who waits for a mask?"
    if not client.needs_prompt_logprobs:
        assert not row.prompt_logprob_ids, "prompt logprobs are asked for that are there already, or that nobody wants"
    end = min(row.start + row.num_inputs + 1, client.sequence.prompt_length)
    missing = [position for position in range(row.start + 1, end) if position not in client.prompt_logprobs]
    if client.needs_prompt_logprobs and missing:
        expected = client.tokens[row.start + 1:end]
        assert list(row.prompt_logprob_ids) == expected, "prompt logprobs of other tokens are asked for"


def advance_states(reached: dict[int, int], plan: Plan) -> None:
    """Each slot's state goes on where it has come to."""
    for row in plan.rows:
        position = 0 if row.initial_state else reached[row.slot]
        assert row.start == position, f"slot {row.slot}: start {row.start}, its state is at position {position}"
        reached[row.slot] = row.start + row.num_inputs


def check_cached(scheduler: Scheduler, known: Mapping[int, Node], shard: ShardMirror) -> dict[int, Node]:
    """A block that was cached since the last look holds what its place in the tree says; returns those cached now."""
    nodes = dict(scheduler.memory.cache._nodes)
    for block, node in nodes.items():
        if known.get(block) is not node:
            namespace, *tokens = path_tokens(node)
            values = chain_of(ADAPTERS[namespace], tokens)[-scheduler.memory.block_size:]
            assert shard.holds(block, values), f"block {block} is cached but holds other tokens"
    return nodes


def path_tokens(node: Node) -> list[Any]:
    """The namespace, then all tokens up to the end of a cached block."""
    keys = []
    while node.parent is not None:
        keys.append(node.key)
        node = node.parent
    return [item for key in reversed(keys) for item in key]
