"""A request for which the model computes NaN fails with a sentence, and it alone."""

import asyncio
from dataclasses import replace

import pytest

from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.router.engine.request import Request
from penstock.router.engine.stream import Stream
from penstock.router.errors import GenerationError
from tests.fakes import ScriptedFleet
from tests.scripted_engine import ListGrammar, collect, first_allowed, running_engine, shifting, submit

NAN_TOKEN = 13
POISONED = Request(input_ids=(10, NAN_TOKEN, 12), sampling=Sampling(), max_new_tokens=5)
HEALTHY = replace(POISONED, input_ids=(10, 11, 12), max_new_tokens=30)


def make_fleet() -> ScriptedFleet:
    fleet = ScriptedFleet(shifting, first_allowed)
    fleet.is_nan = lambda row: NAN_TOKEN in row.token_ids
    return fleet


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("poisoned", [
    POISONED, replace(POISONED, sampling=Sampling(do_sample=True, seed=1)),
    replace(POISONED, sampling=Sampling(top_n=2)), replace(POISONED, max_new_tokens=1),
    replace(POISONED, grammar=ListGrammar({70}, {71}, {2})),
    replace(POISONED, wants_prompt_logprobs=True)],
    ids=["greedy", "sampled", "top logprobs", "one token", "grammar", "prompt logprobs"])
async def test_it_alone_fails(poisoned: Request, depth: int) -> None:
    async with running_engine(make_fleet(), depth=depth) as engine:
        undisturbed = await collect(submit(engine, HEALTHY))
        others = [asyncio.create_task(collect(submit(engine, HEALTHY))) for _ in range(2)]
        with pytest.raises(GenerationError, match=r"the model computed something that is not a number \(NaN\)$"):
            await collect(submit(engine, poisoned))
        assert await asyncio.gather(*others) == [undisturbed] * 2
        while engine._in_flight:
            await asyncio.sleep(0)
        assert engine._scheduler.memory.num_held == 0
        assert engine.is_healthy


async def test_it_fails_where_the_model_comes_to_it() -> None:
    """What came before reaches the client."""
    fleet = make_fleet()
    fleet.is_nan = lambda row: row.start == 6
    sampled: list[int] = []

    async def read(stream: Stream) -> None:
        async for event in stream:
            sampled.append(event.token.id)

    async with running_engine(fleet) as engine:
        with pytest.raises(GenerationError, match="not a number"):
            await read(submit(engine, HEALTHY))
    assert sampled == [shifting(Row(0, 0, tuple(range(length)))) for length in (3, 4, 5, 6)]


async def test_a_part_of_the_prompt_that_no_answer_shows() -> None:
    """A window may leave it out of what is sampled; its logprobs still can't be told."""
    fleet = make_fleet()
    long = (10, NAN_TOKEN, *range(20, 400))
    async with running_engine(fleet) as engine:
        with pytest.raises(GenerationError, match="not a number"):
            await collect(submit(engine, replace(POISONED, input_ids=long, wants_prompt_logprobs=True)))
        assert len(await collect(submit(engine, replace(POISONED, input_ids=long)))) == 5
