"""`/v1/completions` with many prompts, many answers, prompts repeated, logprobs and token ids."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.contract.row import Row
from tests.fakes import LIMITS, ScriptedFleet
from tests.router.api.conftest import Script, Server, Start
from tests.router.api.openai.chats import refusal
from tests.router.api.openai.test_completions import TEXT, chunks, complete
from tests.router.api.tgi.test_details import candidates


class OwnAnswers(ScriptedFleet):
    """Gives each prompt an answer of its own: the same text, from the n-th token on, if the prompt's last id is n."""

    def __init__(self, answer: Script) -> None:
        super().__init__(answer)
        self._shifts: dict[int, int] = {}
        self._positions: dict[int, int] = {}
        self._ids = answer.ids
        self.answer = self._next

    def _next(self, row: Row) -> int:
        if not row.from_last_sample:
            self._shifts[row.slot] = row.token_ids[-1]
        position = self._positions[row.slot] + 1 if row.from_last_sample else 0
        self._positions[row.slot] = position
        return self._ids[(position + self._shifts[row.slot]) % len(self._ids)]


async def test_prompts_are_answered_in_their_order(start: Start) -> None:
    server = await start(make_fleet=OwnAnswers)
    ids = server.fleet._ids
    prompts = [[50, 1], [60, 0], [70, 3], [80, 2]]
    answer = await complete(server, prompt=prompts, max_tokens=4, return_token_ids=True, ignore_eos=True)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    expected = [[ids[(place + shift) % len(ids)] for place in range(4)] for _, shift in prompts]
    assert [choice["token_ids"] for choice in answer["choices"]] == expected
    assert [choice["prompt_token_ids"] for choice in answer["choices"]] == prompts
    assert answer["usage"] == {"prompt_tokens": 8, "completion_tokens": 16, "total_tokens": 24,
                               "prompt_tokens_details": {"cached_tokens": 0}}
    streamed = await chunks(server, prompt=prompts, max_tokens=4, return_token_ids=True, ignore_eos=True)
    assert {choice["index"] for chunk in streamed for choice in chunk["choices"]} == {0, 1, 2, 3}
    for index, whole in enumerate(answer["choices"]):
        parts = [chunk["choices"][0] for chunk in streamed if chunk["choices"][0]["index"] == index]
        assert "".join(part["text"] for part in parts) == whole["text"]
        assert [part["token_ids"] for part in parts] == [[token_id] for token_id in whole["token_ids"]]
        assert [part["prompt_token_ids"] for part in parts] == [prompts[index], None, None, None]
        assert [part["finish_reason"] for part in parts] == [None, None, None, "length"]


async def test_usage_of_several_prompts(server: Server) -> None:
    """In a stream each answer tells its own with its last chunk, or all is told at the end."""
    num_tokens = len(server.fleet.answer.ids)
    streamed = await chunks(server, prompt=["ab", "ab ab"], n=2)
    told = [chunk["usage"] for chunk in streamed if "usage" in chunk]
    assert sorted(usage["prompt_tokens"] for usage in told) == [1, 1, 2, 2]
    assert {usage["completion_tokens"] for usage in told} == {num_tokens}
    streamed = await chunks(server, prompt=["ab", "ab ab"], n=2, stream_options={"include_usage": True})
    assert [chunk["usage"] for chunk in streamed[:-1]] == [None] * 4 * num_tokens
    assert (streamed[-1]["choices"], streamed[-1]["usage"]["prompt_tokens"]) == ([], 3)
    assert streamed[-1]["usage"]["completion_tokens"] == 4 * num_tokens
    whole = await complete(server, prompt=["ab", "ab ab"], n=2)
    assert whole["usage"] == streamed[-1]["usage"]


async def test_usage_with_every_chunk(server: Server) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    streamed = await chunks(server, prompt="ab", stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in streamed]
    assert counts == [*range(1, len(server.fleet.answer.ids) + 1), len(server.fleet.answer.ids)]


async def test_headers_are_sums_over_prompts(server: Server) -> None:
    response = await server.post("/v1/completions", {"prompt": ["ab", "ab é"], "max_tokens": 2, "n": 2})
    headers = response.headers
    num_prompt = sum([len(await server.tokenizer.encode(prompt)) for prompt in ("ab", "ab é")])
    assert (headers["x-compute-characters"], headers["x-prompt-tokens"]) == ("6", str(num_prompt))
    assert headers["x-generated-tokens"] == "8"
    response = await server.post("/v1/completions", {"prompt": [5, 6], "max_tokens": 2})
    assert (response.headers["x-compute-characters"], response.headers["x-prompt-tokens"]) == ("0", "2")


@pytest.mark.parametrize("is_stream", [False, True])
async def test_too_many_prompts(server: Server, is_stream: bool) -> None:
    response = await server.post("/v1/completions", {"prompt": ["a"] * 5, "stream": is_stream})
    assert (response.status, await response.json()) == (400, refusal(
        "Number of prompts exceeds the maximum allowed batch size of 4", "prompt", "array_above_max_length"))
    assert (await complete(server, prompt=["a"] * 4, max_tokens=1))["choices"][3]["index"] == 3


