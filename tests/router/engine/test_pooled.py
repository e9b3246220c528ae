"""An engine whose requests are for vectors and scores of texts."""

import asyncio
import math
import struct
from dataclasses import replace

import pytest

from penstock.contract.pooling import Pooling, Task
from penstock.contract.row import Row
from penstock.contract.row_result import OtherResult, RowResult
from penstock.contract.sampling import Sampling
from penstock.router.engine.engine import Engine
from penstock.router.engine.pooled_stream import PooledStream
from penstock.router.engine.request import Request
from penstock.router.engine.transfer import Transfer
from penstock.router.errors import GenerationError
from penstock.router.fleet.errors import FleetError
from tests.fakes import LIMITS
from tests.pooling_fleet import CLASSIFIER, EMBEDDER, SIZE, SPARSE, PoolingFleet, numbers
from tests.scripted_engine import running_engine, running_groups

DECODER = replace(EMBEDDER, is_whole=False, num_blocks=256)
FEW = replace(LIMITS, max_batch_prefill_tokens=16, max_slots=8, min_step_tokens=16)


def asked(task: Task = Task.EMBED, length: int = 5, first: int = 10, normalized: bool = False) -> Request:
    return Request(input_ids=tuple(range(first, first + length)), sampling=Sampling(), max_new_tokens=0,
                   pooling=Pooling(task, normalized=normalized))


def submit(engine: Engine, request: Request, age: int = 0) -> PooledStream:
    stream = PooledStream(request)
    engine.take(Transfer(stream, (), age=age))
    return stream


def near(request: Request, count: int = SIZE) -> object:
    return pytest.approx(numbers(request.input_ids, count), rel=1e-6)


async def test_vectors_of_whole_texts() -> None:
    async with running_engine(PoolingFleet(), facts=EMBEDDER) as engine:
        streams = [submit(engine, asked(first=first, length=first)) for first in (3, 200, 10)]
        for stream in streams:
            await stream.wait()
            assert [*stream.values] == near(stream.request)
            assert stream.started_at is not None
            assert stream.finished_at is not None
            assert stream.submitted_at <= stream.started_at <= stream.finished_at
        assert engine.num_requests == 0


async def test_scores_and_sparse_vectors() -> None:
    async with running_engine(PoolingFleet(CLASSIFIER), facts=CLASSIFIER) as engine:
        stream = submit(engine, asked(Task.CLASSIFY))
        await stream.wait()
        assert [*stream.values] == near(stream.request, 3)
    async with running_engine(PoolingFleet(SPARSE), facts=SPARSE) as engine:
        stream = submit(engine, asked(Task.EMBED_SPARSE))
        await stream.wait()
        assert [*stream.indices] == [10, 11, 12, 13, 14]
        assert [*stream.values] == pytest.approx([1 / (1 + index) for index in range(10, 15)], rel=1e-6)


async def test_vectors_of_tokens_come_chunk_by_chunk() -> None:
    async with running_engine(PoolingFleet(DECODER), facts=DECODER, limits=FEW) as engine:
        stream = submit(engine, asked(Task.EMBED_ALL, length=40))
        await stream.wait()
        wanted = [number for token in stream.request.input_ids for number in numbers([token], SIZE)]
        assert [*stream.values] == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("facts", [EMBEDDER, DECODER], ids=["whole", "chunks"])
@pytest.mark.parametrize("method", ["submit", "next_result"])
async def test_a_text_is_computed_again_when_the_group_dies(facts: object, method: str) -> None:
    fleet = PoolingFleet(facts)  # type: ignore[arg-type]
    async with running_engine(fleet, facts=fleet.facts, limits=replace(FEW, max_batch_prefill_tokens=64)) as engine:
        fleet.fail_at(method, 2)
        streams = [submit(engine, asked(Task.EMBED_ALL, length=60), age) for age in range(4)]
        for stream in streams:
            await stream.wait()
            wanted = [number for token in stream.request.input_ids for number in numbers([token], SIZE)]
            assert [*stream.values] == pytest.approx(wanted, rel=1e-6)


async def test_a_text_moves_to_another_group() -> None:
    one, other = PoolingFleet(), PoolingFleet()
    async with running_groups(one, other, facts=EMBEDDER) as groups:
        await asyncio.sleep(0)
        streams = [PooledStream(asked(first=first)) for first in range(10, 20)]
        one.may_answer.clear()
        for stream in streams:
            groups.submit(stream)
        one.may_open.clear()
        one.failure = FleetError("it died")
        one.may_answer.set()
        for stream in streams:
            await stream.wait()
            assert [*stream.values] == near(stream.request)


class NanFleet(PoolingFleet):
    def _run(self, row: Row, mask: bytes | None) -> RowResult:
        result = super()._run(row, mask)
        if self._tokens[row.slot][0] != 99:
            return result
        value = struct.pack("<8f", *([0.5] * 7), math.nan)
        return result._replace(others=(OtherResult("pooled", value),))


async def test_what_is_not_a_number_fails_its_request_alone() -> None:
    async with running_engine(NanFleet(), facts=EMBEDDER) as engine:
        bad, good = submit(engine, asked(first=99)), submit(engine, asked())
        with pytest.raises(GenerationError, match=r"not a number \(NaN\)"):
            await bad.wait()
        await good.wait()


async def test_who_leaves_cancels() -> None:
    fleet = PoolingFleet()
    async with running_engine(fleet, facts=EMBEDDER) as engine:
        fleet.may_answer.clear()
        stream = submit(engine, asked())
        await fleet.has_plan.wait()
        stream.leave()
        assert engine.num_requests == 0
        fleet.may_answer.set()


async def test_a_text_of_more_tokens_than_the_memory_holds_is_refused() -> None:
    facts = replace(DECODER, num_blocks=2)
    async with running_engine(PoolingFleet(facts), facts=facts) as engine:
        await submit(engine, asked(length=32)).wait()
        with pytest.raises(GenerationError, match="needs more"):
            submit(engine, asked(length=33))
