"""Records of requests: each has all that is needed to compute the request again, or only digests of it."""

import hashlib
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from penstock.router.api.http.access import Access
from penstock.router.chat.template import ChatTemplate
from penstock.router.generation.around import Around
from penstock.router.generation.digests import digest_of_ids
from penstock.router.journal.entry import Written
from penstock.router.journal.form import Form
from penstock.router.journal.journal import Journal
from penstock.router.journal.redaction import Redaction
from penstock.router.keys import Keys
from penstock.router.metrics.metrics import Metrics
from tests.eventually import until
from tests.fakes import FACTS
from tests.pooling_fleet import EMBEDDER, WHOLE_LIMITS, PoolingFleet
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.chats import HELLO, PROMPT
from tests.router.api.resuming import SeededFleet
from tests.router.pipelines.conftest import settings_of

SAMPLED = {"inputs": "Say it", "parameters": {"max_new_tokens": 6, "do_sample": True, "stop": ["secret"]}}


class Kept:
    """A place of records that a test reads."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    async def write(self, records: Sequence[Written]) -> None:
        self.records += [orjson.loads(record.line) for record in records]

    async def one(self) -> dict[str, Any]:
        await until(lambda: self.records)
        [record] = self.records
        return record


@pytest.fixture
def kept() -> Kept:
    return Kept()


async def serve(
    start: Start, kept: Kept, content: Any = "texts", patterns: Sequence[str] = (), share: float = 1.0, **settings: Any
) -> Server:
    def around(metrics: Metrics) -> Around:
        return Around(journal=Journal(kept, Form(content, Redaction(patterns)), metrics.journal, share))

    return await start(**{"make_fleet": SeededFleet, "make_around": around, **settings})


async def test_a_record_has_all_of_a_request(start: Start, kept: Kept) -> None:
    server = await serve(start, kept, access=Access(Keys(("one",))))
    response = await server.client.post("/generate", json=SAMPLED, headers={
        "authorization": "Bearer one", "x-request-id": "mine"})
    text = (await response.json())["generated_text"]
    record = await kept.one()
    assert record["time"].endswith("+00:00")
    assert 0 < record["seconds"]["inference"] < record["seconds"]["total"] < 20
    name = response.headers["penstock-answer"].rpartition(".")[0]
    ids = (await server.tokenizer.encode("Say it"))
    [answer] = record["generations"][0]["prompts"][0].pop("answers")
    output_ids = answer["output_ids"]
    assert answer == {"finish_reason": "length", "output_tokens": 6, "seed": int(name.split(".")[1]), "branch": 0,
                      "output": text, "output_ids": output_ids, "output_sha256": digest_of_ids(output_ids)}
    assert len(output_ids) == 6
    assert 0 < sum(record["waits"].values()) <= record["seconds"]["queue"]
    assert all(record["usage"].pop(name) > 0 for name in ("step_seconds", "kv_token_seconds"))
    assert {key: record[key] for key in record if key not in ("time", "seconds", "waits")} == {
        "version": 1, "id": "mine", "route": "POST /generate", "operation": "text_completion", "model": "demo",
        "key": "key-1", "status": 200, "body": SAMPLED,
        "usage": {
            "input_tokens": len(ids), "computed_tokens": len(ids), "cached_tokens": 0, "replayed_tokens": 0,
            "drafted_tokens": 0, "accepted_tokens": 0, "output_tokens": 6},
        "generations": [{"answer": name, "model_digest": FACTS.model, "numerics": FACTS.numerics, "stream": False,
                         "prompts": [{
                             "parameters": {"max_new_tokens": 6, "do_sample": True, "stop": ["secret"]},
                             "input": "Say it", "input_ids": [*ids], "input_sha256": digest_of_ids(ids),
                             "input_tokens": len(ids), "cached_tokens": 0}]}]}


async def test_a_request_is_computed_again_by_its_record(start: Start, kept: Kept) -> None:
    server = await serve(start, kept)
    await server.post("/generate", SAMPLED)
    first = await kept.one()
    kept.records.clear()
    name = first["generations"][0]["answer"]
    await server.client.post("/generate", json=first["body"], headers={"penstock-answer": f"{name}.0"})
    again = await kept.one()
    assert again["generations"] == first["generations"]


async def test_digests_tell_nothing_of_texts(start: Start, kept: Kept) -> None:
    server = await serve(start, kept, "hashes")
    await server.post("/generate", SAMPLED)
    record = await kept.one()
    [prompt] = record["generations"][0]["prompts"]
    assert prompt["input_sha256"] == digest_of_ids(await server.tokenizer.encode("Say it"))
    assert prompt["parameters"] == {"max_new_tokens": 6, "do_sample": True, "stop": {
        "sha256": hashlib.sha256(b'["secret"]').hexdigest()}}
    assert not {"input", "input_ids"} & prompt.keys()
    assert not {"output", "output_ids"} & prompt["answers"][0].keys()
    assert "output_sha256" in prompt["answers"][0]
    assert "body" not in record


async def test_nothing_of_texts_is_there_without_content(start: Start, kept: Kept) -> None:
    server = await serve(start, kept, "none")
    await server.post("/generate", SAMPLED)
    [prompt] = (await kept.one())["generations"][0]["prompts"]
    assert prompt.keys() == {"parameters", "input_tokens", "cached_tokens", "answers"}
    assert prompt["answers"][0].keys() == {"finish_reason", "output_tokens", "seed", "branch"}


async def test_texts_are_redacted(start: Start, kept: Kept) -> None:
    server = await serve(start, kept, patterns=["S[a-z]y", "H.llo", "sec"])
    await server.post("/generate", SAMPLED)
    record = await kept.one()
    [prompt] = record["generations"][0]["prompts"]
    assert prompt["input"] == record["body"]["inputs"] == "[redacted] it"
    assert "input_ids" not in prompt
    assert prompt["parameters"]["stop"] == ["[redacted]ret"]
    assert b"Say" not in orjson.dumps(record)


async def test_an_answer_without_matches_keeps_its_tokens(start: Start, kept: Kept) -> None:
    server = await serve(start, kept, patterns=["nothing like it"])
    await server.post("/generate", SAMPLED)
    [prompt] = (await kept.one())["generations"][0]["prompts"]
    assert "input_ids" in prompt
    assert "output_ids" in prompt["answers"][0]


async def test_a_refused_request_has_a_record(start: Start, kept: Kept) -> None:
    server = await serve(start, kept)
    await server.post("/generate", {"inputs": "Say it", "parameters": {"max_new_tokens": 0}})
    record = await kept.one()
    assert (record["status"], record["error"]["type"]) == (422, "validation")
    assert "strictly positive" in record["error"]["message"]
    assert "usage" not in record
    assert record["generations"][0]["prompts"][0]["input"] == "Say it"


async def test_a_body_that_is_no_json(start: Start, kept: Kept) -> None:
    server = await serve(start, kept)
    response = await server.client.post("/generate", data=b"{", headers={"content-type": "application/json"})
    assert response.status == 400
    record = await kept.one()
    assert (record["status"], record["generations"], "body" in record) == (400, [], False)


async def test_a_chat_with_several_answers(start: Start, kept: Kept, demo: ChatTemplate) -> None:
    server = await serve(start, kept, template=demo)
    await server.post("/v1/chat/completions", {
        "messages": HELLO, "max_tokens": 6, "n": 2, "seed": 3, "model": "demo", "temperature": 0.5})
    record = await kept.one()
    assert (record["operation"], record["requested_model"]) == ("chat", "demo")
    [prompt] = record["generations"][0]["prompts"]
    assert prompt["input"] == PROMPT
    assert [(answer["seed"], answer["branch"]) for answer in prompt["answers"]] == [(3, 0), (3, 1)]
    assert (prompt["parameters"]["n"], prompt["parameters"]["temperature"]) == (2, 0.5)
    assert record["usage"]["output_tokens"] == 12


async def test_vectors_have_digests(start: Start, kept: Kept) -> None:
    server = await serve(start, kept, facts=EMBEDDER, limits=WHOLE_LIMITS, make_fleet=lambda script: PoolingFleet())
    await server.post("/embed", {"inputs": ["a", "b"]})
    record = await kept.one()
    prompts = record["generations"][0]["prompts"]
    assert [prompt["input"] for prompt in prompts] == ["a", "b"]
    assert [len(prompt["answers"][0]["output_sha256"]) for prompt in prompts] == [64, 64]
    assert (record["operation"], record["usage"]["output_tokens"]) == ("embeddings", 0)


async def test_a_share_of_requests_is_chosen_by_their_ids(start: Start, kept: Kept) -> None:
    server = await serve(start, kept, share=0.5)
    for number in range(20):
        await server.client.post("/generate", json=SAMPLED, headers={"x-request-id": f"id-{number}"})
    chosen = [f"id-{number}" for number in range(20)
              if int.from_bytes(hashlib.sha256(f"id-{number}".encode()).digest()[:8]) < 2**63]
    await until(lambda: len(kept.records) >= len(chosen))
    assert [record["id"] for record in kept.records] == chosen
    assert 0 < len(chosen) < 20


async def test_probes_have_no_record(start: Start, kept: Kept) -> None:
    server = await serve(start, kept)
    await server.client.get("/health")
    await server.post("/generate", SAMPLED)
    assert (await kept.one())["route"] == "POST /generate"


async def test_a_record_tells_of_a_pipeline_s_steps(start: Start, kept: Kept) -> None:
    pipeline = settings_of({"template": "{{ prompt }}!"}, {"model": "demo"}, {"check": [
        {"name": "a", "kind": "words", "required": ["absent"]}]})
    server = await serve(start, kept, pipelines=(pipeline,))
    response = await server.client.post("/generate", json=SAMPLED, headers={"penstock-model": "piped"})
    assert response.status == 422
    record = await kept.one()
    assert [step.pop("seconds") >= 0 for step in record["steps"]] == [True, True]
    assert record["steps"] == [
        {"pipeline": "piped", "step": "template", "kind": "template"},
        {"pipeline": "piped", "step": "check", "kind": "check", "error": "pipeline"}]
    assert record["generations"][0]["prompts"][0]["input"] == "Say it!"
