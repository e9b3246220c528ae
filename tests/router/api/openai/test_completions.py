"""OpenAI's `POST /v1/completions`: whole answers, chunks, what it takes and what it refuses."""

import asyncio
import json
import re
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from penstock.contract.sampling import Sampling
from tests.eventually import until
from tests.fakes import LIMITS
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.chats import refusal

TEXT = "Hello wörld, 😀 is all."
PROMPT = "must be a text, a list of texts, a list of token ids, or a list of lists of token ids"
IDS = "token ids must be >= 0 and < 4294967296"


async def complete(server: Server, **fields: object) -> dict[str, Any]:
    response = await server.post("/v1/completions", {"prompt": "Say: ", **fields})
    assert response.status == 200, await response.text()
    answer: dict[str, Any] = await response.json()
    return answer


async def chunks(server: Server, **fields: object) -> list[dict[str, Any]]:
    """Of a stream that ends as it should."""
    response = await server.post("/v1/completions", {"prompt": "Say: ", "stream": True, **fields})
    assert (response.status, response.content_type) == (200, "text/event-stream"), await response.text()
    frames = (await response.text()).split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    assert all(frame.startswith("data: {") for frame in frames[:-2])
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]


def text_of(streamed: list[dict[str, Any]]) -> str:
    return "".join(choice["text"] for chunk in streamed for choice in chunk["choices"])


def sampling_of(server: Server) -> Sampling:
    """Of the last request."""
    return [state.sampling for state in server.fleet.initial_states][-1]


