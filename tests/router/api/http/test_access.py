"""The API key, pages of other origins, TLS."""

import asyncio
import importlib.metadata
import os
import re
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from penstock.launcher.config import LauncherConfig
from penstock.launcher.launch import main
from penstock.router import tls
from penstock.router.api.http.access import Access
from penstock.router.api.route_table import routes
from penstock.router.app import make_runner
from penstock.router.keys import Keys
from penstock.system.arguments import InvalidArgument
from penstock.system.settings import ServerSettings
from tests.router.api.conftest import Server, Start

KEY = "Schlüssel-1"
COSTLY = {"/", "/generate", "/generate_stream", "/v1/completions", "/v1/chat/completions", "/tokenize",
          "/chat_tokenize", "/invocations", "/vertex", "/v1/load_lora_adapter", "/v1/unload_lora_adapter",
          "/v1/load_model", "/v1/unload_model", "/v1/alias_model",
          "/v1/files", "/v1/batches", "/v1/batches/{batch}/cancel", "/v1/messages",
          "/v1/messages/count_tokens", "/v1/responses", "/v1/responses/input_tokens",
          "/v1/responses/{response}/cancel", "/embed", "/embed_all", "/embed_sparse", "/similarity", "/predict",
          "/rerank", "/decode", "/embeddings", "/v1/embeddings", "/v1/embed", "/v2/embed", "/v1/rerank",
          "/v2/rerank", "/score", "/v1/score", "/classify", "/pooling", "/v2/repository/index",
          *(f"/v2/repository/models/{{model:.+}}/{verb}" for verb in ("load", "unload")),
          *(f"/v2/models/{{model:.+}}{version}/{verb}" for version in ("", "/versions/{version}")
            for verb in ("infer", "generate", "generate_stream"))}
STORED = {"/v1/files/{file}", "/v1/files/{file}/content", "/v1/batches/{batch}", "/v1/responses/{response}",
          "/v1/responses/{response}/input_items", "/v1/usage", "/explain/{id:.+}"}
OF_OPENAI = {"/embeddings", "/score", "/classify", "/pooling"}
"""Paths whose errors are OpenAI's, as those below /v1 and /v2."""
PAGE = {"origin": "https://page.example"}


async def test_what_costs_something_takes_the_key(start: Start) -> None:
    server = await start(access=Access(Keys([KEY])))
    for route in routes("1"):
        response = await server.client.request(route.method, re.sub(r"\{\w+\}", "a", route.path))
        assert (response.status == 401) == route.is_costly, route.path
        if route.is_costly:
            assert response.headers["www-authenticate"] == "Bearer"
            text = await response.text()
            word = "authentication_error" if route.path.startswith("/v1/messages") else "invalid_api_key"
            if route.path.startswith(("/v2/models", "/v2/repository")):
                word = '{"error":"The API key is missing or wrong"}'
            has_words = route.path.startswith(("/v1/", "/v2/")) or route.path in OF_OPENAI
            assert (word in text) if has_words else not text


def test_costly_routes() -> None:
    assert {route.path for route in routes("1") if route.is_costly} == COSTLY | STORED
    assert {route.path for route in routes("1") if route.method == "POST"} == COSTLY


@pytest.mark.parametrize(("value", "status"), [
    (f"Bearer {KEY}", 200), (f"bearer {KEY}", 200), (f"Bearer  {KEY} ", 200),
    (f"Bearer {KEY.lower()}", 401), (f"Bearer {KEY}1", 401), (f"Bearer {KEY[:-1]}", 401), (f"Basic {KEY}", 401),
    (KEY, 401), ("Bearer", 401), ("", 401), ("Bearer \N{SNOWMAN}", 401)])
async def test_key(start: Start, value: str, status: int) -> None:
    server = await start(access=Access(Keys([KEY])))
    response = await server.client.post(
        "/generate", json={"inputs": "a"}, headers={"authorization": value})
    assert response.status == status


async def test_a_key_that_is_no_text(start: Start) -> None:
    server = await start(access=Access(Keys([KEY])))
    reader, writer = await asyncio.open_connection(server.client.host, server.client.port)
    writer.write(b"POST /generate HTTP/1.1\r\nhost: here\r\nconnection: close\r\n"
                 b"authorization: Bearer \xff\xfe\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 401 ")
    writer.close()


async def test_without_a_key_any_is_as_good(server: Server) -> None:
    response = await server.client.post("/generate", json={"inputs": "a"}, headers={"authorization": "Bearer x"})
    assert response.status == 200


def test_the_key_does_not_show() -> None:
    assert KEY not in repr(Access(Keys([KEY])))


PRIVATE = {"/info", "/metrics", "/docs", "/docs/", "/docs/start.js", "/docs/swagger-ui-bundle.js",
           "/docs/swagger-ui.css", "/api-doc/openapi.json", "/v2/models/stats", "/v2/models/{model:.+}/stats",
           "/v2/models/{model:.+}/versions/{version}/stats"}


