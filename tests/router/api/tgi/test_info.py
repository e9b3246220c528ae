"""The routes that tell of the server, of a text, and of mistakes in the address."""

import asyncio
import io
import json
from dataclasses import replace

import pytest

from penstock.router.chat.template import ChatTemplate
from penstock.router.generation.services import SERVICES
from penstock.router.groups.groups import Groups
from tests.eventually import until
from tests.fakes import FACTS, LIMITS, ScriptedFleet
from tests.router.api.conftest import Script, Server, Start


async def test_info(server: Server) -> None:
    response = await server.client.get("/info")
    assert await response.json() == {
        "model_id": "demo", "model_sha": "abc", "model_pipeline_tag": None, "max_concurrent_requests": 128,
        "max_best_of": 2, "max_stop_sequences": 4, "max_input_tokens": 1023, "max_total_tokens": 1024,
        "validation_workers": 2, "max_client_batch_size": 4, "router": "text-generation-router", "version": "0.1.0",
        "sha": None, "docker_label": None, "model_dtype": "float32", "model_device_type": "cpu",
        "waiting_served_ratio": 0.0, "max_batch_total_tokens": 4096, "max_waiting_tokens": 0, "max_batch_size": 128,
        "numerics": "scripted", "deterministic": True, "prefix_caching": True,
        "model_implementation": "native"}


async def test_info_keeps_the_limit_on_kv_tokens_when_the_group_has_room_for_more(start: Start) -> None:
    def make_fleet(script: Script) -> ScriptedFleet:
        fleet = ScriptedFleet(script)
        fleet.facts = replace(FACTS, num_blocks=2 * FACTS.num_blocks)
        return fleet

    server = await start(make_fleet=make_fleet)
    await server.generate(max_new_tokens=1)
    assert server.engine.has_group
    assert (await (await server.client.get("/info")).json())["max_batch_total_tokens"] == FACTS.capacity


@pytest.mark.parametrize(("path", "device", "is_deterministic"), [
    ("cpu-avx2", "cpu", True), ("reference", "cpu", True), ("gpu-sm90", "cuda", False),
    ("gpu-sm90-deterministic", "cuda", True)])
async def test_info_says_whether_answers_depend_on_the_batch(
    server: Server, monkeypatch: pytest.MonkeyPatch, path: str, device: str, is_deterministic: bool
) -> None:
    engine = server.client.app[SERVICES].first.engine
    monkeypatch.setattr(engine, "facts", replace(engine.facts, numerics=f"{path}/bfloat16/kv-int8/contract-1"))
    info = await (await server.client.get("/info")).json()
    assert (info["model_device_type"], info["deterministic"]) == (device, is_deterministic)


async def test_models(server: Server) -> None:
    response = await server.client.get("/v1/models")
    assert await response.json() == {
        "object": "list", "data": [{"id": "demo", "object": "model", "created": 0, "owned_by": "demo"}]}


async def test_tokenize_a_text_that_takes_a_process(server: Server) -> None:
    """Its tokens come in parts, which make one list; who leaves ends the work, and gives the permit back."""
    text = "Hello wörld. 😀\n" * 10_000
    response = await server.post("/tokenize", {"inputs": text})
    tokens = await response.json()
    assert response.headers["content-type"] == "application/json"
    assert tuple(token["id"] for token in tokens) == await server.tokenizer.encode(text)
    data = text.encode()
    assert all(token["text"] == data[token["start"]:token["stop"]].decode() for token in tokens)
    body = io.BytesIO(json.dumps({"inputs": "! " * 900_000}).encode())
    asking = asyncio.ensure_future(server.client.post(
        "/tokenize", data=body, headers={"content-type": "application/json"}))
    await until(lambda: server.groups._permits < LIMITS.max_concurrent_requests)
    asking.cancel()
    await server.until_idle()
    await until(lambda: not server.tokenizer._long_texts._large.locked())  # which the process's end unlocks


async def test_a_text_that_is_too_long_is_not_tokenised(server: Server) -> None:
    """The longest token has 64 bytes."""
    text = "!" * (64 * 1024)
    response = await server.post("/generate", {"inputs": text, "parameters": {"max_new_tokens": 5}})
    assert (response.status, (await response.json())["error"]) == (422, (
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 1024. Given: at least 1024 `inputs` "
        "tokens and 5 `max_new_tokens`"))
    text = text[:64 * 600]
    number = len(await server.tokenizer.encode(text))
    response = await server.post("/generate", {"inputs": text, "parameters": {"max_new_tokens": 5}})
    assert (await response.json())["error"] == (
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 1024. "
        f"Given: {number} `inputs` tokens and 5 `max_new_tokens`")


@pytest.mark.parametrize("path", ["/tokenize", "/chat_tokenize"])
async def test_who_tokenises_takes_a_permit(start: Start, demo: ChatTemplate, path: str) -> None:
    server = await start(template=demo)
    body = {"inputs": "a", "messages": [{"role": "user", "content": "a"}]}
    assert (await server.post(path, body)).status == 200
    async with server.groups.permit(LIMITS.max_concurrent_requests):
        response = await server.post(path, body)
        assert (response.status, response.headers["retry-after"]) == (429, "1")
        assert await response.json() == {"error": "Model is overloaded", "error_type": "overloaded"}
    await server.until_idle()


async def test_tokenize(server: Server) -> None:
    response = await server.post("/tokenize", {"inputs": "é 😀 abc<|im_end|>", "parameters": {"truncate": 1}})
    tokens = await response.json()
    data = "é 😀 abc<|im_end|>".encode()
    assert tuple(token["id"] for token in tokens) == await server.tokenizer.encode(data.decode())
    assert all(token["text"] == data[token["start"]:token["stop"]].decode() for token in tokens)
    assert tokens[-1] == {"id": 2, "text": "<|im_end|>", "start": len(data) - 10, "stop": len(data)}
    assert await (await server.post("/tokenize", {"inputs": ""})).json() == []


async def test_tokenize_a_long_text(server: Server) -> None:
    """Its tokens are described slice by slice."""
    text = "a b " * 5000
    tokens = await (await server.post("/tokenize", {"inputs": text})).json()
    assert tuple(token["id"] for token in tokens) == await server.tokenizer.encode(text)
    assert "".join(token["text"] for token in tokens) == text


async def test_addresses_that_are_not_there(server: Server) -> None:
    response = await server.client.get("/nothing")
    assert (response.status, await response.read()) == (404, b"")
    response = await server.client.get("/generate")
    assert (response.status, await response.read(), response.headers["allow"]) == (405, b"", "POST")
    response = await server.client.post("/info")
    assert (response.status, await response.read()) == (405, b"")


async def test_an_unexpected_failure(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("ours")

    with monkeypatch.context() as patch:
        patch.setattr(Groups, "submit", fail)
        response = await server.post("/generate", {"inputs": "a"})
        assert (response.status, await response.json()) == (
            500, {"error": "Internal server error", "error_type": "internal"})
    assert "KeyError: 'ours'" in caplog.text
    assert (await server.post("/generate", {"inputs": "a"})).status == 200
    await server.until_idle()
