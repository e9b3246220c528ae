"""What of TGI's interface is served: found out from what servers answer, and from the launcher's options."""

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.launcher.option_types import Noted, Option, Unsupported
from penstock.launcher.options import OPTIONS
from penstock.router.adapters.registry import Registry
from penstock.router.adapters.source import AdapterSource
from penstock.router.api.route_table import vertex_routes
from penstock.router.chat.template import ChatTemplate
from penstock.router.engine.engine import Engine
from penstock.router.engine.transfer import Transfer
from penstock.router.grammar.compiler import GrammarCompiler
from tests.compatibility import tgi
from tests.compatibility.answers import CALLING, STREAMED, WHOLE, answers, errors, names
from tests.compatibility.values import BODIES, TENSORS, bodies
from tests.fakes import FACTS, LIMITS
from tests.router.adapters.folders import write_adapter
from tests.router.api.conftest import ANSWER, INFO, Server, starting
from tests.router.text.tokenizers_for_tests import DEMO

KSERVES = "/v2/models/{model}/versions/{version}/infer"
CLOUD = {"$AIP_PREDICT_ROUTE": "/aip/predict", "$AIP_HEALTH_ROUTE": "/aip/health"}
"""Variables, with the paths that they name in the server that is looked at."""
TEMPLATE = """{% for m in messages %}<|im_start|>{{ m.role }} {{ m.name }} {{ m.tool_call_id }}
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
"""
"""Shows every field of a message; tools are described by the router."""


@dataclass(frozen=True, slots=True)
class Entry:
    section: str
    name: str
    is_served: bool
    is_seen: bool = True
    """Whether an answer shows its effect; otherwise it is accepted, and no more is known."""


@dataclass(frozen=True, slots=True)
class Servers:
    """The whole app over scripted fleets: `talking` answers with text, `calling` calls a tool."""

    talking: Server
    calling: Server


@asynccontextmanager
async def looked_at() -> AsyncIterator[Servers]:
    """Starts the servers whose interface is looked at; OpenAI's routes have TGI's manner."""
    template = ChatTemplate({"default": TEMPLATE}, {})
    grammars = GrammarCompiler(DEMO, FACTS.vocab_size, FACTS.eos_token_ids)
    try:
        with TemporaryDirectory() as folder:
            source = AdapterSource("a", write_adapter(Path(folder)), folder)
            limits = replace(LIMITS, enable_prefill_logprobs=True, tgi_openai_routes=True)
            cloud = vertex_routes(*CLOUD.values())
            async with starting() as start:
                yield Servers(*[
                    await start(limits, answer, template=template, grammars=grammars, more_routes=cloud,
                                adapters=Registry([source], max_bytes=2**20))
                    for answer in (ANSWER, CALLING)])
    finally:
        grammars.close()


async def inventory(servers: Servers) -> list[Entry]:
    """Returns everything that `tgi` names, in its order."""
    server = servers.talking
    return [
        *[entry async for entry in _routes(server)], *[entry async for entry in _bodies(server)],
        *[entry async for entry in _parts("Answer of", tgi.ANSWERS, WHOLE, servers)],
        *[entry async for entry in _parts("Events of", tgi.EVENTS, STREAMED, servers)],
        *[entry async for entry in _headers(server)], *_metrics(server), *_flags(),
        *[entry async for entry in _error_types(servers.calling)]]


async def _routes(server: Server) -> AsyncIterator[Entry]:
    """A route is served if a request for it is answered."""
    for name in (*tgi.ROUTES, *tgi.OPTIONAL_ROUTES):
        method, _, path = name.partition(" ")
        body = {"$AIP_PREDICT_ROUTE": BODIES["/vertex"], KSERVES: TENSORS, **BODIES}.get(path)
        path = CLOUD.get(path, path).format(model=INFO.model_id, version=1)
        response = await server.client.request(method, path, json=body)
        yield Entry("Routes", name, response.status == 200)


async def _bodies(server: Server) -> AsyncIterator[Entry]:
    """A field is served if a body that uses it gets an answer; it is seen if one without is treated otherwise."""
    for key, fields in tgi.FIELDS.items():
        path, _, outer = key.partition(": ")
        for name in fields:
            without, used = [await treatment(server, path, body) for body in bodies(path, outer, name)]
            yield Entry(f"Body of {key}", name, used[0] == "200", is_seen=without != used)


async def treatment(server: Server, path: str, body: object) -> list[str]:
    """Returns the status, the answer, its prompts, and what shards are told; without times and what is drawn anew.

    An error in a stream counts as a refusal.
    """
    server.fleet.plans.clear()
    with _noted_prompts(server.engine) as prompts:
        response = await server.post(path, body)
        text = await response.text()
    is_refused = text.startswith('data: {"error"')
    told = [f"{row.initial_state} {row.late_mask}" for plan in server.fleet.plans for row in plan.rows
            if row.initial_state is not None]
    return ["422" if is_refused else str(response.status), response.content_type, _without_chance(text),
            *prompts, *map(_without_chance, told)]


@contextmanager
def _noted_prompts(engine: Engine) -> Iterator[list[str]]:
    """Yields a list that the engine's prompts are added to, however much of them the prefix cache has already."""
    prompts: list[str] = []
    take = engine.take

    def noting(transfer: Transfer) -> None:
        prompts.append(str(transfer.receiver.request.input_ids))
        take(transfer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "take", noting)
        yield prompts


def _without_chance(text: str) -> str:
    """Drops seeds that were drawn, times, ids of calls, and how much of the prompt an earlier request left cached."""
    return re.sub(r'("created":|"cached_tokens":|"prefix_hit_tokens":|"?seed"?[:=])(\d{4,}|\d+(?=[},]))|call_\w+',
                  _keep_small_seeds, text)


def _keep_small_seeds(match: re.Match[str]) -> str:
    return match[0] if "seed" in match[0] and len(match[2]) < 4 else ""


async def _parts(
    kind: str, table: Mapping[str, Iterable[str]], requests: Mapping[str, list[Any]], servers: Servers
) -> AsyncIterator[Entry]:
    """A field of answers is served if an answer has it."""
    for key, fields in table.items():
        path, _, outer = key.partition(": ")
        found = names(await answers((servers.talking, servers.calling), path, requests), outer)
        for name in fields:
            yield Entry(f"{kind} {key}", name, name in found)


async def _headers(server: Server) -> AsyncIterator[Entry]:
    for key, headers in tgi.HEADERS.items():
        path, _, is_streamed = key.partition(", ")
        response = await server.post(path, {**BODIES[path], **({"stream": True} if is_streamed else {})})
        for name in headers:
            yield Entry(f"Headers of {key}", name, response.status == 200 and name in response.headers)


async def _error_types(server: Server) -> AsyncIterator[Entry]:
    """An error type is there if a request was answered with it; the server is broken afterwards."""
    found = await errors(server)
    for name, status in tgi.ERROR_TYPES.items():
        yield Entry("Error types", name, found.get(name) == status)


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
