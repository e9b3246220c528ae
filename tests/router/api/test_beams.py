"""Beam searches as clients ask for them: what is refused, and by which sentence; what an answer looks like."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.protos import penstock_pb2 as pb
from penstock.router.chat.template import ChatTemplate
from tests.fakes import LIMITS
from tests.router.api.conftest import Server, Start, of_one_server

BEAMS = {"num_beams": 3, "max_new_tokens": 2}


@of_one_server
@pytest.mark.parametrize(("more", "told"), [
    ({"num_beams": 0}, "`num_beams` must be >= 1 and <= 128. Given: 0"),
    ({"num_beams": 129}, "`num_beams` must be >= 1 and <= 128. Given: 129"),
    ({"num_return_sequences": 4, "details": True},
     "`num_return_sequences` must be >= 1 and <= `num_beams`, 3. Given: 4"),
    ({"num_return_sequences": 2},
     "`num_return_sequences` > 1 needs `details` to be true: they have the answers that are not the best"),
    ({"num_beams": 64, "stop_token_ids": [*range(20, 36), 20]},
     "`num_beams` times 1 + the number of tokens that end an answer, of `stop_token_ids` and of the model, must be "
     "<= 1024. Given: 64 * (1 + 17) = 1152"),
    ({"num_beams": 64, "stop_token_ids": [*range(20, 36), 20], "ignore_eos": True},
     "`num_beams` times 1 + the number of tokens that end an answer, of `stop_token_ids` and of the model, must be "
     "<= 1024. Given: 64 * (1 + 16) = 1088"),
    ({"length_penalty": 10.1}, "`length_penalty` must be >= -10.0 and <= 10.0. Given: 10.1"),
    ({"do_sample": True}, "`do_sample` is not supported with `num_beams`: beam search draws no tokens"),
    ({"temperature": 0.5}, "`temperature` is not supported with `num_beams`: beam search draws no tokens"),
    ({"top_k": 5}, "`top_k` is not supported with `num_beams`: beam search draws no tokens"),
    ({"best_of": 2}, "`best_of` is not supported with `num_beams`"),
    ({"n": 2}, "`n` is not supported with `num_beams`"),
    ({"watermark": True}, "`watermark` is not supported with `num_beams`"),
    ({"top_n_tokens": 2}, "`top_n_tokens` is not supported with `num_beams`"),
    ({"decoder_input_details": True}, "`decoder_input_details` is not supported with `num_beams`"),
    ({"num_beams": None, "length_penalty": 2.0}, "`length_penalty` is for beam search, which is not asked for"),
    ({"num_beams": None, "early_stopping": "never"}, "`early_stopping` is for beam search, which is not asked for"),
    ({"num_beams": None, "num_return_sequences": 2, "details": True},
     "`num_return_sequences` is for beam search, which is not asked for"),
    ({"num_beams": 1, "length_penalty": 2.0},
     "`length_penalty` is for beam search, and `num_beams` is 1, which searches for nothing"),
    ({"num_beams": 1, "early_stopping": True},
     "`early_stopping` is for beam search, and `num_beams` is 1, which searches for nothing"),
    ({"num_beam_groups": 3, "diversity_penalty": 0.5}, "`num_beam_groups`, other than 1, is not supported"),
    ({"constraints": [[5]]}, "`constraints`, other than [], is not supported"),
    ({"force_words_ids": [[5]]}, "`force_words_ids`, other than [], is not supported"),
], ids=str)
async def test_tgis_routes_refuse(lasting_server: Server, more: dict[str, Any], told: str) -> None:
    response = await lasting_server.post("/generate", {"inputs": "a", "parameters": {**BEAMS, **more}})
    assert (response.status, await response.json()) == (422, {
        "error": f"Input validation error: {told}", "error_type": "validation"})
    await lasting_server.until_idle()


async def test_there_are_at_most_128_beams_however_many_requests_there_may_be(start: Start) -> None:
    server = await start(limits=replace(LIMITS, max_concurrent_requests=1000))
    response = await server.post("/generate", {"inputs": "a", "parameters": {"num_beams": 129}})
    assert (response.status, (await response.json())["error"]) == (
        422, "Input validation error: `num_beams` must be >= 1 and <= 128. Given: 129")


@pytest.mark.parametrize("value", ["sometimes", 1, []])
async def test_early_stopping_has_three_forms(server: Server, value: object) -> None:
    response = await server.post("/generate", {"inputs": "a", "parameters": {**BEAMS, "early_stopping": value}})
    assert response.status == 422
    assert "early_stopping" in await response.text()


async def test_a_stream_is_refused(start: Start, demo: ChatTemplate) -> None:
    server = await start(template=demo)
    response = await server.post("/generate_stream", {"inputs": "a", "parameters": BEAMS})
    assert "`num_beams` is not supported when streaming tokens: which tokens an answer has is known when the search " \
           "ends" in await response.text()
    for route, asked in {"/v1/completions": {"prompt": "a"},
                         "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]}}.items():
        response = await server.post(route, {**asked, "use_beam_search": True, "n": 2, "stream": True})
        error = (await response.json())["error"]
        assert (response.status, error["param"]) == (400, "use_beam_search")
        assert "is known when the search ends" in error["message"]
    assert server.fleet.plans == []


@pytest.mark.parametrize(("more", "told", "param"), [
    ({"n": 129}, "`n` times the number of prompts must be <= 128. Given: 129", "n"),
    ({"best_of": 4}, "`best_of` > `n` is not supported with `use_beam_search`: `n` is the number of beams", "best_of"),
    ({"temperature": 0.5}, "`temperature` is not supported with `use_beam_search`: beam search draws no tokens",
     "temperature"),
    ({"n": 1, "top_p": 0.5}, "`top_p` is not supported with `use_beam_search`: beam search draws no tokens", "top_p"),
    ({"logprobs": 2}, "`logprobs` is not supported with `use_beam_search`", "logprobs"),
    ({"echo": True, "logprobs": 0}, "`echo` is not supported with `use_beam_search`", "echo"),
    ({"n": 1, "length_penalty": 2.0},
     "`length_penalty` is for beam search, and `n` is 1, which searches for nothing", "length_penalty"),
    ({"use_beam_search": False, "length_penalty": 2.0}, "`length_penalty` is for beam search, which is not asked for",
     "length_penalty"),
], ids=str)
async def test_openais_routes_refuse(server: Server, more: dict[str, Any], told: str, param: str) -> None:
    response = await server.post(
        "/v1/completions", {"prompt": "a", "max_tokens": 2, "n": 3, "use_beam_search": True, **more})
    error = (await response.json())["error"]
    assert (response.status, error["message"], error["param"]) == (400, told, param)


async def test_beams_take_permits(server: Server) -> None:
    """As many as there are beams, however few answers are wanted."""
    server.groups.take_permits(LIMITS.max_concurrent_requests - 2)
    response = await server.post("/generate", {"inputs": "a", "parameters": BEAMS})
    assert response.status == 429
    server.groups.return_permits(LIMITS.max_concurrent_requests - 2)


async def test_an_answer_of_one_beam_is_a_greedy_one(server: Server) -> None:
    plain = await server.generate(max_new_tokens=3, details=True)
    assert await server.generate(max_new_tokens=3, details=True, num_beams=1, length_penalty=1.0) == plain


async def test_an_answer(start: Start) -> None:
    server = await start()
    answer = await server.generate(num_beams=2, num_return_sequences=2, max_new_tokens=2, details=True)
    details = answer["details"]
    [other] = details.pop("best_of_sequences")
    for each in (details, other):
        logprobs = [token["logprob"] for token in each["tokens"]]
        assert each["score"] == pytest.approx(sum(logprobs) / 2)
        assert (each["generated_tokens"], each["finish_reason"], each["seed"]) == (2, "length", None)
    assert details["score"] >= other["score"]
    await server.until_idle()
    series = server.series()
    assert series["tgi_request_success"] == 1
    assert (series["penstock_time_to_first_token_seconds_count"], series["penstock_inter_token_latency_seconds_count"]
            ) == (0, 0), "they come at once"


async def test_the_messages_of_grpc_have_all_forms() -> None:
    from penstock.router.rpc.wire import decode_request, to_body
    forms = {pb.EARLY_STOPPING_FALSE: False, pb.EARLY_STOPPING_TRUE: True, pb.EARLY_STOPPING_NEVER: "never"}
    for message, form in forms.items():
        parameters = pb.Parameters(num_beams=4, num_return_sequences=2, length_penalty=0.5, early_stopping=message)
        body = to_body(decode_request(pb.GenerateRequest(inputs="a", parameters=parameters)))
        assert body.parameters.early_stopping == form
        assert (body.parameters.num_beams, body.parameters.num_return_sequences) == (4, 2)
