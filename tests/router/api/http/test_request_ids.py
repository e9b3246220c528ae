"""The id of a request: taken or made, in every answer, and wherever something is told of the request."""

import re

import pytest
from aiohttp import web

from penstock.router import request_id
from penstock.router.api.http.access import Access
from penstock.router.keys import Keys
from tests.router.api.conftest import Server, Start

MADE = re.compile("req_[0-9a-f]{32}")


@pytest.mark.parametrize("given", ["a", "f47ac10b-58cc-4372-a567-0e02b2c3d479", "Root=1-67891233-abcdef01/2+3=|~@:._",
                                   "x" * 128])
async def test_the_clients_own(server: Server, given: str) -> None:
    for path, body in (("/generate", {"inputs": "a"}), ("/generate_stream", {"inputs": "a"}),
                       ("/v1/completions", {"prompt": "a", "stream": True}), ("/generate", {"inputs": ""})):
        response = await server.client.post(path, json=body, headers={"X-Request-Id": given})
        assert response.headers.getall("x-request-id") == [given]
        await response.read()


@pytest.mark.parametrize("given", ["", "x" * 129, "a b", "a\tb", 'a"b', "a,b", "a\\b", "ä", "{}", "%0a", "a;b", "<a>"])
async def test_one_that_is_not_taken(server: Server, given: str) -> None:
    response = await server.client.get("/health", headers={"x-request-id": given})
    assert MADE.fullmatch(response.headers["x-request-id"])


async def test_each_request_has_its_own(server: Server) -> None:
    made = [(await server.client.get("/health")).headers["x-request-id"] for _ in range(3)]
    assert len(set(made)) == 3
    assert all(map(MADE.fullmatch, made))
    assert request_id.current() is None


async def test_every_answer_has_one(start: Start) -> None:
    server = await start(access=Access(Keys(["s3cret"])))
    for method, path, status in (
            ("GET", "/health", 200), ("GET", "/nowhere", 404), ("GET", "/generate", 405), ("POST", "/generate", 401),
            ("OPTIONS", "/generate", 200), ("GET", "/docs/", 308), ("HEAD", "/info", 200), ("GET", "/metrics", 200)):
        response = await server.client.request(
            method, path, headers={"x-request-id": "mine", "origin": "http://a"}, allow_redirects=False)
        assert (response.status, response.headers["x-request-id"]) == (status, "mine")
        assert response.headers["access-control-expose-headers"] == "*"


async def test_the_log_names_the_request_of_a_fault(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(request: web.Request) -> web.Response:
        raise ZeroDivisionError

    server = await start(prepare=lambda app: app.router.add_get("/fault", fail))
    response = await server.client.get("/fault", headers={"x-request-id": "mine"})
    assert (response.status, response.headers["x-request-id"]) == (500, "mine")
    assert "a handler failed, for request mine" in caplog.text
