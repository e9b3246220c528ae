"""Whose turn it is: among the prompts of one call, and among calls."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock import LLM, AsyncLLM, RequestOutput, RequestOutputKind, SamplingParams
from penstock.offline import batch
from tests.paths import DEMO_MODEL

NUM_SLOTS = 8
"""Of the shared model, and of the other one."""


def test_prompts_of_a_smaller_priority_end_first(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []

    @contextmanager
    def noted(*_: object) -> Iterator[Callable[[RequestOutput], None]]:
        yield lambda output: ended.append(output.prompt_token_ids[0])

    monkeypatch.setattr(batch, "shown", noted)
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    prompts = [[100 + number, 100] for number in range(6 * NUM_SLOTS)]
    priority = [number % 3 for number in range(len(prompts))]
    outputs = llm.generate(prompts, params, priority=priority)
    assert [output.prompt_token_ids for output in outputs] == prompts
    places: list[list[int]] = [[], [], []]
    for place, token_id in enumerate(ended):
        places[(token_id - 100) % 3].append(place)
    assert max(places[0]) < min(places[2]), places


def test_a_priority_beyond_the_bounds_is_refused(llm: LLM) -> None:
    for priority in (-10**6, [-10**6]):
        with pytest.raises(ValueError, match="`priority` must be >= "):
            llm.generate("a", priority=priority, use_tqdm=False)


@pytest.mark.slow
async def test_a_request_comes_before_those_that_wait_with_a_larger_priority() -> None:
    ended: list[str] = []

    async def ask(llm: AsyncLLM, name: str, max_tokens: int, priority: int, begun: asyncio.Event | None = None) -> None:
        params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True,
                                output_kind=RequestOutputKind.DELTA)
        prompt: Any = {"prompt_token_ids": [100 + len(name), 100]}
        async for _ in llm.generate(prompt, params, name, priority=priority):
            if begun is not None:
                begun.set()
        ended.append(name)

    async with (AsyncLLM(str(DEMO_MODEL), kv_memory="16MiB", threads=1, max_num_seqs=NUM_SLOTS) as llm,
                asyncio.TaskGroup() as tasks):
        begun = asyncio.Event()
        for number in range(3 * NUM_SLOTS):
            tasks.create_task(ask(llm, f"early {number}", 200, 5, begun))
        await begun.wait()
        tasks.create_task(ask(llm, "late", 1, -5))
    assert ended.index("late") <= NUM_SLOTS, ended
    assert len(ended) == 3 * NUM_SLOTS + 1
