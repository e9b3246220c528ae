"""What of TGI's interface is served: found out from the app, its document, its answers, its metrics and its options."""

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from penstock.router.api.http.route import EVENTS, JSON
from penstock.router.api.route_table import vertex_routes
from penstock.router.chat.template import ChatTemplate
from penstock.router.errors import RouterError
from penstock.router.grammar.compiler import GrammarCompiler
from penstock.router.launcher.option_types import Noted, Option, Unsupported
from penstock.router.launcher.options import OPTIONS
from tests.compatibility import tgi
from tests.compatibility.values import BODIES, body_with
from tests.fakes import FACTS
from tests.paths import ROOT
from tests.router.api.conftest import Server, starting
from tests.router.text.tokenizers_for_tests import DEMO

CLOUD = {"$AIP_PREDICT_ROUTE": "/aip/predict", "$AIP_HEALTH_ROUTE": "/aip/health"}
"""Variables, with the paths that they name in the server that is looked at."""


@dataclass(frozen=True, slots=True)
class Entry:
    section: str
    name: str
    is_served: bool


@asynccontextmanager
async def looked_at() -> AsyncIterator[Server]:
    """The server whose interface is looked at: the whole app, over a scripted fleet."""
    template = ChatTemplate.load(DEMO.parent)
    grammars = GrammarCompiler(DEMO, FACTS.vocab_size, FACTS.eos_token_ids)
    try:
        async with starting() as start:
            yield await start(template=template, grammars=grammars, more_routes=vertex_routes(*CLOUD.values()))
    finally:
        grammars.close()


async def inventory(server: Server) -> list[Entry]:
    """Everything that `tgi` names, in its order."""
    response = await server.client.get("/api-doc/openapi.json")
    document = await response.json()
    return [
        *_routes(server), *[entry async for entry in _bodies(server, document)],
        *_parts("Answer of", tgi.ANSWERS, document, JSON), *_parts("Events of", tgi.EVENTS, document, EVENTS),
        *[entry async for entry in _headers(server)], *_error_types(), *_metrics(server), *_flags()]


def _routes(server: Server) -> Iterator[Entry]:
    served = {f"{route.method} {route.resource.canonical}" for route in server.client.app.router.routes()}
    for name in (*tgi.ROUTES, *tgi.OPTIONAL_ROUTES):
        method, _, path = name.partition(" ")
        yield Entry("Routes", name, f"{method} {CLOUD.get(path, path)}" in served)


async def _bodies(server: Server, document: dict[str, Any]) -> AsyncIterator[Entry]:
    """A field is served if it is parsed, and a body that uses it gets an answer."""
    for key, names in tgi.FIELDS.items():
        path, _, outer = key.partition(": ")
        schema = document["paths"][path]["post"]["requestBody"]["content"][JSON]["schema"]
        parsed = _fields(schema, outer, document)
        for name in names:
            is_open = key == "/v1/chat/completions: messages"  # other fields of messages are the template's
            is_served = (name in parsed or is_open) and await _is_answered(server, path, body_with(path, outer, name))
            yield Entry(f"Body of {key}", name, is_served)


async def _is_answered(server: Server, path: str, body: object) -> bool:
    response = await server.post(path, body)
    return response.status == 200 and '"error"' not in await response.text()


def _parts(kind: str, table: Mapping[str, Iterable[str]], document: dict[str, Any], media: str) -> Iterator[Entry]:
    for key, names in table.items():
        path, _, outer = key.partition(": ")
        operation, = document["paths"][path].values() if path != "/" else [document["paths"][path]["post"]]
        described = _fields(operation["responses"]["200"]["content"][media]["schema"], outer, document)
        for name in names:
            yield Entry(f"{kind} {key}", name, name in described)


def _fields(schema: dict[str, Any], outer: str, document: dict[str, Any]) -> set[str]:
    """Names of the fields of what `schema` describes; of its part, if `outer` leads to one: `choices.message`."""
    objects = list(_objects(schema, document))
    for name in outer.split(".") if outer else ():
        inner = [each["properties"][name] for each in objects if name in each["properties"]]
        objects = [each for part in inner for each in _objects(part, document)]
    return {name for each in objects for name in each["properties"]}


def _objects(schema: dict[str, Any], document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The objects that it may be, or be a list of; of an event of a stream those in its data."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for each in schema.get("anyOf", ()):
        yield from _objects(each, document)
    for name in ("items", "contentSchema"):
        if name in schema:
            yield from _objects(schema[name], document)
    if "properties" in schema:
        yield from _objects(schema["properties"]["data"], document) if _is_event(schema) else [schema]


def _is_event(schema: dict[str, Any]) -> bool:
    return "contentSchema" in str(schema["properties"].get("data"))


async def _headers(server: Server) -> AsyncIterator[Entry]:
    for key, names in tgi.HEADERS.items():
        path, _, is_streamed = key.partition(", ")
        response = await server.post(path, {**BODIES[path], **({"stream": True} if is_streamed else {})})
        for name in names:
            yield Entry(f"Headers of {key}", name, response.status == 200 and name in response.headers)


def _error_types() -> Iterator[Entry]:
    """An error is there if it is raised somewhere."""
    sources = "".join(path.read_text() for path in (ROOT / "router").rglob("*.py"))

    def below(error: type[RouterError]) -> Iterator[type[RouterError]]:
        yield error
        for each in error.__subclasses__():
            yield from below(each)

    raised = {(error.error_type, error.status) for error in below(RouterError)
              if re.search(rf"(?<!class )\b{error.__name__}\(|raise {error.__name__}\b", sources)}
    yield from (Entry("Error types", name, (name, status) in raised) for name, status in tgi.ERROR_TYPES.items())


def _metrics(server: Server) -> Iterator[Entry]:
    """By name and labels; a histogram's buckets are one metric."""
    served: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(server.metrics.exposition().decode()):
        for sample in family.samples:
            served.setdefault(family.name, set()).update(set(sample.labels) - {"le"})
            served.setdefault(sample.name, set()).update(set(sample.labels) - {"le"})
    for name, labels in tgi.METRICS.items():
        yield Entry("Metrics", name, served.get(name) == set(labels))


def _flags() -> Iterator[Entry]:
    """A flag is served if it does something, as its variable does."""
    options: dict[str, Option] = {each.opts[0]: each for each in OPTIONS if isinstance(each, Option)}
    for name in tgi.FLAGS:
        option = options[name]
        variable = name.removeprefix("--").replace("-", "_").upper()
        variables = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or [])
        has_variable = variable in variables or name == "--env"
        yield Entry("Flags", name, has_variable and not isinstance(option, Noted | Unsupported))