async def test_one_bad_prompt_refuses_all(server: Server) -> None:
    for prompt, told in ((["a", ""], "`prompt` cannot be empty"), ([[5], []], "`prompt` cannot be empty"),
                         ([8192], "`prompt` must have token ids < 8192, the model's vocabulary. Given: 8192")):
        response = await server.post("/v1/completions", {"prompt": prompt})
        assert (response.status, (await response.json())["error"]["message"]) == (400, told)
    await server.until_idle()


async def test_several_answers(server: Server) -> None:
    answer = await complete(server, n=3, seed=7)
    assert [(choice["index"], choice["text"]) for choice in answer["choices"]] == [(0, TEXT), (1, TEXT), (2, TEXT)]
    samplings = [state.sampling for state in server.fleet.initial_states]
    assert [(sampling.seed, sampling.branch) for sampling in samplings] == [(7, 0), (7, 1), (7, 2)]


async def test_the_best_of_several(start: Start) -> None:
    server = await start(
        replace(LIMITS, max_best_of=3), answer="a b c", make_fleet=candidates(-3.0, -1.0, -2.0))
    answer = await complete(server, n=2, best_of=3, max_tokens=2, logprobs=0)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert [choice["logprobs"]["token_logprobs"] for choice in answer["choices"]] == [[-1.0, -1.0], [-2.0, -2.0]]
    assert answer["usage"]["completion_tokens"] == 6
    for fields, told in (({"best_of": 4}, "`best_of` must be > 0 and <= 3. Given: 4"),
                         ({"best_of": 2, "stream": True}, "`best_of` > `n` is not supported when streaming tokens")):
        response = await server.post("/v1/completions", {"prompt": "a", **fields})
        assert (response.status, (await response.json())["error"]["message"]) == (400, told)


async def test_candidates_are_bounded_by_the_permits(start: Start) -> None:
    server = await start(replace(LIMITS, max_best_of=200))
    response = await server.post("/v1/completions", {"prompt": "a", "best_of": 129})
    error = (await response.json())["error"]
    assert (error["message"], error["param"]) == ("`best_of` must be > 0 and <= 128. Given: 129", "best_of")


PROMPT = "Say é, 😀: "


async def test_the_prompt_repeated(server: Server) -> None:
    assert (await complete(server, prompt=PROMPT, echo=True))["choices"][0]["text"] == PROMPT + TEXT
    streamed = await chunks(server, prompt=PROMPT, echo=True)
    assert "".join(chunk["choices"][0]["text"] for chunk in streamed) == PROMPT + TEXT
    assert streamed[0]["choices"][0]["text"].startswith(PROMPT)
    ids = await server.tokenizer.encode(PROMPT)
    assert (await complete(server, prompt=ids, echo=True))["choices"][0]["text"] == PROMPT + TEXT


async def test_the_prompt_alone(server: Server) -> None:
    answer = await complete(server, prompt=PROMPT, echo=True, max_tokens=0)
    assert answer["choices"] == [{"index": 0, "text": PROMPT, "logprobs": None, "finish_reason": "length"}]
    assert answer["usage"]["completion_tokens"] == 0
    streamed = await chunks(server, prompt=PROMPT, echo=True, max_tokens=0)
    assert [chunk["choices"] for chunk in streamed] == [answer["choices"]]
    assert streamed[0]["usage"]["completion_tokens"] == 0
    answer = await complete(server, prompt=PROMPT, echo=True, max_tokens=0, logprobs=1, return_token_ids=True)
    assert len(answer["choices"][0]["logprobs"]["tokens"]) == answer["usage"]["prompt_tokens"]
    assert answer["choices"][0]["token_ids"] == []


def text_at(choice: dict[str, Any]) -> list[str]:
    """The part of a choice's text that each of its tokens stands for."""
    starts = choice["logprobs"]["text_offset"]
    stops = [*starts[1:], len(choice["text"])]
    return [choice["text"][start:stop] for start, stop in zip(starts, stops, strict=True)]


@pytest.mark.parametrize("number", [0, 2])
async def test_logprobs(server: Server, number: int) -> None:
    choice = (await complete(server, logprobs=number))["choices"][0]
    logprobs, ids = choice["logprobs"], server.fleet.answer.ids
    text_of = server.tokenizer.text_of
    assert logprobs["tokens"] == [text_of(token_id) for token_id in ids]
    assert logprobs["token_logprobs"] == [-0.5] * len(ids)
    assert "".join(text_at(choice)) == TEXT
    for token, text in zip(logprobs["tokens"], text_at(choice), strict=True):
        assert token == text or "\ufffd" in token or token == "<|im_end|>"
    if number:
        assert [list(top) for top in logprobs["top_logprobs"]] == [
            list(dict.fromkeys([text_of(token_id), text_of(token_id + 1)])) for token_id in ids]
        assert list(logprobs["top_logprobs"][0].values()) == [-0.5, -1.5]
    else:
        assert logprobs["top_logprobs"] is None
    streamed = [chunk["choices"][0]["logprobs"] for chunk in await chunks(server, logprobs=number)]
    for name in ("tokens", "token_logprobs", "text_offset"):
        assert [part[name] for part in streamed] == [[value] for value in logprobs[name]]


