"""The real app, engine and tokenizer over a scripted fleet, behind a real socket, on the router's own event loop."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import uvloop
from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient, TestServer
from tokenizers import Tokenizer as ParsedTokenizer

from penstock.bench.programs.scripted_model import Answer, ScriptedModel
from penstock.contract.facts import Facts
from penstock.contract.row import Row
from penstock.router.adapters.registry import Registry
from penstock.router.app import IDLE_SECONDS, make_app, make_runner
from penstock.router.chat.given_templates import GivenTemplates
from penstock.router.chat.template import ChatTemplate
from penstock.router.engine.engine import Engine
from penstock.router.generation.poison_memory import PoisonMemory
from penstock.router.generation.service import ServerInfo, Service, Services
from penstock.router.grammar.compiler import GrammarCompiler
from penstock.router.groups.groups import Groups
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics
from penstock.router.text import encoding
from penstock.router.text.tokenizer import Tokenizer
from tests.eventually import until
from tests.fakes import FACTS, LIMITS, ScriptedFleet, SpeakingFleet
from tests.router.api.chat_templates import HERMES
from tests.router.text.tokenizers_for_tests import DEMO


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Chooses the loop of these tests: asyncio's own has other transports, and leaves other things undone."""
    return {"uvloop": uvloop.new_event_loop}


INFO = ServerInfo(model_id="demo", version="0.1.0", compute_type="2-cpu", model_sha="abc")
ANSWER = "Hello wörld, 😀 is all.<|im_end|>"


class Script:
    """A model that gives the same answer to every prompt, over and over."""

    def __init__(self, ids: tuple[int, ...]) -> None:
        self.ids = ids
        self._positions: dict[int, int] = {}

    def __call__(self, row: Row) -> int:
        position = self._positions[row.slot] + 1 if row.from_last_sample else 0
        self._positions[row.slot] = position
        return self.ids[position % len(self.ids)]


@dataclass
class Server:
    """An app that runs, and the parts of it that a test looks into."""

    client: TestClient[Any, Any]
    fleet: ScriptedFleet
    groups: Groups
    engine: Engine
    tokenizer: Tokenizer
    metrics: Metrics
    is_to_end: asyncio.Event
    """Set by SIGTERM, by which the app ends a router whose engine failed."""

    async def post(self, path: str, body: object) -> ClientResponse:
        response: ClientResponse = await self.client.post(path, json=body)
        return response

    async def generate(self, inputs: str = "Say it", **parameters: object) -> dict[str, Any]:
        response = await self.post("/generate", {"inputs": inputs, "parameters": parameters})
        assert response.status == 200, await response.text()
        answer: dict[str, Any] = await response.json()
        return answer

    def series(self) -> dict[str, float]:
        """What /metrics says, by series."""
        lines = self.metrics.exposition().decode().splitlines()
        return {name: float(value) for name, value in
                (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}

    async def until_idle(self) -> None:
        """Wait until nothing runs and every permit is back."""
        await until(lambda: not self.engine._requests and self.groups._permits == LIMITS.max_concurrent_requests)


class RealServer(TestServer):
    """Run in the way that the router runs it."""

    def __init__(self, app: web.Application, idle_seconds: float) -> None:
        super().__init__(app)
        self._idle_seconds = idle_seconds

    async def _make_runner(self, **settings: Any) -> web.AppRunner:
        return make_runner(self.app, idle_seconds=self._idle_seconds)


@cache
def _parse_tokenizer(file: Path) -> tuple[ParsedTokenizer, str]:
    content = file.read_bytes()
    return encoding.parse(content), sha256(content).hexdigest()


def load_tokenizer(file: Path) -> Tokenizer:
    """Loads a tokenizer.json as a router does, but reads each once, for that takes as long as all else of a server."""
    tokenizer, digest = _parse_tokenizer(file)
    return Tokenizer(tokenizer, digest=digest, file=os.open(file, os.O_RDONLY))


Start = Callable[..., Awaitable[Server]]


@asynccontextmanager
async def starting() -> AsyncIterator[Start]:
    """Starts servers: `await start(limits=…, template=…, access=…)`; `make_fleet` gets the scripted answer. With
    `reply` the answer follows from the prompt, and `server.fleet.model.prompts` has those that came."""
    loop, is_to_end = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, is_to_end.set)
    async with AsyncExitStack() as stack:
        stack.callback(loop.remove_signal_handler, signal.SIGTERM)

        async def start(
            limits: Limits = LIMITS, answer: str = ANSWER, reply: Answer | None = None, facts: Facts = FACTS,
            make_fleet: Callable[[Script], ScriptedFleet] = ScriptedFleet, idle_seconds: float = IDLE_SECONDS,
            prepare: Callable[[web.Application], None] = lambda app: None, tokenizer_file: Path = DEMO,
            adapters: Registry | None = None, grammars: GrammarCompiler | None = None,
            template: ChatTemplate | None = None, allows_runtime_adapters: bool = False, others: Sequence[Service] = (),
            given_templates: GivenTemplates | None = None,
            **settings: Any,
        ) -> Server:
            tokenizer = load_tokenizer(tokenizer_file)
            stack.callback(tokenizer.close)
            if reply is None:
                fleet = make_fleet(Script(await tokenizer.encode(answer)))
            else:
                parsed, _ = _parse_tokenizer(tokenizer_file)
                fleet = SpeakingFleet(ScriptedModel(parsed, reply, min(facts.eos_token_ids), facts.block_size))
            fleet.facts = facts
            metrics = Metrics(limits)
            engine = Engine(fleet, facts, limits, metrics, adapters=adapters)
            groups = Groups(limits, metrics, adapters)
            groups.add(engine)
            service = Service(
                groups, tokenizer, metrics, INFO, PoisonMemory(limits.poison_memory), grammars, template,
                Registry() if adapters is None else adapters, allows_runtime_adapters, given_templates)
            app = make_app(Services(service, *others), **settings)
            prepare(app)
            server = RealServer(app, idle_seconds)
            await server.start_server()
            client: TestClient[Any, Any] = await stack.enter_async_context(TestClient(server))
            stack.callback(fleet.may_answer.set)  # the server's end waits for what runs
            return Server(client, fleet, groups, engine, tokenizer, metrics, is_to_end)

        yield start


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with starting() as start:
        yield start


@pytest.fixture
async def server(start: Start) -> Server:
    return await start()


@pytest.fixture(scope="session")
def demo() -> ChatTemplate:
    """A template that knows nothing of tools."""
    template = ChatTemplate.load(DEMO.parent)
    assert template is not None
    return template


@pytest.fixture(scope="session")
def hermes() -> ChatTemplate:
    """A template that takes tools."""
    return ChatTemplate({"default": HERMES}, {})


@pytest.fixture(scope="session")
def grammars() -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(DEMO, FACTS.vocab_size, FACTS.eos_token_ids)
    yield compiler
    compiler.close()
