"""Adapters as clients of TGI, OpenAI and vLLM name, list, load and unload them."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import AsyncInferenceClient

from penstock.router.adapters.registry import Registry
from penstock.router.adapters.source import AdapterSource
from penstock.router.api.http.access import Access
from penstock.router.chat.template import ChatTemplate
from penstock.router.keys import Keys
from tests.adapter_inputs import number_in
from tests.eventually import until
from tests.fakes import LIMITS
from tests.router.adapters.folders import write_adapter
from tests.router.api.conftest import Server, Start
from tests.router.api.sdk import openai_client

CHAT = {"messages": [{"role": "user", "content": "Say it"}], "max_tokens": 3}
KEY = "secret"
StartWith = Callable[..., Awaitable[Server]]


@pytest.fixture
def start_with(start: Start, tmp_path: Path, demo: ChatTemplate) -> StartWith:
    """start_with("a", "b", …): a server with adapters of these names."""
    async def start_with(*names: str, **more: Any) -> Server:
        sources = [AdapterSource(name, write_adapter(tmp_path / name, fill=fill), f"org/{name}")
                   for fill, name in enumerate(names)]
        return await start(template=demo, adapters=Registry(sources, "demo", max_bytes=20_000), **more)

    return start_with


def used(server: Server) -> list[str]:
    """The folders of the adapters of all sequences that began to run; empty for none."""
    paths = {0: "", **server.fleet.adapters}
    return [paths[number_in(state)].rpartition("/")[2] for state in server.fleet.initial_states]


async def test_tgis_routes_take_an_adapter_id(start_with: StartWith) -> None:
    server = await start_with("a", "b")
    parameters = {"max_new_tokens": 2, "adapter_id": "b"}
    for path in ("/generate", "/generate_stream", "/", "/invocations"):
        response = await server.post(path, {"inputs": "Say it", "parameters": parameters})
        assert response.status == 200
        await response.read()
    await server.post("/vertex", {"instances": [{"inputs": "Say it", "parameters": {**parameters, "adapter_id": "a"}}]})
    await server.generate(max_new_tokens=2)
    assert used(server) == ["b"] * 4 + ["a", ""]
    answer = await server.generate(max_new_tokens=2, adapter_id="b", best_of=2, do_sample=True, details=True)
    assert used(server)[-2:] == ["b", "b"]
    assert answer["details"]["prefix_hit_tokens"] == 0


async def test_an_answer_is_not_gone_on_with_by_other_files_of_an_adapter(
    start_with: StartWith, tmp_path: Path
) -> None:
    """By the same files it is, at another server, too."""
    body = {"inputs": "Say it", "parameters": {"max_new_tokens": 3, "adapter_id": "a"}}
    statuses = []
    name = None
    for change in (False, False, True):
        server = await start_with("a")
        if change:
            write_adapter(tmp_path / "a", fill=9)
        headers = {"last-event-id": name} if name else {}
        response = await server.client.post("/generate_stream", json=body, headers=headers)
        statuses.append(response.status)
        name = name or response.headers["penstock-answer"]
    assert statuses == [200, 200, 409]


@pytest.mark.parametrize("is_lost", [False, True])
async def test_new_requests_are_answered_by_files_that_were_changed(
    start_with: StartWith, tmp_path: Path, is_lost: bool
) -> None:
    """The very next one, whether the shards have the old files loaded or have forgotten them; and what the old ones
    began is not gone on with."""
    server = await start_with("a")
    body = {"inputs": "Say it", "parameters": {"max_new_tokens": 3, "adapter_id": "a"}}
    before = await server.post("/generate", body)
    write_adapter(tmp_path / "a", fill=9)
    if is_lost:
        server.fleet.is_lost.set()
        await until(lambda: not server.engine.has_group)
    after = await server.post("/generate", body)
    assert (before.status, after.status) == (200, 200)
    digests = [digest for _, _, digest in server.fleet.loads]
    assert len({*digests}) == 2
    assert server.fleet.adapters[number_in(server.fleet.initial_states[-1])] == str(tmp_path / "a")
    gone_on = await server.client.post("/generate_stream", json=body, headers={
        "last-event-id": before.headers["penstock-answer"]})
    assert gone_on.status == 409


async def test_the_model_of_openais_routes_may_be_an_adapter(start_with: StartWith) -> None:
    server = await start_with("a")
    for model in ("a", "tgi", "demo", "anything", None):
        for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", {"prompt": "b", "max_tokens": 3})):
            response = await server.post(path, {**body, "model": model})
            assert (await response.json())["model"] == ("demo" if model in ("tgi", None) else model)
    assert used(server) == ["a", "a"] + [""] * 8


async def test_openais_client(start_with: StartWith) -> None:
    server = await start_with("a", "b")
    async with openai_client(server) as client:
        models = [model async for model in client.models.list()]
        assert [model.id for model in models] == ["demo", "a", "b"]
        stream = await client.chat.completions.create(
            model="b", messages=[{"role": "user", "content": "Say"}], max_tokens=2, stream=True)
        assert {chunk.model async for chunk in stream} == {"b"}
    assert used(server) == ["b"]


async def test_tgis_client(start_with: StartWith) -> None:
    server = await start_with("a")
    async with AsyncInferenceClient(str(server.client.make_url("/"))) as client:
        text = await client.text_generation("Say it", max_new_tokens=3, adapter_id="a")
    assert text
    assert used(server) == ["a"]


async def test_models_tell_whose_adapters_they_are(start_with: StartWith) -> None:
    server = await start_with("a")
    listed = (await (await server.client.get("/v1/models")).json())["data"]
    base = {"object": "model", "created": 0, "owned_by": "demo"}
    assert listed == [{"id": "demo", **base}, {"id": "a", **base, "root": "org/a", "parent": "demo"}]


async def test_an_unknown_adapter_is_refused_before_a_permit(start_with: StartWith) -> None:
    server = await start_with("a", "b")
    rule = "Input validation error: `adapter_id` must be one of `a`, `b`. Given: `c`"
    async with server.groups.permit(LIMITS.max_concurrent_requests):
        response = await server.post("/generate", {"inputs": "a", "parameters": {"adapter_id": "c"}})
        assert (response.status, await response.json()) == (422, {"error": rule, "error_type": "validation"})
        response = await server.post("/generate_stream", {"inputs": "a", "parameters": {"adapter_id": "c"}})
        assert await response.text() == f'data: {{"error":"{rule}","error_type":"validation"}}\n\n'
    assert server.fleet.plans == []
    assert server.fleet.loads == []


async def test_a_broken_adapter_fails_its_requests_alone(start_with: StartWith, tmp_path: Path) -> None:
    server = await start_with("a", "refused", "broken")
    (tmp_path / "broken/adapter_model.safetensors").unlink()
    server.fleet.refused[str(tmp_path / "refused")] = "its target_modules are none of the model's"
    for name, sentence in (
            ("broken", f"{tmp_path}/broken/adapter_model.safetensors: there is no such file; adapters in other formats "
                       "are not read"),
            ("refused", "its target_modules are none of the model's")):
        response = await server.post("/generate", {"inputs": "a", "parameters": {"adapter_id": name}})
        assert (response.status, await response.json()) == (424, {
            "error": f"Request failed during generation: adapter `{name}`: {sentence}", "error_type": "generation"})
    assert (await server.generate(adapter_id="a", max_new_tokens=2))["generated_text"]
    await server.until_idle()


async def test_an_adapter_that_is_too_large_is_refused(start: Start, tmp_path: Path) -> None:
    sources = [AdapterSource("a", write_adapter(tmp_path), "a")]
    server = await start(adapters=Registry(sources, "demo", max_bytes=1000))
    response = await server.post("/generate", {"inputs": "a", "parameters": {"adapter_id": "a"}})
    assert (response.status, (await response.json())["error"]) == (
        422, "Input validation error: the adapter `a` needs 2048 bytes, and all adapters together may have "
             "`max_adapter_memory` = 1000")


async def test_adapters_share_no_prefixes_with_others(start_with: StartWith) -> None:
    server = await start_with("a", "b")
    hits = []
    for name in (None, "a", "b", "a", None):
        answer = await server.generate("a " * 100, adapter_id=name, max_new_tokens=2, details=True)
        hits.append(answer["details"]["prefix_hit_tokens"])
    assert hits[:3] == [0, 0, 0]
    assert min(hits[3:]) > 0


class Client:
    """Calls the routes that load and unload."""

    def __init__(self, server: Server, key: str = KEY) -> None:
        self.server = server
        self._headers = {"authorization": f"Bearer {key}"}

    async def load(self, name: str, path: object, **more: object) -> tuple[int, str]:
        body = {"lora_name": name, "lora_path": str(path), **more}
        return await self._post("/v1/load_lora_adapter", body)

    async def unload(self, name: str) -> tuple[int, str]:
        return await self._post("/v1/unload_lora_adapter", {"lora_name": name})

    async def generate(self, name: str, max_new_tokens: int = 3) -> tuple[int, str]:
        parameters = {"adapter_id": name, "max_new_tokens": max_new_tokens}
        return await self._post("/generate", {"inputs": "Say it", "parameters": parameters})

    async def _post(self, path: str, body: object) -> tuple[int, str]:
        response = await self.server.client.post(path, json=body, headers=self._headers)
        if response.content_type != "application/json":
            return response.status, await response.text()
        error = (await response.json()).get("error", "")
        return response.status, error if isinstance(error, str) else error["message"]


@pytest.fixture
async def client(start_with: StartWith) -> Client:
    return Client(await start_with("a", allows_runtime_adapters=True, access=Access(Keys([KEY]))))


async def test_an_adapter_is_loaded_used_and_unloaded(client: Client, tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "new", fill=7)
    assert await client.load("new", folder) == (200, "Success: LoRA adapter 'new' added successfully.")
    assert client.server.fleet.loads == [], "the shards load it when it is first used"
    assert client.server.series()['penstock_adapters{state="known"}'] == 2
    assert (await client.generate("new"))[0] == 200
    assert used(client.server) == ["new"]
    assert (await client.load("new", folder)) == (400, "The lora adapter 'new' has already been loaded.")
    assert await client.unload("new") == (200, "Success: LoRA adapter 'new' removed successfully.")
    assert client.server.series()['penstock_adapters{state="known"}'] == 1
    unknown = "Input validation error: `adapter_id` must be one of `a`. Given: `new`"
    assert await client.generate("new") == (422, unknown)
    assert await client.unload("new") == (404, "The lora adapter 'new' cannot be found.")
    assert (await client.load("new", folder))[0] == 200
    assert (await client.generate("new"))[0] == 200


async def test_a_request_that_runs_outlives_its_adapters_name(client: Client) -> None:
    server = client.server
    server.fleet.may_answer.clear()
    body = {"inputs": "Say it", "parameters": {"adapter_id": "a", "max_new_tokens": 9}}
    response = await server.client.post("/generate_stream", json=body, headers={"authorization": f"Bearer {KEY}"})
    await server.fleet.has_plan.wait()
    assert (await client.unload("a"))[0] == 200
    server.fleet.may_answer.set()
    assert '"finish_reason":"length"' not in (text := await response.text())
    assert text.count("data:") == 9


async def test_what_can_not_be_loaded(client: Client, tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "dora", use_dora=True)
    for name, path, sentence in (
            ("x", "org/adapter", "`lora_path` must be a directory on the server, by its absolute path"),
            ("x", tmp_path / "none", f"`lora_path`: {tmp_path}/none: it must be a directory on the server"),
            ("x", "/" + "x" * 5000, "`lora_path` must have at most 4096 characters. Given: 5001"),
            ("x", "/" + "x" * 4000, "it must be a directory on the server"),
            ("x", tmp_path, f"`lora_path`: {tmp_path}/adapter_config.json: No such file or directory"),
            ("x", folder, "use_dora is True: the magnitudes of DoRA are not served"),
            ("x", "/\0", "it must be a directory on the server"),
            ("tgi", folder, "`lora_name` must not be tgi"), ("demo", folder, "`lora_name` must not be demo")):
        status, error = await client.load(name, path)
        assert (status, sentence in error) == (400, True), error
    assert (await client.load("x", folder, load_inplace=True))[1].startswith("`load_inplace` is not supported")
    listed = await (await client.server.client.get("/v1/models")).json()
    assert [model["id"] for model in listed["data"]] == ["demo", "a"]


async def test_clients_change_adapters_only_where_it_was_allowed_and_with_the_key(
    start_with: StartWith, client: Client, tmp_path: Path
) -> None:
    stranger = Client(client.server, "other")
    assert [(await stranger.load("x", tmp_path))[0], (await stranger.unload("a"))[0]] == [401, 401]
    fixed = Client(await start_with("b", access=Access(Keys([KEY]))))
    refusal = (403, "adapters can't be loaded or unloaded while this server runs: that takes "
                    "--allow-runtime-adapters and an --api-key")
    assert [await fixed.load("x", tmp_path), await fixed.unload("b")] == [refusal, refusal]


async def test_an_adapter_that_kills_the_group_is_to_blame_and_not_the_request(start_with: StartWith) -> None:
    server = await start_with("a", limits=replace(LIMITS, poison_memory=60))
    server.fleet.loses_adapters = True
    response = await server.post("/generate", {"inputs": "a", "parameters": {"adapter_id": "a"}})
    assert response.status == 424
    assert "4 times in a row while they loaded the adapter `a`" in (await response.json())["error"]
    server.fleet.loses_adapters = False
    response = await server.post("/generate", {"inputs": "a", "parameters": {"adapter_id": "a"}})
    assert "while they loaded the adapter `a`" in (await response.json())["error"]
    assert (await server.generate("a"))["generated_text"]
