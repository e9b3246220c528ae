"""Requests to a pipeline, by each route that it has: its steps stand around the answer, and nothing else is changed."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from penstock.router.chat.template import ChatTemplate
from penstock.router.checks.checker import Checker
from penstock.router.checks.config import ChecksFile
from penstock.router.generation.around import Around
from penstock.router.pipeline_settings import PipelineSettings
from penstock.router.tracing.middleware import Tracing
from penstock.system.arguments import InvalidArgument
from tests.eventually import until
from tests.fakes import LIMITS
from tests.router.api.conftest import ANSWER, Server, Start
from tests.router.api.resuming import SeededFleet
from tests.router.pipelines.conftest import STEPS, StartPiped, settings_of

MODEL = {"model": "demo"}
WHOLE = ANSWER.removesuffix("<|im_end|>")
COUNTS = ("prompt_tokens", "completion_tokens")
BODY: dict[str, Any] = {"model": "piped", "prompt": " Say it ", "max_tokens": 30}


def python(function: str, **more: Any) -> dict[str, Any]:
    return {"python": STEPS.name, "function": function, **more}


async def text_of(server: Server, **more: Any) -> str:
    response = await server.post("/v1/completions", {**BODY, **more})
    assert response.status == 200, await response.text()
    text: str = (await response.json())["choices"][0]["text"]
    return text


async def events_of(server: Server, path: str, body: dict[str, Any]) -> list[Any]:
    """The data of a stream's events."""
    text = await (await server.post(path, body)).text()
    return [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:") and "[DONE]" not in line]


async def test_steps_before_an_answer_make_its_prompt(start_piped: StartPiped) -> None:
    server = await start_piped(python("strip"), {"template": "<{{ python }}>{{ prompt }}"}, MODEL)
    bare = await server.post("/v1/completions", {**BODY, "model": "demo", "prompt": "<Say it> Say it ", "echo": True})
    piped = await server.post("/v1/completions", {**BODY, "echo": True})
    assert (await piped.json())["choices"] == (await bare.json())["choices"]


async def test_an_answer_that_no_step_follows_is_streamed_as_it_is(start_piped: StartPiped) -> None:
    server = await start_piped(python("strip"), MODEL)
    for path, of_piped, of_demo in (
            ("/v1/completions", BODY, {**BODY, "model": "demo", "prompt": "Say it"}),
            ("/models/piped/generate_stream", {"inputs": " Say it "}, None)):
        events = await events_of(server, path, {**of_piped, "stream": True})
        assert len(events) > 5
        if of_demo is not None:
            texts = [[each["choices"][0]["text"] for each in found]
                     for found in (events, await events_of(server, path, {**of_demo, "stream": True}))]
            assert texts[0] == texts[1]


async def test_a_step_behind_gets_the_whole_answer(start_piped: StartPiped) -> None:
    server = await start_piped(python("strip"), {**MODEL, "name": "text"}, python("both", inputs=["text", "prompt"]))
    expected = f" Say it : {WHOLE}"
    assert await text_of(server) == expected
    chunks = await events_of(server, "/v1/completions", {**BODY, "stream": True})
    assert [text for each in chunks if (text := each["choices"][0]["text"])] == [expected]


async def test_the_answer_s_tokens_are_counted_as_they_were(start_piped: StartPiped) -> None:
    server = await start_piped(MODEL, python("shout"))
    usages = [(await (await server.post("/v1/completions", {**BODY, "model": model})).json())["usage"]
              for model in ("piped", "demo")]
    assert [usages[0][name] for name in COUNTS] == [usages[1][name] for name in COUNTS]


async def test_a_step_may_take_an_answer_piece_by_piece(start_piped: StartPiped) -> None:
    server = await start_piped(MODEL, python("shout", stream=True), python("shout", stream=True, name="again"))
    chunks = await events_of(server, "/v1/completions", {**BODY, "stream": True})
    texts = [text for each in chunks if (text := each["choices"][0]["text"])]
    assert len(texts) > 5
    assert "".join(texts) == WHOLE.upper() == await text_of(server)
    events = await events_of(server, "/models/piped/generate_stream", {"inputs": "a", "parameters": {
        "max_new_tokens": 30}})
    assert events[-1]["generated_text"] == WHOLE.upper()
    assert "".join(each["token"]["text"] for each in events if not each["token"]["special"]) == WHOLE.upper()


async def test_a_chat_s_last_message_is_the_prompt(start_piped: StartPiped, demo: ChatTemplate) -> None:
    server = await start_piped(python("strip"), MODEL, python("shout"), template=demo)
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                {"role": "user", "content": [{"type": "text", "text": " Say it "}]}]
    body = {"model": "piped", "messages": messages, "max_tokens": 30}
    content = await (await server.post("/v1/chat/completions", body)).json()
    assert content["choices"][0]["message"]["content"] == WHOLE.upper()
    assert content["model"] == "piped"
    plain = {**body, "model": "demo", "messages": [*messages[:2], {"role": "user", "content": "Say it"}]}
    usage = (await (await server.post("/v1/chat/completions", plain)).json())["usage"]
    assert [content["usage"][name] for name in COUNTS] == [usage[name] for name in COUNTS]
    chunks = await events_of(server, "/v1/chat/completions", {**body, "stream": True})
    assert "".join(each["choices"][0]["delta"].get("content") or "" for each in chunks) == WHOLE.upper()


