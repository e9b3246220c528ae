"""What requests may ask for: each rule over HTTP with its exact body, and the order of the rules."""

from dataclasses import replace
from itertools import pairwise

import pytest

from penstock.router.chat.template import ChatTemplate
from tests.fakes import LIMITS
from tests.router.api.conftest import Server, Start, of_one_server

TOTAL = "`inputs` tokens + `max_new_tokens` must be <= 1024. Given: "
TRUNCATE = "`truncate` must be strictly positive and less than 1023. Given: "
TOP_P = "`top_p` must be > 0.0 and < 1.0"
TYPICAL_P = "`typical_p` must be > 0.0 and < 1.0"
FREQUENCY = "`frequency_penalty` must be >= -2.0 and <= 2.0"

BROKEN = [
    ({"best_of": 2}, "you must use sampling when `best_of` is > 1"),
    ({"best_of": 3}, "`best_of` must be > 0 and <= 2. Given: 3"),
    ({"temperature": 0}, "`temperature` must be strictly positive"),
    ({"temperature": -0.1}, "`temperature` must be strictly positive"),
    ({"temperature": 1e-50}, "`temperature` must be strictly positive"),
    ({"repetition_penalty": 0.0}, "`repetition_penalty` must be strictly positive"),
    ({"frequency_penalty": -2.1}, FREQUENCY),
    ({"frequency_penalty": 2.1}, FREQUENCY),
    ({"top_p": 0}, TOP_P),
    ({"top_p": 1}, TOP_P),
    ({"top_p": 1.0}, TOP_P),
    ({"top_p": 0.99999999}, TOP_P),
    ({"typical_p": 0}, TYPICAL_P),
    ({"typical_p": 1.0}, TYPICAL_P),
    ({"top_k": 0}, "`top_k` must be strictly positive"),
    ({"top_k": -1}, "`top_k` must be strictly positive"),
    ({"max_new_tokens": 0}, "`max_new_tokens` must be strictly positive"),
    ({"stop": ["a"] * 5}, "`stop` supports up to 4 stop sequences. Given: 5"),
    ({"stop": ["a", ""]}, "`stop` sequences cannot be empty"),
    ({"best_of": 2, "do_sample": True, "seed": 1}, "`seed` must not be set when `best_of` > 1"),
    ({"top_n_tokens": 6}, "`top_n_tokens` must be >= 0 and <= 5. Given: 6"),
    ({"truncate": 0}, TRUNCATE + "0"),
    ({"truncate": 1024}, TRUNCATE + "1024"),
    ({"max_new_tokens": 1024}, TOTAL + "1 `inputs` tokens and 1024 `max_new_tokens`"),
    ({"max_new_tokens": 5000}, TOTAL + "1 `inputs` tokens and 1024 `max_new_tokens`"),
    ({"grammar": {"type": "regex", "value": "a+"}}, "grammar is not supported"),
    ({"n": 2}, "you must use sampling when `n` is > 1"),
    ({"n": 3}, "`n` must be > 0 and <= 2. Given: 3"),
    ({"adapter_id": "mine"}, "`adapter_id` is not supported: this server has no adapters"),
    ({"stop": ["a"] * 10_000}, "`stop` supports up to 4 stop sequences. Given: 10000"),
    ({"stop": ""}, "`stop` sequences cannot be empty"),
    ({"stop": ["a", "b" * 1025]}, "`stop` sequences must have <= 1024 characters. Given: 1025"),
    ({"presence_penalty": -2.1}, "`presence_penalty` must be >= -2.0 and <= 2.0"),
    ({"presence_penalty": 2.1}, "`presence_penalty` must be >= -2.0 and <= 2.0"),
    ({"min_p": -0.1}, "`min_p` must be >= 0.0 and <= 1.0"),
    ({"min_p": 1.1}, "`min_p` must be >= 0.0 and <= 1.0"),
    ({"min_tokens": 6, "max_new_tokens": 5}, "`min_tokens` must be <= `max_new_tokens`. Given: 6 and 5"),
    ({"min_tokens": 1024}, "`min_tokens` must be <= `max_new_tokens`. Given: 1024 and 1023"),
    ({"stop_token_ids": [5] * 129}, "`stop_token_ids` supports up to 128 token ids. Given: 129"),
    ({"stop_token_ids": [5, 8192]}, "`stop_token_ids` must have token ids < 8192, the model's vocabulary. Given: 8192"),
    ({"logit_bias": {"8192": 1}}, "`logit_bias` must have token ids < 8192, the model's vocabulary. Given: 8192"),
    ({"logit_bias": {"5": 100.1}}, "`logit_bias` must have values >= -100.0 and <= 100.0"),
    ({"logit_bias": {"5": 1, "6": -1e30}}, "`logit_bias` must have values >= -100.0 and <= 100.0"),
]
IN_ORDER = [
    {"best_of": 3}, {"adapter_id": "mine"}, {"temperature": 0}, {"repetition_penalty": 0}, {"frequency_penalty": 3},
    {"top_p": 0}, {"typical_p": 0}, {"top_k": 0}, {"max_new_tokens": 0}, {"stop": ["a"] * 5}, {"top_n_tokens": 6},
    {"truncate": 0}, {"max_new_tokens": 1024}, {"min_tokens": 2000}, {"grammar": {"type": "regex", "value": "a"}},
]
"""Each breaks a rule; of two, the earlier is told."""


