"""A server whose models are all elsewhere, behind the real app: routes that need a model of its own say so."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from penstock.contract.facts import Facts
from penstock.router.app import make_app
from penstock.router.config import RouterConfig
from penstock.router.foreign_settings import ForeignSettings
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics
from penstock.router.models.gateway import gateway_service, no_tokenizer
from penstock.router.models.orders import OrderPipe
from penstock.router.models.several import services_of
from tests.router.api.foreign.conftest import Stranger

PROMPT = {"prompt": "Who?"}


@pytest.fixture
async def gateway(tmp_path: Path, stranger: Stranger) -> AsyncIterator[TestClient[Any, Any]]:
    pipe = OrderPipe()
    settings = [ForeignSettings.parse(name, {"url": stranger.url}, 10) for name in ("far", "other")]
    config = RouterConfig(
        model_id="far", model_dir=tmp_path, tokenizer_json=tmp_path, shard_sockets=(), listen_fd=-1, notices_fd=-1,
        log_level="INFO", compute_type=None, vertex_predict_route=None, vertex_health_route=None, is_gateway=True,
        elsewhere=tuple(settings), aliases={"any": {"other": 1.0}}, orders_fd=pipe.fd,
        api_key=("k",))
    tokenizer = no_tokenizer()

    def count(facts: Facts, limits: Limits) -> Metrics:
        return Metrics(limits)

    services = services_of(config, gateway_service(config, tokenizer, count))
    async with TestClient(TestServer(make_app(services))) as client:
        yield client
    tokenizer.close()
    pipe.close()


async def answer(request: web.Request) -> web.StreamResponse:
    return web.json_response({"model": (await request.json())["model"]})


async def test_the_first_model_answers_requests_that_name_none(
    gateway: TestClient[Any, Any], stranger: Stranger
) -> None:
    stranger.handler = answer
    for asked, model in ((None, "far"), ("tgi", "far"), ("other", "other"), ("any", "other")):
        async with gateway.post("/v1/completions", json={**PROMPT, "model": asked}) as response:
            assert (response.status, await response.json()) == (200, {"model": model})
    async with gateway.post("/v1/completions", json={**PROMPT, "model": "none"}) as response:
        assert response.status == 404


@pytest.mark.parametrize("path", ["/health", "/readyz", "/livez", "/v2/health/ready", "/v2/health/live"])
async def test_it_is_ready_without_shards(gateway: TestClient[Any, Any], path: str) -> None:
    async with gateway.get(path) as response:
        assert response.status == 200


@pytest.mark.parametrize(("method", "path", "body"), [
    ("GET", "/info", None), ("POST", "/generate", {"inputs": "x"}), ("POST", "/tokenize", {"inputs": "x"}),
    ("GET", "/v2/models/far", None), ("POST", "/v2/models/other/generate", {"text_input": "x"})])
async def test_other_routes_say_which_the_model_has(
    gateway: TestClient[Any, Any], method: str, path: str, body: Any
) -> None:
    async with gateway.request(method, path, json=body) as response:
        text = await response.text()
        assert (response.status in (400, 422), "it has POST /v1/completions" in text) == (True, True), text


async def test_it_lists_and_counts_the_models_elsewhere_alone(gateway: TestClient[Any, Any]) -> None:
    async with gateway.get("/v1/models") as response:
        assert [each["id"] for each in (await response.json())["data"]] == ["far", "other", "any"]
    async with gateway.post("/v1/completions", json=PROMPT) as response:
        assert response.status == 502
    async with gateway.get("/metrics") as response:
        text = await response.text()
    for line in ('tgi_request_count{model="far"} 1.0',
                 'penstock_requests_total{model="",route="/v1/models",status="200"} 1.0'):
        assert line in text.splitlines()
    for path, model, said in (("load_model", "far", "ready"), ("unload_model", "far", "answered by a server elsewhere"),
                              ("load_model", "", "does not exist")):
        async with gateway.post(f"/v1/{path}", json={"model": model}) as response:
            assert said in await response.text()
