"""Shards that are killed amid answers, which go on and do not change."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from functools import partial

import pytest

from penstock import LLM, AsyncLLM, RequestOutput
from tests.eventually import until
from tests.offline.small_model import LONG, MODEL, PROMPTS, SMALL, counted, noting_shared, shards, wait_for

pytestmark = pytest.mark.slow

GENERATED = "penstock_generated_tokens"
NEW = LONG.max_tokens or 0


@pytest.fixture(autouse=True)
def _note_shared() -> Iterator[None]:
    yield from noting_shared()


async def kill_a_shard() -> None:
    """Kills the shard that is there, and waits until another has taken its place."""
    [shard] = shards()
    shard.kill()
    await until(lambda: [each for each in shards() if each != shard], seconds=60)


def has_generated(llm: LLM, number: float) -> bool:
    return counted(llm, GENERATED) > number


def test_answers_do_not_change_when_shards_are_killed() -> None:
    with LLM(MODEL, **SMALL) as llm:
        expected = llm.generate(PROMPTS, LONG, use_tqdm=False)
        outputs: list[RequestOutput] = []
        asking = threading.Thread(target=lambda: outputs.extend(llm.generate(PROMPTS, LONG, use_tqdm=False)))
        start, num_tokens = counted(llm, GENERATED), len(PROMPTS) * NEW
        asking.start()
        for share in (0.1, 0.5):
            wait_for(partial(has_generated, llm, start + share * num_tokens), asking.is_alive)
            asyncio.run(kill_a_shard())
            assert counted(llm, GENERATED) - start < num_tokens
        asking.join()
        assert counted(llm, GENERATED) - start == num_tokens
        assert [each.outputs for each in outputs] == [each.outputs for each in expected]
    assert not shards()


def have_heard(heard: Mapping[str, int], number: int) -> bool:
    return len(heard) == len(PROMPTS) and min(heard.values()) > number


async def test_streams_go_on_when_shards_are_killed() -> None:
    async with AsyncLLM(MODEL, **SMALL) as llm:
        heard: dict[str, int] = {}

        async def ask(prompt: str) -> RequestOutput:
            async for output in llm.generate(prompt, LONG):
                heard[prompt] = len(output.outputs[0].token_ids)
            return output

        expected = await asyncio.gather(*map(ask, PROMPTS))
        heard.clear()
        asking = asyncio.gather(*map(ask, PROMPTS))
        for number in (30, 200):
            await until(partial(have_heard, heard, number), seconds=60)
            await kill_a_shard()
            assert min(heard.values()) < NEW
        assert [each.outputs for each in await asking] == [each.outputs for each in expected]