def refusal(rule: str) -> dict[str, str]:
    return {"error": f"Input validation error: {rule}", "error_type": "validation"}


@of_one_server
@pytest.mark.parametrize(("parameters", "rule"), BROKEN, ids=str)
async def test_a_rule(lasting_server: Server, parameters: dict[str, object], rule: str) -> None:
    before = lasting_server.series()['tgi_request_failure{err="validation"}']
    response = await lasting_server.post("/generate", {"inputs": "a", "parameters": parameters})
    assert (response.status, await response.json()) == (422, refusal(rule))
    assert response.headers["content-type"] == "application/json"
    assert lasting_server.series()['tgi_request_failure{err="validation"}'] == before + 1
    assert lasting_server.fleet.plans == []
    await lasting_server.until_idle()


@of_one_server
@pytest.mark.parametrize(("parameters", "rule"), [
    ({"best_of": 2}, "`best_of` != 1 is not supported when streaming tokens"),
    ({"best_of": 0}, "`best_of` != 1 is not supported when streaming tokens"),
    ({"decoder_input_details": True}, "`decoder_input_details` == true is not supported when streaming tokens"),
    ({"temperature": 0}, "`temperature` must be strictly positive"),
])
async def test_a_stream_tells_by_an_event(lasting_server: Server, parameters: dict[str, object], rule: str) -> None:
    for path in ("/", "/generate_stream"):
        response = await lasting_server.post(path, {"inputs": "a", "parameters": parameters, "stream": True})
        assert (response.status, response.content_type) == (200, "text/event-stream")
        error = refusal(rule)["error"]
        assert await response.text() == f'data: {{"error":"{error}","error_type":"validation"}}\n\n'


@of_one_server
@pytest.mark.parametrize(("earlier", "later"), [*pairwise(IN_ORDER), ({"best_of": 2}, {"repetition_penalty": 0})])
async def test_the_first_broken_rule_is_told(
    lasting_server: Server, earlier: dict[str, object], later: dict[str, object]
) -> None:
    async def told(parameters: dict[str, object]) -> str:
        response = await lasting_server.post("/generate", {"inputs": "a", "parameters": parameters})
        assert response.status == 422
        return await response.text()

    assert await told({**later, **earlier}) == await told(earlier) != await told(later)


async def test_just_within_the_rules(server: Server) -> None:
    """The neutral and the extreme values that rules allow."""
    for parameters in (
            {"best_of": 2, "do_sample": True}, {"best_of": 2, "temperature": 1.0}, {"best_of": 2, "min_p": 0},
            {"stop": ["a"] * 4}, {"stop": "b" * 1024}, {"stop_token_ids": [8191] * 128}, {"stop_token_ids": []},
            {"logit_bias": [1] * 1024}, {"logit_bias": [0] * 8192}, {"logit_bias": {"8191": -100}},
            {"logit_bias": None}, {"min_tokens": 5, "max_new_tokens": 5}, {"presence_penalty": -2},
            {"presence_penalty": 2},
            {"min_p": 0}, {"min_p": 1}, {"truncate": 1023}, {"top_n_tokens": 5}, {"decoder_input_details": True},
            {"watermark": True}, {"frequency_penalty": -2}, {"frequency_penalty": 2}):
        assert await server.generate("a", **{"max_new_tokens": 5, **parameters})


async def test_an_empty_prompt(server: Server) -> None:
    response = await server.post("/generate", {"inputs": ""})
    assert (response.status, await response.json()) == (422, refusal("`inputs` cannot be empty"))
    response = await server.post("/generate", {"inputs": "", "parameters": {"truncate": 0}})
    assert await response.json() == refusal("`inputs` cannot be empty")


async def test_a_strict_server_has_a_status_for_streams_too(start: Start) -> None:
    server = await start(replace(LIMITS, strict_streaming_errors=True))
    empty = {"inputs": "", "prompt": ""}
    for path in ("/", "/generate_stream"):
        response = await server.post(path, {**empty, "stream": True})
        assert (response.status, await response.json()) == (422, refusal("`inputs` cannot be empty"))
    assert (await server.post("/v1/completions", {**empty, "stream": True})).status == 400
    for path, body in (("/generate_stream", {"inputs": "a"}), ("/v1/completions", {"prompt": "a"})):
        response = await server.post(path, {**body, "stream": True})
        assert (response.status, response.content_type) == (200, "text/event-stream")
        assert (await response.text()).startswith("data: {")
    assert server.series()['tgi_request_failure{err="validation"}'] == 3
    await server.until_idle()


