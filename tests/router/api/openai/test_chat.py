"""OpenAI's `POST /v1/chat/completions` and TGI's `/chat_tokenize`: answers, chunks, what they take and refuse."""

import json
import re
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from penstock.contract.sampling import Sampling
from penstock.router.chat.template import ChatTemplate
from tests.fakes import LIMITS
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.chats import HELLO, PROMPT, TEXT, chat, chunks, joined, refusal, rendered


@pytest.fixture
async def server(start: Start, demo: ChatTemplate) -> Server:
    return await start(template=demo)


def sampling_of(server: Server) -> Sampling:
    """Of the last request."""
    return [state.sampling for state in server.fleet.initial_states][-1]


async def test_a_whole_answer(server: Server) -> None:
    response = await server.post("/v1/chat/completions", {"messages": HELLO, "model": "tgi"})
    answer = await response.json()
    assert abs(answer.pop("created") - time.time()) < 5
    assert re.fullmatch("chatcmpl-[0-9a-f]{32}", answer.pop("id"))
    num_prompt, num_answer = len(await server.tokenizer.encode(PROMPT)), len(server.fleet.answer.ids)
    assert answer == {
        "object": "chat.completion", "model": "demo", "system_fingerprint": "0.1.0-native",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT, "refusal": None},
                     "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": num_prompt, "completion_tokens": num_answer,
                  "total_tokens": num_prompt + num_answer, "prompt_tokens_details": {"cached_tokens": 0}}}
    headers = response.headers
    assert (headers["x-compute-type"], headers["x-compute-characters"]) == ("2-cpu", str(len(PROMPT)))
    assert (headers["x-prompt-tokens"], headers["x-generated-tokens"]) == (str(num_prompt), str(num_answer))
    for name in ("x-total-time", "x-validation-time", "x-queue-time", "x-inference-time", "x-time-per-token"):
        assert headers[name].isdigit()


async def test_the_bytes_of_a_stream(start: Start, demo: ChatTemplate) -> None:
    server = await start(answer="a<|im_end|>", template=demo)
    response = await server.post("/v1/chat/completions", {
        "messages": HELLO, "stream": True, "model": "tgi", "stream_options": {"include_usage": True}})
    text = await response.text()
    head = text[:text.index(',"model"')].removeprefix("data: ")
    begin = json.loads(head + "}")
    assert (begin["object"], begin["id"][:9]) == ("chat.completion.chunk", "chatcmpl-")
    head += ',"model":"demo","system_fingerprint":"0.1.0-native"'
    delta = '"delta":{"role":"assistant","content":"%s","tool_calls":null},"logprobs":null'
    length = len(await server.tokenizer.encode(PROMPT))
    assert text == (
        f'data: {head},"choices":[{{"index":0,{delta % "a"},"finish_reason":null}}],"usage":null}}\n\n'
        f'data: {head},"choices":[{{"index":0,{delta % ""},"finish_reason":"stop"}}],"usage":null}}\n\n'
        f'data: {head},"choices":[],"usage":{{"prompt_tokens":{length},"completion_tokens":2,'
        f'"total_tokens":{length + 2},"prompt_tokens_details":{{"cached_tokens":0}}}}}}\n\n'
        'data: [DONE]\n\n')
    assert response.headers["x-request-id"].startswith("req_")
    assert {name.lower(): value for name, value in response.headers.items()
            if name.lower().startswith("x-") and name.lower() != "x-request-id"} == {
        "x-accel-buffering": "no", "x-compute-type": "2-cpu", "x-compute-characters": str(len(PROMPT))}


async def test_streams_and_answers_agree(server: Server) -> None:
    for fields in ({}, {"stop": "is"}, {"stop": ["wör", "all"]}, {"max_tokens": 3}, {"max_completion_tokens": 4}):
        whole = (await chat(server, **fields))["choices"][0]
        streamed = await chunks(server, **fields)
        assert joined(streamed) == (whole["message"]["content"], [], [whole["finish_reason"]])
        assert not any("usage" in chunk for chunk in streamed)


async def test_what_tgis_clients_need_in_all_chunks(server: Server) -> None:
    for model, number in ((None, -1), ("tgi", -1), ("other", 2)):
        deltas = [chunk["choices"][0]["delta"] for chunk in await chunks(server, model=model, n=2)]
        roles = [delta["role"] for delta in deltas if "role" in delta]
        assert roles == ["assistant"] * (number if number > 0 else len(deltas))
        assert [each.get("tool_calls", "none") for each in deltas] == [None if number < 0 else "none"] * len(deltas)