async def test_what_tells_of_the_server_takes_a_key_if_there_is_one_for_it(start: Start) -> None:
    server = await start(access=Access(Keys([KEY]), Keys(["metrics"])))
    for route in routes("1"):
        if route.is_costly:
            continue
        found = {key: (await server.client.request(route.method, route.path, allow_redirects=False,
                                                   headers={"authorization": f"Bearer {key}"})).status
                 for key in (KEY, "metrics", "another")}
        assert found[KEY] == found["metrics"] != 401
        assert (found["another"] == 401) == (route.path in PRIVATE), route.path
    headers = {"authorization": "Bearer metrics"}
    assert (await server.client.post("/generate", json={"inputs": "a"}, headers=headers)).status == 401


async def test_a_key_for_the_metrics_alone(start: Start) -> None:
    server = await start(access=Access(metrics_keys=Keys(["metrics"])))
    assert (await server.client.get("/metrics")).status == 401
    assert await server.generate()


async def test_keys_are_read_again(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# of the team\n\nfirst\n  second  \n")
    keys = Keys(["given"], file)
    server = await start(access=Access(keys))

    async def admitted() -> list[str]:
        return [key for key in ("given", "first", "second", "third", "", "# of the team")
                if (await server.client.post("/generate", json={"inputs": "a"},
                                             headers={"authorization": f"Bearer {key}"})).status == 200]

    assert await admitted() == ["given", "first", "second"]
    file.write_text("third\nfirst\n")
    assert keys.reload() == 3
    assert await admitted() == ["given", "first", "third"]
    file.write_text("tab\tinside\n")
    with pytest.raises(InvalidArgument, match="`api_key_file` must have printable characters"):
        keys.reload()
    assert await admitted() == ["given", "first", "third"]


@pytest.mark.parametrize(("content", "message"), [
    (None, "cannot read {file}: No such file or directory"), (b"\xff\n", "cannot read {file}: it is not UTF-8"),
    (b"\n# none\n", "there is no key in {file}")])
def test_a_file_without_a_key_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidArgument) as raised:
        Keys([], file)
    assert raised.value.message == "`api_key_file`: " + message.format(file=file)


def test_a_pipe_of_keys_is_refused() -> None:
    """It is empty when it is read again."""
    read_end, write_end = os.pipe()
    os.close(write_end)
    file = Path(f"/dev/fd/{read_end}")
    with pytest.raises(InvalidArgument, match=f"`api_key_file`: {file} must be a regular file, for it is read several"):
        Keys([], file)
    os.close(read_end)


async def test_preflight_needs_no_key(start: Start) -> None:
    server = await start(access=Access(Keys([KEY])))
    for path in ("/generate", "/v1/completions", "/health", "/nothing"):
        response = await server.client.options(path, headers={
            **PAGE, "access-control-request-method": "POST", "access-control-request-headers": "authorization"})
        assert (response.status, await response.read()) == (200, b"")
        assert response.headers["access-control-allow-origin"] == "*"
        assert response.headers["access-control-allow-methods"] == "POST"
        assert response.headers["access-control-allow-headers"] == "authorization"
    response = await server.client.options("/generate", headers=PAGE)
    assert response.headers["access-control-allow-methods"] == "GET,POST"
    assert response.headers["access-control-allow-headers"] == (
        "content-type,authorization,x-api-key,last-event-id,penstock-answer,idempotency-key,penstock-output-ids")


OPENAI_HEADERS = ("authorization,content-type,x-stainless-arch,x-stainless-helper-method,x-stainless-lang,"
                  "x-stainless-os,x-stainless-package-version,x-stainless-retry-count,x-stainless-runtime,"
                  "x-stainless-runtime-version,x-stainless-timeout")


@pytest.mark.parametrize(("asked", "allowed"), [
    (OPENAI_HEADERS, OPENAI_HEADERS), ("X-My-Gateway", "X-My-Gateway"), ("*", "*"), (" ", None), ("ü", None)])
async def test_pages_may_send_any_header(start: Start, asked: str, allowed: str | None) -> None:
    """As OpenAI's client for JavaScript does, with headers of its own in each request."""
    server = await start(access=Access(Keys([KEY]), allowed_origins=(PAGE["origin"],)))
    response = await server.client.options("/v1/chat/completions", headers={
        **PAGE, "access-control-request-method": "POST", "access-control-request-headers": asked})
    assert response.status == 200
    assert response.headers["access-control-allow-origin"] == PAGE["origin"]
    assert response.headers["access-control-allow-headers"].startswith(allowed or "content-type,authorization")
    assert set(response.headers.getall("vary")) == {
        "origin", "access-control-request-method", "access-control-request-headers"}


