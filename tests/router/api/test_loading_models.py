"""Models that are loaded when they are asked for, behind the real app: by body, by path, by header, by alias."""

import asyncio
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.launcher.cli import main
from tests.router.api.conftest import Server

COMPLETION = {"prompt": "Say it", "max_tokens": 9}


async def text_of(server: Server, path: str, body: dict[str, Any], **headers: str) -> str:
    async with server.client.post(path, json=body, headers=headers) as response:
        content = await response.json()
        assert response.status == 200, content
        return str(content["choices"][0]["text"] if "choices" in content else content["generated_text"])


async def test_the_body_the_path_or_a_header_names_the_model(several: Any) -> None:
    server = await several()
    for name, said in (("demo", "I am demo."), ("other", "I am other."), ("mine", "I am other.")):
        assert await text_of(server, "/v1/completions", {**COMPLETION, "model": name}) == said
        inputs = {"inputs": "Say it", "parameters": {"max_new_tokens": 9}}
        assert await text_of(server, f"/models/{name}/generate", inputs) == said
        assert await text_of(server, "/generate", inputs, **{"penstock-model": name}) == said
    assert await text_of(server, "/generate", inputs) == "I am demo."
    for path, headers in (("/models/none/generate", {}), ("/generate", {"penstock-model": "none"})):
        async with server.client.post(path, json=inputs, headers=headers) as response:
            assert (response.status, (await response.json())["error"]) == (404, "The model `none` does not exist")


@pytest.mark.parametrize(("path", "header", "status"), [
    ("/generate", b"penstock-model: \xff", 404), ("/models/mixed/generate", b"x-session-id: \xff", 200),
    ("/v2/models/demo/infer", b"inference-header-content-length: \xff", 400)])
async def test_headers_that_are_no_text(several: Any, path: str, header: bytes, status: int) -> None:
    server = await several()
    assert (await server.post("/v1/alias_model", {"alias": "mixed", "targets": {"demo": 1, "other": 1}})).status == 200
    reader, writer = await asyncio.open_connection(server.client.host, server.client.port)
    writer.write(b"POST %b HTTP/1.1\r\nhost: here\r\nconnection: close\r\ncontent-type: application/json\r\n"
                 b"content-length: 17\r\n%b\r\n\r\n{\"inputs\": \"Say\"}" % (path.encode(), header))
    assert (await reader.read()).startswith(b"HTTP/1.1 %d " % status)
    writer.close()
    await writer.wait_closed()


async def test_an_answer_tells_which_model_an_alias_stood_for_so_that_it_is_repeated_by_the_same(several: Any) -> None:
    server = await several()
    body = {**COMPLETION, "model": "mine", "temperature": 1.0}
    async with server.client.post("/v1/completions", json=body) as response:
        made_by, named, said = response.headers["penstock-model"], response.headers["penstock-answer"], (
            await response.json())["choices"][0]["text"]
    assert made_by == "other"
    async with server.client.post("/v1/alias_model", json={"alias": "mine", "targets": {"demo": 1.0}}) as response:
        assert response.status == 200
    again = {"penstock-answer": named}
    assert await text_of(server, "/v1/completions", body, **again, **{"penstock-model": made_by}) == said


async def test_the_list_and_the_series_tell_of_each_model(several: Any) -> None:
    server = await several()
    await text_of(server, "/v1/completions", {**COMPLETION, "model": "other"})
    async with server.client.get("/v1/models") as response:
        found = {each["id"]: each.get("state") or each["targets"] for each in (await response.json())["data"]}
    assert found == {"demo": "ready", "other": "ready", "mine": {"other": 1.0}}
    async with server.client.get("/metrics") as response:
        series = await response.text()
    assert 'tgi_request_success{model="other"} 1.0' in series
    assert 'tgi_request_success{model="demo"} 0.0' in series
    assert series.count("# TYPE tgi_request_success counter") == 1


