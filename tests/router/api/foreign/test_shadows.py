"""A model of another server as a shadow of one here, and the other way round."""

from typing import Any

from aiohttp import web

from penstock.router.api.shadowing import SHADOWS
from tests.eventually import until
from tests.router.api.conftest import Server
from tests.router.api.foreign.conftest import Front, Stranger, url_of

PROMPT: dict[str, Any] = {"model": "chat", "prompt": "Who?", "max_tokens": 9, "stream": True}


async def counted(server: Server, series: str) -> float:
    async with server.client.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines)
    return float(found.get(f"penstock_shadow_{series}", 0))


async def until_counted(server: Server, model: str, outcome: str) -> None:
    app = server.client.server.app  # type: ignore[attr-defined]
    await until(lambda: not app[SHADOWS]._running)
    assert await counted(server, f'requests_total{{model="{model}",outcome="{outcome}"}}') == 1


async def test_a_model_elsewhere_gets_a_share_of_the_requests(front: Front, other: Server) -> None:
    server = await front(aliases={"chat": {"demo": 1.0}}, shadows={"chat": {"far": 1.0}},
                         far={"url": url_of(other), "model": "demo"})
    assert "here" in await (await server.post("/v1/completions", PROMPT)).text()
    await until_counted(server, "far", "answered")
    assert await counted(server, 'tokens_total{model="far"}') == len(
        await other.tokenizer.encode("I am elsewhere.<|im_end|>"))


async def test_its_failure_is_nothing_to_the_client(front: Front, stranger: Stranger) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": "no"}, status=400)

    for handler in (stranger.refuse, refuse):
        stranger.handler = handler
        server = await front(aliases={"chat": {"demo": 1.0}}, shadows={"chat": {"far": 1.0}}, far={"url": stranger.url})
        assert "here" in await (await server.post("/v1/completions", PROMPT)).text()
        await until_counted(server, "far", "failed")
    assert [(body["model"], body.get("stream")) for body in stranger.bodies] == [("far", None)] * 2
    async with server.client.post("/models/chat/generate", json={"inputs": "Who?"}) as response:
        assert response.status == 200  # by a route that the shadow does not have


async def test_a_model_here_is_the_shadow_of_one_elsewhere(front: Front, other: Server) -> None:
    server = await front(aliases={"chat": {"far": 1.0}}, shadows={"chat": {"demo": 1.0}},
                         far={"url": url_of(other), "model": "demo"})
    assert "elsewhere" in await (await server.post("/v1/completions", {**PROMPT, "stream": False})).text()
    await until_counted(server, "demo", "answered")