async def test_several_answers(server: Server) -> None:
    whole = await chat(server, n=3, seed=5)
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    assert all(choice["message"]["content"] == TEXT for choice in whole["choices"])
    num_prompt, num_answer = len(await server.tokenizer.encode(PROMPT)), len(server.fleet.answer.ids)
    assert (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]) == (num_prompt, 3 * num_answer)
    streamed = await chunks(server, n=3, stream_options={"include_usage": True})
    assert [joined(streamed, index) for index in range(3)] == [(TEXT, [], ["stop"])] * 3
    assert streamed[-1]["choices"] == []
    assert streamed[-1]["usage"]["completion_tokens"] == 3 * num_answer


async def test_logprobs(server: Server) -> None:
    whole = (await chat(server, logprobs=True, top_logprobs=2))["choices"][0]["logprobs"]["content"]
    assert len(whole) == len(server.fleet.answer.ids)
    assert whole[0]["logprob"] == -0.5
    assert bytes(whole[0]["bytes"]).decode() == whole[0]["token"]
    assert TEXT.startswith(whole[0]["token"])
    assert [top["logprob"] for top in whole[0]["top_logprobs"]] == [-0.5, -1.5]
    assert any(token["bytes"] is None for token in whole)  # a part of the emoji
    streamed = await chunks(server, logprobs=True, top_logprobs=2)
    assert [token for chunk in streamed for token in chunk["choices"][0]["logprobs"]["content"]] == whole
    without = (await chat(server, logprobs=True))["choices"][0]["logprobs"]["content"]
    assert without == [{**token, "top_logprobs": []} for token in whole]


async def test_token_ids(server: Server) -> None:
    whole = (await chat(server, return_token_ids=True))["choices"][0]
    assert whole["token_ids"] == list(server.fleet.answer.ids)
    assert whole["prompt_token_ids"] == list(await server.tokenizer.encode(PROMPT))
    streamed = await chunks(server, return_token_ids=True)
    assert [token_id for chunk in streamed for token_id in chunk["choices"][0]["token_ids"]] == whole["token_ids"]
    assert streamed[0]["choices"][0]["prompt_token_ids"] == whole["prompt_token_ids"]
    assert streamed[1]["choices"][0]["prompt_token_ids"] is None


async def test_the_lower_of_two_limits_holds(server: Server) -> None:
    for fields, limit in (({"max_tokens": 3}, 3), ({"max_completion_tokens": 2}, 2),
                          ({"max_tokens": 3, "max_completion_tokens": 2}, 2),
                          ({"max_tokens": 1, "max_completion_tokens": 2}, 1)):
        assert (await chat(server, **fields))["usage"]["completion_tokens"] == limit


async def test_a_top_p_of_nothing_leaves_the_likeliest(server: Server) -> None:
    await chat(server, top_p=0, temperature=0.7, seed=3)
    assert not sampling_of(server).do_sample


async def test_sampling(server: Server) -> None:
    await chat(server, temperature=0, top_p=1.0, seed=3)
    assert not sampling_of(server).do_sample
    await chat(server, temperature=0.5, top_p=0.9, top_k=5, min_p=0.1, seed=3, frequency_penalty=0.5,
               presence_penalty=-1, repetition_penalty=1.5, logit_bias={"7": 2, "5": -1}, min_tokens=2,
               stop_token_ids=[9], logprobs=True, top_logprobs=3)
    sampling = sampling_of(server)
    assert (sampling.temperature, sampling.top_k, sampling.seed, sampling.top_n) == (0.5, 5, 3, 3)
    assert (sampling.frequency_penalty, sampling.presence_penalty, sampling.share_penalty) == (0.5, -1, 0)
    assert (sampling.bias_ids, sampling.bias_values) == ((5, 7), (-1, 2))
    assert (sampling.min_tokens, sampling.raw_logprobs) == (2, True)
    await chat(server)
    assert sampling_of(server).do_sample
    nulls = ("model", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "max_tokens", "n",
             "presence_penalty", "seed", "stop", "stream", "temperature", "top_p", "tools", "tool_choice",
             "tool_prompt", "response_format", "stream_options", "parallel_tool_calls", "user", "functions")
    await chat(server, **dict.fromkeys(nulls))


@pytest.mark.parametrize(("messages", "fields", "text"), [
    ([{"role": "system", "content": "Be."}, *HELLO], {}, "<|im_start|>system\nBe.<|im_end|>\n" + PROMPT),
    ([{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}], {}, PROMPT),
    ([*HELLO, {"role": "assistant", "content": "I am"}], {}, PROMPT + "I am"),
    ([*HELLO, {"role": "assistant", "content": "I am"}], {"add_generation_prompt": True},
     PROMPT + "I am<|im_end|>\n<|im_start|>assistant\n"),
    ([*HELLO, {"role": "assistant", "content": "I am"}], {"continue_final_message": False},
     PROMPT + "I am<|im_end|>\n<|im_start|>assistant\n"),
    ([*HELLO, {"role": "assistant", "content": ""}], {}, PROMPT + "<|im_end|>\n<|im_start|>assistant\n"),
    (HELLO, {"add_generation_prompt": False}, "<|im_start|>user\nHello<|im_end|>\n"),
    (HELLO, {"continue_final_message": True}, "<|im_start|>user\nHello"),
    (HELLO, {"chat_template_kwargs": {"enable_thinking": False}, "chat_template": "default"}, PROMPT),
])
async def test_prompts(server: Server, messages: object, fields: dict[str, object], text: str) -> None:
    assert await rendered(server, messages=messages, **fields) == text


