"""The OpenAPI document says what is so: all routes, and of real answers every field."""

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from pydantic import TypeAdapter

from penstock.contract.facts import Facts
from penstock.router.api.http.access import Access
from penstock.router.api.http.route import EVENTS, JSON
from penstock.router.api.route_table import routes
from penstock.router.keys import Keys
from tests.eventually import until
from tests.pooling_fleet import EMBEDDER, RERANKER, PoolingFleet
from tests.router.api.conftest import Server, Start, of_one_server

CHAT = {"messages": [{"role": "user", "content": "Say it"}]}
MESSAGE = {**CHAT, "model": "tgi", "max_tokens": 100}
ROUTES = {(route.method, route.canonical): route for route in routes("1")}


@pytest.fixture(scope="module")
def lasting_settings(demo: Any) -> dict[str, Any]:
    return {"template": demo}


@pytest.fixture
async def server(start: Start, demo: Any) -> Server:
    return await start(template=demo)


async def document(server: Server) -> dict[str, Any]:
    response = await server.client.get("/api-doc/openapi.json")
    assert response.status == 200
    content: dict[str, Any] = await response.json()
    return content


@of_one_server
async def test_every_route_is_described(lasting_server: Server) -> None:
    described = {(method.upper(), path) for path, methods in (await document(lasting_server))["paths"].items()
                 for method in methods}
    served = {(route.method, route.resource.canonical) for route in lasting_server.client.app.router.routes()
              if route.method != "HEAD" and route.resource is not None}
    served = {(method, path) for method, path in served
              if path in ("/", "/docs/") or not path.endswith("/")}  # the others have twins with a slash behind
    assert described == {key for key, route in ROUTES.items() if route.tag}
    assert served == set(ROUTES)
    assert {path for _, path in served} - {path for _, path in described} == {
        "/page/{name}", "/docs/", "/docs/start.js", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css"}


@of_one_server
async def test_bodies_are_those_that_are_parsed(lasting_server: Server) -> None:
    content = await document(lasting_server)
    body = content["paths"]["/generate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/GenerateBody"}
    schemas = content["components"]["schemas"]
    assert schemas["GenerateBody"]["required"] == ["inputs"]
    temperature = schemas["Parameters"]["properties"]["temperature"]
    assert {kind["type"] for kind in temperature["anyOf"]} == {"number", "null"}
    stop = schemas["CompletionBody"]["properties"]["stop"]
    assert {kind["type"] for kind in stop["anyOf"]} == {"string", "array", "null"}


@of_one_server
async def test_every_reference_leads_somewhere(lasting_server: Server) -> None:
    content = await document(lasting_server)
    found = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(content)))
    assert found <= set(content["components"]["schemas"])
    assert "$defs" not in json.dumps(content)


async def test_only_what_costs_something_takes_a_key(start: Start, server: Server) -> None:
    """And nothing does where there is no key."""
    assert "security" not in json.dumps(await document(server))
    content = await document(await start(access=Access(Keys(["secret"]))))
    paths, (scheme,) = content["paths"], content["components"]["securitySchemes"].values()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert {(method.upper(), path) for path, methods in paths.items() for method, operation in methods.items()
            if "security" in operation} == {
                (method, path) for method, path in ROUTES
                if method != "GET" or path.startswith(("/v1/files", "/v1/batches", "/v1/responses", "/v1/usage",
                                                       "/explain"))}


@of_one_server
async def test_what_is_shown_as_plain_text_has_no_marks(lasting_server: Server) -> None:
    """Swagger UI reads descriptions as Markdown, but summaries as they are."""
    paths = (await document(lasting_server))["paths"]
    operations = [operation for methods in paths.values() for operation in methods.values()]
    assert [operation["summary"] for operation in operations if "`" in operation["summary"]] == []


DETAILS = {"details": True, "decoder_input_details": True, "top_n_tokens": 2, "best_of": 2, "do_sample": True}


