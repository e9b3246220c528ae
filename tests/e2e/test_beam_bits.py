"""The bit contract for beam searches: the same tokens, logprobs and scores, however the steps are made up, on one shard
and two, after a shard was killed, and in another group."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.contract.sampling import Sampling
from penstock.router.engine.any_engine import AnyEngine
from penstock.router.engine.engine import Engine
from penstock.router.engine.request import Request
from penstock.router.fleet.fleet import GrpcFleet
from penstock.router.grammar.compiler import GrammarCompiler
from penstock.router.grammar.spec import GrammarSpec
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics
from penstock.router.scheduling.beam_search import BeamSettings
from tests.e2e.client import many_clients, scrape
from tests.e2e.server import serve
from tests.eventually import until
from tests.router.engine.searches import ask, look_at_moves
from tests.scripted_engine import collect, running_groups
from tests.shard.processes import Shard, running
from tests.tiny_models import DEMO_MODEL

WIDE = Limits(max_input_tokens=300, max_total_tokens=400, max_batch_prefill_tokens=512, max_slots=64)
CHUNKED = replace(WIDE, max_batch_prefill_tokens=16, max_slots=7, min_step_tokens=1)
"""In steps of 16 tokens, with fewer slots than there are beams."""
SAMPLINGS = (Sampling(), Sampling(repetition_penalty=1.3), Sampling(bias_ids=(300,), bias_values=(2.0,)),
             Sampling(banned_ids=(2,), min_tokens=6))
LETTERS = {"type": "regex", "value": "[a-z ]*"}
Answer = tuple[list[tuple[int, float]], float]


def requests() -> list[Request]:
    draw = random.Random(4)
    return [Request(
        tuple(draw.choices(range(100, 2000), k=length)), SAMPLINGS[number % 4], 6 + 5 * (number % 4),
        beams=BeamSettings(2 + number % 4, 2, (0.0, 1.0, -1.0, 2.0)[number % 4], (True, False, "never")[number % 3]))
        for number, length in enumerate([1, 16, 17, 130, 30, 55])]


@asynccontextmanager
async def engine_of(shards: Sequence[Shard], limits: Limits) -> AsyncIterator[Engine]:
    fleet = GrpcFleet([f"unix:{shard.socket}" for shard in shards])
    engine = Engine(fleet, await fleet.describe(), limits, Metrics(limits))
    task = asyncio.create_task(engine.run())
    try:
        yield engine
        assert engine._scheduler.memory.num_held == 0
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await fleet.close()


async def search(engine: AnyEngine | Engine, request: Request) -> list[Answer]:
    answers: list[Answer] = []
    for events in await asyncio.gather(*map(collect, ask(engine, request))):
        assert events[-1].ending is not None
        assert events[-1].ending.score is not None
        answers.append(([(each.token.id, each.token.logprob) for each in events], events[-1].ending.score))
    return answers


def shard_of(folder: Path, number: int = 0) -> Shard:
    """Starts a shard that is a group by itself."""
    place = folder / str(number)
    place.mkdir(exist_ok=True)
    shard = Shard(place, model=str(DEMO_MODEL), kv_memory=1 << 24)
    shard.wait_until_listening()
    return shard


async def together(engine: Engine) -> list[list[Answer]]:
    return await asyncio.gather(*(search(engine, request) for request in requests()))


@pytest.mark.slow
async def test_beams_have_the_bits_that_they_have_alone(tmp_path: Path) -> None:
    with running(tmp_path, model=str(DEMO_MODEL), kv_memory=1 << 24) as shards:
        async with engine_of(shards, WIDE) as engine:
            alone = [await search(engine, request) for request in requests()]
        async with engine_of(shards, WIDE) as engine:
            assert await together(engine) == alone
        async with engine_of(shards, CHUNKED) as engine:
            assert await together(engine) == alone
    folder = tmp_path / "two"
    folder.mkdir()
    with running(folder, world_size=2, model=str(DEMO_MODEL), kv_memory=1 << 24) as shards:
        async with engine_of(shards, WIDE) as engine:
            assert await together(engine) == alone


@pytest.mark.slow
async def test_beams_have_the_same_bits_after_kills(tmp_path: Path) -> None:
    shard = shard_of(tmp_path)
    async with engine_of([shard], WIDE) as engine:
        expected = await together(engine)
        for number in range(4):
            answers = asyncio.create_task(together(engine))
            await until(lambda number=number: any(  # type: ignore[misc]
                len(each.tokens) >= each.prompt_length + 2 * number for each in engine._scheduler._sequences.values()))
            shard.kill()
            shard = shard_of(tmp_path)
            assert await answers == expected
    assert shard.end() == 0


@pytest.mark.slow
async def test_beams_have_the_same_bits_where_they_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches with penalties, a grammar and stop strings go on in another group when a shard is killed."""
    lengths = look_at_moves(monkeypatch)
    compiler = GrammarCompiler(DEMO_MODEL / "tokenizer.json", 8192, frozenset({2}))
    grammar = await compiler.compile(GrammarSpec("regex", LETTERS["value"]))
    asked = [*requests(), *(replace(each, grammar=grammar) for each in requests()[2:4]),
             *(replace(each, stop=(" the", ", ", "\n\n")) for each in requests()[3:])]
    shards = [shard_of(tmp_path, number) for number in range(2)]
    fleets = [GrpcFleet([f"unix:{shard.socket}"]) for shard in shards]
    async with running_groups(*fleets, depth=2, facts=await fleets[0].describe(), limits=WIDE) as groups:
        engines = [member.engine for member in groups.members]
        await until(lambda: all(engine.has_group for engine in engines))

        async def searching() -> list[list[Answer]]:
            return await asyncio.gather(*(search(groups, each) for each in asked))

        expected = await searching()
        for number in 0, 1, 0:
            found = asyncio.create_task(searching())
            await until(lambda number=number: any(  # type: ignore[misc]
                len(each.tokens) > each.prompt_length + 3 for each in engines[number]._scheduler._sequences.values()))
            shards[number].kill()
            assert await found == expected
            shards[number] = shard_of(tmp_path, number)
            await until(lambda number=number: engines[number].has_group)  # type: ignore[misc]
    assert max(lengths) > 2, "nothing moved"
    assert [shard.end() for shard in shards] == [0, 0]
    for fleet in fleets:
        await fleet.close()
    compiler.close()


