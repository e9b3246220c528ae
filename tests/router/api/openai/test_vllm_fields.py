"""Fields of vLLM's that both of OpenAI's routes have: what is sampled, how it is told, and what is shared."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock.router.chat.template import ChatTemplate
from tests.fakes import LIMITS
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.chats import PROMPT
from tests.router.api.openai.chats import chat as ask_chat
from tests.router.api.openai.chats import chunks as chat_chunks
from tests.router.api.openai.test_completions import TEXT, chunks, complete, sampling_of

ROUTES = {"/v1/completions": {"prompt": "Say: "}, "/v1/chat/completions": {
    "messages": [{"role": "user", "content": "Hello"}]}}
on_both = pytest.mark.parametrize("path", ROUTES)


@pytest.fixture
async def server(start: Start, demo: ChatTemplate) -> Server:
    return await start(template=demo)


async def ask(server: Server, path: str, **fields: object) -> dict[str, Any]:
    return await (complete if path == "/v1/completions" else ask_chat)(server, **fields)


async def stream(server: Server, path: str, **fields: object) -> list[dict[str, Any]]:
    return await (chunks if path == "/v1/completions" else chat_chunks)(server, **fields)


def whole_text(answer: dict[str, Any]) -> str:
    choice = answer["choices"][0]
    text: str = choice["text"] if "text" in choice else choice["message"]["content"]
    return text


def joined_text(streamed: Sequence[dict[str, Any]]) -> str:
    choices = [chunk["choices"][0] for chunk in streamed]
    return "".join(choice["text"] if "text" in choice else choice["delta"]["content"] for choice in choices)


async def spelled(server: Server, text: str) -> tuple[int, ...]:
    return await server.tokenizer.encode(text, add_special_tokens=False)


@on_both
async def test_bad_words_are_spelled_at_the_beginning_and_behind_a_space(server: Server, path: str) -> None:
    await ask(server, path, bad_words=["the", " wörld", "\n", "the"], max_tokens=1)
    sampling, expected = sampling_of(server), list[tuple[int, ...]]()
    for word in ("the", "wörld", "\n"):
        first, later = await spelled(server, word), await spelled(server, f" {word}")
        expected += [first, later] if len(first) == len(later) and first[0] != later[0] else [first]
    assert sampling.bad_word_lengths == tuple(map(len, expected))
    assert sampling.bad_word_ids == tuple(token for word in expected for token in word)
    assert sampling.needs_history
    assert max(sampling.bad_word_lengths) > 1, "or nothing is seen of it"


@on_both
async def test_allowed_token_ids(server: Server, path: str) -> None:
    await ask(server, path, allowed_token_ids=[9, 5, 9], max_tokens=1)
    assert sampling_of(server).allowed_ids == (5, 9)
    assert not sampling_of(server).needs_history
    await ask(server, path, allowed_token_ids=None, bad_words=None, cache_salt=None, max_tokens=1)
    assert (sampling_of(server).allowed_ids, sampling_of(server).bad_word_ids) == ((), ())


ABOVE, INVALID, TOO_LONG = "array_above_max_length", "invalid_value", "string_above_max_length"


@on_both
@pytest.mark.parametrize(("fields", "told", "code"), [
    ({"bad_words": ["a"] * 257}, "`bad_words` supports up to 256 words. Given: 257", ABOVE),
    ({"bad_words": ["a", ""]}, "`bad_words` cannot have an empty word", "empty_string"),
    ({"bad_words": ["a" * 257]}, "`bad_words` must have words of <= 256 characters. Given: 257", TOO_LONG),
    ({"bad_words": ["é😀" * 40]}, "`bad_words` must have words of <= 32 tokens. Given: ", TOO_LONG),
    ({"allowed_token_ids": [0] * 8193},
     "`allowed_token_ids` supports up to 8192 token ids, the model's vocabulary. Given: 8193", ABOVE),
    ({"allowed_token_ids": [8192]},
     "`allowed_token_ids` must have token ids < 8192, the model's vocabulary. Given: 8192", INVALID),
    ({"allowed_token_ids": []}, "allowed_token_ids: invalid value: a list: List should have at least 1 item after "
                                "validation, not 0", "empty_array"),
    ({"cache_salt": ""}, "cache_salt: invalid value: string \"\": String should have at least 1 character",
     "empty_string"),
    ({"cache_salt": "a" * 1025}, "cache_salt: invalid value: ", TOO_LONG),
    ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens: invalid value: integer `-2`: Input should be greater",
     "integer_below_min_value"),
    ({"prompt_logprobs": 1, "stream": True}, "`prompt_logprobs` is not supported when streaming tokens",
     "unsupported_parameter"),
    ({"prompt_logprobs": 6, "logprobs": True}, "`prompt_logprobs` must be >= 0 and <= 5. Given: 6",
     "integer_above_max_value"),
    ({"prompt_logprobs": 1, "use_beam_search": True, "n": 2, "temperature": 0},
     "`prompt_logprobs` is not supported with `use_beam_search`", "unsupported_parameter"),
])
async def test_what_is_refused(server: Server, path: str, fields: dict[str, Any], told: str, code: str) -> None:
    if path == "/v1/completions" and "logprobs" in fields:
        fields = {**fields, "logprobs": 2}
    response = await server.post(path, {**ROUTES[path], **fields})
    error = (await response.json())["error"]
    assert (response.status, error["param"], error["code"]) == (400, next(iter(fields)), code)
    assert error["message"].startswith(told)
    await server.until_idle()


@on_both
@pytest.mark.parametrize("stop", [["wö"], [" is all.<|im_end|>"], ["never"]])
async def test_a_stop_string_may_stay_in_the_text(server: Server, path: str, stop: list[str]) -> None:
    fields = {"stop": stop, "include_stop_str_in_output": True}
    expected = {"wö": "Hello wö"}.get(stop[0], TEXT)
    assert whole_text(await ask(server, path, **fields)) == expected
    assert joined_text(await stream(server, path, **fields)) == expected


@on_both
async def test_special_tokens_may_be_a_part_of_the_text(start: Start, demo: ChatTemplate, path: str) -> None:
    server = await start(template=demo, answer="a<|im_start|>b<|im_end|>")
    assert whole_text(await ask(server, path)) == "ab"
    shown = {"skip_special_tokens": False}
    kept = {**shown, "include_stop_str_in_output": True}
    for fields, expected in ((shown, "a<|im_start|>b"), (kept, "a<|im_start|>b<|im_end|>"), (
            {**shown, "ignore_eos": True, "max_tokens": 5}, "a<|im_start|>b<|im_end|>a"), (
            {"skip_special_tokens": True, "include_stop_str_in_output": True}, "ab")):
        assert whole_text(await ask(server, path, **fields)) == expected
        assert joined_text(await stream(server, path, **fields)) == expected


@on_both
async def test_logprobs_of_the_prompt(server: Server, path: str) -> None:
    text = ROUTES[path].get("prompt", PROMPT)
    assert isinstance(text, str)
    ids = await server.tokenizer.encode(text)
    for fields, number in (({"prompt_logprobs": 0}, 0), ({"prompt_logprobs": 2, "n": 2}, 2)):
        answer = await ask(server, path, **fields)
        for holder in answer["choices"] if path == "/v1/completions" else [answer]:
            first, *others = holder["prompt_logprobs"]
            assert first is None
            for token_id, each in zip(ids[1:], others, strict=True):
                own = each[str(token_id)]
                assert own["decoded_token"] == server.tokenizer.text_of(token_id)
                # In a script a token of the prompt is always the likeliest, if these are told.
                told = [(value["rank"], value["logprob"]) for value in each.values()]
                assert told == ([(1, -0.5), (2, -1.5)] if number else [(token_id + 1, pytest.approx(-token_id / 10))])
    plain = await ask(server, path)
    assert "prompt_logprobs" not in plain
    assert all("prompt_logprobs" not in choice for choice in plain["choices"])


async def test_each_has_as_many_top_logprobs_as_it_asks_for(server: Server) -> None:
    answer = await complete(server, prompt_logprobs=2, logprobs=1, max_tokens=1)
    assert len(answer["choices"][0]["logprobs"]["top_logprobs"][0]) == 1
    assert {len(each) for each in answer["choices"][0]["prompt_logprobs"][1:]} == {2}
    answer = await complete(server, prompt_logprobs=0, logprobs=2, echo=True, max_tokens=1)
    assert {len(each) for each in answer["choices"][0]["prompt_logprobs"][1:]} == {1}
    answer = await ask_chat(server, prompt_logprobs=2, logprobs=True, top_logprobs=1, max_tokens=1)
    assert len(answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 1
    answer = await ask_chat(server, prompt_logprobs=2, logprobs=True, max_tokens=1)
    assert answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []


async def test_tokens_are_called_by_their_ids(server: Server) -> None:
    ids = server.fleet.answer.ids
    names = [f"token_id:{token_id}" for token_id in ids]
    logprobs = (await complete(server, logprobs=2, return_tokens_as_token_ids=True))["choices"][0]["logprobs"]
    assert logprobs["tokens"] == names
    assert [list(top) for top in logprobs["top_logprobs"]] == [
        [f"token_id:{token_id}", f"token_id:{token_id + 1}"] for token_id in ids]
    answer = await ask_chat(server, logprobs=True, top_logprobs=1, return_tokens_as_token_ids=True)
    content = answer["choices"][0]["logprobs"]["content"]
    assert [each["token"] for each in content] == [each["top_logprobs"][0]["token"] for each in content] == names
    assert bytes(content[0]["bytes"]).decode() == server.tokenizer.text_of(ids[0]), "bytes are the token's own"


@on_both
async def test_a_prompt_is_cut_to_what_fits(start: Start, demo: ChatTemplate, path: str) -> None:
    server = await start(replace(LIMITS, max_input_tokens=20, max_total_tokens=30), template=demo)
    long = {"prompt": "a " * 50} if path == "/v1/completions" else {
        "messages": [{"role": "user", "content": "a " * 50}]}
    for fields, length in (({"max_tokens": 5}, 20), ({"max_tokens": 15}, 15), ({}, 20)):
        answer = await ask(server, path, **long, **fields, truncate_prompt_tokens=-1)
        assert answer["usage"]["prompt_tokens"] == length
    response = await server.post(path, {**long, "max_tokens": 5})
    assert response.status == 400


@on_both
async def test_a_salt_keeps_what_is_cached_apart(start: Start, demo: ChatTemplate, path: str) -> None:
    """It changes neither the answer's name, so that a key and a resumed stream mean the same one, nor its tokens."""
    server = await start(template=demo)
    long = {"prompt": " a" * 40} if path == "/v1/completions" else {
        "messages": [{"role": "user", "content": " a" * 40}]}

    async def cached(**fields: object) -> int:
        number: int = (await ask(server, path, **long, **fields))["usage"]["prompt_tokens_details"]["cached_tokens"]
        return number

    assert [await cached() > 0, await cached() > 0] == [False, True]
    assert [await cached(cache_salt="mine") > 0, await cached(cache_salt="mine") > 0] == [False, True]
    assert [await cached(cache_salt="yours") > 0, await cached() > 0] == [False, True]
    plain, salted = [(await server.post(path, {**long, **fields, "seed": 3})).headers["penstock-answer"]
                     for fields in ({}, {"cache_salt": "mine"})]
    assert plain == salted
