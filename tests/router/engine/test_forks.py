"""Forks through the engine, the wire and two real shards: the answers are those of an engine that guesses nothing."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.contract.sampling import Sampling
from penstock.router.engine.engine import Engine
from penstock.router.engine.request import Request
from penstock.router.fleet.fleet import GrpcFleet
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics
from penstock.router.scheduling.guesser import Alternative
from penstock.router.scheduling.speculation.step_cost import StepCost
from tests.scripted_engine import collect, submit
from tests.shard.processes import Shard, running
from tests.tiny_models import DEMO_MODEL

LIMITS = Limits(max_input_tokens=200, max_total_tokens=250, max_batch_prefill_tokens=256, max_slots=64)
NUM_RIGHT, NUM_GUESSES = 3, 5
Answer = list[tuple[int, float]]
"""Token ids with their logprobs."""


class Oracle:
    """Knows the answer, and guesses wrong from the first token on; its alternative is right for some more."""

    def __init__(self, tokens: Sequence[int], prompt_length: int, answer: Sequence[int]) -> None:
        self._tokens, self._prompt_length, self._answer = tokens, prompt_length, answer

    def note(self, token_id: int) -> None: ...

    def force(self, token_ids: Sequence[int]) -> None: ...

    def judge(self, number: int, num_right: int) -> None: ...

    def guess(self, number: int) -> tuple[list[int], float]:
        return [5] * min(number, NUM_GUESSES), 0.9

    def alternative(self, number: int) -> Alternative | None:
        told = len(self._tokens) - self._prompt_length
        truth = list(self._answer[told:told + min(number, NUM_RIGHT)])
        return Alternative((truth + [6] * number)[:number], 0, 0.9)


def requests() -> list[Request]:
    prompts = [range(100, 140), range(300, 333), range(50, 67)]
    samplings = [Sampling(), Sampling(do_sample=True, seed=7, temperature=0.9, top_p=0.9),
                 Sampling(repetition_penalty=1.3, frequency_penalty=0.2, top_n=2)]
    return [Request(tuple(prompt), sampling, 24, ignore_eos=True)
            for prompt, sampling in zip(prompts, samplings, strict=True)]


async def answer_all(shards: Sequence[Shard], speculate: int, known: Sequence[Answer] = ()) -> list[Answer]:
    """The answers, with guesses of an oracle that knows them, if it does."""
    fleet, limits = GrpcFleet([f"unix:{shard.socket}" for shard in shards]), replace(LIMITS, speculate=speculate)
    engine = Engine(fleet, await fleet.describe(), limits, Metrics(limits))
    asked = requests()
    if known:
        answers = {request.input_ids: [id for id, _ in answer] for request, answer in zip(asked, known, strict=True)}
        engine._starting._guessers.of = lambda request, tokens, record: Oracle(  # type: ignore[method-assign]
            tokens, len(request.input_ids), answers[request.input_ids])
    task = asyncio.create_task(engine.run())
    try:
        streams = [submit(engine, request) for request in asked]
        events = await asyncio.gather(*map(collect, streams))
        for stream in streams if known else ():
            assert stream.guesses is not None
            assert stream.guesses.accepted >= 15, "of what the rows guess nothing is right, so it was forks"
        assert engine._scheduler.memory.num_held == 0
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await fleet.close()
    return [[(event.token.id, event.token.logprob) for event in each] for each in events]


async def test_forks_change_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StepCost, "seconds", lambda self, num_tokens: 1.0)
    with running(tmp_path, world_size=1, model=str(DEMO_MODEL), kv_memory=1 << 24) as shards:
        expected = await answer_all(shards, 0)
        assert await answer_all(shards, 8, expected) == expected
