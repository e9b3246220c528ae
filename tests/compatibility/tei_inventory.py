"""What of TEI's interface is served: found out from what servers of each kind of model answer."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from penstock.launcher.option_types import Noted, Option, Unsupported
from penstock.launcher.options import OPTIONS
from penstock.router.api.http.access import Access
from penstock.router.generation.services import SERVICES
from penstock.router.generation.text_rules import TextRules
from penstock.router.rpc.calls import Calls
from penstock.router.rpc.tei import TextEmbeddings
from penstock.router.text.encoding import TokenizerError
from tests.compatibility import tei
from tests.compatibility.answers import names
from tests.compatibility.inventory import Entry, treatment
from tests.compatibility.tei_bodies import BODIES, WHOLE, bodies
from tests.fakes import LIMITS
from tests.pooling_fleet import CLASSIFIER, EMBEDDER, RERANKER, SPARSE, PoolingFleet
from tests.router.api.conftest import Server, starting
from tests.router.text.tokenizers_for_tests import DEMO

Servers = Mapping[str, Server]
"""A server of each kind of model."""
_FACTS = {"embedding": EMBEDDER, "sparse": SPARSE, "classifier": CLASSIFIER, "reranker": RERANKER}
_KINDS = {route.partition(" ")[2]: kind for kind, routes in tei.ROUTES.items() for route in routes}
"""By path, the kind of model that has it."""


@asynccontextmanager
async def looked_at_tei() -> AsyncIterator[Servers]:
    """Starts the servers whose interface is looked at; OpenAI's routes have TGI's manner, which is TEI's."""
    limits = replace(LIMITS, max_input_tokens=16, tgi_openai_routes=True)
    rules = TextRules({"query": "query: "})
    with TemporaryDirectory() as folder:
        tokenizer = _bracketing(Path(folder) / "tokenizer.json")
        async with starting() as start:
            yield {kind: await start(limits, facts=facts, texts=rules, make_fleet=_fleet(facts),
                                     tokenizer_file=tokenizer)
                   for kind, facts in _FACTS.items()}


def _bracketing(file: Path) -> Path:
    """Writes a tokenizer that adds a token before every text and one behind it."""
    tokenizer = Tokenizer.from_file(str(DEMO))
    tokenizer.post_processor = TemplateProcessing(
        single="<|im_start|> $A <|im_end|>", pair="<|im_start|> $A <|im_end|> $B <|im_end|>",
        special_tokens=[(text, tokenizer.token_to_id(text)) for text in ("<|im_start|>", "<|im_end|>")])
    tokenizer.save(str(file))
    return file


def _fleet(facts: Any) -> Callable[[object], PoolingFleet]:
    return lambda script: PoolingFleet(facts)


async def tei_inventory(servers: Servers) -> list[Entry]:
    """Returns everything that `tei` names, in its order."""
    return [
        *[entry async for entry in _routes(servers)], *[entry async for entry in _bodies(servers)],
        *[entry async for entry in _parts(servers)], *[entry async for entry in _headers(servers)],
        *_calls(servers["embedding"]), *_metrics(servers["embedding"]), *_flags(),
        *[entry async for entry in _error_types(servers["embedding"])]]


async def _routes(servers: Servers) -> AsyncIterator[Entry]:
    for kind, routes in tei.ROUTES.items():
        for name in routes:
            method, _, path = name.partition(" ")
            body = BODIES[path] if method == "POST" else None
            response = await servers[kind].client.request(method, path, json=body)
            yield Entry("Routes", name, response.status == 200)


async def _bodies(servers: Servers) -> AsyncIterator[Entry]:
    for key, fields in tei.FIELDS.items():
        path, _, outer = key.partition(": ")
        for name in fields:
            without, used = [await treatment(servers[_KINDS[path]], path, body) for body in bodies(path, outer, name)]
            yield Entry(f"Body of {key}", name, used[0] == "200", is_seen=without != used)


async def _parts(servers: Servers) -> AsyncIterator[Entry]:
    for key, fields in tei.ANSWERS.items():
        path, _, outer = key.partition(": ")
        found: set[str] = set()
        for server in servers.values() if path == "/info" else (servers[_KINDS[path]],):
            body = WHOLE.get(path, BODIES.get(path))
            response = await server.client.request("GET" if body is None else "POST", path, json=body)
            found |= names([await response.json()], outer)
        for name in fields:
            yield Entry(f"Answer of {key}", name, name in found)


async def _headers(servers: Servers) -> AsyncIterator[Entry]:
    for path, headers in tei.HEADERS.items():
        response = await servers[_KINDS[path]].post(path, BODIES[path])
        for name in headers:
            yield Entry(f"Headers of {path}", name, response.status == 200 and name in response.headers)


def _calls(server: Server) -> Iterator[Entry]:
    for name in tei.CALLS:
        service, _, method = name.partition("/")
        calls = Calls(Access(), server.metrics, None)
        served = TextEmbeddings(server.client.app[SERVICES].first, calls, service).methods
        yield Entry("Calls of gRPC", name, hasattr(served, method))


def _metrics(server: Server) -> Iterator[Entry]:
    families = {family.name for family in text_string_to_metric_families(server.metrics.exposition().decode())}
    for name in tei.METRICS:
        yield Entry("Metrics", name, name in families)


def _flags() -> Iterator[Entry]:
    options = {each.opts[0]: each for each in OPTIONS if isinstance(each, Option)}
    for name in tei.FLAGS:
        option = options.get(name)
        yield Entry("Flags", name, option is not None and not isinstance(option, Noted | Unsupported))


async def _error_types(server: Server) -> AsyncIterator[Entry]:
    """The server is broken afterwards."""
    async def ask(body: object) -> None:
        response = await server.post("/embed", body)
        found[(await response.json())["error_type"]] = response.status

    async def refuse(*arguments: object) -> None:
        raise TokenizerError("a fault")

    found: dict[str, int] = {}
    await ask({"inputs": ""})
    await ask({"inputs": "a", "dimensions": 0})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server.tokenizer, "encode_whole", refuse)
        await ask({"inputs": "a"})
    server.fleet.is_nan = lambda row: True
    await ask({"inputs": "a"})
    async with server.groups.permit(LIMITS.max_concurrent_requests):
        await ask({"inputs": "a"})
    server.engine.give_up()
    await ask({"inputs": "a"})
    for name, status in tei.ERROR_TYPES.items():
        yield Entry("Error types", name, found.get(name) == status)