async def test_tokens_of_a_chat(server: Server) -> None:
    response = await server.post("/chat_tokenize", {"messages": HELLO})
    answer = await response.json()
    assert answer["templated_text"] == PROMPT
    assert [token["id"] for token in answer["tokenize_response"]] == list(await server.tokenizer.encode(PROMPT))
    assert answer["tokenize_response"][0] == {"id": 1, "text": "<|im_start|>", "start": 0, "stop": 12}


async def test_no_template(start: Start) -> None:
    server = await start()
    for is_stream in (True, False):
        response = await server.post("/v1/chat/completions", {"messages": HELLO, "stream": is_stream})
        assert (response.status, await response.json()) == (
            400, refusal("Template error: template not found", "messages"))
    response = await server.post("/chat_tokenize", {"messages": HELLO})
    assert (response.status, await response.json()) == (
        422, {"error": "Template error: template not found", "error_type": "template_error"})
    assert server.series()['tgi_request_failure{err="template"}'] == 2


UNSUPPORTED = "unsupported_parameter"


@pytest.mark.parametrize(("fields", "told", "param", "code"), [
    ({"reasoning_effort": "lots"},
     '`reasoning_effort` must be one of none, minimal, low, medium, high, xhigh, max. Given: "lots"',
     "reasoning_effort", "invalid_value"),
    ({"modalities": ["text", "audio"]}, '`modalities`, other than ["text"], is not supported', "modalities",
     UNSUPPORTED),
    ({"banned_strings": ["a"]}, "`banned_strings`, other than [], is not supported", "banned_strings", UNSUPPORTED),
    ({"best_of": 2}, "`best_of`, other than 1, is not supported", "best_of", UNSUPPORTED),
    ({"n": 0}, "`n` must be > 0. Given: 0", "n", "integer_below_min_value"),
    ({"top_logprobs": 2}, "`top_logprobs` needs `logprobs` to be true", "top_logprobs", "invalid_value"),
    ({"chat_template_kwargs": {"tools": []}},
     "`chat_template_kwargs` cannot have `tools`, which is a field of its own", "chat_template_kwargs",
     "invalid_value"),
    ({"add_generation_prompt": True, "continue_final_message": True},
     "`add_generation_prompt` and `continue_final_message` cannot both be true", "add_generation_prompt",
     "invalid_value"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a/b"}}]}]},
     '`messages[0].content[0]` must be of type "text", this model takes nothing else. Given: "image_url"',
     "messages[0].content[0]", "invalid_value"),
    ({"messages": [*HELLO, {"role": "user", "content": None}]}, "`messages[1]` must have `content` or `tool_calls`",
     "messages[1]", "invalid_value"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},
     "`messages[0].tool_calls[0].function.arguments` must be a JSON object",
     "messages[0].tool_calls[0].function.arguments", "invalid_value"),
])
async def test_refused_by_name(server: Server, fields: dict[str, object], told: str, param: str, code: str) -> None:
    for is_stream in (False, True):
        response = await server.post("/v1/chat/completions", {"messages": HELLO, "stream": is_stream, **fields})
        assert (response.status, await response.json()) == (400, refusal(told, param, code))
    assert server.fleet.plans == []


@pytest.mark.parametrize(("fields", "what", "param", "code"), [
    ({"messages": None}, "messages: invalid type: null, expected a list", "messages", "invalid_type"),
    ({"messages": []}, "messages: invalid value: a list: List should have at least 1 item after validation, not 0",
     "messages", "empty_array"),
    ({"messages": ["a"]}, 'messages[0]: invalid type: string "a", expected an object', "messages[0]", "invalid_type"),
    ({"messages": [{"content": "a"}]}, "messages[0]: missing field `role`", "messages[0].role",
     "missing_required_parameter"),
    ({"messages": [{"role": "user", "content": 5}]},
     "messages[0].content: invalid type: integer `5`, expected a string", "messages[0].content", "invalid_type"),
    ({"tools": [{"function": {"name": "f"}}] * 129},
     "tools: invalid value: a list: List should have at most 128 items after validation, not 129", "tools",
     "array_above_max_length"),
    ({"n": "2"}, 'n: invalid type: string "2", expected an integer', "n", "invalid_type"),
    ({"logprobs": 5}, "logprobs: invalid type: integer `5`, expected a boolean", "logprobs", "invalid_type"),
])
async def test_another_shape(server: Server, fields: dict[str, object], what: str, param: str, code: str) -> None:
    response = await server.post("/v1/chat/completions", {"messages": HELLO, **fields})
    assert (response.status, await response.json()) == (400, refusal(what, param, code))