async def test_what_fails_after_the_first_token_is_an_event_on_a_strict_server(start: Start) -> None:
    server = await start(replace(LIMITS, strict_streaming_errors=True), answer="a b c d")
    response = await server.post("/generate_stream", {"inputs": "a"})
    server.fleet.failure = ZeroDivisionError("a fault")
    assert response.status == 200
    assert (await response.text()).endswith(
        'data: {"error":"Request failed during generation: Server error: a fault","error_type":"generation"}\n\n')


async def test_a_failure_before_the_first_token_has_a_status_on_a_strict_server(start: Start) -> None:
    server = await start(replace(LIMITS, strict_streaming_errors=True))
    server.fleet.failure = ZeroDivisionError("a fault")
    response = await server.post("/v1/completions", {"prompt": "a", "stream": True})
    assert (response.status, (await response.json())["error"]["code"]) == (424, "generation_failed")


async def test_one_answer_only(start: Start) -> None:
    server = await start(replace(LIMITS, max_best_of=1))
    response = await server.post("/generate", {"inputs": "a", "parameters": {"best_of": 2}})
    assert await response.json() == refusal("`best_of` != 1 is not allowed for this endpoint")


@pytest.mark.parametrize(("num_tokens", "parameters", "rule"), [
    (100, {"max_new_tokens": 925}, TOTAL + "100 `inputs` tokens and 925 `max_new_tokens`"),
    (1025, {}, TOTAL + "1025 `inputs` tokens and 0 `max_new_tokens`"),
    (1024, {}, "`inputs` must have less than 1023 tokens. Given: 1024"),
    (1030, {"truncate": 1023, "max_new_tokens": 2}, TOTAL + "1023 `inputs` tokens and 2 `max_new_tokens`"),
])
async def test_a_long_prompt(server: Server, num_tokens: int, parameters: dict[str, object], rule: str) -> None:
    prompt = " a" * num_tokens
    assert len(await server.tokenizer.encode(prompt)) == num_tokens
    response = await server.post("/generate", {"inputs": prompt, "parameters": parameters})
    assert (response.status, await response.json()) == (422, refusal(rule))


@pytest.mark.parametrize(("num_tokens", "parameters", "num_generated"), [
    (1023, {}, 1), (1023, {"max_new_tokens": 1}, 1), (100, {"max_new_tokens": 924}, 924), (1030, {"truncate": 1023}, 1),
])
async def test_a_prompt_that_just_fits(
    start: Start, num_tokens: int, parameters: dict[str, object], num_generated: int
) -> None:
    server = await start(answer=" b")
    answer = await server.generate(" a" * num_tokens, **parameters, details=True)
    assert answer["details"]["generated_tokens"] == num_generated


async def test_more_than_the_chunk_is_not_counted(start: Start) -> None:
    server = await start(replace(LIMITS, max_total_tokens=1200), answer=" b")
    details = (await server.generate(" a" * 176, max_new_tokens=5000, details=True))["details"]
    assert details["generated_tokens"] == 1024
    response = await server.post("/generate", {"inputs": " a" * 177, "parameters": {"max_new_tokens": 5000}})
    assert await response.json() == refusal(
        "`inputs` tokens + `max_new_tokens` must be <= 1200. Given: 177 `inputs` tokens and 1024 `max_new_tokens`")


async def test_a_token_that_the_model_does_not_know(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.engine, "facts", replace(server.engine.facts, vocab_size=70))
    server.groups.note()
    response = await server.post("/generate", {"inputs": "ab"})
    largest = max(await server.tokenizer.encode("ab"))
    assert await response.json() == refusal(
        f"`inputs` must have token ids < 70, the model's vocabulary. Given: {largest}")


async def test_the_permit_comes_before_the_rules(start: Start) -> None:
    server = await start(replace(LIMITS, max_concurrent_requests=0))
    overloaded = {"error": "Model is overloaded", "error_type": "overloaded"}
    bad = {"inputs": "", "parameters": {"temperature": 0}}
    for path in ("/", "/generate"):
        response = await server.post(path, bad)
        assert (response.status, await response.json(), response.headers["retry-after"]) == (429, overloaded, "1")
    for path in ("/", "/generate_stream"):
        response = await server.post(path, {**bad, "stream": True})
        assert response.status == 200
        assert await response.text() == \
            'data: {"error":"Model is overloaded","error_type":"overloaded"}\n\n'
    assert server.series()['tgi_request_failure{err="overloaded"}'] == 4


async def test_only_who_asks_for_events_is_told_in_one_when_to_try_again(
    start: Start, demo: ChatTemplate
) -> None:
    """Others may read nothing but `data`, as the ids of events are for these alone."""
    server = await start(replace(LIMITS, max_concurrent_requests=0, tgi_openai_routes=True), template=demo)
    for path, body in (("/generate_stream", {"inputs": "a"}), ("/v1/completions", {"prompt": "a", "stream": True}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "stream": True})):
        for accept, has_retry in (("text/event-stream", True), ("*/*", False), ("application/json", False)):
            response = await server.client.post(path, json=body, headers={"accept": accept})
            assert ("\nretry: 1000\n" in await response.text()) == has_retry, (path, accept)