def asks(rng: random.Random, number: int) -> list[dict[str, Any]]:
    words = ["time", "path", "was", "small", "list", "the", "of", "self", "return", "that", "dog"]
    return [{"inputs": " ".join(rng.choices(words, k=rng.randint(2, 60))), "parameters": {
        "num_beams": 2 + place % 4, "num_return_sequences": 2, "max_new_tokens": rng.randint(30, 90),
        "length_penalty": rng.choice([0.0, 1.0, 2.0]), "early_stopping": rng.choice([False, "never"]),
        "details": True, **rng.choice([{}, {"repetition_penalty": 1.2}, {"grammar": LETTERS}])}}
        for place in range(number)]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.every_case
@pytest.mark.parametrize("flags", [("--num-shard", "2"), ("--num-shard", "1", "--api-workers", "2")], ids=str)
async def test_a_marathon_of_kills(tmp_path: Path, flags: tuple[str, ...], every_case: bool) -> None:
    """Shards are killed amid 12 searches, again and again; each answer is what it is without that."""
    rng = random.Random(5)
    bodies, num_rounds = asks(rng, 12), 12 if every_case else 3
    with serve(tmp_path, *flags) as server:
        async with many_clients() as session:

            async def generate(body: dict[str, Any]) -> Any:
                async with session.post(f"{server.url}/generate", json=body) as response:
                    content = await response.json()
                    assert response.status == 200, content
                for details in (content["details"], *content["details"]["best_of_sequences"]):
                    details.pop("prefix_hit_tokens")
                return content

            async def count(name: str) -> float:
                return (await scrape(session, server.url))[name]

            expected = [await generate(body) for body in bodies]
            num_tokens = await count("penstock_generated_tokens")
            num_disturbed = 0
            while num_disturbed < num_rounds:
                before = await count("penstock_replays")
                kill_at = await count("penstock_generated_tokens") + rng.uniform(0.05, 0.4) * num_tokens
                tasks = [asyncio.create_task(generate(body)) for body in bodies]
                while not all(task.done() for task in tasks) and await count("penstock_generated_tokens") < kill_at:
                    pass
                for shard in itertools.islice(server.shards().values(), rng.randint(1, 2)):
                    shard.kill()
                assert await asyncio.gather(*tasks) == expected
                num_disturbed += await count("penstock_replays") > before  # else all had ended when they were killed
                assert await count('penstock_kv_blocks{state="used"}') == 0