async def test_models_and_aliases_on_kserves_routes(several: Any) -> None:
    server = await several()
    body = {"text_input": "Say it", "max_tokens": 9, "exclude_input_in_output": True}

    async def ask(path: str, body: object = None) -> tuple[int, Any]:
        async with server.client.request("GET" if body is None else "POST", path, json=body) as response:
            return response.status, await response.json()

    async def states() -> dict[str, str]:
        return {each["name"]: each["state"] for each in (await ask("/v2/repository/index", {}))[1]}

    for path, name in (("/v2/models/other", "other"), ("/v2/models/mine/ready", "mine")):
        assert await ask(path) == (503, {"error": f"{name} is not loaded: a request for inference loads it"})
    assert await states() == {"demo": "READY", "other": "UNAVAILABLE"}
    for name, said in (("demo", "I am demo."), ("other", "I am other."), ("mine", "I am other.")):
        status, answer = await ask(f"/v2/models/{name}/generate", body)
        assert (status, answer["model_name"], answer["text_output"]) == (200, name, said)
    assert await states() == {"demo": "READY", "other": "READY"}
    assert (await ask("/v2/models/mine"))[1]["name"] == "mine"
    assert await ask("/v2/repository/models/mine/unload", {}) == (200, {})
    assert await states() == {"demo": "READY", "other": "UNAVAILABLE"}
    assert await ask("/v2/repository/models/other/load", {}) == (200, {})
    assert await states() == {"demo": "READY", "other": "READY"}
    assert (await ask("/v2/repository/models/none/load", {}))[0] == 404
    assert (await ask("/v2/models/none/generate", body))[0] == 404
    assert [each["name"] for each in (await ask("/v2/models/stats"))[1]["model_stats"]] == ["demo", "other"]


async def test_clients_change_models_by_routes(several: Any) -> None:
    server = await several()
    for path, body, told in (
        ("load_model", {"model": "other"}, {"state": "ready"}),
        ("alias_model", {"alias": "new", "targets": {"demo": 1.0}}, {"targets": {"demo": 1.0}}),
        ("unload_model", {"model": "other"}, {"state": "unloaded"}),
        ("alias_model", {"alias": "new", "targets": {}}, {"targets": {}}),
    ):
        async with server.client.post(f"/v1/{path}", json=body) as response:
            content = await response.json()
            assert (response.status, told.items() <= content.items()) == (200, True), content
    async with server.client.post("/v1/unload_model", json={"model": "demo"}) as response:
        assert (response.status, "is always loaded" in await response.text()) == (400, True)
    async with server.client.post("/v1/load_model", json={"model": "none"}) as response:
        assert response.status == 404


async def test_nobody_unloads_models_where_anybody_could(several: Any) -> None:
    server = await several(may_change=False)
    for path, body in (("unload_model", {"model": "other"}), ("alias_model", {"alias": "x", "targets": {"demo": 1.0}})):
        async with server.client.post(f"/v1/{path}", json=body) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (403, "models_fixed")


async def test_a_server_of_one_model_loads_no_others(server: Server) -> None:
    async with server.client.post("/v1/load_model", json={"model": "demo"}) as response:
        assert response.status == 200
    for path, body, status in (("load_model", {"model": "x"}, 404), ("unload_model", {"model": "demo"}, 400),
                               ("alias_model", {"alias": "x", "targets": {}}, 400)):
        async with server.client.post(f"/v1/{path}", json=body) as response:
            assert response.status == status


def test_the_command_says_why_a_server_is_not_reached() -> None:
    result = CliRunner().invoke(main, ["models", "list", "--url", "http://127.0.0.1:9"])
    assert (result.exit_code, "Connection refused" in result.output) == (1, True)
    result = CliRunner().invoke(main, ["models", "alias", "x", "a=b"])
    assert "'a=b' is not MODEL or MODEL=NUMBER" in result.output


async def test_the_command_shows_and_changes_models(several: Any) -> None:
    server = await several()
    url = str(server.client.make_url("/"))

    async def run(*arguments: str) -> str:
        result = await asyncio.to_thread(CliRunner().invoke, main, ["models", *arguments, "--url", url])
        assert result.exit_code == 0, result.output
        return result.output

    assert await run("load", "other") == "other is loaded\n"
    assert await run("alias", "mine", "demo=1", "other=3") == "mine -> demo: 1, other: 3\n"
    assert [line.split(maxsplit=1) for line in (await run("list")).splitlines()] == [
        ["demo", "ready"], ["other", "ready"], ["mine", "-> demo: 1, other: 3"]]
    assert await run("alias", "mine", "demo", "--shadow", "other=0.5") == "mine -> demo; shadow other: 0.5\n"
    assert "mine -> demo; shadow other: 0.5" in " ".join((await run("list")).split())
    assert await run("alias", "mine") == "mine is removed\n"
    assert await run("unload", "other") == "other is unloaded\n"