async def test_logprobs_of_the_prompt(server: Server) -> None:
    ids = await server.tokenizer.encode(PROMPT)
    choice = (await complete(server, prompt=PROMPT, logprobs=1, echo=True, n=2))["choices"][1]
    logprobs = choice["logprobs"]
    assert logprobs["token_logprobs"][:len(ids) + 1] == [None, *(-token_id / 10 for token_id in ids[1:]), -0.5]
    assert logprobs["top_logprobs"][0] is None
    assert [len(top) for top in logprobs["top_logprobs"][1:]] == [1] * (len(logprobs["tokens"]) - 1)
    assert "".join(text_at(choice)) == PROMPT + TEXT
    assert logprobs["text_offset"][len(ids)] == len(PROMPT)
    streamed = [chunk["choices"][0] for chunk in await chunks(server, prompt=PROMPT, logprobs=1, echo=True)]
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert [value for part in streamed for value in part["logprobs"][name]] == logprobs[name]


async def test_who_finds_the_prompt_in_the_cache_waits_for_its_logprobs(server: Server) -> None:
    """The first answer computes the whole prompt, in steps of 256 tokens; the others need not."""
    fields = {"prompt": "a " * 600, "max_tokens": 3, "logprobs": 1}
    await complete(server, **fields)
    whole = await complete(server, **fields, echo=True, n=3)
    streamed = [chunk["choices"][0] for chunk in await chunks(server, **fields, echo=True, n=3)]
    assert len(streamed) == 9
    for choice in whole["choices"]:
        own = [part for part in streamed if part["index"] == choice["index"]]
        assert "".join(part["text"] for part in own) == choice["text"]
        assert [value for part in own for value in part["logprobs"]["token_logprobs"]] == (
            choice["logprobs"]["token_logprobs"])


async def test_logprobs_of_a_prompt_that_is_in_the_prefix_cache(server: Server) -> None:
    """Only the first answer computes it again, in more than one step, so that the others' tokens come before."""
    prompt = "one two three " * 150
    ids = await server.tokenizer.encode(prompt)
    assert len(ids) > LIMITS.max_batch_prefill_tokens
    await complete(server, prompt=prompt)
    streamed = await chunks(server, prompt=[prompt, "a b"], logprobs=1, echo=True, n=3)
    for index in range(6):
        first, *rest = [choice for chunk in streamed for choice in chunk["choices"] if choice["index"] == index]
        num_prompt = len(ids) if index < 3 else len(await server.tokenizer.encode("a b"))
        assert len(first["logprobs"]["tokens"]) == num_prompt + 1
        assert all(len(choice["logprobs"]["tokens"]) == 1 for choice in rest)
        assert rest[-1]["finish_reason"] == "stop"


async def test_logprobs_with_what_is_held_for_a_stop_string(start: Start) -> None:
    server = await start(answer="a b c d<|im_end|>")
    choice = (await complete(server, stop=["b c x"], logprobs=0))["choices"][0]
    assert choice["logprobs"]["tokens"] == ["a", " b", " c", " d", "<|im_end|>"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2, 2, 7]


async def test_the_prompt_can_be_cut(server: Server) -> None:
    ids = await server.tokenizer.encode("one two three four")
    for prompt in ("one two three four", list(ids)):
        answer = await complete(
            server, prompt=prompt, truncate_prompt_tokens=2, max_tokens=1, return_token_ids=True)
        assert answer["choices"][0]["prompt_token_ids"] == list(ids[-2:])


async def test_the_likeliest_of_equal_texts_is_told(start: Start) -> None:
    """Tokens of incomplete characters have texts alike."""
    server = await start(answer="😀")
    choice = (await complete(server, logprobs=3, max_tokens=1))["choices"][0]
    top, = choice["logprobs"]["top_logprobs"]
    assert max(top.values()) == top[choice["logprobs"]["tokens"][0]] == -0.5


@pytest.mark.parametrize("fields", [
    {"guided_regex": "a+"}, {"guided_json": {}}, {"guided_choice": ["a"]}, {"structured_outputs": {"regex": "a"}},
    {"response_format": {"type": "json_object"}}])
async def test_a_server_without_grammars(server: Server, fields: dict[str, object]) -> None:
    response = await server.post("/v1/completions", {"prompt": "a", **fields})
    [name] = fields
    assert (response.status, await response.json()) == (
        400, refusal("grammar is not supported", name, "unsupported_parameter"))


async def test_names_of_the_limit_on_new_tokens(server: Server) -> None:
    for fields in ({"max_completion_tokens": 3}, {"max_tokens": None, "max_completion_tokens": 3},
                   {"max_tokens": 3, "max_completion_tokens": 5}):
        assert (await complete(server, **fields))["usage"]["completion_tokens"] == 3


async def test_tokens_from_the_prefix_cache(server: Server) -> None:
    for cached in (0, 32):
        answer = await complete(server, prompt=" a" * 40, max_tokens=1)
        assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": cached}
