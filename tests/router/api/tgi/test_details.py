"""Details of TGI's routes: candidates for the best answer, the prompt's tokens, the likeliest tokens."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from penstock.contract.row import Row
from penstock.contract.row_result import RowResult
from tests.fakes import LIMITS, ScriptedFleet
from tests.router.api.conftest import Script, Server, Start

PREFILL = replace(LIMITS, enable_prefill_logprobs=True, max_best_of=4)


class CandidatesFleet(ScriptedFleet):
    """Gives each answer a logprob of its own: that of the answer that began first, second, and so on."""

    def __init__(self, answer: Callable[[Row], int], logprobs: list[float]) -> None:
        super().__init__(answer)
        self._left = iter(logprobs)
        self._of_slot: dict[int, float] = {}

    def _run(self, row: Row, mask: bytes | None) -> RowResult:
        result = super()._run(row, mask)
        if not row.from_last_sample and result.token_ids:
            self._of_slot[row.slot] = next(self._left)
        return result._replace(logprobs=tuple(self._of_slot[row.slot] for _ in result.logprobs))


def candidates(*logprobs: float) -> Callable[[Script], ScriptedFleet]:
    return lambda script: CandidatesFleet(script, list(logprobs))


async def test_the_best_is_the_likeliest_per_token(start: Start) -> None:
    server = await start(PREFILL, answer="a b c", make_fleet=candidates(-3.0, -1.0, -2.0, -1.0))
    response = await server.post("/generate", {"inputs": "ab", "parameters": {
        "best_of": 4, "do_sample": True, "max_new_tokens": 2, "details": True}})
    answer = await response.json()
    details = answer["details"]
    others = details.pop("best_of_sequences")
    assert [sequence["tokens"][0]["logprob"] for sequence in (details, *others)] == [-1.0, -3.0, -2.0, -1.0]
    assert {sequence["generated_text"] for sequence in others} == {answer["generated_text"]}
    for sequence in others:
        assert sequence.keys() == {*details.keys(), "generated_text"}
        assert (sequence["generated_tokens"], sequence["finish_reason"]) == (2, "length")
    assert len({sequence["seed"] for sequence in (details, *others)}) == 4
    assert response.headers["x-generated-tokens"] == "2"
    assert response.headers["x-prompt-tokens"] == "1"
    await server.until_idle()


async def test_a_candidate_can_be_repeated_by_its_seed(server: Server) -> None:
    details = (await server.generate(best_of=2, do_sample=True, details=True))["details"]
    firsts = server.fleet.initial_states
    assert [first.sampling.seed for first in firsts] == [
        details["seed"], details["best_of_sequences"][0]["seed"]]
    assert [first.sampling.branch for first in firsts] == [0, 0]


async def test_candidates_have_the_prompt_where_the_answer_has_it(server: Server) -> None:
    response = await server.post("/", {"inputs": "Say: ", "parameters": {
        "best_of": 2, "do_sample": True, "details": True, "max_new_tokens": 1}})
    answer, = await response.json()
    assert answer["generated_text"] == answer["details"]["best_of_sequences"][0]["generated_text"] == "Say: Hel"


async def test_candidates_take_a_permit_each(start: Start) -> None:
    server = await start(replace(LIMITS, max_concurrent_requests=1))
    response = await server.post("/generate", {"inputs": "a", "parameters": {"best_of": 2, "do_sample": True}})
    assert (response.status, (await response.json())["error_type"]) == (429, "overloaded")


async def test_tokens_of_the_prompt(start: Start) -> None:
    server = await start(PREFILL)
    prompt = "one two " * 300
    ids = await server.tokenizer.encode(prompt)
    answer = await server.generate(prompt, decoder_input_details=True, max_new_tokens=1)
    prefill = answer["details"]["prefill"]
    assert tuple(token["id"] for token in prefill) == ids
    assert "".join(token["text"] for token in prefill) == prompt
    assert prefill[0]["logprob"] is None
    assert [token["logprob"] for token in prefill[1:]] == [-token_id / 10 for token_id in ids[1:]]
    assert all(token.keys() == {"id", "text", "logprob"} for token in prefill)


async def test_tokens_of_the_prompt_are_told_with_every_candidate(start: Start) -> None:
    server = await start(PREFILL)
    details = (await server.generate(
        "one two", decoder_input_details=True, best_of=2, do_sample=True, max_new_tokens=1))["details"]
    assert details["prefill"]
    assert details["prefill"] == details["best_of_sequences"][0]["prefill"]


async def test_tokens_of_the_prompt_are_an_option_of_the_server(server: Server) -> None:
    """As in TGI, asking for them brings the details, in which there are none."""
    details = (await server.generate(decoder_input_details=True))["details"]
    assert details["prefill"] == []
    assert details["tokens"]
    assert not any(row.prompt_logprob_ids for plan in server.fleet.plans for row in plan.rows)


@pytest.mark.parametrize("number", [1, 5])
async def test_the_likeliest_tokens(server: Server, number: int) -> None:
    details = (await server.generate(top_n_tokens=number, details=True))["details"]
    assert len(details["top_tokens"]) == len(details["tokens"])
    for top, token in zip(details["top_tokens"], details["tokens"], strict=True):
        assert [one["id"] for one in top] == [token["id"] + index for index in range(number)]
        assert [one["logprob"] for one in top] == [-0.5 - index for index in range(number)]
        assert [one["text"] for one in top] == [server.tokenizer.text_of(one["id"]) for one in top]
        assert top[0]["special"] is token["special"]
    events = await streamed(server, top_n_tokens=number)
    assert [event["top_tokens"] for event in events] == details["top_tokens"]


async def test_the_likeliest_tokens_are_left_out_unless_asked_for(server: Server) -> None:
    assert "top_tokens" not in (await server.generate(details=True, top_n_tokens=0))["details"]
    assert all("top_tokens" not in event for event in await streamed(server))


async def streamed(server: Server, **parameters: object) -> list[dict[str, Any]]:
    response = await server.post("/generate_stream", {"inputs": "Say it", "parameters": parameters})
    frames = (await response.read()).split(b"\n\n")[:-1]
    return [orjson.loads(frame.removeprefix(b"data: ")) for frame in frames]
