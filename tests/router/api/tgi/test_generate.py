"""Whole answers: `POST /generate`, and `POST /` without `stream`."""

import math
from dataclasses import replace

import pytest

from penstock.router.generation.float32 import shortest_float32
from tests.fakes import LIMITS
from tests.router.api.conftest import Server, Start

TEXT = "Hello wörld, 😀 is all."


async def test_an_answer_in_full(server: Server) -> None:
    response = await server.post("/generate", {"inputs": "Say é", "parameters": {"details": True}})
    assert response.status == 200
    assert response.headers["content-type"] == "application/json"
    answer = await response.json()
    details = answer.pop("details")
    assert answer == {"generated_text": TEXT}
    tokens = details.pop("tokens")
    assert details == {"finish_reason": "eos_token", "generated_tokens": len(tokens), "seed": None,
                       "prefix_hit_tokens": 0, "prefill": []}
    assert "".join(token["text"] for token in tokens) == TEXT + "<|im_end|>"
    assert tokens[-1] == {"id": 2, "text": "<|im_end|>", "logprob": -0.5, "special": True}
    assert not any(token["special"] for token in tokens[:-1])
    assert all("\ufffd" not in token["text"] for token in tokens)


async def test_headers(server: Server) -> None:
    response = await server.post("/generate", {"inputs": "Say é", "parameters": {"max_new_tokens": 4}})
    headers = response.headers
    assert headers["x-compute-type"] == "2-cpu"
    assert headers["x-compute-characters"] == "5"
    assert headers["x-prompt-tokens"] == str(len(await server.tokenizer.encode("Say é")))
    assert headers["x-generated-tokens"] == "4"
    assert 0 < float(headers["x-compute-time"]) < 5
    for name in ("x-total-time", "x-validation-time", "x-queue-time", "x-inference-time", "x-time-per-token"):
        assert headers[name].isdigit()
        assert int(headers[name]) <= int(headers["x-total-time"])
    assert int(headers["x-total-time"]) == int(1000 * float(headers["x-compute-time"]))


async def test_details_are_left_out_unless_asked_for(server: Server) -> None:
    assert await server.generate() == {"generated_text": TEXT}


async def test_the_root_route_answers_with_a_list_and_the_prompt(server: Server) -> None:
    response = await server.post("/", {"inputs": "Say: "})
    assert await response.json() == [{"generated_text": "Say: " + TEXT}]
    response = await server.post("/", {"inputs": "Say: ", "parameters": {"return_full_text": False}})
    assert await response.json() == [{"generated_text": TEXT}]
    assert (await server.generate("Say: ", return_full_text=True))["generated_text"] == "Say: " + TEXT


async def test_truncation_keeps_the_end_of_the_prompt_and_gives_back_all_of_it(server: Server) -> None:
    answer = await server.generate("one two three four", truncate=2, return_full_text=True)
    assert answer["generated_text"] == "one two three four" + TEXT
    ids = await server.tokenizer.encode("one two three four")
    assert len(ids) > 2
    assert server.fleet.plans[0].rows[0].token_ids == ids[-2:]


async def test_nulls_and_neutral_values_are_as_absent(server: Server) -> None:
    answer = await server.generate(
        best_of=None, temperature=None, repetition_penalty=None, frequency_penalty=None, top_k=None, top_p=None,
        typical_p=None, max_new_tokens=None, return_full_text=None, truncate=None, seed=None, top_n_tokens=None,
        grammar=None, adapter_id=None, stop=[], watermark=False, do_sample=False, decoder_input_details=False)
    assert answer["generated_text"] == TEXT
    assert (await server.generate(best_of=1, n=1, top_n_tokens=0, unknown={"a": [1]}))["generated_text"] == TEXT


@pytest.mark.parametrize(("stop", "text"), [
    (["wö"], "Hello wö"),
    (["Hello wörld, 😀"], "Hello wörld, 😀"),
    (["ll"], "Hell"),
    (["is all", "rld", "never"], "Hello wörld"),
    (["o wörld", "wör"], "Hello wör"),
    (["<|im_end|>"], TEXT),
])
async def test_a_stop_string_ends_the_answer_where_it_ends(server: Server, stop: list[str], text: str) -> None:
    answer = await server.generate(stop=stop, details=True)
    assert answer["generated_text"] == text
    tokens = answer["details"]["tokens"]
    assert "".join(token["text"] for token in tokens if not token["special"]) == text
    assert answer["details"]["generated_tokens"] == len(tokens)
    assert answer["details"]["finish_reason"] == "stop_sequence"