@pytest.mark.parametrize(("fields", "rule", "param", "code"), [
    ({"temperature": -1}, "`temperature` must be >= 0.0. Given: -1.0", "temperature", "decimal_below_min_value"),
    ({"max_tokens": 0}, "`max_tokens` must be strictly positive", "max_tokens", "integer_below_min_value"),
    ({"max_completion_tokens": 0}, "`max_completion_tokens` must be strictly positive", "max_completion_tokens",
     "integer_below_min_value"),
    ({"logprobs": True, "top_logprobs": 6}, "`top_logprobs` must be >= 0 and <= 5. Given: 6", "top_logprobs",
     "integer_above_max_value"),
    ({"presence_penalty": 3}, "`presence_penalty` must be >= -2.0 and <= 2.0. Given: 3.0", "presence_penalty",
     "decimal_above_max_value"),
])
async def test_a_rule(server: Server, fields: dict[str, object], rule: str, param: str, code: str) -> None:
    """Is told by a status for a stream, too."""
    for is_stream in (False, True):
        response = await server.post("/v1/chat/completions", {"messages": HELLO, "stream": is_stream, **fields})
        assert (response.status, await response.json()) == (400, refusal(rule, param, code))


async def test_the_permit_comes_before_the_prompt(start: Start, demo: ChatTemplate) -> None:
    """Nobody renders a conversation, even one that the template would refuse, for a client that is turned away."""
    server = await start(replace(LIMITS, max_concurrent_requests=1), template=demo)
    refused = {"messages": [{"role": "assistant", "content": "a"}], "continue_final_message": True,
               "add_generation_prompt": True}
    async with server.groups.permit():
        for is_stream in (False, True):
            response = await server.post("/v1/chat/completions", {**refused, "stream": is_stream})
            assert (response.status, await response.json()) == (429, refusal(
                "Model is overloaded", None, "rate_limit_exceeded", "rate_limit_error"))
            assert response.headers["retry-after"] == "1"
    assert server.series()['tgi_request_failure{err="overloaded"}'] == 2
    assert (await server.post("/v1/chat/completions", refused)).status == 400
    response = await server.post("/v1/chat/completions", {"messages": HELLO, "n": 2})
    assert "`n` must be <= 1. Given: 2" in await response.text()
    response = await server.post("/v1/chat/completions", {"messages": HELLO, "max_tokens": 2})
    assert response.status == 200


async def test_strict_streaming_errors(start: Start, demo: ChatTemplate) -> None:
    server = await start(replace(LIMITS, strict_streaming_errors=True), template=demo)
    assert joined(await chunks(server)) == (TEXT, [], ["stop"])
    server.fleet.failure = ZeroDivisionError("a fault")
    response = await server.post("/v1/chat/completions", {"messages": HELLO, "stream": True})
    assert (response.status, (await response.json())["error"]["code"]) == (424, "generation_failed")


async def test_a_failure_in_the_middle_of_a_stream(server: Server) -> None:
    server.fleet.may_answer.clear()
    response = await server.post("/v1/chat/completions", {"messages": HELLO, "stream": True})
    server.fleet.failure = ZeroDivisionError("a fault")
    server.fleet.may_answer.set()
    assert await response.text() == (
        'data: {"error":{"message":"Request failed during generation: Server error: a fault","type":"server_error",'
        f'"param":null,"code":"generation_failed"}},"request_id":"{response.headers["x-request-id"]}"}}\n\n'
        'data: [DONE]\n\n')


VALUES = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.floats() | strategies.text(),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(
        strategies.sampled_from(["type", "function", "name", "parameters", "role", "content", "tool_calls", "text"]),
        inner, max_size=3), max_leaves=8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=strategies.just(HELLO) | VALUES, fields=strategies.dictionaries(
    strategies.sampled_from(["tools", "tool_choice", "response_format", "chat_template_kwargs", "chat_template", "n",
                             "logprobs", "stream", "stop", "__dict__", "model_config", ""]), VALUES, max_size=3))
async def test_no_body_breaks_the_server(server: Server, messages: object, fields: dict[str, Any]) -> None:
    response = await server.post("/v1/chat/completions", {"messages": messages, **fields})
    assert response.status in (200, 400, 422), await response.text()