async def test_triton_s_route_has_pipelines(start_piped: StartPiped) -> None:
    server = await start_piped(python("strip"), {**MODEL, "parameters": {"max_tokens": 3}}, python("shout"))
    response = await server.post("/v2/models/piped/generate", {"text_input": " a ", "exclude_input_in_output": True})
    content = await response.json()
    assert (content["model_name"], WHOLE.upper().startswith(content["text_output"])) == ("piped", True)
    assert response.headers["x-generated-tokens"] == "3"


async def test_a_step_s_parameters_are_those_that_a_request_does_not_have(start_piped: StartPiped) -> None:
    server = await start_piped({**MODEL, "parameters": {"max_tokens": 2, "temperature": 0}})
    for parameters, number in (({}, "2"), ({"max_new_tokens": 4}, "4")):
        response = await server.post("/models/piped/generate", {"inputs": "a", "parameters": parameters})
        assert response.headers["x-generated-tokens"] == number


async def test_a_pipeline_may_ask_models_and_pipelines(start_piped: StartPiped) -> None:
    inner = settings_of(python("strip"), {**MODEL, "parameters": {"max_tokens": 30}}, python("shout"), name="inner")
    server = await start_piped({"model": "inner", "name": "first"}, {"model": "inner"},
                               python("both", inputs={"text": "model", "prompt": "first"}), more=(inner,))
    assert await text_of(server) == f"{WHOLE.upper()}: {WHOLE.upper()}"


async def test_token_ids_are_taken_where_a_route_takes_them(start_piped: StartPiped) -> None:
    server = await start_piped({"tokenize": "demo"}, MODEL)
    assert await text_of(server) == WHOLE
    response = await server.post("/models/piped/generate", {"inputs": "a"})
    assert response.status == 422
    assert "which only /v1/completions takes" in await response.text()


@pytest.mark.parametrize(("step", "status", "said"), [
    (python("refuse"), 422, "step `python` of piped: no such thing"),
    (python("fail"), 500, "step `python` of piped: TypeError: can only concatenate str"),
    (python("die"), 500, "step `python` of piped: the process of `die` has ended with status 3"),
    (python("number"), 500, "step `python` of piped: the last step must make a text"),
    ({"template": "{{ raise_exception('no') }}"}, 500, "step `template` of piped: "),
    ({"check": [{"name": "loud", "kind": "regex", "must_match": ["!"]}]}, 422,
     "step `check` of piped: `model` has not passed the check `loud`: it must match !"),
])
async def test_a_failure_names_its_step(
    start_piped: StartPiped, step: dict[str, Any], status: int, said: str
) -> None:
    server = await start_piped(MODEL, step)
    response = await server.post("/models/piped/generate", {"inputs": "a"})
    assert (response.status, (await response.json())["error"][:len(said)]) == (status, said)
    [*_, event] = await events_of(server, "/models/piped/generate_stream", {"inputs": "a"})
    assert event["error"].startswith(said)
    assert await (await server.post("/generate", {"inputs": "a"})).json()
    await server.until_idle()


