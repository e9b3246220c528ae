"""A second model is a second service beside the first: routes whose bodies name a model reach it by its name."""

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.router.adapters.registry import Registry
from penstock.router.adapters.source import AdapterSource
from penstock.router.chat.template import ChatTemplate
from penstock.router.engine.engine import Engine
from penstock.router.generation.poison_memory import PoisonMemory
from penstock.router.generation.service import Service
from penstock.router.groups.groups import Groups
from penstock.router.metrics.metrics import Metrics
from tests.fakes import FACTS, LIMITS, ScriptedFleet
from tests.router.adapters.folders import write_adapter
from tests.router.api.conftest import INFO, Script, Server, Start, load_tokenizer
from tests.router.text.tokenizers_for_tests import DEMO


@pytest.fixture
async def second(tmp_path: Path, demo: ChatTemplate) -> Service:
    """A made-up model with an adapter, `tuned`, and an engine, limits and metrics of its own."""
    tokenizer, metrics, limits = load_tokenizer(DEMO), Metrics(LIMITS), replace(LIMITS, max_stop_sequences=1)
    adapters = Registry([AdapterSource("tuned", write_adapter(tmp_path / "tuned"), "org/tuned")], max_bytes=20_000)
    fleet = ScriptedFleet(Script(await tokenizer.encode("I am second.<|im_end|>")))
    fleet.facts = replace(FACTS, weights_digest="second")
    groups = Groups(limits, metrics, adapters)
    groups.add(Engine(fleet, fleet.facts, limits, metrics, adapters=adapters))
    return Service(groups, tokenizer, metrics, replace(INFO, model_id="second"), PoisonMemory(0.0), template=demo,
                   adapters=adapters)


@pytest.fixture
async def server(start: Start, second: Service, demo: ChatTemplate) -> Server:
    return await start(answer="I am demo.<|im_end|>", template=demo, others=[second])


async def complete(server: Server, **body: object) -> str:
    response = await server.post("/v1/completions", {"prompt": "Who?", "max_tokens": 9, **body})
    assert response.status == 200, await response.text()
    return str((await response.json())["choices"][0]["text"])


async def test_a_request_reaches_the_model_that_it_names(server: Server) -> None:
    answers = [await complete(server, model=name) for name in ("demo", "second", "tuned", "tgi")]
    assert answers == ["I am demo.", "I am second.", "I am second.", "I am demo."]
    assert await complete(server) == "I am demo."
    chat = {"model": "second", "messages": [{"role": "user", "content": "Who?"}]}
    answer = await (await server.post("/v1/chat/completions", chat)).json()
    assert answer["choices"][0]["message"]["content"] == "I am second."
    assert (await server.generate())["generated_text"] == "I am demo."


async def test_a_path_of_kserves_names_a_model_or_an_adapter(server: Server) -> None:
    body = {"text_input": "Who?", "max_tokens": 9, "exclude_input_in_output": True}
    for name, text in (("demo", "I am demo."), ("second", "I am second."), ("tuned", "I am second.")):
        answer = await (await server.post(f"/v2/models/{name}/generate", body)).json()
        assert (answer["model_name"], answer["text_output"]) == (name, text)
    by_setting = await (await server.post("/v2/models/second/generate", {**body, "lora_name": "tuned"})).json()
    assert by_setting["text_output"] == "I am second."
    assert len(server.fleet.loads) == 0
    assert (await server.post("/v2/models/third/generate", body)).status == 404
    listed = await (await server.post("/v2/repository/index", {})).json()
    assert [each["name"] for each in listed] == ["demo", "second"]


async def test_each_model_has_its_own_facts_limits_and_counts(server: Server, second: Service) -> None:
    body = {"prompt": "Who?", "stop": ["1", "2"]}
    assert await complete(server, model="demo", **body)
    assert (await server.post("/v1/completions", {"model": "second", **body})).status == 400
    assert second.facts.weights_digest == "second"
    assert (await (await server.client.get("/info")).json())["max_stop_sequences"] == LIMITS.max_stop_sequences
    assert server.series()['tgi_request_failure{err="validation"}'] == 0
    assert b'tgi_request_failure{err="validation"} 1.0' in second.metrics.exposition()


async def test_an_unknown_name_is_refused_and_all_models_are_listed(server: Server) -> None:
    response = await server.post("/v1/completions", {"model": "third", "prompt": "Who?"})
    assert response.status == 404
    assert (await response.json())["error"]["code"] == "model_not_found"
    listed = await (await server.client.get("/v1/models")).json()
    assert [(each["id"], each["owned_by"]) for each in listed["data"]] == [
        ("demo", "demo"), ("second", "second"), ("tuned", "second")]
