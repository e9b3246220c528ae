"""What a front gets of texts is what the engine's own streams get."""

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.contract.facts import Facts
from penstock.contract.pooling import Task
from penstock.router.engine.pooled_stream import PooledStream
from tests.pooling_fleet import CLASSIFIER, EMBEDDER, SPARSE, PoolingFleet
from tests.router.engine.test_pooled import asked, submit
from tests.router.front.fronts import front, serving

DECODER = replace(EMBEDDER, is_whole=False, num_blocks=256)
CASES = [(EMBEDDER, Task.EMBED), (EMBEDDER, Task.EMBED_ALL), (DECODER, Task.EMBED_ALL), (SPARSE, Task.EMBED_SPARSE),
         (CLASSIFIER, Task.CLASSIFY)]


@pytest.mark.parametrize(("facts", "task"), CASES)
async def test_values_are_those_of_the_engine(path: Path, facts: Facts, task: Task) -> None:
    async with serving(path, PoolingFleet(facts), facts=facts) as (groups, _), front(path) as remote:
        own, other = submit(groups.members[0].engine, asked(task)), PooledStream(asked(task))
        remote.submit(other)
        for stream in (own, other):
            await stream.wait()
        assert (other.values, other.indices, other.num_tokens) == (own.values, own.indices, own.num_tokens)
        assert other.started_at is not None
        assert groups.members[0].engine.num_requests == 0


async def test_a_text_waits_for_the_next_process_of_the_engine(path: Path) -> None:
    async with AsyncExitStack() as first, AsyncExitStack() as stack:
        fleet = PoolingFleet()
        await first.enter_async_context(serving(path, fleet, facts=EMBEDDER))
        remote = await stack.enter_async_context(front(path))
        fleet.may_answer.clear()
        streams = [PooledStream(asked(first=first)) for first in range(10, 15)]
        for stream in streams:
            remote.submit(stream)
        await fleet.has_plan.wait()
        await first.aclose()
        await stack.enter_async_context(serving(path, PoolingFleet(), facts=EMBEDDER))
        for stream in streams:
            await stream.wait()
            assert len(stream.values) == EMBEDDER.vector_size


async def test_who_leaves_is_gone_in_the_engine_too(path: Path) -> None:
    fleet = PoolingFleet()
    async with serving(path, fleet, facts=EMBEDDER) as (groups, _), front(path) as remote:
        fleet.may_answer.clear()
        left, stays = PooledStream(asked()), PooledStream(asked())
        remote.submit(left)
        remote.submit(stays)
        await fleet.has_plan.wait()
        left.leave()
        fleet.may_answer.set()
        await stays.wait()
        assert groups.members[0].engine.num_requests == 0