async def test_pages_may_read_all_headers_of_answers(server: Server) -> None:
    """The wildcard stands for all of them, as no page's request has credentials of the browser's."""
    for method, path in (("GET", "/health"), ("POST", "/generate"), ("POST", "/generate_stream"), ("GET", "/nothing")):
        response = await server.client.request(method, path, json={"inputs": "a"}, headers=PAGE)
        assert response.headers["access-control-expose-headers"] == "*"
        assert "access-control-allow-credentials" not in response.headers


async def test_each_response_names_the_server(server: Server) -> None:
    for method, path in (("GET", "/health"), ("POST", "/generate"), ("POST", "/generate_stream"), ("GET", "/nothing"),
                         ("POST", "/health"), ("OPTIONS", "/"), ("GET", "/docs"), ("HEAD", "/info"),
                         ("POST", "/v1/chat/completions")):
        response = await server.client.request(method, path, json={"inputs": "a"})
        assert response.headers.getall("server") == [f"penstock/{importlib.metadata.version('penstock')}"]


async def test_any_page_may_read_any_answer(start: Start) -> None:
    server = await start(access=Access(Keys([KEY])))
    for method, path in (("GET", "/info"), ("POST", "/generate"), ("GET", "/nothing"), ("POST", "/info")):
        response = await server.client.request(method, path, headers=PAGE)
        assert response.headers["access-control-allow-origin"] == "*"
        assert "vary" not in response.headers
    assert "access-control-allow-origin" not in (await server.client.get("/info")).headers


@pytest.mark.parametrize(("origin", "is_allowed"), [
    ("https://page.example", True), ("https://other.example", True), ("http://page.example", False),
    ("https://page.example.evil", False), ("https://PAGE.example", False), ("null", False)])
async def test_pages_of_a_list(start: Start, origin: str, is_allowed: bool) -> None:
    server = await start(access=Access(allowed_origins=("https://page.example", "https://other.example")))
    for method, path in (("OPTIONS", "/generate"), ("GET", "/info"), ("POST", "/generate")):
        response = await server.client.request(method, path, headers={"origin": origin})
        assert response.headers.get("access-control-allow-origin") == (origin if is_allowed else None)


async def test_caches_are_told_what_answers_depend_on(start: Start) -> None:
    server = await start(access=Access(allowed_origins=("https://page.example",)))
    assert (await server.client.get("/info")).headers.getall("vary") == ["origin"]
    response = await server.client.get("/", headers={**PAGE, "accept": "text/html"})
    assert response.headers.getall("vary") == ["accept", "origin"]


async def test_streams_may_be_read_by_pages(server: Server) -> None:
    response = await server.client.post("/generate_stream", json={"inputs": "a"}, headers=PAGE)
    assert response.headers["access-control-allow-origin"] == "*"
    await response.read()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=here", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True)
    return cert, key


@pytest.fixture
def server_config() -> ServerSettings:
    return LauncherConfig.from_options(main.make_context("launcher", ["--model-id", "m"]).params)


def with_files(config: ServerSettings, cert: Path, key: Path) -> ServerSettings:
    return replace(config, ssl_certfile=cert, ssl_keyfile=key)


async def test_tls(certificate: tuple[Path, Path], server_config: ServerSettings) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=request.scheme)

    app = web.Application()
    app.router.add_get("/", answer)
    runner = make_runner(app)
    await runner.setup()
    await web.TCPSite(
        runner, "127.0.0.1", 0, ssl_context=tls.server_context(with_files(server_config, *certificate))).start()
    port = runner.addresses[0][1]
    trust = ssl.create_default_context(cafile=str(certificate[0]))
    async with aiohttp.ClientSession() as session:
        async with session.get(f"https://127.0.0.1:{port}/", ssl=trust) as response:
            assert await response.text() == "https"
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://127.0.0.1:{port}/")
    await runner.cleanup()


def test_no_tls_without_files(server_config: ServerSettings) -> None:
    assert tls.server_context(server_config) is None


def test_files_that_are_no_certificate(
    certificate: tuple[Path, Path], server_config: ServerSettings, tmp_path: Path
) -> None:
    cert, key = certificate
    empty, locked = tmp_path / "empty", tmp_path / "locked"
    empty.touch()
    subprocess.run(["openssl", "ec", "-in", key, "-aes256", "-passout", "pass:secret", "-out", locked], check=True,
                   capture_output=True)
    for files, what in (
            ((tmp_path / "none", key), "`ssl_certfile`: cannot read .*none: No such file"),
            ((cert, tmp_path), "`ssl_keyfile`: cannot read .*: Is a directory"),
            ((empty, key), "are no certificate and its key"),
            ((key, cert), "are no certificate and its key"),
            ((cert, locked), "protected by a password")):
        with pytest.raises(InvalidArgument, match=what):
            tls.server_context(with_files(server_config, *files))
