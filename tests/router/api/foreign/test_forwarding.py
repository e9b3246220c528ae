"""Requests for a model elsewhere are passed on, and answers passed back byte for byte, by every route that it has."""

import re
from typing import Any

import pytest

from penstock.router.api.http.access import Access
from penstock.router.keys import Keys
from tests.router.api.conftest import Server
from tests.router.api.foreign.conftest import Front, Stranger, url_of

CHAT = {"messages": [{"role": "user", "content": "Who?"}], "max_tokens": 9, "seed": 1}
PROMPT = {"prompt": "Who?", "max_tokens": 9, "seed": 1}
GENERATE = {"inputs": "Who?", "parameters": {"max_new_tokens": 9, "seed": 1}}

_ID = re.compile(rb"_[0-9A-Za-z_-]{20,}")
"""The ids of answers that can't have a seed."""


async def ask(server: Server, path: str, body: dict[str, Any], **headers: str) -> tuple[int, bytes, Any]:
    response = await server.client.post(path, json=body, headers=headers)
    return response.status, await response.read(), response.headers


@pytest.mark.parametrize(("path", "body", "api"), [
    ("/v1/chat/completions", CHAT, "openai"),
    ("/v1/chat/completions", {**CHAT, "stream": True}, "openai"),
    ("/v1/completions", PROMPT, "openai"),
    ("/v1/completions", {**PROMPT, "stream": True}, "tgi"),
    ("/v1/responses", {"input": "Who?", "max_output_tokens": 9, "temperature": 0, "stream": True}, "openai"),
    ("/v1/messages", {"messages": CHAT["messages"], "max_tokens": 9, "temperature": 0, "stream": True}, "openai"),
    ("/v1/messages/count_tokens", {"messages": CHAT["messages"]}, "openai"),
    ("/generate", GENERATE, "tgi"),
    ("/generate_stream", GENERATE, "tgi"),
    ("/", GENERATE, "tgi"),
])
async def test_an_answer_is_that_of_the_other_server(
    front: Front, other: Server, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], api: str
) -> None:
    monkeypatch.setattr("time.time", lambda: 1e9)
    server = await front(far={"url": url_of(other), "api": api, "model": "demo"})
    status, told, headers = await ask(server, path, body, **{"penstock-model": "far", "x-request-id": "one"})
    direct = await ask(other, path, {**body, "model": "demo"} if path.startswith("/v1/") else body,
                       **{"x-request-id": "one"})
    assert (status, direct[0]) == (200, 200), told
    assert _ID.sub(b"", told) == _ID.sub(b"", direct[1])
    assert headers["penstock-source"] == url_of(other)
    assert headers["content-type"] == direct[2]["content-type"]
    assert "penstock-answer" not in headers


async def test_names_choose_among_models_here_and_elsewhere(front: Front, other: Server) -> None:
    server = await front({"mixed": {"far": 1.0, "demo": 0.0}}, far={"url": url_of(other), "model": "demo"})
    for name, answer in (("demo", "here"), ("far", "elsewhere"), ("mixed", "elsewhere"), (None, "here")):
        status, told, _ = await ask(server, "/v1/completions", {**PROMPT, **({"model": name} if name else {})})
        assert (status, answer in told.decode()) == (200, True)
    assert (await ask(server, "/v1/completions", {**PROMPT, "model": "x"}))[0] == 404


async def test_an_alias_of_both_gives_a_request_to_one_of_them(front: Front, other: Server) -> None:
    server = await front({"mixed": {"far": 1.0, "demo": 1.0}}, far={"url": url_of(other), "model": "demo"})
    for session in "abcdefgh":
        found = {(await ask(server, "/v1/completions", {**PROMPT, "model": "mixed"}, **{"x-session-id": session}))[1]
                 .split(b"I am ")[1].split(b".")[0] for _ in range(2)}
        assert len(found) == 1


async def test_tgis_routes_have_the_name_in_their_path_or_a_header(front: Front, other: Server) -> None:
    server = await front(far={"url": url_of(other), "api": "tgi"})
    assert b"elsewhere" in (await ask(server, "/models/far/generate", GENERATE))[1]
    assert b"here" in (await ask(server, "/generate", GENERATE))[1]


@pytest.mark.parametrize(("path", "body", "status"), [
    ("/v1/score", {"model": "far", "text_1": "a", "text_2": "b"}, 400),
    ("/generate", GENERATE, 422), ("/embed", {"inputs": "a"}, 422),
    ("/tokenize", {"inputs": "a"}, 422), ("/invocations", {**CHAT, "model": "far"}, 422)])
async def test_a_route_that_the_model_has_not_says_which_it_has(
    front: Front, stranger: Stranger, path: str, body: dict[str, Any], status: int
) -> None:
    server = await front(far={"url": stranger.url})
    found = await ask(server, path, body, **{"penstock-model": "far"})
    assert found[0] == status, found
    assert b"the model is answered by a server elsewhere; it has POST /v1/completions, POST /v1/chat" in found[1]
    assert stranger.paths == []


async def test_kserves_routes_are_not_for_them(front: Front, stranger: Stranger) -> None:
    server = await front(far={"url": stranger.url})
    for method, path, body in (("POST", "generate", {"text_input": "a"}), ("GET", "", None), ("GET", "ready", None)):
        response = await server.client.request(method, f"/v2/models/far/{path}", json=body)
        assert response.status == 400
        assert "the model is answered by a server elsewhere; it has POST " in (await response.json())["error"]
    listed = await (await server.post("/v2/repository/index", {})).json()
    assert [each["name"] for each in listed] == ["demo"]
    assert stranger.paths == []


async def test_a_body_that_is_no_json_is_refused_here(front: Front, stranger: Stranger) -> None:
    server = await front(far={"url": stranger.url})
    response = await server.client.post("/v1/completions", data=b"{", headers={"content-type": "application/json"})
    assert (response.status, stranger.paths) == (400, [])


async def test_a_clients_key_stays_here(front: Front, stranger: Stranger) -> None:
    server = await front(access=Access(Keys(("ours",))), far={"url": stranger.url})
    assert (await ask(server, "/v1/completions", {**PROMPT, "model": "far"}))[0] == 401
    found = await ask(server, "/v1/completions?a=b%20c%23%FF", {**PROMPT, "model": "far"}, authorization="Bearer ours",
                      cookie="secret=1", **{"x-api-key": "ours", "anthropic-version": "1", "x-request-id": "me"})
    assert found[0] == 502
    [headers] = stranger.headers
    assert "ours" not in str(headers)
    assert not {"cookie", "x-api-key", "authorization"} & {name.lower() for name in headers}
    assert (headers["anthropic-version"], headers["x-request-id"]) == ("1", "me")
    assert stranger.paths == ["/v1/completions?a=b%20c%23%FF"]
    assert stranger.bodies == [{**PROMPT, "model": "far"}]


async def test_the_lists_tell_of_it(front: Front, other: Server) -> None:
    server = await front(far={"url": url_of(other), "model": "demo"})

    async def row() -> Any:
        return await (await server.client.get("/v1/models/far")).json()

    assert (await row())["state"] == "unasked"
    await ask(server, "/v1/completions", {**PROMPT, "model": "far"})
    assert await row() == {"id": "far", "object": "model", "created": 0, "owned_by": "far", "state": "ready",
                           "source": url_of(other)}