@pytest.mark.parametrize(("word", "step", "said"), [
    ("sleep", python("sleep", seconds=1), "`sleep` took more than 1 s"),
    ("eat", python("eat", memory="256MiB"), "MemoryError"),
])
async def test_a_function_s_time_and_memory_have_bounds(
    start_piped: StartPiped, word: str, step: dict[str, Any], said: str
) -> None:
    server = await start_piped(step, MODEL)
    response = await server.post("/models/piped/generate", {"inputs": word})
    assert (response.status, (await response.json())["error"]) == (500, f"step `python` of piped: {said}")
    assert await text_of(server) == WHOLE


async def test_a_body_without_one_text_is_refused(start_piped: StartPiped) -> None:
    server = await start_piped(python("strip"), MODEL)
    for path, body in (("/models/piped/generate", {"inputs": 1}), ("/v1/completions", {**BODY, "prompt": ["a", "b"]}),
                       ("/v1/chat/completions", {"model": "piped", "messages": []})):
        response = await server.post(path, body)
        assert response.status in (400, 422)
        assert "a pipeline takes" in await response.text()


@pytest.mark.parametrize(("step", "said"), [
    (python("absent"), f"step `python`: `python`: {STEPS} has no function `absent`"),
    (python("strip", inputs=["prompt", "messages"]), "does not take these inputs: got an unexpected keyword argument"),
    ({"template": "{{ nobody }}"}, "`template` reads `nobody`, which no step before makes; there are messages, prompt"),
    ({"template": "{% if %}"}, "step `template`: `template`: "),
    ({"check": [{"name": "a", "kind": "regex", "must_match": ["("]}]}, "step `check`: `check`: `a`: "),
    ({"check": [{"name": "a", "kind": "smell"}]}, "step `check`: `check`: here: `checks.0`: "),
])
async def test_a_step_that_can_t_be_used_is_refused_at_the_start(
    start: Start, step: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await start(pipelines=(settings_of(step, MODEL),))
    assert refused.value.message.startswith("model piped: step ")
    assert said in refused.value.message


async def test_each_step_is_a_span(start_piped: StartPiped) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    server = await start_piped(python("strip"), MODEL, python("shout", stream=True, name="loud"), python("refuse"),
                               outer=[Tracing(provider, "demo").middleware])
    assert (await server.post("/models/piped/generate", {"inputs": "a"})).status == 422
    await until(lambda: any(span.kind is SpanKind.SERVER for span in exporter.get_finished_spans()))
    spans = {span.name: span for span in exporter.get_finished_spans()}
    steps = [dict(spans[name].attributes or {}) for name in ("step python", "step loud", "step python4")]
    assert steps == [{"penstock.pipeline": "piped", "penstock.step.kind": "python"}] * 2 + [
        {"penstock.pipeline": "piped", "penstock.step.kind": "python", "error.type": "pipeline"}]
    request = next(span for span in spans.values() if span.kind is SpanKind.SERVER)
    for name in ("step python", "step loud", "step python4", "decode"):
        parent = spans[name].parent
        assert parent is not None
        assert parent.span_id == request.context.span_id


async def test_a_slow_step_holds_up_nobody_else(start_piped: StartPiped) -> None:
    server = await start_piped(python("sleep", seconds=100), MODEL)
    slow = [asyncio.create_task(server.post("/models/piped/generate", {"inputs": "sleep"})) for _ in range(2)]
    await asyncio.sleep(0)
    assert (await server.generate())["generated_text"]
    for each in slow:
        each.cancel()
    await asyncio.gather(*slow, return_exceptions=True)
    assert await text_of(server) == WHOLE  # the clients have left, so that their processes were ended


async def test_a_pipeline_takes_no_more_requests_than_a_model(start_piped: StartPiped) -> None:
    limits = replace(LIMITS, max_concurrent_requests=1)
    server = await start_piped(python("sleep", seconds=100), MODEL, limits=limits)
    asked = [asyncio.create_task(server.post("/models/piped/generate", {"inputs": "sleep"})) for _ in range(3)]
    refused = asyncio.as_completed(asked)
    assert [(await next(refused)).status for _ in range(2)] == [429, 429]
    for each in asked:
        each.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


async def test_each_of_several_answers_is_changed(start_piped: StartPiped) -> None:
    server = await start_piped(MODEL, python("shout"))
    response = await server.post("/v1/completions", {**BODY, "n": 2, "seed": 1})
    assert [choice["text"] for choice in (await response.json())["choices"]] == [WHOLE.upper()] * 2
    beams = {"num_beams": 2, "num_return_sequences": 2, "max_new_tokens": 4, "details": True}
    content = await (await server.post("/models/piped/generate", {"inputs": "a", "parameters": beams})).json()
    [other] = content["details"]["best_of_sequences"]
    assert all(text and text == text.upper() for text in (content["generated_text"], other["generated_text"]))
    await server.until_idle()


async def test_checks_of_all_answers_see_the_model_s(start_piped: StartPiped, tmp_path: Path) -> None:
    checks = ChecksFile.of({"checks": [{"name": "low", "kind": "regex", "must_not_match": [WHOLE.upper()]}]}, "here")
    server = await start_piped(MODEL, python("shout"), make_around=lambda metrics: Around(
        checker=Checker(checks, tmp_path, metrics.checks)))
    assert await text_of(server) == WHOLE.upper()
    chunks = await events_of(server, "/v1/completions", {**BODY, "stream": True})
    assert "".join(each["choices"][0]["text"] for each in chunks) == WHOLE.upper()


async def test_files_of_checks_are_beside_the_pipeline(start_piped: StartPiped, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("is all\n")
    words = {"name": "house", "kind": "words", "file": "words.txt"}
    (tmp_path / "checks.yaml").write_text(json.dumps({"checks": [words]}))
    for check in ([words], "checks.yaml"):
        pipeline = PipelineSettings.parse("filed", {"pipeline": [MODEL, {"check": check}]}, tmp_path)
        server = await start_piped(MODEL, more=(pipeline,))
        response = await server.post("/models/filed/generate", {"inputs": "a"})
        assert (await response.json())["error"] == (
            "step `check` of filed: `model` has not passed the check `house`: it must not have `is all`")


async def test_requests_whose_functions_fail_cost_no_other_its_answer(start_piped: StartPiped) -> None:
    server = await start_piped(python("mixed", memory="256MiB"), MODEL)
    words = ["a", "die", "b", "eat", "c", "die", "d", "eat", "e"]
    bodies = [{"inputs": word, "parameters": {"max_new_tokens": 30}} for word in words]
    responses = await asyncio.gather(*(server.post("/models/piped/generate", body) for body in bodies))
    for word, response in zip(words, responses, strict=True):
        content = await response.json()
        if len(word) == 1:
            assert (response.status, content.get("generated_text")) == (200, WHOLE)
        else:
            assert (response.status, content["error"][:23]) == (500, "step `python` of piped:")


async def test_an_answer_is_repeated_by_its_name(start_piped: StartPiped) -> None:
    server = await start_piped(python("strip"), MODEL, python("shout"), make_fleet=SeededFleet)
    body = {"inputs": " a ", "parameters": {"max_new_tokens": 6, "do_sample": True}}
    first = await server.post("/models/piped/generate", body)
    assert first.headers["penstock-model"] == "piped"
    again = await server.client.post("/generate", json=body, headers={
        name: first.headers[name] for name in ("penstock-model", "penstock-answer")})
    assert await again.json() == await first.json()
