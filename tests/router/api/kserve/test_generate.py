"""Triton's generate extension."""

from typing import Any

import orjson

from tests.router.api.conftest import Server, Start
from tests.router.api.kserve.conftest import BASE, StartPooling, told

TEXT = "Hello wörld, 😀 is all."
HEAD = {"model_name": "demo", "model_version": "1"}


async def events(server: Server, body: object, path: str = f"{BASE}/generate_stream") -> list[Any]:
    response = await server.post(path, body)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8", await response.text()
    lines = (await response.text()).split("\n\n")
    assert lines.pop() == ""
    return [orjson.loads(line.removeprefix("data: ")) for line in lines]


async def test_the_call_of_tensorrt_llms_users(server: Server) -> None:
    """curl -X POST localhost:8000/v2/models/ensemble/generate -d '{…}', which says that it sends a form."""
    body = {"text_input": "What is machine learning?", "max_tokens": 20, "bad_words": "", "stop_words": ""}
    response = await server.client.post(
        f"{BASE}/generate", data=orjson.dumps(body), headers={"content-type": "application/x-www-form-urlencoded"})
    assert response.status == 200
    assert await response.json() == {**HEAD, "text_output": f"What is machine learning?{TEXT}"}


async def test_the_call_of_vllms_users(server: Server) -> None:
    body = {"id": "42", "text_input": "Say it", "parameters": {"stream": False, "temperature": 0}}
    assert await told(server, f"{BASE}/generate", body) == (200, {"id": "42", **HEAD, "text_output": f"Say it{TEXT}"})


async def test_an_answer_without_its_prompt_and_with_all_that_can_be_told(server: Server) -> None:
    body = {"text_input": "Say it", "exclude_input_in_output": True, "max_tokens": 2, "return_finish_reason": True,
            "return_num_input_tokens": True, "return_num_output_tokens": "true", "return_log_probs": True,
            "return_output_ids": True, "details": True}
    status, answer = await told(server, f"{BASE}/versions/1/generate", body)
    assert status == 200
    assert answer.pop("details")["finish_reason"] == "length"
    assert len(answer.pop("output_ids")) == len(answer.pop("output_log_probs")) == 2
    assert answer.pop("cum_log_probs") <= 0
    ids = await server.tokenizer.encode("Say it")
    assert answer == {**HEAD, "text_output": "Hello", "finish_reason": "length", "num_input_tokens": len(ids),
                      "num_output_tokens": 2}


async def test_a_stream_has_an_event_per_token(server: Server) -> None:
    found = await events(server, {"text_input": "Say it", "parameters": {"stream": True}, "details": True})
    assert "".join(event["text_output"] for event in found) == TEXT
    assert len(found) > 5
    assert {key: found[0][key] for key in HEAD} == HEAD
    assert [event["details"]["finish_reason"] for event in found[-2:]] == [None, "eos_token"]


async def test_stop_words_are_no_part_of_an_answer(server: Server) -> None:
    body = {"text_input": "Say it", "stop_words": ["", " is"]}
    assert (await told(server, f"{BASE}/generate", body))[1]["text_output"] == "Say itHello wörld, 😀"
    assert "".join(event["text_output"] for event in await events(server, body)) == "Hello wörld, 😀"


async def test_a_stream_that_is_none_is_one_event(server: Server) -> None:
    body = {"text_input": "Say it", "stream": False}
    assert await events(server, body) == [{**HEAD, "text_output": f"Say it{TEXT}"}]


async def test_several_answers_are_a_list(server: Server) -> None:
    body = {"text_input": "", "n": 2, "temperature": 0.5, "exclude_input_in_output": True}
    assert (await told(server, f"{BASE}/generate", {**body, "text_input": "Say"}))[1]["text_output"] == [TEXT, TEXT]


async def test_what_breaks_a_rule_is_refused_by_its_name(server: Server) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"max_tokens": "many"}, 'max_tokens: invalid type: string "many", expected an integer'),
        ({"max_tokens": 0}, "`max_tokens` must be strictly positive"),
        ({"request_output_len": 5000}, "`request_output_len`"),
        ({"max_tokens": 5, "max_new_tokens": 6}, "`max_new_tokens` and `max_tokens` are the same setting"),
        ({"temperature": -1}, "`temperature` must be"),
        ({"seed": "x"}, "seed: invalid type"),
        ({"stop_words": [1]}, "stop_words[0]: invalid type: integer `1`, expected a string"),
        ({"stream": True}, "`stream` is for"),
        ({"stream": "perhaps"}, '`stream` must be true or false. Given: string "perhaps"'),
        ({"n": 0}, "`n` must be an integer > 0"),
        ({"best_of": 2}, "`best_of`, other than 1, is not supported"),
        ({"return_context_logits": True}, "`return_context_logits`"),
        ({"lora_name": "x"}, "`adapter_id` is not supported"),
        ({"text_input": ""}, "`text_input` cannot be empty"),
        ({"text_input": 5}, "text_input: invalid type: integer `5`, expected a string"),
        ({"n": 2, "return_output_ids": True}, "`outputs`: `output_ids` is for one answer"),
    ]
    for fields, sentence in cases:
        status, answer = await told(server, f"{BASE}/generate", {"text_input": "Say it", **fields})
        assert status == 400, (fields, answer)
        assert list(answer) == ["error"]
        assert sentence in answer["error"], (fields, answer)


async def test_a_stream_that_is_refused_is_json(server: Server) -> None:
    for fields in ({"max_tokens": 0}, {"n": 2}, {"exclude_input_in_output": False}, {"text_input": "word " * 2000}):
        status, answer = await told(server, f"{BASE}/generate_stream", {"text_input": "Say it", **fields})
        assert status == 400, (fields, answer)
        assert list(answer) == ["error"]


async def test_a_failure_amid_a_stream_is_an_event(start: Start) -> None:
    server = await start()
    server.fleet.is_nan = lambda row: bool(row.from_last_sample)
    found = await events(server, {"text_input": "Say it"})
    assert "text_output" in found[0]
    assert list(found[-1]) == ["error"]


async def test_unknown_models_and_versions(server: Server) -> None:
    body = {"text_input": "Say it"}
    for path, name in (("/v2/models/other", "other"), (f"{BASE}/versions/2", "demo@2")):
        for suffix in ("generate", "generate_stream", "infer"):
            assert await told(server, f"{path}/{suffix}", body) == (
                404, {"error": f"The model `{name}` does not exist"})


async def test_vectors_by_the_same_call(start_pooling: StartPooling) -> None:
    server = await start_pooling()
    status, answer = await told(server, f"{BASE}/generate", {"text_input": "A text"})
    assert status == 200
    assert len(answer["embedding"]) == 8
    assert await events(server, {"text_input": "A text"}) == [answer]