async def test_a_whole_answer(server: Server) -> None:
    response = await server.post("/v1/completions", {"prompt": "Say: ", "temperature": 0})
    answer = await response.json()
    assert abs(answer.pop("created") - time.time()) < 5
    assert re.fullmatch("cmpl-[0-9a-f]{32}", answer.pop("id"))
    num_prompt, num_answer = len(await server.tokenizer.encode("Say: ")), len(server.fleet.answer.ids)
    assert answer == {
        "object": "text_completion", "model": "demo", "system_fingerprint": "0.1.0-native",
        "choices": [{"index": 0, "text": TEXT, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": num_prompt, "completion_tokens": num_answer,
                  "total_tokens": num_prompt + num_answer, "prompt_tokens_details": {"cached_tokens": 0}}}
    headers = response.headers
    assert (headers["x-compute-type"], headers["x-compute-characters"]) == ("2-cpu", "5")
    assert (headers["x-prompt-tokens"], headers["x-generated-tokens"]) == (str(num_prompt), str(num_answer))
    for name in ("x-total-time", "x-validation-time", "x-queue-time", "x-inference-time", "x-time-per-token"):
        assert headers[name].isdigit()
    assert "x-compute-time" not in headers


async def test_the_bytes_of_a_stream(start: Start) -> None:
    server = await start(answer="a<|im_end|>")
    response = await server.post("/v1/completions", {"prompt": "ab", "stream": True})
    text = await response.text()
    head = text[:text.index(',"model"')].removeprefix("data: ")
    assert abs(json.loads(head + "}")["created"] - time.time()) < 5
    head += ',"model":"demo","system_fingerprint":"0.1.0-native"'
    assert text == (
        f'data: {head},"choices":[{{"index":0,"text":"a","logprobs":null,"finish_reason":null}}]}}\n\n'
        f'data: {head},"choices":[{{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}}],'
        '"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,'
        '"prompt_tokens_details":{"cached_tokens":0}}}\n\n'
        'data: [DONE]\n\n')
    headers = {name.lower(): value for name, value in response.headers.items()}
    assert headers.pop("x-request-id").startswith("req_")
    assert {name: value for name, value in headers.items() if name.startswith("x-")} == {
        "x-accel-buffering": "no", "x-compute-type": "2-cpu", "x-compute-characters": "2"}


async def test_usage_in_a_chunk_of_its_own(server: Server) -> None:
    streamed = await chunks(server, stream_options={"include_usage": True})
    whole = await complete(server)
    assert [chunk["usage"] for chunk in streamed] == [None] * (len(streamed) - 1) + [whole["usage"]]
    assert [len(chunk["choices"]) for chunk in streamed] == [1] * (len(streamed) - 1) + [0]
    assert len(streamed) == whole["usage"]["completion_tokens"] + 1
    assert streamed[-2]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("options", [None, {}, {"include_usage": None}, {"include_usage": False, "other": 1}])
async def test_usage_in_the_last_chunk(server: Server, options: object) -> None:
    streamed = await chunks(server, stream_options=options)
    assert ["usage" in chunk for chunk in streamed] == [False] * (len(streamed) - 1) + [True]
    assert streamed[-1]["usage"] == (await complete(server, stream_options=options))["usage"]


@pytest.mark.parametrize(("asked", "named"), [
    ({}, "demo"), ({"model": None}, "demo"), ({"model": "tgi"}, "demo"), ({"model": "any/name"}, "any/name")])
async def test_the_model_is_named_as_asked(server: Server, asked: dict[str, object], named: str) -> None:
    assert (await complete(server, **asked))["model"] == named
    assert {chunk["model"] for chunk in await chunks(server, **asked)} == {named}


STOPS = [
    ("wö", "Hello ", "stop"), (["Hello wörld, 😀"], "", "stop"), (["ll"], "He", "stop"),
    (["is all", "rld", "never"], "Hello wö", "stop"), (["o wörld", "wör"], "Hello ", "stop"),
    (["<|im_end|>"], TEXT, "stop"), ([" is all.<|im_end|>"], "Hello wörld, 😀", "stop"),
    ("is all. And", TEXT, "stop"), (["l.x", ".<|im_end|>x"], TEXT, "stop"), ([], TEXT, "stop"),
    (None, TEXT, "stop"),
]


@pytest.mark.parametrize(("stop", "text", "reason"), STOPS)
async def test_the_answer_is_cut_before_a_stop_string(server: Server, stop: object, text: str, reason: str) -> None:
    whole = await complete(server, stop=stop)
    assert whole["choices"] == [{
        "index": 0, "text": text, "logprobs": None, "finish_reason": reason}]
    streamed = await chunks(server, stop=stop)
    assert text_of(streamed) == text
    assert streamed[-1]["choices"][0]["finish_reason"] == reason
    assert streamed[-1]["usage"] == whole["usage"]
    assert len(streamed) == whole["usage"]["completion_tokens"]


async def test_what_may_begin_a_stop_string_is_held_no_longer_than_needed(start: Start) -> None:
    server = await start(answer="a b c d<|im_end|>")
    streamed = await chunks(server, stop=["b c x"])
    assert [chunk["choices"][0]["text"] for chunk in streamed] == ["a", " ", "", "b c d", ""]


@pytest.mark.parametrize("fields", [
    {}, {"max_tokens": 3}, {"max_tokens": 40, "ignore_eos": True}, {"seed": 7}, {"stop": [" 😀 is alley"]}])
async def test_streamed_and_whole_agree(server: Server, fields: dict[str, Any]) -> None:
    whole, streamed = await complete(server, **fields), await chunks(server, **fields)
    assert text_of(streamed) == whole["choices"][0]["text"]
    assert streamed[-1]["usage"] == whole["usage"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in streamed] == [
        *[None] * (len(streamed) - 1), whole["choices"][0]["finish_reason"]]


async def test_the_end_token_can_be_ignored(server: Server) -> None:
    num_tokens = len(server.fleet.answer.ids)
    answer = await complete(server, ignore_eos=True, max_tokens=2 * num_tokens)
    assert answer["choices"][0]["text"] == TEXT + TEXT
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 2 * num_tokens
    for ignore_eos in (False, None):
        answer = await complete(server, ignore_eos=ignore_eos, max_tokens=2 * num_tokens)
        assert answer["usage"]["completion_tokens"] == num_tokens


async def test_without_a_limit_an_answer_runs_to_the_end_of_the_context(server: Server) -> None:
    for fields in ({}, {"max_tokens": None}):
        answer = await complete(server, ignore_eos=True, **fields)
        assert answer["usage"]["total_tokens"] == LIMITS.max_total_tokens


@pytest.mark.parametrize(("fields", "sampling"), [
    ({}, {"do_sample": True}),
    ({"temperature": 0}, {}),
    ({"temperature": 0.0, "top_p": 0.5, "seed": 3}, {}),
    ({"temperature": 0, "repetition_penalty": 1.5}, {"repetition_penalty": 1.5}),
    ({"temperature": 0.5, "seed": 3}, {"do_sample": True, "temperature": 0.5, "seed": 3}),
    ({"top_p": 1.0, "seed": 3}, {"do_sample": True, "seed": 3}),
    ({"top_p": 1, "temperature": 1, "seed": 3}, {"do_sample": True, "seed": 3}),
    ({"top_p": 0.5, "seed": 3}, {"do_sample": True, "seed": 3, "top_p": 0.5}),
    ({"top_p": 0}, {}),
    ({"top_p": 0.0, "temperature": 0.7, "seed": 3}, {}),
    ({"seed": -1}, {"do_sample": True, "seed": 2**64 - 1}),
    ({"seed": -(2**63)}, {"do_sample": True, "seed": 2**63}),
    ({"temperature": None, "top_p": None, "repetition_penalty": None, "seed": 3}, {"do_sample": True, "seed": 3}),
    ({"frequency_penalty": 0.5, "presence_penalty": -0.5, "temperature": 0},
     {"frequency_penalty": 0.5, "presence_penalty": -0.5}),
    ({"logit_bias": {"7": 2, "3": -100}, "temperature": 0}, {"bias_ids": (3, 7), "bias_values": (-100.0, 2.0)}),
    ({"logit_bias": [0, 1.5, 0, -1], "temperature": 0}, {"bias_ids": (1, 3), "bias_values": (1.5, -1.0)}),
    ({"top_k": 5, "min_p": 0.5, "seed": 3}, {"do_sample": True, "seed": 3, "top_k": 5, "min_p": 0.5}),
    ({"top_k": -1, "typical_p": 0.5, "seed": 3}, {"do_sample": True, "seed": 3, "typical_p": 0.5}),
    ({"min_tokens": 1, "stop_token_ids": [9, 5], "temperature": 0}, {"min_tokens": 1, "banned_ids": (2, 5, 9)}),
    ({"watermark": True, "logprobs": 3, "temperature": 0}, {"watermark": True, "top_n": 3}),
])
async def test_how_it_samples(server: Server, fields: dict[str, Any], sampling: dict[str, Any]) -> None:
    await complete(server, max_tokens=1, **fields)
    found = sampling_of(server)
    seed = found.seed if "seed" not in fields else 0  # one that the server draws
    assert found == Sampling(**{"seed": seed, "raw_logprobs": True, **sampling})


@pytest.mark.parametrize("prompt", ["Say: ", ["Say: "]])
async def test_one_prompt(server: Server, prompt: object) -> None:
    assert (await complete(server, prompt=prompt))["choices"][0]["text"] == TEXT


NEUTRAL = {
    "n": 1, "best_of": 1, "echo": False, "logprobs": None, "logit_bias": {}, "suffix": None, "top_k": 0, "min_p": 0.0,
    "min_tokens": 0, "frequency_penalty": 0, "presence_penalty": 0.0, "use_beam_search": False, "length_penalty": 1.0,
    "stop_token_ids": [], "skip_special_tokens": True, "response_format": {"type": "text"}, "priority": 0,
    "return_token_ids": False, "add_special_tokens": True, "structured_outputs": {}}


async def test_fields_that_ask_for_nothing(server: Server) -> None:
    for fields in (NEUTRAL, dict.fromkeys(NEUTRAL), {"top_k": -1, "suffix": ""},
                   {"user": "me", "unknown": {"a": [1]}}):
        assert (await complete(server, **fields))["choices"] == [
            {"index": 0, "text": TEXT, "logprobs": None, "finish_reason": "stop"}]


UNSUPPORTED = "unsupported_parameter"


@pytest.mark.parametrize(("fields", "told", "param", "code"), [
    ({"suppress_tokens": [5]}, "`suppress_tokens`, other than [], is not supported", "suppress_tokens", UNSUPPORTED),
    ({"detokenize": False}, "`detokenize`, other than true, is not supported", "detokenize", UNSUPPORTED),
    ({"suffix": "b"}, "Suffix is not supported and can be achieved by preprocessing the prompt.", "suffix",
     UNSUPPORTED),
    ({"n": 0}, "`n` must be > 0. Given: 0", "n", "integer_below_min_value"),
    ({"n": 129}, "`n` times the number of prompts must be <= 128. Given: 129", "n", "integer_above_max_value"),
    ({"n": 43, "prompt": ["a", "b", "c"]}, "`n` times the number of prompts must be <= 128. Given: 129", "n",
     "integer_above_max_value"),
    ({"n": 2, "best_of": 1}, "`best_of` must be >= `n`. Given: 1 and 2", "best_of", "invalid_value"),
    ({"best_of": 0}, "`best_of` must be >= `n`. Given: 0 and 1", "best_of", "invalid_value"),
    ({"guided_json": {}, "guided_regex": "a"}, "grammar is not valid: one can be asked for, not 2", "guided_json",
     "invalid_value"),
    ({"structured_outputs": {"json": {}}, "response_format": {"type": "json_object"}},
     "grammar is not valid: one can be asked for, not 2", "response_format", "invalid_value"),
    ({"structured_outputs": {"structural_tag": "x"}}, "`structured_outputs` is not supported with `structural_tag`",
     "structured_outputs", "invalid_value"),
])
async def test_fields_that_are_refused_by_name(
    server: Server, fields: dict[str, Any], told: str, param: str, code: str
) -> None:
    """With a status of its own for a stream too."""
    for is_stream in (False, True):
        response = await server.post("/v1/completions", {"prompt": "a", "stream": is_stream, **fields})
        assert (response.status, await response.json()) == (400, refusal(told, param, code))
    series = server.series()
    assert series["tgi_request_count"] == series['tgi_request_failure{err="validation"}'] == 2
    assert server.fleet.plans == []


@pytest.mark.parametrize(("fields", "what", "param", "code"), [
    ({"prompt": []}, "prompt: invalid value: a list: Empty array detected. Do not use an empty array for "
                     "the prompt.", "prompt", "empty_array"),
    ({}, "missing field `prompt`", "prompt", "missing_required_parameter"),
    ({"prompt": None}, "prompt: invalid type: null, expected a list", "prompt", "invalid_type"),
    ({"prompt": "a", "stop": 5}, "stop: invalid type: integer `5`, expected a list", "stop", "invalid_type"),
    ({"prompt": "a", "stop": ["a", 5]}, "stop[1]: invalid type: integer `5`, expected a string", "stop[1]",
     "invalid_type"),
    ({"prompt": "a", "max_tokens": -1}, "max_tokens: invalid value: integer `-1`: Input should be greater than or "
                                        "equal to 0", "max_tokens", "integer_below_min_value"),
    ({"prompt": "a", "n": 2**32}, "n: invalid value: integer `4294967296`: Input should be less than 4294967296", "n",
     "integer_above_max_value"),
    ({"prompt": "a", "logit_bias": {"5": "a"}}, 'logit_bias[5]: invalid type: string "a", expected a number',
     "logit_bias[5]", "invalid_type"),
    ({"prompt": "a", "temperature": "0"}, 'temperature: invalid type: string "0", expected a number', "temperature",
     "invalid_type"),
    ({"prompt": "a", "stream": 1}, "stream: invalid type: integer `1`, expected a boolean", "stream", "invalid_type"),
    *[({"prompt": prompt}, f"prompt: invalid value: a list: {PROMPT}", "prompt", "invalid_value")
      for prompt in (["a", 5], [1, "a"], [[1], "a"], [[1.0]], [True], [None])],
    *[({"prompt": prompt}, f"prompt: invalid value: a list: {IDS}", "prompt", "invalid_value")
      for prompt in ([-1], [[1], [2**32]])],
    ({"prompt": "a", "logprobs": True}, "logprobs: invalid type: boolean `true`, expected an integer", "logprobs",
     "invalid_type"),
    ({"prompt": "a", "n": "two"}, 'n: invalid type: string "two", expected an integer', "n", "invalid_type"),
    ({"prompt": "a", "ignore_eos": "no"}, 'ignore_eos: invalid type: string "no", expected a boolean', "ignore_eos",
     "invalid_type"),
    ({"prompt": "a", "stream_options": True}, "stream_options: invalid type: boolean `true`, expected an object",
     "stream_options", "invalid_type"),
])
async def test_another_shape(server: Server, fields: dict[str, object], what: str, param: str, code: str) -> None:
    response = await server.post("/v1/completions", fields)
    assert (response.status, await response.json()) == (400, refusal(what, param, code))


@pytest.mark.parametrize(("fields", "rule", "param", "code"), [
    ({"prompt": ""}, "`prompt` cannot be empty", "prompt", "empty_string"),
    ({"temperature": -1}, "`temperature` must be >= 0.0. Given: -1.0", "temperature", "decimal_below_min_value"),
    ({"top_p": -0.5}, "`top_p` must be >= 0.0 and <= 1.0. Given: -0.5", "top_p", "decimal_below_min_value"),
    ({"top_p": 1.1, "temperature": 0}, "`top_p` must be >= 0.0 and <= 1.0. Given: 1.1", "top_p",
     "decimal_above_max_value"),
    ({"typical_p": 0}, "`typical_p` must be > 0.0 and <= 1.0. Given: 0.0", "typical_p", "decimal_below_min_value"),
    ({"top_k": -2}, "`top_k` must be >= -1. Given: -2", "top_k", "integer_below_min_value"),
    ({"repetition_penalty": 0}, "`repetition_penalty` must be > 0.0. Given: 0.0", "repetition_penalty",
     "decimal_below_min_value"),
    ({"max_tokens": 0}, "`max_tokens` must be strictly positive", "max_tokens", "integer_below_min_value"),
    ({"logprobs": 6}, "`logprobs` must be >= 0 and <= 5. Given: 6", "logprobs", "integer_above_max_value"),
    ({"stop": ["a"] * 5}, "`stop` supports up to 4 stop sequences. Given: 5", "stop", "array_above_max_length"),
    ({"stop": ""}, "`stop` sequences cannot be empty", "stop", "empty_string"),
    ({"truncate_prompt_tokens": 0}, "`truncate_prompt_tokens` must be strictly positive and less than 1023. Given: 0",
     "truncate_prompt_tokens", "integer_below_min_value"),
    ({"guided_regex": "a"}, "grammar is not supported", "guided_regex", "unsupported_parameter"),
    ({"max_tokens": 2000}, "`prompt` and `max_tokens` are too long: this model's maximum context length is 1024 "
                           "tokens. Given: 1 tokens of `prompt` and 2000 of `max_tokens`", "prompt",
     "context_length_exceeded"),
])
async def test_a_rule(server: Server, fields: dict[str, object], rule: str, param: str, code: str) -> None:
    """Is told by a status for a stream, too."""
    for is_stream in (False, True):
        response = await server.post("/v1/completions", {"prompt": "a", "stream": is_stream, **fields})
        assert (response.status, await response.json()) == (400, refusal(rule, param, code))


async def test_more_requests_than_permits(start: Start) -> None:
    server = await start(replace(LIMITS, max_concurrent_requests=1))
    server.fleet.may_answer.clear()
    first = asyncio.create_task(complete(server))
    await until(lambda: bool(server.engine._requests))
    for is_stream in (False, True):
        response = await server.post("/v1/completions", {"prompt": "a", "stream": is_stream})
        assert (response.status, await response.json()) == (429, refusal(
            "Model is overloaded", None, "rate_limit_exceeded", "rate_limit_error"))
        assert response.headers["retry-after"] == "1"
    server.fleet.may_answer.set()
    assert (await first)["choices"][0]["text"] == TEXT


async def test_a_failure_in_the_middle_of_a_stream(server: Server) -> None:
    server.fleet.may_answer.clear()
    response = await server.post("/v1/completions", {"prompt": "a", "stream": True})
    server.fleet.failure = ZeroDivisionError("a fault")
    server.fleet.may_answer.set()
    assert await response.text() == (
        'data: {"error":{"message":"Request failed during generation: Server error: a fault","type":"server_error",'
        f'"param":null,"code":"generation_failed"}},"request_id":"{response.headers["x-request-id"]}"}}\n\n'
        'data: [DONE]\n\n')


async def test_a_client_that_leaves_cancels(server: Server) -> None:
    response = await server.post("/v1/completions", {"prompt": "a", "stream": True, "ignore_eos": True})
    await response.content.readany()
    server.fleet.may_answer.clear()
    response.close()
    await server.until_idle()
    server.fleet.may_answer.set()
    server.fleet.may_answer.clear()
    waiting = asyncio.create_task(complete(server, ignore_eos=True))
    await until(lambda: bool(server.engine._requests))
    waiting.cancel()
    await server.until_idle()
    assert server.series()["tgi_request_success"] == 0


VALUES = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.floats() | strategies.text(),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(
        strategies.sampled_from(["include_usage", "a"]), inner, max_size=2), max_leaves=5)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prompt=strategies.text(max_size=5) | VALUES, fields=strategies.dictionaries(
    strategies.sampled_from(["stop", "seed", "top_p", "temperature", "n", "best_of", "logit_bias", "stream", "echo",
                             "stream_options", "suffix", "model", "logprobs", "max_tokens", "stop_token_ids",
                             "return_token_ids", "response_format", "guided_json", "structured_outputs", "top_k",
                             "model_config", "__dict__", ""]), VALUES, max_size=3))
async def test_no_body_breaks_the_server(server: Server, prompt: object, fields: dict[str, object]) -> None:
    response = await server.post("/v1/completions", {"prompt": prompt, **fields})
    assert response.status in (200, 400, 422)
    assert (await server.client.get("/health")).status == 200
