"""`n` of TGI's routes: several answers to one prompt, the best first."""

from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import LIMITS
from tests.router.api.conftest import Start
from tests.router.api.tgi.test_details import candidates
from tests.router.api.tgi.test_rules import refusal

FOUR = replace(LIMITS, max_best_of=4)
LOGPROBS = (-3.0, -1.0, -2.0, -4.0)


async def generate(start: Start, path: str = "/generate", **parameters: Any) -> Any:
    server = await start(FOUR, answer="a b c", make_fleet=candidates(*LOGPROBS))
    response = await server.post(path, {"inputs": "Say: ", "parameters": {
        "do_sample": True, "max_new_tokens": 2, **parameters}})
    assert response.status == 200, await response.text()
    samplings = [first.sampling for first in server.fleet.initial_states]
    assert {sampling.seed for sampling in samplings} == {samplings[0].seed}
    assert [sampling.branch for sampling in samplings] == [*range(len(samplings))]
    await server.until_idle()
    return await response.json()


@pytest.mark.parametrize(("parameters", "logprobs"), [
    ({"n": 4}, [-1, -2, -3, -4]), ({"n": 2, "best_of": 4}, [-1, -2]), ({"n": 3, "best_of": 3}, [-1, -2, -3]),
    ({"n": 2, "best_of": 3, "seed": 5}, [-1, -2]), ({"n": 2, "temperature": 0.5, "do_sample": False}, [-1, -3]),
])
async def test_the_best_come_back_the_best_first(
    start: Start, parameters: dict[str, Any], logprobs: list[float]
) -> None:
    details = (await generate(start, details=True, **parameters))["details"]
    sequences = [details, *details["best_of_sequences"]]
    assert [sequence["tokens"][0]["logprob"] for sequence in sequences] == logprobs
    assert {sequence["seed"] for sequence in sequences} == {parameters.get("seed", details["seed"])}


async def test_without_details_the_texts_are_beside_the_best(start: Start) -> None:
    assert await generate(start, n=2, best_of=4) == {
        "generated_text": "a b", "best_of_sequences": [{"generated_text": "a b"}]}
    [answer] = await generate(start, "/", n=3)
    assert answer == {"generated_text": "Say: a b", "best_of_sequences": [{"generated_text": "Say: a b"}] * 2}


async def test_one_answer_is_as_without_it(start: Start) -> None:
    """Its candidates have seeds of their own, and all others are in the details."""
    server = await start(FOUR, answer="a b c", make_fleet=candidates(*LOGPROBS))
    answer = await server.generate(n=1, best_of=3, do_sample=True, details=True)
    assert len({first.sampling.seed for first in server.fleet.initial_states}) == 3
    assert [each["tokens"][0]["logprob"] for each in answer["details"]["best_of_sequences"]] == [-3, -2]


@pytest.mark.parametrize(("parameters", "rule"), [
    ({"n": 0}, "`n` must be > 0 and <= 4. Given: 0"), ({"n": 5}, "`n` must be > 0 and <= 4. Given: 5"),
    ({"n": 2**63}, f"`n` must be > 0 and <= 4. Given: {2**63}"),
    ({"n": 3, "best_of": 2}, "`best_of` must be >= `n`. Given: 2 and 3"),
    ({"n": 2, "best_of": 5}, "`best_of` must be > 0 and <= 4. Given: 5"),
    ({"n": 2, "do_sample": False}, "you must use sampling when `n` is > 1"),
    ({"best_of": 2, "seed": 1}, "`seed` must not be set when `best_of` > 1"),
])
async def test_a_rule(start: Start, parameters: dict[str, Any], rule: str) -> None:
    server = await start(FOUR)
    response = await server.post("/generate", {"inputs": "a", "parameters": {"do_sample": True, **parameters}})
    assert (response.status, await response.json()) == (422, refusal(rule))
    assert server.fleet.plans == []


async def test_a_stream_has_one(start: Start) -> None:
    server = await start(FOUR)
    response = await server.post("/generate_stream", {"inputs": "a", "parameters": {"n": 2, "do_sample": True}})
    assert refusal("`n` != 1 is not supported when streaming tokens; `/v1/completions` has it. Given: 2")["error"] in (
        await response.text())


@pytest.mark.parametrize(("parameters", "name"), [({"n": 4}, "n"), ({"n": 2, "best_of": 4}, "best_of")])
async def test_each_candidate_takes_a_permit(start: Start, parameters: dict[str, int], name: str) -> None:
    server = await start(replace(FOUR, max_concurrent_requests=3))
    response = await server.post("/generate", {"inputs": "a", "parameters": {**parameters, "do_sample": True}})
    assert (response.status, await response.json()) == (422, refusal(f"`{name}` must be <= 3. Given: 4"))