async def test_length(server: Server) -> None:
    answer = await server.generate(max_new_tokens=3, details=True)
    assert (answer["details"]["finish_reason"], answer["details"]["generated_tokens"]) == ("length", 3)


async def test_more_than_a_thousand_tokens_are_counted_exactly(start: Start) -> None:
    server = await start(replace(LIMITS, max_total_tokens=2000), answer=" b")
    details = (await server.generate(max_new_tokens=1500, details=True))["details"]
    assert (details["generated_tokens"], details["finish_reason"]) == (1500, "length")


async def test_an_incomplete_character_at_the_end_is_dropped(start: Start) -> None:
    server = await start(answer="a😀")
    answer = await server.generate(max_new_tokens=3, details=True)
    assert answer["generated_text"] == "a"
    assert [token["text"] for token in answer["details"]["tokens"]] == ["a", "", ""]


async def test_without_a_limit_an_answer_runs_to_the_end_of_the_context(start: Start) -> None:
    server = await start(replace(LIMITS, max_input_tokens=1199, max_total_tokens=1200), answer="a b c d")
    expected = 1200 - len(await server.tokenizer.encode("x y z"))
    for asked in ({}, {"max_new_tokens": expected}, {"max_new_tokens": expected + 1}, {"max_new_tokens": 2**32 - 1}):
        details = (await server.generate("x y z", details=True, **asked))["details"]
        assert (details["generated_tokens"], details["finish_reason"]) == (expected, "length")


async def test_sampling_parameters_reach_the_shards_as_float32(server: Server) -> None:
    await server.generate(temperature=0.7, top_p=0.95, top_k=40, typical_p=0.9, repetition_penalty=1.1,
                          frequency_penalty=-1, seed=2**64 - 1, max_new_tokens=1)
    first = server.fleet.plans[0].rows[0].initial_state
    assert first is not None
    sampling = first.sampling
    assert (sampling.do_sample, sampling.seed, sampling.top_k) == (True, 2**64 - 1, 40)
    assert sampling.temperature == 0.699999988079071
    assert sampling.top_p == 0.949999988079071
    assert sampling.typical_p == 0.8999999761581421
    assert sampling.repetition_penalty == 1.100000023841858
    assert sampling.share_penalty == -1.0


@pytest.mark.parametrize(("parameters", "does_sample"), [
    ({}, False), ({"do_sample": True}, True), ({"temperature": 0.5}, True), ({"temperature": 1.0}, False),
    ({"top_k": 5}, True), ({"top_p": 0.5}, True), ({"typical_p": 0.5}, True), ({"repetition_penalty": 1.2}, False),
    ({"seed": 7}, False),
])
async def test_when_it_samples(server: Server, parameters: dict[str, object], does_sample: bool) -> None:
    details = (await server.generate(**parameters, max_new_tokens=1, details=True))["details"]
    first = server.fleet.plans[0].rows[0].initial_state
    assert first is not None
    assert first.sampling.do_sample is does_sample
    assert details["seed"] == (first.sampling.seed if does_sample else None)


async def test_it_samples_if_parameters_are_left_out(server: Server) -> None:
    await server.post("/generate", {"inputs": "a"})
    await server.post("/generate", {"inputs": "a"})
    firsts = server.fleet.initial_states
    assert [first.sampling.do_sample for first in firsts] == [True, True]
    assert firsts[0].sampling.seed != firsts[1].sampling.seed


@pytest.mark.parametrize(("value", "shortest"), [
    (-0.12300000339746475, -0.123), (-1.1920928955078125e-07, -1.1920929e-07), (0.0, 0.0), (-2.5, -2.5),
    (-16777216.0, -16777216.0), (-0.30000001192092896, -0.3), (-3.4028234663852886e38, -3.4028235e38),
    (-11.123456954956055, -11.123457), (-0.1000000163912773, -0.10000002), (-math.inf, -math.inf),
])
def test_logprobs_have_no_more_digits_than_float32(value: float, shortest: float) -> None:
    assert repr(shortest_float32(value)) == repr(shortest)