@of_one_server
@pytest.mark.parametrize(("path", "body"), [
    ("/", {"inputs": "a"}), ("/", {"inputs": "a", "parameters": DETAILS}),
    ("/generate", {"inputs": "a", "parameters": DETAILS}), ("/generate", {"inputs": ""}),
    ("/v1/completions", {"prompt": ["a", "b"], "n": 2, "logprobs": 2, "echo": True, "return_token_ids": True}),
    ("/v1/completions", {"prompt": "a", "suffix": "b"}), ("/v1/completions", {"prompt": "a", "top_p": 2}),
    ("/v1/chat/completions", {**CHAT, "n": 2, "logprobs": True, "top_logprobs": 2}),
    ("/v1/chat/completions", {**CHAT, "temperature": -1}),
    ("/v1/responses", {"input": "a", "top_logprobs": 1, "reasoning": {"effort": "low"}}), ("/v1/responses", {"n": 2}),
    ("/v1/responses/input_tokens", {"input": "a"}),
    ("/v1/messages", MESSAGE), ("/v1/messages", {**MESSAGE, "context_management": {}, "max_tokens": 2}),
    ("/v1/messages", {**MESSAGE, "top_p": 2}), ("/v1/messages/count_tokens", MESSAGE),
    ("/v1/chat/completions", {**CHAT, "n": "one"}), ("/v1/models/demo", None), ("/v1/models/none", None),
    ("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "/a"}), ("/v1/load_lora_adapter", {}),
    ("/invocations", CHAT), ("/invocations", {**CHAT, "temperature": -1}), ("/invocations", {"inputs": ""}),
    ("/vertex", {"instances": [{"inputs": "a"}]}), ("/vertex", {"instances": []}),
    ("/tokenize", {"inputs": "a b"}), ("/chat_tokenize", CHAT), ("/info", None), ("/v1/models", None),
])
async def test_fields_of_answers(lasting_server: Server, path: str, body: object) -> None:
    response = await lasting_server.client.request("GET" if body is None else "POST", path, json=body)
    template = "/v1/models/{model}" if path.startswith("/v1/models/") else path
    reply = ROUTES["GET" if body is None else "POST", template].replies[response.status]
    assert_described(reply.content[JSON], await response.json())
    assert set(reply.headers) <= {name.lower() for name in response.headers}


RANKING = {"query": "a", "documents": ["b", "c"]}
VECTORS = {**RANKING, "input": ["a", "b"], "texts": ["a"], "queries": "a"}


@pytest.mark.parametrize(("facts", "path", "body"), [
    *((EMBEDDER, path, VECTORS) for path in ("/v1/embeddings", "/embeddings", "/v2/embed", "/v1/embed", "/v2/rerank",
                                             "/v1/score", "/pooling", "/classify")),
    (EMBEDDER, "/v1/embeddings", {"input": "a", "encoding_format": "base64"}), (EMBEDDER, "/v1/embeddings", {}),
    (EMBEDDER, "/v2/embed", {"texts": ["a"], "embedding_types": ["base64", "binary", "float"]}),
    (EMBEDDER, "/pooling", {"input": "a", "task": "token_embed"}), (EMBEDDER, "/score", {"queries": "a"}),
    *((RERANKER, path, {**RANKING, "queries": "a", "return_documents": True, "input": "a"})
      for path in ("/v1/rerank", "/v2/rerank", "/v1/score", "/score", "/classify", "/pooling", "/v1/embeddings")),
    (RERANKER, "/v1/models", None), (EMBEDDER, "/v1/models", None),
])
async def test_fields_of_vectors_and_scores(start: Start, facts: Facts, path: str, body: object) -> None:
    server = await start(facts=facts, make_fleet=lambda _: PoolingFleet(facts))
    await test_fields_of_answers(server, path, body)


@of_one_server
async def test_fields_of_models_as_anthropic_has_them(lasting_server: Server) -> None:
    for path, name in (("/v1/models", ""), ("/v1/models/{model}", "demo"), ("/v1/models/{model}", "none")):
        response = await lasting_server.client.get(
            path.replace("{model}", name), headers={"anthropic-version": "2023-06-01"})
        reply = ROUTES["GET", path].replies[response.status]
        assert_described(reply.content[JSON], await response.json())


@of_one_server
@pytest.mark.parametrize(("path", "body"), [
    ("/generate_stream", {"inputs": "a", "parameters": {"details": True, "top_n_tokens": 2}}),
    ("/generate_stream", {"inputs": ""}), ("/", {"inputs": "a", "stream": True}),
    ("/v1/completions", {"prompt": "a", "stream": True, "logprobs": 2, "stream_options": {"include_usage": True}}),
    ("/v1/completions", {"prompt": "a", "stream": True, "n": 2}),
    ("/v1/chat/completions", {**CHAT, "stream": True, "logprobs": True, "stream_options": {"include_usage": True}}),
    ("/invocations", {**CHAT, "stream": True, "n": 2}), ("/v1/responses", {"input": "a", "stream": True}),
    ("/v1/messages", {**MESSAGE, "stream": True}),
])
async def test_fields_of_events(lasting_server: Server, path: str, body: object) -> None:
    response = await lasting_server.post(path, body)
    reply = ROUTES["POST", path].replies[response.status]
    lines = (await response.text()).splitlines()
    events = [line.removeprefix("data: ") for line in lines if line and not line.startswith("event: ")]
    assert events
    for event in events:
        if event != "[DONE]":
            assert_described(reply.content[EVENTS], json.loads(event))
    assert (events[-1] == "[DONE]") == (path not in ("/", "/generate_stream", "/v1/responses", "/v1/messages"))


def assert_described(kind: Any, content: object) -> None:
    """Every field has its type, and none is left out."""
    adapter = TypeAdapter(kind)
    parsed = adapter.validate_python(content, strict=True)
    assert adapter.dump_python(parsed, exclude_unset=True) == content


class Reader(HTMLParser):
    """Collects what a page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.targets |= {value for name, value in attributes if name in ("href", "src") and value != "data:,"}


@of_one_server
async def test_page(lasting_server: Server) -> None:
    """It is Swagger UI, and nothing of it comes from elsewhere."""
    response = await lasting_server.client.get("/docs/")
    assert (response.status, response.url.path, response.content_type) == (200, "/docs", "text/html")
    reader = Reader()
    reader.feed(await response.text())
    assert reader.targets == {"api-doc/openapi.json", "docs/start.js", "docs/swagger-ui-bundle.js",
                              "docs/swagger-ui.css"}
    texts = {}
    for target in reader.targets:
        found = await lasting_server.client.get(f"/{target}")
        assert found.status == 200
        texts[target] = await found.text()
    assert 'url: "api-doc/openapi.json"' in texts["docs/start.js"]
    assert "SwaggerUIBundle" in texts["docs/swagger-ui-bundle.js"]
    assert (await lasting_server.client.get("/docs/swagger-initializer.js")).status == 404


async def test_the_event_of_a_failure(server: Server) -> None:
    server.fleet.may_answer.clear()
    response = await server.post("/v1/completions", {"prompt": "a", "stream": True})
    server.fleet.failure = ZeroDivisionError("a fault")
    server.fleet.may_answer.set()
    event = (await response.text()).partition("\n")[0].removeprefix("data: ")
    assert_described(ROUTES["POST", "/v1/completions"].replies[200].content[EVENTS], json.loads(event))


@of_one_server
async def test_statuses_that_are_not_a_routes_own(lasting_server: Server) -> None:
    """Health, while it fails, is as described."""
    await until(lambda: lasting_server.engine.has_group)
    lasting_server.engine.is_healthy = False
    for path in ("/", "/health", "/ping", "/readyz"):
        response = await lasting_server.client.get(path)
        assert_described(ROUTES["GET", path].replies[response.status].content[JSON], await response.json())


@pytest.mark.parametrize("is_stream", [False, True])
async def test_fields_of_calls(start: Start, hermes: Any, is_stream: bool) -> None:
    server = await start(
        template=hermes, answer='<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call><|im_end|>')
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    response = await server.post("/v1/chat/completions", {**CHAT, "tools": tools, "stream": is_stream})
    kind = ROUTES["POST", "/v1/chat/completions"].replies[200].content[EVENTS if is_stream else JSON]
    text = await response.text()
    answers = [line.removeprefix("data: ") for line in text.splitlines() if line and line != "data: [DONE]"]
    assert '"tool_calls":[{' in text
    for answer in answers:
        assert_described(kind, json.loads(answer))
